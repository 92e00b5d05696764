//! The step loop of tasks: take a batch, let the role use it, put out the results.

use crate::dataflow::frame::Job;
use crate::dataflow::pinned::role::{Role, keys, merge, operator, sink, source};
use crate::dataflow::pinned::task::{Step, Task, Wakes};
use crate::dataflow::windowed::control::Control;
use crate::error::RunError;
use crate::threads::bells::{INPUT, PEERS, ROOM};
use crate::threads::team::thread_cpu_nanoseconds;

/// Moves a task on by one batch, if there is one, and room for its outputs. Returns whether it did.
///
/// # Errors
/// The frame notes failures of kernels; anything else ends the run.
pub(super) fn step(task: &mut Task, step: &mut Step) -> Result<bool, RunError> {
    let (taken, before) = (task.cost.rows_in, task.counters.time);
    let watch = watch(task, step.job).map(|watch| (watch, thread_cpu_nanoseconds()));
    let worked = go_on(task, step)?;
    if worked {
        task.cost.add(taken, before, task.counters.time, task.left.is_none());
        if let Some(((control, replica), began)) = watch {
            control.add_work(replica, thread_cpu_nanoseconds() - began);
        }
    }
    Ok(worked)
}

/// The controller that measures how long the task works, and the number of the replica that the task works for.
fn watch<'a>(task: &Task, job: &Job<'a>) -> Option<(&'a Control, usize)> {
    let (operator, replica) = match &task.role {
        Role::Keys(keys) => (keys.operator, keys.replica),
        Role::Operator { operator, lane } => (*operator, *lane),
        _ => return None,
    };
    let windowed = job.frame.windows[operator].as_ref()?;
    windowed.control.watches.then_some((&*windowed.control, replica))
}

fn go_on(task: &mut Task, step: &mut Step) -> Result<bool, RunError> {
    let bells = &step.job.frame.signals.bells;
    if task.is_pouring() {
        let worked = task.pour(step)?;
        if worked {
            bells.ring(&[(&task.wakes.readers, INPUT)]);
        }
        return Ok(worked);
    }
    task.blocked = match task.outlet {
        Some(_) if !task.ended => !task.has_room(step.network),
        _ => false,
    };
    if task.done || task.blocked {
        return Ok(false);
    }
    if let Role::Source { index, of } = task.role {
        return Ok(source::deal(task, index, of, step)? || task.flush(step));
    }
    if task.left.is_some() {
        if !task.may_go_on(step.job) {
            return Ok(false);
        }
        use_rows(task, step)?;
        end_use(task, step);
        return Ok(true);
    }
    take(task, step)
}

/// Takes a batch, and uses it.
fn take(task: &mut Task, step: &mut Step) -> Result<bool, RunError> {
    let known = task.taken.upto;
    // SAFETY: this task alone reads as these readers; the task has used what it took before.
    let new = unsafe { task.inlet.take(&step.network.outlets, step.job.block.text, &mut task.taken) }?;
    step.clock.lap(&mut task.counters.time.other);
    if !new {
        // Even so, the inlet may have released heartbeats that said nothing new.
        step.job.frame.signals.bells.ring(&[(&task.wakes.writers, ROOM)]);
        return Ok(task.flush(step));
    }
    task.cost.rows_in += task.taken.rows() as u64;
    if let Role::Sink { number } = task.role {
        sink::deliver(task, number, known, step)?;
    } else if !task.ended {
        use_rows(task, step)?;
    }
    end_use(task, step);
    Ok(true)
}

/// Does what the role does with the rows that the task took, and puts out the results.
fn use_rows(task: &mut Task, step: &mut Step) -> Result<(), RunError> {
    if let Role::Keys(_) = task.role {
        task.taken.count(&mut task.counted);
    }
    match &task.role {
        Role::Operator { operator, lane } => operator::run(task, (*operator, *lane), step),
        Role::Keys(keys) if keys.copies.is_some() => keys::copy(task, step),
        Role::Keys(_) => keys::list(task, step),
        Role::Merge { .. } => merge::put_out(task, step),
        Role::Source { .. } | Role::Sink { .. } => unreachable!("sources take no rows, and sinks put out none"),
    }
}

/// Releases the rows that the task took, unless some are left, and wakes the tasks that wait for this one.
fn end_use(task: &mut Task, step: &Step) {
    if task.left.is_none() {
        task.done = task.taken.last && !task.is_pouring();
        task.inlet.release(&step.network.outlets);
    }
    let kinds = if task.announce(step.network, false) { INPUT } else { 0 };
    let Wakes { readers, writers, peers } = &task.wakes;
    step.job.frame.signals.bells.ring(&[(readers, kinds), (writers, ROOM), (peers, PEERS)]);
}
