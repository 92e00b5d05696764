//! Replicas of windowed operators, as a role of a task; `dataflow/windowed` has the replicas themselves.

use crate::dataflow::channel::elastic::ends::Inserter;
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::pinned::task::{Step, Task};
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::operator::Out;
use crate::dataflow::windowed::replica::Replica;
use crate::dataflow::windowed::replica::barrier::Reconfigured;
use crate::error::RunError;
use crate::threads::sync::thread;

/// What a replica does after it has taken rows from an elastic ScaleGate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// It takes the rows.
    Ready,
    /// Other replicas must come to the barrier first, or a new source of ESG_out has no room yet.
    Waits,
    /// It owns no cells, and is no source of ESG_out.
    IsAbsent,
}

/// Prepares the rows that a replica took from an elastic ScaleGate: goes over to the epoch that begins with them, and finds
/// their keys.
pub fn prepare(task: &mut Task, (operator, lane): (usize, usize), step: &Step) -> Result<Prepared, RunError> {
    let job = step.job;
    let Task { inlet: Inlet::Elastic(taker), finder: Some(finder), taken, counted, left, inserters, .. } = task else {
        return Ok(Prepared::Ready);
    };
    let windowed = job.frame.windows[operator].as_ref().expect("only a windowed operator finds keys");
    let is_new = left.is_none() || taken.reconfiguration.is_some();
    *left = left.filter(|_| !is_new);
    if let Some(index) = taken.reconfiguration {
        if taker.reader.is_present() {
            // It became a source before it became a reader. One that leaves may have been added for a later epoch already.
            inserters.iter_mut().for_each(Inserter::join);
        }
        if !inserters.iter().all(Inserter::has_room) {
            return Ok(Prepared::Waits);
        }
        let now = || job.clock.now();
        let go_over = |replica: &mut Replica| {
            // SAFETY: the ends are this replica's, and what it took begins with the epoch.
            unsafe { replica.reconfigure(&windowed.operator, index, &taker.reader, inserters, &now) }
        };
        // SAFETY: this task alone is this replica.
        match unsafe { windowed.replicas.with_mut(lane, go_over) }? {
            Reconfigured::Waits => {
                // For others, or for readers of the outputs, whose threads may need this core.
                thread::yield_now();
                return Ok(Prepared::Waits);
            }
            Reconfigured::Stays => taken.reconfiguration = None,
            Reconfigured::Leaves => {
                // The replica has put out all that comes before the epoch.
                taken.clear();
                taken.last = false;
                return Ok(Prepared::IsAbsent);
            }
        }
    } else if is_new && !taker.reader.is_present() {
        // SAFETY: as above.
        unsafe { windowed.replicas.with_mut(lane, |replica| replica.pass(&windowed.operator)) };
        return Ok(Prepared::IsAbsent);
    }
    if is_new {
        taken.count(counted);
        // SAFETY: the task took the rows just now, and they have the record that the operator takes.
        unsafe { finder.find(&windowed.operator, taken.rows, &mut taken.hashes) }?;
    }
    Ok(Prepared::Ready)
}

/// Lets the replica process the rows that the task took, from the first one that is left. A replica that pauses sets
/// `task.left`, and `jumbo` ends with the last event that is complete.
///
/// `stopped` is the reason why the replica cannot go on, if it already has one.
pub fn process(
    task: &mut Task,
    windowed: &Replicated,
    lane: usize,
    stopped: Option<RunError>,
    (step, jumbo): (&Step, &mut Jumbo),
) -> Result<(), RunError> {
    let Task { taken, left, .. } = task;
    let inputs = task.ranked.then_some(&taken.ranks[..]);
    let mut out = Out { rows: &mut jumbo.buffer, inputs, ranks: &mut jumbo.ranks };
    let from = left.take().unwrap_or(0);
    let work = |replica: &mut Replica| {
        let (operator, now) = (&windowed.operator, || step.job.clock.now());
        let rows = (taken.rows, taken.upto);
        let to = match stopped {
            Some(error) => Err(error),
            // SAFETY: replicas keep to the epochs; rows came with their meetings.
            None => unsafe { replica.process(operator, rows, from, &taken.hashes, &now, &mut out) },
        };
        if to.is_err() {
            replica.give_up(operator);
        }
        to
    };
    // SAFETY: this task alone is this replica.
    *left = unsafe { windowed.replicas.with_mut(lane, work) }?;
    if let Some(to) = *left {
        // SAFETY: the task took the row.
        let next = (to < taken.rows.n).then(|| unsafe { taken.rows.seq(to) });
        (jumbo.upto, jumbo.last) = (next.map_or(taken.upto, |seq| seq - 1), false);
    }
    Ok(())
}
