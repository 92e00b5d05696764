//! `tstream`: TStream as published (section IV). For each punctuation interval of a stream:
//!
//! 1. Compute mode: each thread plans a slice of the events, which decomposes their transactions into operations
//!    (`decomposition.rs`). It inserts the operations that were routed to its partition into chains, one per row
//!    (`chains.rs`).
//! 2. State access mode: threads take chains from their pools (`tasks.rs`) and walk them, in rounds if chains depend on each
//!    other (`evaluation.rs`).
//! 3. Post-processing: each thread makes the outputs of its slice. They are delivered slice by slice, in event order.
//!
//! The two barriers of the paper separate these modes. There is one more in compute mode, between routing and inserting, and
//! one after each round. The first replaces a structure that all threads insert into at once. An operation of a rejected
//! event changes nothing.
//!
//! If several events of an interval fail, the run names the one in the chain that was walked first. It need not be the
//! earliest event, even with one thread.

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
    /// Each part belongs to one thread.
    threads: Own<Member>,
    /// Its thread uses a bench in compute mode and post-processing. In state access mode, all threads read its plans.
    benches: Own<Workbench>,
    /// Its thread writes it in compute mode. All threads read it from the barrier there to the end of state access mode.
    decompositions: Own<Decomposition>,
    /// Per partition; each belongs to a thread.
    chains: Own<Chains>,
    tasks: Tasks,
    /// Per event of a batch: whether a thread evaluates its conditions. In compute mode, the thread of the event's slice
    /// clears it.
    claimed: Box<[AtomicBool]>,
    /// Two sets, used in turn, because a thread may plan the next batch while another post-processes the last one. All threads
    /// share them. In compute mode and post-processing each uses the entries of its slice; between them, decisions are atomic.
    outcomes: [Outcome; 2],
}

/// The data of one thread.
struct Member {
    copies: Copies,
    counters: Counters,
    /// The number of rounds so far; the same in all threads.
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

        // SAFETY: the others are done with state access mode, in which they read the plans.
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
        // SAFETY: the others are done with the last batch's state access mode, in which they read both.
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

    /// Compute mode: makes chains of the operations that were routed to the thread's partition, and tasks of the chains. Chains
    /// that depend on no others are tasks of the first round; the rest are tasks of the second.
    fn insert(&self, task: Assignment, own: &mut Member) {
        let Assignment { thread, threads, run, .. } = task;
        // SAFETY: between the two barriers of compute mode decompositions are only read. The others no longer use the chains
        // and tasks of the last batch.
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
            // All threads take part in the first round, even if every chain depends on others, because they must agree on the
            // rounds. A thread that went on without a barrier would make tasks that others take for the first round's.
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

    /// Two threads take a batch of two events through the three modes. The model fails if both use plans, chains, tasks, rows
    /// or outputs at a time, or before they are passed on.
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
