//! Delivery: the end of the pipeline, where batches leave in order.

use crate::dataflow::pooled::pool::{Job, Pool};
use crate::error::RunError;

impl Pool {
    /// Lets batch `serial` leave, and whatever waited for it.
    pub fn deliver(&self, serial: u64, job: &Job<'_>) -> Result<(), RunError> {
        let mut failure = None;
        self.back.complete_and_release(serial, &mut |serial| {
            let outcome = self.delivered.with_mut(|delivered| {
                self.slot(serial).head.with(|head| {
                    // SAFETY: the reorder buffer lets one worker at a time deliver, after the batch was completed.
                    let (delivered, head) = unsafe { (&mut *delivered, &*head) };
                    // SAFETY: the outputs stay until the slot is reused.
                    delivered.sink.deliver(unsafe { &*head.outputs }, &head.prepared, job.block.text)?;
                    delivered.record(job.clock.now(), head.started, self.arrival(job, head.start));
                    Ok(())
                })
            });
            failure = failure.take().or(outcome.err());
        });
        failure.map_or(Ok(()), Err)
    }

    /// When event `start` of the block arrived, if the loop is open.
    pub fn arrival(&self, job: &Job<'_>, start: usize) -> Option<u64> {
        self.arrivals.is_open_loop().then(|| self.arrivals.at(job.before + start as u64))
    }
}
