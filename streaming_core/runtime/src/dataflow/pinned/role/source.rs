//! Sources: tasks that deal the events of a block.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::pinned::route::route;
use crate::dataflow::pinned::task::{Step, Task};
use crate::error::RunError;
use crate::planted::{self, Fault};
use crate::rows::view::Rows;
use crate::threads::bells::INPUT;
use crate::threads::sync::Ordering;

/// Puts out the next events, as source `index` of `of`. Returns false if none is due.
pub fn deal(task: &mut Task, index: usize, of: usize, step: &mut Step) -> Result<bool, RunError> {
    let Some((start, n)) = next_events(task, of, step) else { return Ok(false) };
    let (job, block) = (step.job, step.job.block);
    let end = task.next;
    for windowed in job.frame.windows.iter().flatten().filter(|_| n > 0) {
        let now = job.clock.now();
        windowed.control.deal((block.seq(start), block.seq(end - 1)), now, job.offered(end, now));
    }
    let loses = planted::has(Fault::LostRow) && n > 1 && n == job.frame.batch * of && end == block.n;
    let rows = Rows::new(block.row(start), n - usize::from(loses), block.stride, block.text);
    let upto = block.seq(if start + n == block.n { block.n } else { end } - 1);
    let outlet = task.outlet(step.network);
    let serial = task.serial(outlet);
    let Task { pairs, cost, edges, scratch, .. } = task;
    let mut fill = |jumbo: &mut Jumbo| {
        jumbo.clear();
        // Injectors deal event by event, as Viper's do: every `of`-th one, where they lie.
        let first = (of + index - start % of) % of;
        jumbo.rows = Rows { n: rows.n.saturating_sub(first).div_ceil(of), stride: of * rows.stride, ..rows };
        jumbo.rows.start = rows.start.wrapping_add(first * rows.stride);
        jumbo.started = job.clock.now();
        jumbo.last = start + n == block.n;
        jumbo.upto = upto;
        cost.rows_in += jumbo.rows.n as u64;
        cost.rows_out += jumbo.rows.n as u64;
        route(edges, serial, scratch, jumbo)
    };
    if let Some(pairs) = pairs {
        fill(&mut pairs.outputs)?;
        pairs.start(edges);
        task.pour(step)?;
    } else {
        // SAFETY: this task alone writes its outlet, and has seen room.
        unsafe { outlet.fill(&mut fill) }?;
        outlet.publish();
        // SAFETY: as above; that is what was published last.
        unsafe { task.insert_latest(outlet) };
        task.done = start + n == block.n;
        (task.published, task.ended, task.owes) = (upto, task.done, task.period > 0);
    }
    step.clock.lap(&mut task.counters.time.other);
    if task.announce(step.network, false) {
        job.frame.signals.bells.ring(&[(&task.wakes.readers, INPUT)]);
    }
    Ok(true)
}

/// The index of the first event to deal and the number of events, if any are due; `task.next` moves behind them. After a
/// failure, the source skips the rest of the block.
fn next_events(task: &mut Task, of: usize, step: &Step) -> Option<(usize, usize)> {
    let (job, block, next) = (step.job, step.job.block, task.next);
    let full = block.n.min(next + job.frame.batch * of);
    // ORDERING: Relaxed; only when to stop early hangs on it.
    let failed = next < full && block.seq(next) > step.network.failed_at.load(Ordering::Relaxed);
    let due = if full == next || failed { Some(full) } else { job.due(next, full, job.linger()) };
    task.next = due?;
    Some(if failed { (block.n, 0) } else { (next, task.next - next) })
}
