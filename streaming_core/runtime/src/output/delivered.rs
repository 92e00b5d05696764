//! What has come out of a run so far, and how long it took: where every executor's batches end.

use crate::output::delivery::Delivery;
use crate::output::latency::Latencies;
use crate::output::metrics::Metrics;
use crate::output::sink::Sink;

/// So many deliveries are noted before the list of them moves, and what is delivered then pays for that.
const NOTED: usize = 1 << 20;

/// Used by one thread at a time; whose turn it is, is the executor's to say.
#[derive(Debug)]
pub struct Delivered {
    pub sink: Sink,
    pub processing: Latencies,
    pub end_to_end: Latencies,
    /// The deliveries and their times, if the options ask for them.
    deliveries: Option<Vec<Delivery>>,
}

impl Delivered {
    /// Nothing yet.
    pub fn new(sink: Sink) -> Self {
        Self { sink, processing: Latencies::new(), end_to_end: Latencies::new(), deliveries: None }
    }

    /// From now on deliveries are noted, if `noted`.
    pub fn with_deliveries(self, noted: bool) -> Self {
        Self { deliveries: noted.then(|| Vec::with_capacity(NOTED)), ..self }
    }

    /// Notes, if that is wanted, that events up to `event` are finished; times as for `record`.
    #[inline]
    pub fn finished(&mut self, event: i64, now: u64, arrival: Option<u64>) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.push(Delivery { at: now, event, latency: arrival.map(|arrival| now.saturating_sub(arrival)) });
        }
    }

    /// Records a batch delivered at `now`, whose processing started at `started` and whose first event arrived at
    /// `arrival` if the loop is open; in nanoseconds of engine time.
    pub fn record(&mut self, now: u64, started: u64, arrival: Option<u64>) {
        self.processing.record(now.saturating_sub(started));
        if let Some(arrival) = arrival {
            self.end_to_end.record(now.saturating_sub(arrival));
        }
    }

    /// A run's figures, as far as what was delivered tells them.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            digest: self.sink.digest(),
            in_order: self.sink.in_order(),
            processing: self.processing.clone(),
            end_to_end: self.end_to_end.clone(),
            deliveries: self.deliveries.clone(),
            ..Metrics::default()
        }
    }
}
