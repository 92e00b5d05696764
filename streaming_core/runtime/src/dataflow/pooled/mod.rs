//! The `pooled` executor: a pool of workers that choose at run time what to do next, total order end to end
//! (Prasaad, Ramalingam, Kaushik: Scaling Ordered Stream Processing on Shared-Memory Multicores).
//!
//! A block is cut into batches; a batch has a serial number and lives in slot `serial % WINDOW` until it is delivered.
//! The operators, in topological order, are cut into steps (fused stateless operators, any worker on any batch) and stages (one partitioned or
//! stateful operator, a worker per lane, batches in order):
//!
//! ```text
//! source -> step 0 -> [reorder] -> stage 0 by lanes -> step 1 -> [reorder] -> stage 1 ... -> step K -> [reorder] -> sink
//! ```
//!
//! A step also splits its outputs by lane for the stage behind it, after merging what the lanes in front emitted, in
//! order. A pipeline that branches (the paper leaves those out) takes the same way, one operator with state after the
//! other: a batch keeps the rows of an operator until the last one that takes them, and unites the streams that meet.
//! Where a worker goes next is the `heuristic`'s choice, how a stage hands out its lanes the `queue`'s, what
//! "reorder" is the `reorder` buffer's. Channels are in `channel/`; its README says why nothing overflows and who waits for
//! whom. With one thread there is nothing to order: batches pass straight through (`direct`).

mod delivery;
mod estimates;
mod grouping;
mod heuristic;
mod in_order;
mod input;
mod place;
mod pool;
mod slot;
mod stage;
mod step;
mod strategies;
mod worklist;

use crate::dataflow::direct::Direct;
use crate::dataflow::flush::flush;
use crate::dataflow::lane::keyed_states;
use crate::dataflow::operator::Chain;
use crate::error::RunError;
use crate::executor::{Executor, States};
use crate::output::clock::{Clock, Stopwatch};
use crate::output::metrics::Metrics;
use crate::output::sink::Sink;
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::block::Block;
use crate::rows::view::Rows;
use crate::threads::sync::{Mutex, Ordering, lock};
use crate::threads::team::Team;

use grouping::Grouping;
use pool::{Job, Pool};
use strategies::Strategies;

/// Batches after which the shares are looked at for the first time, and then whenever their number has doubled.
const TRIAL: usize = 64;

/// The executor; see the module.
#[derive(Debug)]
pub struct Pooled {
    team: Team,
    pool: Pool,
    /// One thread: the way through the chain; several: for flushing.
    direct: Direct,
    grouping: Grouping,
    clock: Clock,
    events: u64,
}

// SAFETY: pointers in batches refer to memory that the executor owns, or to a block that is in use.
unsafe impl Send for Pooled {}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an option names a strategy that does not exist.
pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    let strategies = Strategies::named(&options)?;
    Ok(Box::new(Pooled::new(program, options, strategies, Grouping::Queue(strategies.queue.partitions))?))
}

impl Pooled {
    fn new(program: Program, options: Options, strategies: Strategies, grouping: Grouping) -> Result<Self, RunError> {
        // SAFETY: whoever hands over a program answers for its addresses.
        let chain = unsafe { Chain::bind(&program) }?;
        let sink = Sink::new(options.sink, program.hasher()?);
        let team = Team::new(options.threads, options.idle, options.pin)?;
        let direct = Direct::new(&chain);
        let pool = Pool::new(chain, sink, strategies, &options);
        Ok(Self { team, pool, direct, grouping, clock: Clock::default(), events: 0 })
    }
}

/// With one thread: batch after batch straight through the chain.
fn alone(pool: &Pool, direct: &mut Direct, job: &Job<'_>) -> Result<(), RunError> {
    pool.workers[0].with_mut(|worker| {
        pool.delivered.with_mut(|delivered| {
            // SAFETY: there is no other thread.
            let (worker, delivered) = unsafe { (&mut *worker, &mut *delivered) };
            let block = job.block;
            let rows = Rows::new(block.row(0), block.n, block.stride, block.text);
            let mut start = 0;
            while start < block.n {
                let end = block.n.min(start + pool.batch);
                if pool.arrivals.is_open_loop() {
                    let mut clock = Stopwatch::start();
                    pool.arrivals.wait(job.before + end as u64 - 1, &job.clock, || false);
                    clock.lap(&mut worker.counters.time.other);
                }
                let started = job.clock.now();
                let batch = rows.slice(start..end);
                let sink = &mut delivered.sink;
                // SAFETY: the rows are the block's events; there is no other thread.
                unsafe { direct.events(&pool.chain, &pool.lanes, batch, sink, &mut worker.counters) }?;
                delivered.record(job.clock.now(), started, pool.arrival(job, start));
                start = end;
            }
            Ok(())
        })
    })
}

impl Pooled {
    /// Processes a block or a part of one.
    fn part(&mut self, block: &Block) -> Result<(), RunError> {
        let clock = self.clock.start();
        self.pool.regroup(&mut self.grouping)?;
        let pool = &self.pool;
        // ORDERING: Relaxed; no worker is at work.
        let first = pool.source.load(Ordering::Relaxed);
        let end = first + block.n.div_ceil(pool.batch) as u64;
        let job = Job { block, first, end, before: self.events, clock };
        let outcome = if self.team.threads() == 1 {
            let direct = Mutex::new(&mut self.direct);
            self.team.run(&|_| alone(pool, &mut lock(&direct), &job))
        } else {
            self.team.run(&|index| pool.work(index, &job))
        };
        self.clock.stop(clock);
        self.events += block.n as u64;
        outcome?;
        lock(&pool.failure).take().map_or(Ok(()), Err)
    }
}

impl Executor for Pooled {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        let mut start = 0;
        while start < block.n {
            // What was processed so far tells how to go on.
            let section = (TRIAL * self.pool.batch).max(self.events as usize);
            let n = if self.team.threads() > 1 { section.min(block.n - start) } else { block.n };
            // SAFETY: a part of the block.
            let part = unsafe { Block::new(block.row(start), n, block.stride, block.text) };
            self.part(&part)?;
            start += n;
        }
        Ok(())
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let pool = &self.pool;
        let clock = self.clock.start();
        let direct = Mutex::new(&mut self.direct);
        let outcome = self.team.run(&|index| {
            if index > 0 {
                return Ok(());
            }
            pool.workers[0].with_mut(|worker| {
                pool.delivered.with_mut(|delivered| {
                    // SAFETY: the other threads do nothing.
                    let (counters, sink) = unsafe { (&mut (*worker).counters, &mut (*delivered).sink) };
                    let mut direct = lock(&direct);
                    // SAFETY: the lanes are the chain's; the other threads do nothing.
                    unsafe { flush(&pool.chain, &pool.lanes, &mut direct, seq, sink, counters) }
                })
            })
        });
        self.clock.stop(clock);
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        // SAFETY: no worker is at work.
        self.pool.delivered.with_mut(|delivered| unsafe { (*delivered).sink.take() })
    }

    fn metrics(&self) -> Metrics {
        let mut counters = self.team.counters();
        for worker in &self.pool.workers {
            // SAFETY: no worker is at work.
            counters += worker.with(|worker| unsafe { (*worker).counters });
        }
        self.pool.delivered.with(|delivered| {
            // SAFETY: no worker is at work.
            let delivered = unsafe { &*delivered };
            Metrics {
                events: self.events,
                counters,
                seconds: self.clock.seconds(),
                binding: self.team.binding(),
                ..delivered.metrics()
            }
        })
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        // SAFETY: no worker is at work.
        unsafe { keyed_states(&self.pool.chain, &self.pool.lanes, operator) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
