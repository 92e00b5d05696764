//! `tstream`: TStream as published (section IV). For each punctuation interval of a stream:
//!
//! 1. Compute mode: each thread plans a slice of the events, which decomposes their transactions into operations
//!    (`decomposition.rs`). It inserts the operations that were routed to its partition into chains, one per row
//!    (`chains.rs`).
//! 2. State access mode: threads take chains from their pools (`tasks.rs`) and walk them, in rounds if chains depend on each
//!    other (`evaluation.rs`).
//! 3. Post-processing: each thread makes the outputs of its slice. They are delivered slice by slice, in event order.
//!
//! The two barriers of the paper separate these modes, with one more after each round but the last. The first barrier
//! stands before the insertion: the thread of a partition inserts after all threads have routed. It needs only its own chains
//! in the first round, so it goes on without a barrier. If several threads share a pool, they need each other's chains,
//! and meet once more. An operation of a rejected event changes nothing.
//!
//! If several events of an interval fail, the run names the one in the chain that was walked first. It need not be the
//! earliest event, even with one thread.

mod chains;
mod costs;
mod decomposition;
mod evaluation;
mod layout;
mod tasks;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::barrier::Barrier;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU32, Ordering};
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::workbench::Workbench;

use chains::{Chains, Directory, Insertion};
use costs::Costs;
use decomposition::{Decomposition, Partitioning};
use evaluation::{Processing, Walked};
use layout::Layout;
use tasks::{Task, Tasks};

struct Tstream {
    punctuation: usize,
    barrier: Barrier,
    partitioning: Partitioning,
    layout: Layout,
    directory: Directory,
    /// Each part belongs to one thread.
    threads: Own<Member>,
    /// Each belongs to one thread.
    benches: Own<Workbench>,
    /// Its thread writes it in compute mode. All threads read it from the barrier there to the end of state access mode.
    decompositions: Own<Decomposition>,
    /// Per partition; each belongs to a thread.
    chains: Own<Chains>,
    tasks: Tasks,
    /// Per event of a batch: the claim of the thread that evaluates its conditions. In compute mode, the thread of the event's
    /// slice clears it.
    claims: Box<[AtomicU32]>,
    /// Two sets, used in turn, because a thread may plan the next batch while another post-processes the last one. All threads
    /// share them. In compute mode and post-processing each uses the entries of its slice; between them, decisions are atomic.
    outcomes: [Outcome; 2],
}

/// The data of one thread.
struct Member {
    counters: Counters,
    costs: Costs,
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
    let member = || Member { counters: Counters::default(), costs: Costs::default(), round: 0 };
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
        claims: (0..events).map(|_| AtomicU32::new(0)).collect(),
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

    fn counts_plans_as_useful(&self) -> bool {
        false // only accesses to rows are useful
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe {
            let mut sum = self.threads.sum(|thread| thread.counters);
            sum += self.benches.sum(|bench| bench.counters);
            sum.time += self.threads.sum(|thread| thread.costs).breakdown();
            sum
        }
    }

    fn costs(&self) -> BTreeMap<&'static str, u64> {
        // SAFETY: no thread is in `block`.
        unsafe { self.threads.sum(|thread| thread.costs).named() }
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
            let task = Assignment { thread, threads, run, batch: &batch, outcome };
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

        self.plan(task, slice.clone())?;
        watch.lap(&mut own.costs.planning);
        self.decompose(task, slice.clone());
        watch.lap(&mut own.costs.decomposition);
        self.meet(task, own, &mut watch)?;
        self.insert(task, own);
        watch.lap(&mut own.costs.insertion);
        if self.tasks.has_shared() {
            self.meet(task, own, &mut watch)?;
        }

        self.process(task, own, &mut watch)?;

        // SAFETY: the thread's own.
        unsafe {
            self.benches.with_mut(thread, |bench| {
                let prepared = bench.post(run, batch, slice, outcome)?;
                watch.lap(&mut own.costs.post_processing);
                let timing = (thread + 1 == threads).then(|| Timing { started, arrival: run.arrival(batch) });
                run.deliver(ticket, &bench.outputs, &prepared, timing)
            })?;
        }
        watch.lap(&mut own.costs.delivery);
        own.costs.intervals += u64::from(thread == 0);
        Ok(())
    }

    fn meet(&self, task: Assignment, own: &mut Member, watch: &mut Stopwatch) -> Result<(), RunError> {
        self.barrier.wait(task.thread, task.run.idle, task.run.stopped)?;
        watch.lap(&mut own.costs.barriers);
        Ok(())
    }

    /// Compute mode: plans a slice of the batch.
    fn plan(&self, task: Assignment, slice: Range<usize>) -> Result<(), RunError> {
        let Assignment { thread, run, batch, outcome, .. } = task;
        // SAFETY: the thread's own.
        unsafe { self.benches.with_mut(thread, |bench| bench.plan(run, batch, slice, outcome)) }
    }

    /// Compute mode: decomposes a slice of the batch, and routes its operations to the partitions of their rows.
    fn decompose(&self, task: Assignment, slice: Range<usize>) {
        // SAFETY: the bench is the thread's own. The others are done with the last batch's state access mode, in which they
        // read the decomposition.
        let has_groups = unsafe {
            self.decompositions.with_mut(task.thread, |own| {
                self.benches.with(task.thread, |bench| {
                    own.decompose(bench.planner.accesses(), &self.partitioning, &self.layout);
                });
                own.has_groups()
            })
        };
        if has_groups {
            for claim in &self.claims[slice] {
                // ORDERING: Relaxed; the barrier publishes it.
                claim.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Makes chains of the operations that were routed to the thread's partition, and tasks of the chains. Chains that depend
    /// on no others are tasks of the first round; the rest are tasks of the second.
    fn insert(&self, task: Assignment, own: &mut Member) {
        let Assignment { thread, threads, run, .. } = task;
        // SAFETY: until the end of state access mode decompositions are only read, except for what `Chains` writes. The
        // others no longer use the chains and tasks of the last batch.
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
            self.chains.with_mut(thread, |chains| {
                chains.insert(&Insertion {
                    partition: thread,
                    decomposed: &decomposed,
                    layout: &self.layout,
                    directory: &self.directory,
                    bases: run.tables.bases(),
                });
                if self.tasks.is_shared(thread) {
                    chains.separate();
                }
                let plain = chains.plain_len();
                for round in [0, 1] {
                    let tracked = chains.tracked().iter().enumerate();
                    let chosen = tracked.filter(|(_, chain)| chain.is_dependent == (round == 1));
                    let numbers =
                        (0..if round == 0 { plain } else { 0 }).chain(chosen.map(|(number, _)| plain + number));
                    let task = |chain| Task { partition: thread as u32, chain: chain as u32 };
                    self.tasks.set(thread, round, numbers.map(task));
                }
                own.costs.operations += chains.operations().len() as u64;
                own.costs.chains += chains.len() as u64;
                own.costs.dependent_chains += self.tasks.len(thread, 1) as u64;
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
            own.costs.rounds += u64::from(task.thread == 0);
            watch.lap(&mut own.costs.evaluation);
            self.meet(task, own, watch)?;
        }
        Ok(())
    }

    /// Walks the chains that the thread takes in a round.
    ///
    /// # Safety
    /// It is state access mode, and all threads are in this round, or at the barriers around it. In the first round, others
    /// may still insert, unless they share the thread's pool.
    unsafe fn round(&self, task: Assignment, own: &mut Member, round: u32) -> Result<(), RunError> {
        let Assignment { thread, threads, run, .. } = task;
        let processing = Processing {
            task,
            layout: &self.layout,
            chains: &self.chains,
            decompositions: &self.decompositions,
            claims: &self.claims,
            round,
        };
        // SAFETY: decompositions and chains are only read here. Each chain is one task, and a pool hands out each once. The
        // plain chains of a thread that shares its pool with no other are its own.
        unsafe {
            let is_shared = threads > 1 && (round > 0 || self.decompositions.sum(|one| usize::from(one.is_shared)) > 0);
            let mut pending = processing.start(is_shared);
            if round == 0 && !self.tasks.is_shared(thread) {
                let chains = &*self.chains.with(thread, |chains| &raw const *chains);
                processing.append(&mut pending, chains.operations(), chains.all_plain())?;
            }
            if round > 0 {
                // The second round's were made in compute mode.
                self.tasks.set(thread, round + 1, std::iter::empty());
            }
            for chain in self.tasks.take(thread, round, own.round) {
                let Walked { bytes, is_done } = processing.walk(chain, &mut pending)?;
                own.counters.time.remote += run.placement.fetch(thread, chain.partition as usize, bytes);
                if !is_done {
                    self.tasks.put_off(thread, round + 1, chain);
                }
                if self.tasks.stealing() {
                    // What a thread has taken no other can take.
                    processing.apply(&mut pending)?;
                }
            }
            processing.apply(&mut pending)
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
