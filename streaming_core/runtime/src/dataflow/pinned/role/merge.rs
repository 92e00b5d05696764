//! Mergers: tasks of channel `merge_sort` that pass on the rows of several streams in one order.

use crate::dataflow::pinned::task::{Step, Task};
use crate::error::RunError;
use crate::rows::view::Rows;

/// Copies the rows that the merger took into its outlet; its inlet has put them into order.
pub fn put_out(task: &mut Task, step: &mut Step) -> Result<(), RunError> {
    task.put_out(step, |task, step, jumbo| {
        task.head(jumbo);
        let taken = &task.taken;
        // SAFETY: the rows were taken just now.
        unsafe { jumbo.buffer.gather(taken.rows.n, |i| taken.rows.row(i)) }?;
        jumbo.ranks.extend_from_slice(&taken.ranks);
        jumbo.rows = Rows::of(&jumbo.buffer, step.job.block.text);
        for hashes in &mut jumbo.hashes {
            hashes.clear();
            hashes.extend_from_slice(&taken.hashes);
        }
        jumbo.shares[0].whole = true;
        step.clock.lap(&mut task.counters.time.other);
        Ok(())
    })
}
