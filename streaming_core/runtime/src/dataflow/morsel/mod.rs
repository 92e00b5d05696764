//! The `morsel` executor, a baseline: workers take whole batches through the whole pipeline (what BriskStream, section 6,
//! compares itself with in StreamBox).
//!
//! Every worker takes the next batch and runs one operator after the other on it. Where an operator has state, batches
//! wait for each other: with order `total` each for its turn at that operator, and at the sink; with order `none` for
//! nothing but the locks of the partitions that its rows are in.
//!
//! No cycle of waiting: batches are started in order, and the earliest one that is not through waits for nobody; a worker
//! holds one lock at a time.

use crate::dataflow::direct::{Direct, keyed};
use crate::dataflow::flush::flush;
use crate::dataflow::lane::{Lane, Lanes, Scratch, keyed_states, lane_of};
use crate::dataflow::operator::Chain;
use crate::error::RunError;
use crate::executor::{Executor, States};
use crate::output::clock::{Arrivals, Clock, Running, Stopwatch};
use crate::output::counters::Counters;
use crate::output::delivered::Delivered;
use crate::output::metrics::Metrics;
use crate::output::sink::{Preparer, Sink};
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::block::Block;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::own::Lent;
use crate::threads::sync::{Arc, AtomicU64, CachePadded, Mutex, Ordering, UnsafeCell, lock};
use crate::threads::team::{Signals, Team};

/// Partitions of an operator with keys, per worker, where there is no order: fewer, and workers wait for each other more
/// often; more, and their rows are fewer.
const PARTITIONS: usize = 2;

/// The registry of orders.
const ORDERS: &[(&str, bool)] = &[("total", true), ("none", false)];

/// One worker's part. Used by that worker, and between blocks by the executor.
#[derive(Debug)]
struct Worker {
    direct: Direct,
    part: Part,
    counters: Counters,
}

/// Room for one partition's rows of a batch, and the hashes of their keys.
#[derive(Debug)]
struct Part {
    /// Per partition, where its rows are in the batch.
    positions: Vec<Vec<u32>>,
    rows: RowBuffer,
    hashes: Vec<u64>,
}

/// What all workers share.
#[derive(Debug)]
struct Shared {
    chain: Chain,
    /// Per operator with state. In total order one lane, its holder's whose turn it is; else one per partition.
    lanes: Vec<Lanes>,
    /// Per operator with state, without order: who holds it uses the lane.
    locks: Vec<Vec<Mutex<()>>>,
    /// Per operator with state, and of the sink: the batch whose turn it is. Written by who had the turn before.
    turns: Vec<CachePadded<AtomicU64>>,
    ordered: bool,
    /// The next batch to take.
    next: CachePadded<AtomicU64>,
    /// The failure of the earliest event. Written by any worker.
    failure: Mutex<Option<RunError>>,
    /// Its batch: no later one goes on. Written with the failure.
    failed_at: AtomicU64,
    /// Without order: whoever holds it; else who has the last turn, and never waits for it.
    delivered: Mutex<Delivered>,
    preparer: Preparer,
    signals: Arc<Signals>,
    arrivals: Arrivals,
    batch: usize,
}

// SAFETY: lanes are used by who has the turn or the lock; what a turn's holder wrote, its successor sees: turns are written
// with Release and read with Acquire.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Shared {}

/// One block's worth of work.
struct Job<'a> {
    block: &'a Block,
    /// Number of its first batch, and one past its last.
    first: u64,
    end: u64,
    /// Events before this block.
    before: u64,
    clock: Running,
}

/// The executor; see the module.
#[derive(Debug)]
pub struct Morsel {
    team: Team,
    shared: Shared,
    workers: Vec<CachePadded<UnsafeCell<Worker>>>,
    clock: Clock,
    events: u64,
    batches: u64,
}

// SAFETY: rows and addresses refer to memory that the executor owns, or to a block that is in use.
unsafe impl Send for Morsel {}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an order that does not exist, or none where the application does not say what agrees then.
pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    Ok(Box::new(Morsel::new(&program, &options)?))
}

impl Morsel {
    fn new(program: &Program, options: &Options) -> Result<Self, RunError> {
        let named = options.order.as_deref().unwrap_or(ORDERS[0].0);
        let Some(&(_, ordered)) = ORDERS.iter().find(|(name, _)| *name == named) else {
            return Err(RunError::Invalid(format!("unknown order {named:?} of executor morsel; known: total, none")));
        };
        // SAFETY: whoever hands over a program answers for its addresses.
        let chain = unsafe { Chain::bind(program) }?;
        let sink = Sink::new(options.sink, if ordered { program.hasher() } else { program.unordered_hasher() }?);
        let team = Team::new(options.threads, options.idle, options.pin)?;
        let partitions = |index: usize| match chain.operators[index].key {
            Some(_) if !ordered => PARTITIONS * options.threads,
            _ => 1,
        };
        let counts: Vec<usize> = chain.stateful.iter().map(|&index| partitions(index)).collect();
        let lanes = chain.stateful.iter().zip(&counts).map(|(&at, &count)| Lanes::new(&chain.operators[at], count));
        let shared = Shared {
            lanes: lanes.collect(),
            locks: counts.iter().map(|&count| (0..count).map(|_| Mutex::new(())).collect()).collect(),
            turns: (0..=counts.len()).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            ordered,
            next: CachePadded::new(AtomicU64::new(0)),
            failure: Mutex::new(None),
            failed_at: AtomicU64::new(u64::MAX),
            preparer: sink.preparer().clone(),
            delivered: Mutex::new(Delivered::new(sink)),
            signals: team.signals(),
            arrivals: Arrivals::new(options.rate),
            batch: options.batch,
            chain,
        };
        let worker = || Worker {
            direct: Direct::new(&shared.chain),
            part: Part { positions: Vec::new(), rows: RowBuffer::new(8, false), hashes: Vec::new() },
            counters: Counters::default(),
        };
        let workers = (0..options.threads).map(|_| CachePadded::new(UnsafeCell::new(worker()))).collect();
        Ok(Self { team, shared, workers, clock: Clock::default(), events: 0, batches: 0 })
    }
}

impl Shared {
    /// Keeps the failure of the earliest event.
    fn note(&self, batch: u64, error: RunError) {
        let mut first = lock(&self.failure);
        if first.as_ref().is_none_or(|other| error.rank() < other.rank()) {
            *first = Some(error);
        }
        // ORDERING: Release; those who stop because of it need nothing else from this thread.
        self.failed_at.fetch_min(batch, Ordering::Release);
        self.signals.idle.notify();
    }

    /// Whether batch `number` need not be gone on with.
    fn is_over(&self, number: u64) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        self.signals.stopped.load(Ordering::Acquire) || self.has_failed_before(number)
    }

    fn has_failed_before(&self, number: u64) -> bool {
        // ORDERING: Acquire; nothing but the number is used.
        self.failed_at.load(Ordering::Acquire) < number
    }

    /// Waits for the turn of batch `number` at `turn`, does its work, and gives the turn to the next one.
    ///
    /// # Errors
    /// `Stopped`: the turn never comes.
    fn in_turn<R>(&self, turn: usize, number: u64, wait: &mut Waited, work: impl FnOnce() -> R) -> Result<R, RunError> {
        let turn = &self.turns[turn];
        // ORDERING: Acquire; what the batch before did at this turn comes before.
        let is_mine = || turn.load(Ordering::Acquire) == number;
        if !is_mine() {
            wait.during(|| self.signals.idle.wait(|| is_mine() || self.is_over(number)));
            if !is_mine() {
                return Err(RunError::Stopped);
            }
        }
        let made = work();
        // ORDERING: Release; hands over what was done here.
        turn.store(number + 1, Ordering::Release);
        self.signals.idle.notify();
        Ok(made)
    }

    /// Everything that a worker does for a block.
    fn work(&self, worker: &mut Worker, job: &Job<'_>) -> Result<(), RunError> {
        let mut clock = Stopwatch::start();
        loop {
            // ORDERING: Relaxed; the counter only hands out numbers.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= job.end || self.is_over(number) {
                return Ok(());
            }
            let start = (number - job.first) as usize * self.batch;
            let end = job.block.n.min(start + self.batch);
            self.arrivals.wait(job.before + end as u64 - 1, &job.clock, || self.is_over(number));
            clock.lap(&mut worker.counters.time.other);
            match self.batch(worker, number, start..end, job, &mut clock) {
                Err(error @ RunError::Kernel { .. }) => self.note(number, error),
                // A failure before this batch; the run ends with that.
                Err(RunError::Stopped) if self.has_failed_before(number) => return Ok(()),
                other => other?,
            }
        }
    }

    /// Takes a batch of events through the pipeline.
    fn batch(
        &self,
        worker: &mut Worker,
        number: u64,
        range: std::ops::Range<usize>,
        job: &Job<'_>,
        clock: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let Worker { direct, part, counters } = worker;
        let (chain, block) = (&self.chain, job.block);
        let all = Rows::new(block.row(0), block.n, block.stride, block.text);
        let (events, started) = (all.slice(range.clone()), job.clock.now());
        let mut wait = Waited::default();
        let mut failure: Option<RunError> = None;
        for index in 0..chain.operators.len() {
            let process = |stage: usize, rows: Rows, scratch: &mut Scratch, out: &mut RowBuffer| {
                if self.ordered {
                    // SAFETY: the rows are the operator's; whose turn it is has the lane.
                    let work = || unsafe { keyed(chain, &self.lanes[stage], index, rows, scratch, out) };
                    return self.in_turn(stage, number, &mut wait, work)?;
                }
                // SAFETY: the rows are the operator's.
                unsafe { self.by_parts(stage, rows, scratch, &mut *part, &mut wait, out) }
            };
            // SAFETY: the rows are the block's events, and what operators before have made of them.
            match unsafe { direct.operate_by(chain, index, events, counters, process) } {
                Ok(()) => {}
                // The outputs of earlier events go on: those may fail, too.
                Err(error @ RunError::Kernel { .. }) => {
                    if failure.as_ref().is_none_or(|other| error.rank() < other.rank()) {
                        failure = Some(error);
                    }
                }
                Err(other) => return Err(other),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        // SAFETY: as above.
        let out = unsafe { direct.taken_by_sink(chain, events) }?;
        let prepared = self.preparer.prepare(out, block.text)?;
        let time = &mut counters.time;
        wait.lap(clock, &mut time.useful, &mut time.sync);
        let deliver = || {
            let mut delivered = lock(&self.delivered);
            delivered.sink.deliver(out, &prepared, block.text)?;
            let arrival = self.arrivals.is_open_loop().then(|| self.arrivals.at(job.before + range.start as u64));
            delivered.record(job.clock.now(), started, arrival);
            Ok(())
        };
        if self.ordered {
            self.in_turn(self.lanes.len(), number, &mut wait, deliver)??
        } else {
            deliver()?
        }
        wait.lap(clock, &mut time.other, &mut time.sync);
        Ok(())
    }

    /// Runs an operator with state on one partition's rows after the other, each under its lock.
    ///
    /// # Safety
    /// The rows are readable and the operator's.
    unsafe fn by_parts(
        &self,
        stage: usize,
        rows: Rows,
        scratch: &mut Scratch,
        part: &mut Part,
        wait: &mut Waited,
        out: &mut RowBuffer,
    ) -> Result<(), RunError> {
        let (operator, locks) = (&self.chain.operators[self.chain.stateful[stage]], &self.locks[stage]);
        let hashes = match operator.key {
            None => Vec::new(),
            Some(key) => {
                // SAFETY: as the caller says.
                unsafe { scratch.hash(rows, key) }?;
                std::mem::take(&mut scratch.hashes)
            }
        };
        part.positions.resize_with(part.positions.len().max(locks.len()), Vec::new);
        part.positions.iter_mut().for_each(Vec::clear);
        for (position, &hash) in (0..).zip(hashes.iter().take(rows.n)) {
            part.positions[lane_of(hash, locks.len())].push(position);
        }
        if part.rows.stride() != rows.stride {
            part.rows = RowBuffer::new(rows.stride, false);
        }
        let mut outcome = Ok(());
        for (lane, mutex) in locks.iter().enumerate() {
            let (mut rows, positions) = (rows, &part.positions[lane]);
            part.hashes.clear();
            if operator.key.is_some() {
                part.rows.clear();
                let row = |i: usize| rows.slice(positions[i] as usize..rows.n).start;
                // SAFETY: rows of those.
                unsafe { part.rows.gather(positions.len(), row) }?;
                part.hashes.extend(positions.iter().map(|&position| hashes[position as usize]));
                rows = Rows::of(&part.rows, rows.text);
            }
            let part_hashes = &part.hashes;
            let held = wait.during(|| lock(mutex));
            // SAFETY: the rows are of this lane, and whoever holds the lock has it.
            let process = |held: &mut Lane| unsafe { held.process(operator, rows, part_hashes, scratch, out) };
            // SAFETY: as above.
            let this = unsafe { self.lanes[stage].with(lane, process) };
            drop(held);
            match this {
                // The other partitions may fail with an earlier event.
                Err(error @ RunError::Kernel { .. }) => {
                    if outcome.as_ref().err().is_none_or(|other: &RunError| error.rank() < other.rank()) {
                        outcome = Err(error);
                    }
                }
                other => other?,
            }
        }
        scratch.hashes = hashes;
        outcome
    }
}

/// Time of a batch that was spent waiting.
#[derive(Debug, Default)]
struct Waited {
    nanoseconds: u64,
}

impl Waited {
    fn during<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        let mut clock = Stopwatch::start();
        let waited = wait();
        clock.lap(&mut self.nanoseconds);
        waited
    }

    /// Adds the time since the clock's last lap to `time`, but for what was spent waiting, which `sync` gets.
    fn lap(&mut self, clock: &mut Stopwatch, time: &mut u64, sync: &mut u64) {
        clock.lap(time);
        let waited = std::mem::take(&mut self.nanoseconds);
        *time = time.saturating_sub(waited);
        *sync += waited;
    }
}

impl Executor for Morsel {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        if block.n == 0 {
            return Ok(());
        }
        let clock = self.clock.start();
        let Self { team, shared, workers, .. } = self;
        let (first, end) = (self.batches, self.batches + block.n.div_ceil(shared.batch) as u64);
        // ORDERING: Relaxed; workers are started behind it.
        shared.next.store(first, Ordering::Relaxed);
        self.batches = end;
        let job = Job { block, first, end, before: self.events, clock };
        let (shared, lent) = (&*shared, Lent(workers));
        let outcome = team.run(&|index| {
            // SAFETY: each worker has its own.
            unsafe { lent.with(index, |worker| shared.work(worker, &job)) }
        });
        self.clock.stop(clock);
        self.events += block.n as u64;
        outcome?;
        lock(&self.shared.failure).take().map_or(Ok(()), Err)
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let clock = self.clock.start();
        let Self { shared, workers, .. } = self;
        let outcome = workers[0].with_mut(|worker| {
            // SAFETY: no worker is at work.
            let Worker { direct, counters, .. } = unsafe { &mut *worker };
            let mut delivered = lock(&shared.delivered);
            // SAFETY: the lanes are the chain's; no worker is at work.
            unsafe { flush(&shared.chain, &shared.lanes, direct, seq, &mut delivered.sink, counters) }
        });
        self.clock.stop(clock);
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        lock(&self.shared.delivered).sink.take()
    }

    fn metrics(&self) -> Metrics {
        let mut counters = self.team.counters();
        for worker in &self.workers {
            // SAFETY: no worker is at work.
            counters += worker.with(|worker| unsafe { (*worker).counters });
        }
        Metrics {
            events: self.events,
            counters,
            seconds: self.clock.seconds(),
            binding: self.team.binding(),
            ..lock(&self.shared.delivered).metrics()
        }
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        // SAFETY: no worker is at work.
        unsafe { keyed_states(&self.shared.chain, &self.shared.lanes, operator) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
