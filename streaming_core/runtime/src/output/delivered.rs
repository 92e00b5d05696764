//! The outputs of a run so far, and their latencies. The batches of every executor end here.

use std::ops::Range;

use crate::output::clock::Arrivals;
use crate::output::delivery::Delivery;
use crate::output::latency::Latencies;
use crate::output::metrics::{Metrics, Standing};
use crate::output::sink::Sink;

/// The list has room for so many deliveries before it moves; the delivery that makes it move pays for that.
const NOTED: usize = 1 << 20;

/// The outputs of one sink. One thread at a time uses it; the executor decides which one.
#[derive(Debug)]
pub struct Delivered {
    pub sink: Sink,
    pub processing: Latencies,
    pub end_to_end: Latencies,
    /// The deliveries and their times, if the options ask for them.
    deliveries: Option<Vec<Delivery>>,
    middle: Option<Middle>,
}

/// Latencies of an open loop without the run's beginning and end.
#[derive(Debug)]
struct Middle {
    /// The arrivals that count, in nanoseconds of engine time.
    arrivals: Range<u64>,
    /// The latencies of batches that arrived before or after: the metrics use them if no batch arrived in between.
    edges: [Latencies; 2],
}

impl Delivered {
    /// Nothing yet.
    pub fn new(sink: Sink) -> Self {
        Self { sink, processing: Latencies::new(), end_to_end: Latencies::new(), deliveries: None, middle: None }
    }

    /// From now on only the latencies of batches count whose first event is one of `events`, if the loop is open.
    pub fn with_latencies_of(self, events: Option<[u64; 2]>, arrivals: &Arrivals) -> Self {
        let middle = events.filter(|_| arrivals.is_open_loop()).map(|[first, end]| Middle {
            arrivals: arrivals.at(first)..arrivals.at(end),
            edges: [Latencies::new(), Latencies::new()],
        });
        Self { middle, ..self }
    }

    /// From now on the list notes deliveries, if `noted`.
    pub fn with_deliveries(self, noted: bool) -> Self {
        Self { deliveries: noted.then(|| Vec::with_capacity(NOTED)), ..self }
    }

    /// Goes on from where another run stood.
    pub fn resume(&mut self, standing: &Standing) {
        self.sink.go_on(standing.delivered);
        self.processing = Latencies::of(&standing.processing);
        self.end_to_end = Latencies::of(&standing.end_to_end);
    }

    /// Notes, if that is wanted, that events up to `event` are finished; times as for `record`.
    #[inline]
    pub fn finished(&mut self, event: i64, now: u64, arrival: Option<u64>) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.push(Delivery { at: now, event, latency: arrival.map(|arrival| now.saturating_sub(arrival)) });
        }
    }

    /// Records a batch. Its processing began at `started`, and it was delivered at `now`. If the loop is open, its first event
    /// arrived at `arrival`. All in nanoseconds of engine time.
    pub fn record(&mut self, now: u64, started: u64, arrival: Option<u64>) {
        let (mut processing, mut end_to_end) = (&mut self.processing, &mut self.end_to_end);
        if let (Some(middle), Some(arrival)) = (&mut self.middle, arrival)
            && !middle.arrivals.contains(&arrival)
        {
            [processing, end_to_end] = middle.edges.each_mut();
        }
        processing.record(now.saturating_sub(started));
        if let Some(arrival) = arrival {
            end_to_end.record(now.saturating_sub(arrival));
        }
    }

    /// The latencies of the middle of the run, or of its edges: processing, and end to end.
    fn latencies(&self, of_edges: bool) -> [&Latencies; 2] {
        match &self.middle {
            Some(middle) if of_edges => middle.edges.each_ref(),
            _ => [&self.processing, &self.end_to_end],
        }
    }
}

/// The figures of a run with these sinks, without those that its executor knows.
pub fn metrics<'a>(sinks: impl Iterator<Item = &'a Delivered> + Clone) -> Metrics {
    let of_edges = sinks.clone().all(|delivered| delivered.end_to_end.is_empty());
    let mut metrics = Metrics { in_order: true, ..Metrics::default() };
    let mut deliveries = Vec::new();
    for delivered in sinks {
        metrics.digest += delivered.sink.digest();
        metrics.in_order &= delivered.sink.in_order();
        let [processing, end_to_end] = delivered.latencies(of_edges);
        metrics.processing.add(processing);
        metrics.end_to_end.add(end_to_end);
        deliveries.extend(delivered.deliveries.as_deref());
    }
    metrics.deliveries = joint(&deliveries);
    metrics
}

/// The deliveries of all sinks as if of one. An event is finished once no sink expects outputs of it, or of an earlier one.
fn joint(sinks: &[&[Delivery]]) -> Option<Vec<Delivery>> {
    if let [] | [_] = sinks {
        return sinks.first().map(|only| only.to_vec());
    }
    let mut all: Vec<(usize, Delivery)> =
        sinks.iter().enumerate().flat_map(|(sink, list)| list.iter().map(move |delivery| (sink, *delivery))).collect();
    all.sort_by_key(|(sink, delivery)| (delivery.at, *sink));
    let (mut upto, mut finished) = (vec![i64::MIN; sinks.len()], i64::MIN);
    let mut joint = Vec::new();
    for (sink, delivery) in all {
        upto[sink] = delivery.event;
        let least = upto.iter().copied().min().unwrap_or(i64::MIN);
        if least > finished {
            finished = least;
            joint.push(Delivery { event: least, ..delivery });
        }
    }
    Some(joint)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::output::digest::Hasher;
    use crate::output::sink::SinkKind;

    /// Delivers a batch of every event, of `rate` a second; the latency of event `n` is `n` microseconds.
    fn delivered(events: u64, rates: &[(u64, f64)], counted: Option<[u64; 2]>) -> Metrics {
        let arrivals = Arrivals::new(rates);
        let sink = Sink::new(SinkKind::Count, Hasher::new(&[], 8).unwrap());
        let mut delivered = Delivered::new(sink).with_latencies_of(counted, &arrivals);
        for event in 0..events {
            let arrival = arrivals.at(event);
            let now = arrival + event * 1_000;
            delivered.record(now, arrival, arrivals.is_open_loop().then_some(arrival));
        }
        metrics(std::iter::once(&delivered))
    }

    fn counts(latencies: &Latencies) -> u64 {
        latencies.counts().iter().map(|(_, count)| count).sum()
    }

    #[test]
    fn only_latencies_of_the_middle_count() {
        let metrics = delivered(10, &[(0, 1e3)], Some([2, 8]));
        for latencies in [&metrics.processing, &metrics.end_to_end] {
            assert_eq!(counts(latencies), 6);
            let json = latencies.to_json();
            assert_eq!(json["max"].as_f64().unwrap().round(), 7.0);
            assert_eq!((json["mean"].as_f64().unwrap() * 10.0).round(), 45.0);
        }
    }

    #[test]
    fn without_a_batch_in_the_middle_all_latencies_count() {
        assert_eq!(counts(&delivered(2, &[(0, 1e3)], Some([2, 8])).end_to_end), 2);
    }

    #[test]
    fn at_peak_rate_all_latencies_count() {
        let metrics = delivered(10, &[], Some([2, 8]));
        assert_eq!((counts(&metrics.processing), metrics.end_to_end.is_empty()), (10, true));
    }

    #[test]
    fn an_event_is_finished_when_all_sinks_are_past_it() {
        let at = |at, event| Delivery { at, event, latency: None };
        let (first, second) = ([at(1, 10), at(4, 20), at(9, 30)], [at(2, 5), at(3, 12), at(6, 30)]);
        let expected = [at(2, 5), at(3, 10), at(4, 12), at(6, 20), at(9, 30)];
        assert_eq!(joint(&[&first, &second]), Some(expected.to_vec()));
        assert_eq!((joint(&[&first]), joint(&[])), (Some(first.to_vec()), None));
    }
}
