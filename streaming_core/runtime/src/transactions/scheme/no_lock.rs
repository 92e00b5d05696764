//! `no_lock`: every thread applies its own events' accesses at once, without any coordination. A bound on what
//! concurrency could give, not a result: transactions interleave as they like.
//!
//! It is memory-safe for tables of fixed rows: kernels compute addresses from row numbers alone, never from what they
//! find in a row, so a race can only make values stale or torn. The racing accesses are compiled by numba, outside of
//! Rust's memory model, to plain loads and stores of up to eight bytes. Containers hold addresses, which a torn read
//! would follow anywhere: tables with containers are refused.

use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::own::Own;
use crate::transactions::batch::Batch;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::workbench::{Workbench, alone};

struct NoLock {
    punctuation: usize,
    benches: Own<Workbench>,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    if let Some(table) = program.tables.iter().find(|table| table.containers) {
        let message = format!("no_lock cannot run table {}: its rows hold containers", table.name);
        return Err(RunError::Invalid(message));
    }
    let stride = program.output_stride();
    let benches = Own::new(options.threads, || Workbench::new(stride));
    Ok(Box::new(NoLock { punctuation: options.punctuation, benches }))
}

impl Scheme for NoLock {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        let threads = self.benches.len();
        let mut ticket = run.first_ticket + thread as u64;
        for batch in batches(run, self.punctuation) {
            run.await_arrival(batch.end);
            run.check()?;
            let slice = batch.slice(thread, threads);
            let part = Batch { block: batch.block, begin: batch.begin + slice.start, end: batch.begin + slice.end };
            // SAFETY: the bench is the thread's own. See the top of this file: races on rows are what this scheme is about,
            // and harmless.
            unsafe { self.benches.with_mut(thread, |bench| alone(bench, thread, run, &part, ticket))? };
            ticket += threads as u64;
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe { self.benches.sum(|bench| bench.counters) }
    }
}
