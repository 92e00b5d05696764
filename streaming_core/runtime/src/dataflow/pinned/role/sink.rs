//! Sinks: tasks that deliver the outputs of the program.

use crate::dataflow::channel::taken::Taken;
use crate::dataflow::frame::Job;
use crate::dataflow::pinned::task::{Step, Task};
use crate::error::RunError;
use crate::output::delivered::Delivered;

/// Delivers the rows that sink `number` took; the sink had delivered events up to `known` before.
pub fn deliver(task: &mut Task, number: usize, known: i64, step: &mut Step) -> Result<(), RunError> {
    let job = step.job;
    // SAFETY: this task alone is that sink.
    unsafe { job.frame.deliver(number, |delivered| deliver_rows(delivered, &task.taken, known, job)) }?;
    task.cost.rows_out += task.taken.rows() as u64;
    step.clock.lap(&mut task.counters.time.useful);
    Ok(())
}

fn deliver_rows(delivered: &mut Delivered, taken: &Taken, known: i64, job: &Job) -> Result<(), RunError> {
    let rows = taken.rows;
    let mut first = job.block.seq(0).max(known.saturating_add(1));
    if rows.n > 0 {
        // SAFETY: the rows were taken just now.
        first = unsafe { rows.seq(0) };
    }
    // SAFETY: nothing has been given back.
    unsafe { taken.deliver(&mut delivered.sink) }?;
    if taken.started < u64::MAX {
        // Events are numbered from the block's first one on.
        let index = (job.block.n - 1).min((first - job.block.seq(0)) as usize);
        let (now, arrival) = (job.clock.now(), job.arrival(index));
        delivered.record(now, taken.started, arrival);
        if taken.upto > known {
            delivered.finished(taken.upto, now, arrival);
        }
    }
    Ok(())
}
