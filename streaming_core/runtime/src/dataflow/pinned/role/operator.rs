//! Replicas of operators: tasks that run an operator on the rows that they take.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::channel::rank::{Rank, path_too_long};
use crate::dataflow::operator::truncate;
use crate::dataflow::pinned::numbering::number;
use crate::dataflow::pinned::role::failures::{note, order};
use crate::dataflow::pinned::role::windowed::{self, Prepared};
use crate::dataflow::pinned::route::{Route, prepare, route};
use crate::dataflow::pinned::task::{Step, Task};
use crate::error::RunError;
use crate::rows::view::Rows;

/// Runs replica `lane` of `operator` on the rows that the task took, and puts out the results.
pub fn run(task: &mut Task, (operator, lane): (usize, usize), step: &mut Step) -> Result<(), RunError> {
    let mut stopped = None;
    if task.finder.is_some() {
        match windowed::prepare(task, (operator, lane), step) {
            Ok(Prepared::Ready) => (),
            Ok(Prepared::Waits) => {
                task.left = Some(0);
                return Ok(());
            }
            Ok(Prepared::IsAbsent) => return Ok(()),
            Err(error @ RunError::Stopped) => stopped = Some(error),
            Err(error) => return Err(error),
        }
        step.clock.lap(&mut task.counters.time.useful);
    }
    let serial = task.serial(task.outlet(step.network));
    task.put_out(step, |task, step, jumbo| {
        task.head(jumbo);
        let outcome = call(task, (operator, lane), stopped, step, jumbo);
        task.counters.dropped += jumbo.buffer.take_dropped();
        step.clock.lap(&mut task.counters.time.useful);
        task.ended |= note(outcome, operator, step, jumbo)?;
        let rows = Rows::of(&jumbo.buffer, step.job.block.text);
        task.unfinished = is_unfinished(task, rows, jumbo);
        if task.unfinished {
            return Ok(());
        }
        jumbo.rows = rows;
        order_outputs(task, operator, step, jumbo)?;
        route(&task.edges, serial, &mut task.scratch, jumbo)?;
        prepare_outputs(task, step, jumbo)
    })
}

/// Calls the operator on the rows that the task took.
fn call(
    task: &mut Task,
    (operator, lane): (usize, usize),
    stopped: Option<RunError>,
    step: &Step,
    jumbo: &mut Jumbo,
) -> Result<(), RunError> {
    let frame = step.job.frame;
    let spec = &frame.chain.operators[operator];
    let outcome = match frame.chain.stateful.binary_search(&operator) {
        Err(_) if let Some(windowed) = &frame.windows[operator] => {
            return windowed::process(task, windowed, lane, stopped, (step, jumbo));
        }
        // SAFETY: the rows are what the operator takes; the buffer is this task's.
        Err(_) => unsafe { spec.map(task.taken.rows, &mut jumbo.buffer) },
        Ok(stage) => {
            let Task { taken, scratch, .. } = task;
            // SAFETY: as above; this task alone uses the lane.
            unsafe {
                frame.lanes[stage]
                    .with(lane, |lane| lane.process(spec, taken.rows, &taken.hashes, scratch, &mut jumbo.buffer))
            }
        }
    };
    outcome.map_err(|error| order(error, &task.taken))
}

/// Whether the outputs `rows` have to wait in their slot for more.
fn is_unfinished(task: &Task, rows: Rows, jumbo: &Jumbo) -> bool {
    // SAFETY: rows that were just made.
    let is_within_event =
        task.whole && task.left.is_some() && rows.n > 0 && unsafe { rows.seq(rows.n - 1) } > jumbo.upto;
    // An elastic ScaleGate wants watermarks that ascend.
    let says_nothing = !task.inserters.is_empty() && rows.n == 0 && jumbo.upto <= task.published && !jumbo.last;
    is_within_event || says_nothing
}

/// Numbers or ranks the outputs, as the task is meant to.
fn order_outputs(task: &mut Task, operator: usize, step: &Step, jumbo: &mut Jumbo) -> Result<(), RunError> {
    let (taken, frame) = (&task.taken, step.job.frame);
    if task.numbered {
        // If the kernel has failed, only the outputs of earlier events are left.
        let emits = if task.ended { (0, None) } else { frame.chain.operators[operator].emits };
        number(emits, (&taken.subs, taken.rows), jumbo.buffer.origins(), &mut jumbo.subs)?;
    }
    if task.ranked && frame.windows[operator].is_none() {
        let outcome = rank(&taken.ranks, taken.rows, jumbo.buffer.origins(), &mut jumbo.ranks);
        if let Err(RunError::TooManyRows { seq }) = outcome {
            truncate(&mut jumbo.buffer, seq);
            jumbo.ranks.truncate(jumbo.buffer.len());
            jumbo.rows = Rows::of(&jumbo.buffer, step.job.block.text);
        }
        task.ended |= note(outcome, operator, step, jumbo)?;
    }
    Ok(())
}

/// Examines the outputs for the sink, if the task does this.
fn prepare_outputs(task: &mut Task, step: &mut Step, jumbo: &mut Jumbo) -> Result<(), RunError> {
    let Some(preparer) = &task.preparer else { return Ok(()) };
    step.clock.lap(&mut task.counters.time.other);
    for edge in task.edges.iter().filter(|edge| matches!(edge.route, Route::Range(None))) {
        prepare(preparer, edge.first..edge.first + edge.readers, jumbo, &mut task.put_out)?;
    }
    step.clock.lap(&mut task.counters.time.useful);
    Ok(())
}

/// Ranks outputs by the ranks of their inputs and by their origins. `inputs` is empty if each input was the only row of its
/// event, and `outputs` stays empty if each output still is.
fn rank(inputs: &[Rank], rows: Rows, origins: &[u32], outputs: &mut Vec<Rank>) -> Result<(), RunError> {
    if origins.windows(2).all(|pair| pair[0] != pair[1]) {
        // An input that becomes one row passes its rank on.
        if !inputs.is_empty() {
            outputs.extend(origins.iter().map(|&origin| inputs[origin as usize]));
        }
        return Ok(());
    }
    for outputs_of in origins.chunk_by(|a, b| a == b) {
        let origin = outputs_of[0] as usize;
        let input = inputs.get(origin).copied().unwrap_or(Rank::ONLY);
        if outputs_of.len() == 1 {
            outputs.push(input);
            continue;
        }
        for number in 0..outputs_of.len() as u64 {
            // SAFETY: an input that emitted something.
            outputs.push(input.output(number).ok_or_else(|| path_too_long(unsafe { rows.seq(origin) }))?);
        }
    }
    Ok(())
}
