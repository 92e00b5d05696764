//! `auto`: `owners` on as many threads as are fastest, `serial`, or one thread alone (`threads/choice.rs`). That depends on the
//! cost of operators, on the number of events that span several threads' rows, and on the machine.

use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::choice::{Way, widths};
use crate::threads::own::Own;
use crate::transactions::run::{Candidate, Run, Scheme, batches};
use crate::transactions::scheme::{owners, serial};
use crate::transactions::workbench::{Workbench, alone};

/// Events of a segment of a trial, on one thread and on several.
const PART_ALONE: usize = 4096;
const PART: usize = 1 << 15;

/// One thread takes batch after batch from plan to outputs.
struct Alone {
    punctuation: usize,
    /// Of thread 0.
    bench: Own<Workbench>,
}

impl Scheme for Alone {
    fn block(&self, _thread: usize, run: &Run) -> Result<(), RunError> {
        for (number, batch) in batches(run, self.punctuation).enumerate() {
            run.check()?;
            run.await_arrival(batch.end);
            // SAFETY: no other thread works.
            unsafe {
                self.bench.with_mut(0, |bench| {
                    // The rows lie with the owners of shares.
                    bench.counters.time.remote += run.placement.scattered(batch.len());
                    alone(bench, 0, run, &batch, run.first_ticket + number as u64)
                })?;
            }
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe { self.bench.with(0, |bench| bench.counters) }
    }
}

/// The candidates: fewer threads first, and last `owners` on all of them.
pub fn make(program: &Program, options: &Options) -> Result<Vec<Candidate>, RunError> {
    let candidate = |name, threads, part, scheme| Candidate { name, way: Way { threads, part }, scheme };
    let bench = Own::new(1, || Workbench::new(program.output_stride()));
    let alone = Box::new(Alone { punctuation: options.punctuation, bench });
    let mut all = vec![candidate("alone", 1, PART_ALONE, alone)];
    if options.threads > 1 {
        all.push(candidate("serial", options.threads, PART, serial::make(program, options)?));
    }
    for threads in widths(options.threads).skip(1) {
        let owners = owners::make(program, &Options { threads, ..options.clone() })?;
        all.push(candidate("owners", threads, PART, owners));
    }
    Ok(all)
}
