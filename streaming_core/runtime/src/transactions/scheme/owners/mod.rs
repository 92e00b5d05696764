//! `owners`: dual-mode scheduling (TStream, section IV). For each batch of a punctuated stream:
//!
//! 1. Compute mode: each thread plans a slice of the events.
//! 2. State access mode: each thread takes shares of the rows from its pool (`../pool.rs`). It does all planned work on these
//!    rows, each row's accesses in event order, for the plans of all threads.
//! 3. Post-processing: each thread makes the outputs of its slice. They are delivered slice by slice, in event order.
//!
//! One thread at a time has a share, so no row is ever locked. The plans deal either whole events to the owner of their rows
//! (`whole.rs`), or single accesses to shares (`access.rs`). Whole events are used while few events span shares. Otherwise
//! the scheme uses accesses, and tries whole events again from time to time.
//!
//! **No deadlock.** Suppose that no thread can apply anything, and take the earliest event that is not decided. In the order
//! of a row, every access before one of its conditions belongs to an earlier event, because conditions come first within an
//! event. These events are decided, so nothing before the condition has to wait. Then the owner of the row applies
//! everything up to the condition, which is a contradiction. The argument needs every access to be reached. It is,
//! because every share has an owner, and a thread takes in all its shares without waiting. It sets aside blocked rows, and
//! shares at a spanning event.
//!
//! **Exactness.** One thread applies the accesses of a row in event order, except for conditions that are evaluated ahead.
//! These precede the batch's first write of the row. So a condition reads the state that all earlier events left, and a write
//! or read waits for its event's decision. That is the sequential meaning.

mod access;
mod chains;
mod ranges;
mod shares;
mod whole;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::barrier::Barrier;
use crate::threads::own::Own;
use crate::threads::sync::Arc;
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::workbench::{Workbench, alone};

use access::Accesses;
use chains::{Chains, Marks};
use shares::Shares;
use whole::{Desk, EPOCH, Whole};

struct Owners {
    punctuation: usize,
    shares: Shares,
    barrier: Barrier,
    /// Each part belongs to one thread.
    threads: Own<Member>,
    whole: Whole,
    accesses: Accesses,
    /// Two sets, used in turn, because a thread may plan the next batch while another post-processes the last one. All threads
    /// share them. In compute mode and post-processing each uses the entries of its slice; between them, decisions are atomic.
    outcomes: [Outcome; 2],
}

/// The data of one thread.
struct Member {
    bench: Workbench,
    desk: Desk,
    chains: Chains,
    /// The number of batches so far, and of rounds of taking shares; the same in all threads.
    batch: usize,
    round: usize,
}

pub(super) fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(owners(program, options)?))
}

fn owners(program: &Program, options: &Options) -> Result<Owners, RunError> {
    let threads = options.threads;
    let marks = Arc::new(Marks::new(program));
    let shares = Shares::new(options)?;
    let count = shares.count();
    let thread = || Member {
        bench: Workbench::new(program.output_stride()),
        desk: Desk::new(count, options.punctuation),
        chains: Chains::new(marks.clone()),
        batch: 0,
        round: 0,
    };
    Ok(Owners {
        punctuation: options.punctuation,
        shares,
        barrier: Barrier::new(threads),
        threads: Own::new(threads, thread),
        whole: Whole::new(program, threads, count),
        accesses: Accesses::new(threads, count),
        outcomes: [Outcome::new(options.punctuation), Outcome::new(options.punctuation)],
    })
}

impl Scheme for Owners {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        // SAFETY: the thread's own.
        unsafe { self.threads.with_mut(thread, |own| self.batches(thread, own, run)) }
    }

    fn homes(&self) -> Option<Vec<usize>> {
        self.shares.homes()
    }

    fn makes_up_sockets(&self) -> bool {
        self.shares.made_up()
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe { self.threads.sum(|thread| thread.bench.counters) }
    }
}

impl Owners {
    fn batches(&self, thread: usize, own: &mut Member, run: &Run) -> Result<(), RunError> {
        let threads = self.threads.len();
        let mut ticket = run.first_ticket + thread as u64;
        for (number, batch) in batches(run, self.punctuation).enumerate() {
            run.await_arrival(batch.end);
            if threads == 1 {
                // SAFETY: there is only this thread.
                unsafe { alone(&mut own.bench, 0, run, &batch, ticket)? };
            } else {
                own.batch += 1;
                let outcome = &self.outcomes[number % 2];
                self.batch(
                    Assignment { thread, threads, number: own.batch, run, batch: &batch, outcome },
                    own,
                    ticket,
                )?;
            }
            ticket += threads as u64;
        }
        Ok(())
    }

    /// Takes a thread's part of a batch through the three modes.
    fn batch(&self, task: Assignment, own: &mut Member, ticket: u64) -> Result<(), RunError> {
        let Assignment { thread, threads, run, batch, outcome, .. } = task;
        let Member { bench, desk, chains, round, .. } = own;
        // `settle` decides it again, except when this batch is a trial.
        let whole = std::mem::replace(&mut desk.next, task.number.is_multiple_of(EPOCH));
        let slice = batch.slice(thread, threads);
        let started = run.clock.now();
        let mut watch = Stopwatch::start();

        // Compute mode.
        if whole {
            self.whole.deal(task, slice.clone(), bench, desk)?;
            watch.lap(&mut bench.counters.time.useful);
        } else {
            self.accesses.deal(task, slice.clone(), bench, &mut watch)?;
        }
        self.barrier.wait(thread, run.idle, run.stopped)?;
        watch.lap(&mut bench.counters.time.sync);

        // State access mode.
        if whole {
            let taking = self.shares.round(thread, *round);
            *round += 1;
            self.whole.execute(task, taking, bench, desk, &mut watch)?;
            watch.lap(&mut bench.counters.time.useful);
            self.whole.settle(task, desk);
        } else {
            self.accesses.apply(task, &self.shares, round, bench, chains, &mut watch)?;
            watch.lap(&mut bench.counters.time.useful);
        }
        self.barrier.wait(thread, run.idle, run.stopped)?;
        watch.lap(&mut bench.counters.time.sync);

        // Post-processing.
        let prepared = match whole {
            true => self.whole.gather(task, slice, bench, desk)?,
            false => bench.post(run, batch, slice, outcome)?,
        };
        watch.lap(&mut bench.counters.time.useful);
        let timing = (thread + 1 == threads).then(|| Timing { started, arrival: run.arrival(batch) });
        run.deliver(ticket, &bench.outputs, &prepared, timing)?;
        watch.lap(&mut bench.counters.time.sync);
        Ok(())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::transactions::testing::world;

    /// Two threads take a batch of two events through the three modes. The model fails if both use plans, shares, rows or outputs
    /// at a time, or before they are passed on.
    fn explore(whole: bool, pool: &'static str, stealing: bool) {
        world::explore(2, move |world| {
            let pool = Some(pool.to_owned());
            let options = Options { threads: 2, punctuation: 2, pool, stealing, ..Options::default() };
            let mut scheme = owners(&world.program, &options).unwrap();
            scheme.threads.each_mut(|own| own.desk.next = whole);
            Box::new(scheme)
        });
    }

    #[test]
    fn loom_whole_events_are_executed_by_who_has_their_share() {
        explore(true, "shared_nothing", false);
    }

    #[test]
    fn loom_accesses_wait_for_conditions_of_another_thread_s_rows() {
        explore(false, "shared_nothing", false);
    }

    #[test]
    fn loom_a_share_may_change_hands_between_conditions_and_the_rest() {
        explore(false, "shared_everything", true);
    }
}
