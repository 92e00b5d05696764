//! What has come out of a run so far, and how long it took: where every executor's batches end.

use crate::output::latency::Latencies;
use crate::output::metrics::Metrics;
use crate::output::sink::Sink;

/// Used by one thread at a time; whose turn it is, is the executor's to say.
#[derive(Debug)]
pub struct Delivered {
    pub sink: Sink,
    pub processing: Latencies,
    pub end_to_end: Latencies,
}

impl Delivered {
    /// Nothing yet.
    pub fn new(sink: Sink) -> Self {
        Self { sink, processing: Latencies::new(), end_to_end: Latencies::new() }
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
            ..Metrics::default()
        }
    }
}
