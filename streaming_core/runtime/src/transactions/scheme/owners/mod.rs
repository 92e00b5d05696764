//! `owners`: dual-mode scheduling (TStream, section IV). Per batch of a punctuated stream:
//!
//! 1. compute mode: each thread plans a slice of the events;
//! 2. state access mode: each thread takes shares of the rows from its pool (`../pool.rs`), and does all that is planned on
//!    these rows, each row's accesses in event order, whoever planned them;
//! 3. post-processing: each thread on its slice again, delivered slice by slice in event order.
//!
//! A share has one thread at a time, so that nothing of a row is ever locked. What is planned and dealt to shares is either
//! whole events, by the owner of their rows (`whole.rs`), or single accesses (`access.rs`): whole events while few of them
//! span shares, else accesses, and now and then it is tried again.
//!
//! **No deadlock.** Take the earliest event that is not decided while no thread can apply anything. Every access that
//! stands before one of its conditions in the row's order belongs to an earlier event (within an event conditions stand
//! first), which is decided; so nothing before the condition has to wait, and who has the row applies everything up to
//! and including the condition: contradiction. That needs every access to be come to: a thread takes in all its shares
//! without waiting (blocked rows, and shares at a spanning event, are put aside), and every share is somebody's.
//!
//! **Exactness.** A row's accesses are applied by one thread, in event order but for conditions evaluated ahead, and those
//! stand before the batch's first write of the row. So a condition reads the state that all earlier events left, and a
//! write or read waits for its event's decision. That is the sequential meaning.

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
    /// Used by the thread whose part it is.
    threads: Own<Member>,
    whole: Whole,
    accesses: Accesses,
    /// Two sets, used in turn: a thread may plan the next batch while another post-processes the last one. Shared by all
    /// threads: in compute mode and post-processing each is at its slice's entries, in between decisions are atomic.
    outcomes: [Outcome; 2],
}

/// What a thread has for itself.
struct Member {
    bench: Workbench,
    desk: Desk,
    chains: Chains,
    /// Batches, and rounds of taking shares, so far; the same in all threads.
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
                // SAFETY: the only thread there is.
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
        // Settled anew in `settle`, which has no say when it is tried again.
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

    /// Two threads take a batch of two events through the three modes: loom fails if what is planned, shares, rows or outputs
    /// are used by two at a time, or before they are handed over.
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
