//! Delivery: the end of the pipeline, where batches leave in order.

use crate::executor::pooled::pool::{Job, Pool};
use crate::kernel::RunError;
use crate::metrics::{Arrivals, Latencies};
use crate::sink::Sink;

/// Written by whoever delivers; the last reorder buffer lets one worker at a time do that.
#[derive(Debug)]
pub struct Delivery {
    pub sink: Sink,
    pub processing: Latencies,
    pub end_to_end: Latencies,
}

impl Pool {
    /// Lets batch `serial` leave, and whatever waited for it.
    pub fn deliver(&self, serial: u64, job: &Job<'_>) -> Result<(), RunError> {
        let mut failure = None;
        self.back.complete_and_release(serial, &mut |serial| {
            let outcome = self.delivery.with_mut(|delivery| {
                self.slot(serial).head.with(|head| {
                    // SAFETY: the reorder buffer lets one worker at a time deliver, after the batch was completed.
                    let (delivery, head) = unsafe { (&mut *delivery, &*head) };
                    // SAFETY: the outputs stay until the slot is reused.
                    delivery.sink.deliver(unsafe { &*head.outputs }, &head.prepared, job.block.text)?;
                    delivery.record(job, &self.arrivals, head.started, head.start);
                    Ok(())
                })
            });
            failure = failure.take().or(outcome.err());
        });
        failure.map_or(Ok(()), Err)
    }
}

impl Delivery {
    /// Latencies of a batch that was just delivered; `start` is its first event in the block.
    pub fn record(&mut self, job: &Job<'_>, arrivals: &Arrivals, started: u64, start: usize) {
        let now = job.clock.now();
        self.processing.record(now.saturating_sub(started));
        if arrivals.is_open_loop() {
            self.end_to_end.record(now.saturating_sub(arrivals.at(job.before + start as u64)));
        }
    }
}
