//! `tstream`: TStream as published (section IV). Per punctuation interval of a stream:
//!
//! 1. compute mode: each thread plans a slice of the events, which decomposes their transactions into operations
//!    (`decomposition.rs`), and inserts those that were routed to its partition into chains, one a row (`chains.rs`);
//! 2. state access mode: threads take chains from their pools (`tasks.rs`) and walk them, in rounds where chains depend on
//!    each other (`evaluation.rs`);
//! 3. post-processing: each thread on its slice again, delivered slice by slice in event order.
//!
//! The paper's two barriers stand between these. There is one more in compute mode, between routing and inserting, in place of
//! a structure that all insert into at once, and one after each round. Rejected transactions are skipped: an operation of an
//! event whose conditions do not hold changes nothing.
//!
//! Where several events of an interval fail, the one that is named is in the chain that was walked first: it need not be the
//! first of them, even with one thread.

mod chains;
mod decomposition;
mod evaluation;
mod tasks;

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::barrier::Barrier;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicBool, Ordering};
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::workbench::Workbench;

use chains::{Chains, Directory, Layout};
use decomposition::{Decomposition, Partitioning};
use evaluation::{Copies, Processing, Walked};
use tasks::{Task, Tasks};

struct Tstream {
    punctuation: usize,
    barrier: Barrier,
    partitioning: Partitioning,
    layout: Layout,
    directory: Directory,
    /// Used by the thread whose part it is.
    threads: Own<Member>,
    /// Used by its thread in compute mode and post-processing; what it has planned is read by all in state access mode.
    benches: Own<Workbench>,
    /// Written by its thread in compute mode, read by all from the barrier there to the end of state access mode.
    decompositions: Own<Decomposition>,
    /// Per partition, each a thread's.
    chains: Own<Chains>,
    tasks: Tasks,
    /// Per event of a batch: whether somebody evaluates its conditions. Cleared by the thread whose slice it is in, in compute
    /// mode.
    claimed: Box<[AtomicBool]>,
    /// Two sets, used in turn: a thread may plan the next batch while another post-processes the last one. Shared by all
    /// threads: in compute mode and post-processing each is at its slice's entries, in between decisions are atomic.
    outcomes: [Outcome; 2],
}

/// What a thread has for itself.
struct Member {
    copies: Copies,
    counters: Counters,
    /// Rounds so far; the same in all threads.
    round: usize,
}

pub(super) fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(tstream(program, options)?))
}

fn tstream(program: &Program, options: &Options) -> Result<Tstream, RunError> {
    let (threads, events) = (options.threads, options.punctuation);
    let layout = Layout::new(&program.tables);
    let containers: Vec<bool> = program.tables.iter().map(|table| table.containers).collect();
    let member = || Member { copies: Copies::new(layout.tables()), counters: Counters::default(), round: 0 };
    Ok(Tstream {
        punctuation: events,
        barrier: Barrier::new(threads),
        partitioning: Partitioning::new(threads),
        directory: Directory::new(&layout),
        threads: Own::new(threads, member),
        benches: Own::new(threads, || Workbench::new(program.output_stride())),
        decompositions: Own::new(threads, || Decomposition::new(threads, containers.clone())),
        chains: Own::new(threads, Chains::default),
        tasks: Tasks::new(options)?,
        claimed: (0..events).map(|_| AtomicBool::new(false)).collect(),
        outcomes: [Outcome::new(events), Outcome::new(events)],
        layout,
    })
}

impl Scheme for Tstream {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        // SAFETY: the thread's own.
        unsafe { self.threads.with_mut(thread, |own| self.batches(thread, own, run)) }
    }

    fn makes_up_sockets(&self) -> bool {
        self.tasks.made_up()
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe {
            let mut sum = self.threads.sum(|thread| thread.counters);
            sum += self.benches.sum(|bench| bench.counters);
            sum
        }
    }
}

impl Tstream {
    fn batches(&self, thread: usize, own: &mut Member, run: &Run) -> Result<(), RunError> {
        let threads = self.threads.len();
        let mut ticket = run.first_ticket + thread as u64;
        for (number, batch) in batches(run, self.punctuation).enumerate() {
            run.await_arrival(batch.end);
            run.check()?;
            let outcome = &self.outcomes[number % 2];
            let task = Assignment { thread, threads, number, run, batch: &batch, outcome };
            self.batch(task, own, ticket)?;
            ticket += threads as u64;
        }
        Ok(())
    }

    /// Takes a thread's part of a batch through the three modes.
    fn batch(&self, task: Assignment, own: &mut Member, ticket: u64) -> Result<(), RunError> {
        let Assignment { thread, threads, run, batch, outcome, .. } = task;
        let slice = batch.slice(thread, threads);
        let started = run.clock.now();
        let mut watch = Stopwatch::start();

        self.decompose(task, slice.clone())?;
        watch.lap(&mut own.counters.time.useful);
        self.meet(task, own, &mut watch)?;
        self.insert(task, own);
        watch.lap(&mut own.counters.time.other);
        self.meet(task, own, &mut watch)?;

        self.process(task, own, &mut watch)?;

        // SAFETY: the others have done with state access mode, in which they read what was planned.
        unsafe {
            self.benches.with_mut(thread, |bench| {
                let prepared = bench.post(run, batch, slice, outcome)?;
                watch.lap(&mut own.counters.time.useful);
                let timing = (thread + 1 == threads).then(|| Timing { started, arrival: run.arrival(batch) });
                run.deliver(ticket, &bench.outputs, &prepared, timing)
            })?;
        }
        watch.lap(&mut own.counters.time.sync);
        Ok(())
    }

    fn meet(&self, task: Assignment, own: &mut Member, watch: &mut Stopwatch) -> Result<(), RunError> {
        self.barrier.wait(task.thread, task.run.idle, task.run.stopped)?;
        watch.lap(&mut own.counters.time.sync);
        Ok(())
    }

    /// Compute mode: plans a slice of the batch, and routes its operations to the partitions of their rows.
    fn decompose(&self, task: Assignment, slice: Range<usize>) -> Result<(), RunError> {
        let Assignment { thread, run, batch, outcome, .. } = task;
        for claimed in &self.claimed[slice.clone()] {
            // ORDERING: Relaxed; the barrier publishes it.
            claimed.store(false, Ordering::Relaxed);
        }
        // SAFETY: the others have done with the last batch's state access mode, in which they read both.
        unsafe {
            self.benches.with_mut(thread, |bench| {
                bench.plan(run, batch, slice, outcome)?;
                self.decompositions.with_mut(thread, |own| {
                    own.decompose(bench.planner.accesses(), &self.partitioning);
                });
                Ok(())
            })
        }
    }

    /// Compute mode: makes chains of what was routed to the thread's partition, and tasks of these: of the first round those
    /// that depend on no others, of the second the rest.
    fn insert(&self, task: Assignment, own: &mut Member) {
        let Assignment { thread, threads, run, .. } = task;
        // SAFETY: between the two barriers of compute mode decompositions are only read, and the others use neither the chains
        // nor the tasks of the last batch any more.
        unsafe {
            let decomposed: Vec<&Decomposition> = (0..threads)
                .map(|from| {
                    let one = self.decompositions.with(from, |one| &raw const *one);
                    &*one
                })
                .collect();
            for (from, one) in decomposed.iter().enumerate() {
                let bytes = size_of_val(&one.operations[thread][..]);
                own.counters.time.remote += run.placement.fetch(thread, from, bytes);
            }
            let bases = run.tables.bases();
            self.chains.with_mut(thread, |chains| {
                chains.insert(thread, decomposed.into_iter(), &self.layout, &self.directory, bases);
                for round in [0, 1] {
                    let chosen = (0..chains.len()).filter(|&chain| chains.chain(chain).is_dependent == (round == 1));
                    self.tasks.set(thread, round, chosen.map(|chain| Task { partition: thread, chain }));
                }
            });
        }
    }

    /// State access mode: walks chains, round by round, until all are done.
    fn process(&self, task: Assignment, own: &mut Member, watch: &mut Stopwatch) -> Result<(), RunError> {
        for round in 0.. {
            // All take part in the first round, even if every chain depends on others: they must agree which rounds there are,
            // and who went on without a barrier would make tasks that others take for the first round's.
            // SAFETY: tasks of a round were made before the last barrier.
            if round > 0 && unsafe { self.tasks.count(round) } == 0 {
                break;
            }
            // SAFETY: it is state access mode.
            unsafe { self.round(task, own, round)? };
            own.round += 1;
            watch.lap(&mut own.counters.time.useful);
            self.meet(task, own, watch)?;
        }
        Ok(())
    }

    /// Walks the chains that the thread takes in a round.
    ///
    /// # Safety
    /// It is state access mode, and all threads are in this round, or at the barriers around it.
    unsafe fn round(&self, task: Assignment, own: &mut Member, round: u32) -> Result<(), RunError> {
        let Assignment { thread, run, .. } = task;
        // SAFETY: decompositions are only read here. Each chain is one task, and a pool hands out each once.
        unsafe {
            self.decompositions.with(thread, |decomposition| {
                let processing = Processing {
                    task,
                    partitioning: &self.partitioning,
                    layout: &self.layout,
                    directory: &self.directory,
                    chains: &self.chains,
                    benches: &self.benches,
                    decomposition,
                    claimed: &self.claimed,
                    round,
                };
                if round > 0 {
                    // The second round's were made in compute mode.
                    self.tasks.set(thread, round + 1, std::iter::empty());
                }
                for chain in self.tasks.take(thread, round, own.round) {
                    let Walked { bytes, is_done } = processing.walk(chain, &mut own.copies)?;
                    own.counters.time.remote += run.placement.fetch(thread, chain.partition, bytes);
                    if !is_done {
                        self.tasks.put_off(thread, round + 1, chain);
                    }
                }
                Ok(())
            })
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::transactions::testing::world;

    /// Two threads take a batch of two events through the three modes: loom fails if what is planned, chains, tasks, rows or
    /// outputs are used by two at a time, or before they are handed over.
    fn explore(pool: &'static str, stealing: bool, preemptions: usize) {
        world::explore(preemptions, move |world| {
            let pool = Some(pool.to_owned());
            let options = Options { threads: 2, punctuation: 2, pool, stealing, ..Options::default() };
            make(&world.program, &options).unwrap()
        });
    }

    #[test]
    fn loom_chains_are_handed_from_who_inserts_to_who_walks() {
        explore("shared_nothing", false, 2);
    }

    #[test]
    fn loom_a_chain_may_be_anybody_s() {
        explore("shared_everything", true, 1);
    }
}
