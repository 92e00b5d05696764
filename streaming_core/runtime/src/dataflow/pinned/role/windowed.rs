//! Replicas of windowed operators, as a role of a task; `dataflow/windowed` has the replicas themselves.

use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::pinned::task::{Step, Task};
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::operator::Out;
use crate::dataflow::windowed::replica::Replica;
use crate::dataflow::windowed::replica::barrier::Reconfigured;
use crate::error::RunError;

/// Prepares the rows that a replica took from an elastic ScaleGate: goes over to the epoch that begins with them, and finds
/// their keys. Returns false if other replicas must come to the barrier first.
pub fn prepare(task: &mut Task, (operator, lane): (usize, usize), step: &Step) -> Result<bool, RunError> {
    let job = step.job;
    let Task { inlet: Inlet::Elastic(taker), finder: Some(finder), taken, counted, left, published, .. } = task else {
        return Ok(true);
    };
    let windowed = job.frame.windows[operator].as_ref().expect("only a windowed operator has an elastic ScaleGate");
    let is_new = left.is_none() || taken.reconfiguration.is_some();
    *left = left.filter(|_| !is_new);
    if let Some(index) = taken.reconfiguration {
        let now = || job.clock.now();
        let go_over = |replica: &mut Replica| {
            // SAFETY: the reader is this replica's, and what it took begins with the epoch.
            unsafe { replica.reconfigure(&windowed.operator, index, &taker.reader, &now) }
        };
        // SAFETY: this task alone is this replica.
        match unsafe { windowed.replicas.with_mut(lane, go_over) }? {
            Reconfigured::Waits => return Ok(false),
            Reconfigured::Stays => (),
            Reconfigured::Leaves => {
                // The replica has put out all that comes before the epoch.
                taken.clear();
                taken.last = false;
                taken.upto =
                    windowed.operator.epochs.get(index).map_or(*published, |epoch| epoch.event - 1).max(*published);
            }
        }
        taken.reconfiguration = None;
    } else if is_new && !taker.reader.is_present() {
        // SAFETY: as above.
        unsafe { windowed.replicas.with_mut(lane, |replica| replica.pass(&windowed.operator)) };
    }
    if is_new {
        taken.count(counted);
        // SAFETY: the task took the rows just now, and they have the record that the operator takes.
        unsafe { finder.find(&windowed.operator, taken.rows, &mut taken.hashes) }?;
    }
    Ok(true)
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
