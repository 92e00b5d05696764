//! Finders of keys: tasks in front of a windowed operator that find the keys of rows, once for all replicas.

use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::taken::Taken;
use crate::dataflow::frame::Job;
use crate::dataflow::pinned::role::failures::{has_failed, note};
use crate::dataflow::pinned::role::{Keys, Role};
use crate::dataflow::pinned::task::{Step, Task};
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::epochs::Epochs;
use crate::error::RunError;
use crate::rows::view::Rows;

/// Puts out the rows that the task took, with the meetings of their keys, for the replicas that own these keys.
pub fn list(task: &mut Task, step: &mut Step) -> Result<(), RunError> {
    task.put_out(step, |task, step, jumbo| {
        task.head(jumbo);
        let outlet = task.outlet(step.network);
        let Task { role: Role::Keys(keys), taken, counters, ended, .. } = task else { return Ok(()) };
        let windowed = windowed(step.job, keys);
        // SAFETY: the task took the rows just now; they are what the operator takes.
        let outcome = unsafe { list_rows(windowed, keys, taken, step.job, jumbo) };
        step.clock.lap(&mut counters.time.useful);
        *ended |= note(outcome, keys.operator, step, jumbo)?;
        share(&windowed.operator.epochs, keys.announced, jumbo, outlet);
        keys.announced = jumbo.upto;
        Ok(())
    })
}

/// Puts the rows that the task took, and their meetings, into a jumbo tuple.
///
/// # Safety
/// They have not been given back, and are what the input takes.
unsafe fn list_rows(
    windowed: &Replicated,
    keys: &mut Keys,
    taken: &Taken,
    job: &Job,
    jumbo: &mut Jumbo,
) -> Result<(), RunError> {
    let rows = taken.rows;
    jumbo.ranks.extend_from_slice(&taken.ranks);
    // Events stay in their block. The finder copies the outputs of operators: it gives them back before replicas read them.
    let block = job.block.row(0)..job.block.row(job.block.n);
    jumbo.rows = if rows.places.is_null() && block.contains(&rows.start) {
        rows
    } else {
        // SAFETY: as the caller says.
        unsafe { jumbo.buffer.gather(rows.n, |i| rows.row(i)) }?;
        Rows::of(&jumbo.buffer, job.block.text)
    };
    let lister = &mut keys.lister;
    // SAFETY: as the caller says.
    unsafe { lister.list(&windowed.operator, keys.input, jumbo.rows, &mut jumbo.words, &mut jumbo.hashes[0]) }
}

/// Shares the rows of a jumbo tuple behind event `after` out to the replicas that own cells in the epochs of the rows. The
/// tuple passes over a replica that it does not concern, because a row for the others would wait for that replica's
/// heartbeats.
fn share(epochs: &Epochs, after: i64, jumbo: &mut Jumbo, outlet: &Outlet) {
    let (rows, upto) = (jumbo.rows, jumbo.upto);
    for (replica, share) in jumbo.shares.iter_mut().enumerate() {
        match epochs.takes(replica, after, upto) {
            Some(takes) => share.whole = takes,
            None => {
                // SAFETY: the rows are there.
                let takes = |&position: &u32| epochs.takes_event(replica, unsafe { rows.seq(position as usize) });
                share.positions.extend((0..rows.n as u32).filter(takes));
            }
        }
        outlet.pass_over(replica, jumbo.last || epochs.concerns(replica, after, upto));
    }
}

/// Finds the keys of the rows that the task took, and puts copies into the queues of replicas that share nothing.
pub fn copy(task: &mut Task, step: &mut Step) -> Result<(), RunError> {
    let first = task.outlet.expect("every task except the sink has an outlet");
    let Task { role: Role::Keys(keys), taken, counters, cost, ended, .. } = task else { return Ok(()) };
    let windowed = &windowed(step.job, keys).operator;
    let Keys { operator, input, lister, copies: Some(copies), announced, .. } = keys else { return Ok(()) };
    let block = step.job.block;
    // SAFETY: the rows were taken just now; they are what the operator takes.
    let outcome = unsafe { copies.deal(windowed, lister, *input, (taken.rows, &taken.ranks)) };
    step.clock.lap(&mut counters.time.useful);
    let mut heading = (taken.upto, taken.last);
    if has_failed(outcome, *operator, step)? {
        (heading, *ended) = ((block.seq(block.n - 1), true), true);
    }
    let (upto, last) = heading;
    let queues = &step.network.outlets[first..first + copies.of.len()];
    for (replica, (outlet, copied)) in queues.iter().zip(&mut copies.of).enumerate() {
        let fill = |jumbo: &mut Jumbo| {
            jumbo.clear();
            (jumbo.upto, jumbo.last, jumbo.started) = (upto, last, taken.started);
            std::mem::swap(&mut jumbo.buffer, &mut copied.rows);
            std::mem::swap(&mut jumbo.words, &mut copied.words);
            std::mem::swap(&mut jumbo.hashes[0], &mut copied.meetings);
            std::mem::swap(&mut jumbo.ranks, &mut copied.ranks);
            jumbo.rows = Rows::of(&jumbo.buffer, block.text);
            jumbo.shares[0].whole = true;
            cost.rows_out += jumbo.rows.n as u64;
        };
        // SAFETY: this task alone writes its outlets, and has seen room in all of them.
        unsafe { outlet.fill(fill) };
        outlet.pass_over(0, last || windowed.epochs.concerns(replica, *announced, upto));
        outlet.publish();
    }
    *announced = upto;
    *ended |= last;
    step.clock.lap(&mut counters.time.other);
    Ok(())
}

fn windowed<'a>(job: &Job<'a>, keys: &Keys) -> &'a Replicated {
    job.frame.windows[keys.operator].as_ref().expect("only tasks of windowed operators have keys")
}
