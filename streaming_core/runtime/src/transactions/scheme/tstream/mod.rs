//! `tstream`: TStream as published (section IV). For each punctuation interval of a stream:
//!
//! 1. Compute mode: each thread plans the events of a slice as they arrive. It decomposes each transaction into operations
//!    (`decomposition.rs`), and inserts them at once into chains (`chains.rs`). A chain has the operations on one row. It is a
//!    concurrent skip list, because all threads insert at a time (`skip_list.rs`).
//! 2. State access mode: threads take chains from their pools (`tasks.rs`) and walk them, in rounds if chains depend on each
//!    other (`evaluation.rs`).
//! 3. Post-processing: each thread makes the outputs of its slice. They are delivered slice by slice, in event order.
//!
//! The two barriers of the paper separate these modes (section IV-B2), with one more after each round but the last. An
//! operation of a rejected event changes nothing.
//!
//! A thread may be in the next interval's compute mode while another post-processes this one. Chains, pools and directory
//! are then the next interval's. The last barrier has ended their use in this one, and each thread reuses its own memory.
//!
//! If several events of an interval fail, the run names the one in the chain that was walked first. It need not be the
//! earliest event, even with one thread.

mod arena;
mod chains;
mod costs;
mod decomposition;
mod evaluation;
mod insertion;
mod layout;
mod operation;
mod skip_list;
mod tasks;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::threads::barrier::Barrier;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU32, Ordering};
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::workbench::Workbench;

use chains::Directory;
use costs::Costs;
use decomposition::Decomposition;
use evaluation::{Processing, Walked};
use insertion::Insertion;
use layout::{Layout, Partitioning, RowName};
use skip_list::Node;
use tasks::Tasks;

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
    /// Its thread writes it in compute mode. All threads read it in state access mode.
    decompositions: Own<Decomposition>,
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
    /// Operations to apply, of the moment.
    pending: Vec<Access>,
}

/// So many events are planned at a time, before their operations are inserted.
const PORTION: usize = 64;

pub(super) fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(tstream(program, options)?))
}

fn tstream(program: &Program, options: &Options) -> Result<Tstream, RunError> {
    let (threads, events) = (options.threads, options.punctuation);
    let layout = Layout::new(&program.tables);
    let containers: Vec<bool> = program.tables.iter().map(|table| table.containers).collect();
    let member = || Member { counters: Counters::default(), costs: Costs::default(), round: 0, pending: Vec::new() };
    Ok(Tstream {
        punctuation: events,
        barrier: Barrier::new(threads),
        partitioning: Partitioning::new(threads),
        directory: Directory::new(&layout),
        threads: Own::new(threads, member),
        benches: Own::new(threads, || Workbench::new(program.output_stride())),
        decompositions: Own::new(threads, || Decomposition::new(threads, containers.clone())),
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

    fn pools(&self) -> Option<Vec<usize>> {
        Some(self.tasks.pools())
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
        let mut watch = Stopwatch::start();

        let started = self.compute(task, own, slice.clone(), &mut watch)?;
        self.meet(task, own, &mut watch)?;
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

    /// Compute mode, up to the barrier: takes the events of a slice as they arrive, and inserts their operations into the
    /// chains. Returns the time at which it started.
    fn compute(
        &self,
        task: Assignment,
        own: &mut Member,
        slice: Range<usize>,
        watch: &mut Stopwatch,
    ) -> Result<u64, RunError> {
        let Assignment { thread, threads, run, batch, outcome } = task;
        let into = Insertion {
            thread,
            is_alone: threads == 1,
            partitioning: &self.partitioning,
            layout: &self.layout,
            directory: &self.directory,
            tasks: &self.tasks,
        };
        let mut started = None;
        let mut compute = |bench: &mut Workbench, decomposition: &mut Decomposition| -> Result<(), RunError> {
            bench.planner.reset();
            decomposition.clear();
            let mut begin = slice.start;
            while begin < slice.end {
                run.await_arrival(batch.begin + begin + 1);
                run.check()?;
                if started.is_none() || run.arrivals.is_open_loop() {
                    started.get_or_insert_with(|| run.clock.now());
                    *watch = Stopwatch::start();
                }
                let most = slice.end.min(begin + PORTION);
                let end = run.arrived(batch.begin + begin + 1..batch.begin + most) - batch.begin;
                let planned = bench.planner.accesses().len();
                bench.plan_more(run, batch, begin..end, outcome)?;
                watch.lap(&mut own.costs.planning);
                let accesses = &bench.planner.accesses()[planned..];
                // SAFETY: it is compute mode, and the events are this thread's.
                unsafe { decomposition.decompose(accesses, into, &mut own.costs) };
                own.counters.time.remote += accesses.iter().map(|access| self.remote(task, access)).sum::<u64>();
                watch.lap(&mut own.costs.insertion);
                begin = end;
            }
            decomposition.finish(&self.layout);
            if decomposition.has_groups() {
                for claim in &self.claims[slice.clone()] {
                    // ORDERING: Relaxed; the barrier publishes it.
                    claim.store(0, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        // SAFETY: all of it is the thread's own. The others are done with the last batch's state access mode, in which they
        // read the decomposition and the tasks.
        unsafe {
            self.tasks.clear(thread, 0);
            self.benches.with_mut(thread, |bench| {
                self.decompositions.with_mut(thread, |decomposition| compute(bench, decomposition))
            })?;
        }
        watch.lap(&mut own.costs.insertion);
        Ok(started.unwrap_or_else(|| run.clock.now()))
    }

    /// The additional nanoseconds to insert an operation into a chain on another node.
    #[inline(always)]
    fn remote(&self, task: Assignment, access: &Access) -> u64 {
        let placement = task.run.placement;
        let partition = if placement.is_flat() { 0 } else { self.partitioning.of(RowName::of(access)) };
        placement.fetch(task.thread, partition, size_of::<Node>())
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
    /// It is state access mode, and all threads are in this round, or at the barriers around it.
    unsafe fn round(&self, task: Assignment, own: &mut Member, round: u32) -> Result<(), RunError> {
        let Assignment { thread, threads, run, .. } = task;
        let processing = Processing {
            task,
            layout: &self.layout,
            directory: &self.directory,
            decompositions: &self.decompositions,
            claims: &self.claims,
            round,
        };
        // SAFETY: decompositions and chains are only read here. Each chain is one task, and a pool hands out each once.
        unsafe {
            let is_shared =
                threads > 1 && (round > 0 || self.decompositions.sum(|thread| usize::from(thread.is_shared)) > 0);
            let mut pending = processing.start(is_shared, &mut own.pending);
            self.tasks.clear(thread, round + 1);
            for chain in self.tasks.take(thread, round, own.round) {
                let Walked { nodes, is_done } = processing.walk(&*chain.0, &mut pending)?;
                let bytes = nodes * size_of::<Node>();
                own.counters.time.remote += run.placement.fetch(thread, (*chain.0).partition(), bytes);
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

#[cfg(all(test, not(loom)))]
mod decomposed;
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
