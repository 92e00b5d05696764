//! The `morsel` executor, a baseline: workers take whole batches through the whole pipeline, as StreamBox does in the
//! comparison of BriskStream, section 6.
//!
//! Every worker takes the next batch and runs one operator after the other on it. At operators with state, batches wait for
//! each other. With order `total`, a batch waits for its turn at each such operator, and at the sink. With order `none`, it
//! waits only for the locks of the partitions of its rows.
//!
//! No deadlock: batches start in order, and the earliest unfinished batch waits for no other. A worker holds one lock at a
//! time.

use crate::dataflow::direct::{Direct, keyed};
use crate::dataflow::frame::{Dataflow, Frame, Job, Work, any_number};
use crate::dataflow::lane::{Lane, Scratch, lane_of};
use crate::error::RunError;
use crate::executor::Executor;
use crate::interruption;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::planted::{self, Fault};
use crate::program::Program;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::choice::Choice;
use crate::threads::door::Door;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// Partitions per worker, of an operator with keys and without order. With fewer partitions, workers wait for each other more
/// often. With more, each partition has fewer rows.
const PARTITIONS: usize = 2;

/// The registry of orders.
const ORDERS: &[(&str, bool)] = &[("total", true), ("none", false)];

/// The part of a worker. That worker uses it, and between blocks the executor.
#[derive(Debug)]
struct BatchWorker {
    direct: Direct,
    part: PartitionRows,
    counters: Counters,
}

/// Room for one partition's rows of a batch, and the hashes of their keys.
#[derive(Debug)]
struct PartitionRows {
    /// Per partition, the positions of its rows in the batch.
    positions: Vec<Vec<u32>>,
    rows: RowBuffer,
    hashes: Vec<u64>,
}

/// The data that all workers share.
#[derive(Debug)]
struct Batches {
    workers: Own<BatchWorker>,
    /// Per operator with state, without order: the holder of the lock uses the lane. In total order there is one lane, for the
    /// worker with the turn.
    locks: Vec<Vec<Mutex<()>>>,
    /// Per operator with state, and of the sink: batches go through it one after the other.
    turns: Vec<Door>,
    ordered: bool,
    /// The next batch of the block to take.
    next: CachePadded<AtomicU64>,
    /// The first batch of the block with a failure. No later batch goes on. Written with the failure.
    failed_at: AtomicU64,
    /// Without order, the holder of the lock delivers; in total order, the worker with the last turn.
    delivering: Mutex<()>,
}

/// The executor; see the module.
type Morsel = Dataflow<Batches>;

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an order that does not exist, or none where the application does not say what agrees then.
pub(crate) fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    Ok(Box::new(morsel(&program, &options.within_cores())?))
}

fn morsel(program: &Program, options: &Options) -> Result<Morsel, RunError> {
    let ordered = find("order", " of executor morsel", options.order.as_deref(), ORDERS)?;
    let partitions = |index: usize| match program.operators[index].key[..] {
        [_, ..] if !ordered => PARTITIONS * options.threads,
        _ => 1,
    };
    Dataflow::new(program, options, any_number(options), ordered, 1, partitions, |frame| {
        let worker = || BatchWorker {
            direct: Direct::new(&frame.chain),
            part: PartitionRows { positions: Vec::new(), rows: RowBuffer::new(8, false), hashes: Vec::new() },
            counters: Counters::default(),
        };
        let locks = |&index: &usize| (0..partitions(index)).map(|_| Mutex::new(())).collect();
        Batches {
            workers: Own::new(options.threads, worker),
            locks: frame.chain.stateful.iter().map(locks).collect(),
            turns: (0..=frame.chain.stateful.len()).map(|_| Door::default()).collect(),
            ordered,
            next: CachePadded::default(),
            failed_at: AtomicU64::new(u64::MAX),
            delivering: Mutex::new(()),
        }
    })
}

impl Work for Batches {
    fn begin(&mut self, _frame: &mut Frame, _n: usize, _choice: &Choice) -> Result<(), RunError> {
        // Batches are numbered anew in each block.
        self.next = CachePadded::default();
        self.turns.iter_mut().for_each(|turn| *turn = Door::default());
        Ok(())
    }

    fn work(&self, thread: usize, job: &Job) -> Result<(), RunError> {
        // SAFETY: each worker has its own.
        unsafe { self.workers.with_mut(thread, |worker| self.go_round(worker, job)) }
    }

    fn counters(&self) -> Counters {
        // SAFETY: no worker is at work.
        unsafe { self.workers.sum(|worker| worker.counters) }
    }
}

impl Batches {
    /// Whether batch `number` need not be gone on with.
    fn is_over(&self, number: u64, job: &Job) -> bool {
        job.frame.is_stopped() || self.has_failed_before(number)
    }

    fn has_failed_before(&self, number: u64) -> bool {
        // ORDERING: Acquire; nothing but the number is used.
        self.failed_at.load(Ordering::Acquire) < number
    }

    /// Waits for the turn of batch `number` at `turn`, does its work, and passes the turn to the next one.
    ///
    /// # Errors
    /// `Stopped`: the turn never comes.
    fn in_turn<R>(
        &self,
        turn: usize,
        number: u64,
        job: &Job,
        wait: &mut Waited,
        work: impl FnOnce() -> R,
    ) -> Result<R, RunError> {
        let (turn, idle) = (&self.turns[turn], &job.frame.signals.idle);
        if turn.next() != number {
            wait.during(|| turn.enter(number, idle, || self.is_over(number, job)))?;
        }
        let outcome = work();
        turn.leave(number, idle);
        Ok(outcome)
    }

    /// Does the work of a worker for a block.
    fn go_round(&self, worker: &mut BatchWorker, job: &Job) -> Result<(), RunError> {
        let (mut clock, size, n) = (Stopwatch::start(), job.frame.batch, job.block.n);
        loop {
            interruption::check()?;
            // ORDERING: Relaxed; the counter only hands out numbers.
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let start = (number as usize).saturating_mul(size);
            if start >= n || self.is_over(number, job) {
                return Ok(());
            }
            let end = n.min(start + size);
            job.await_arrival(end, || self.is_over(number, job));
            clock.lap(&mut worker.counters.time.other);
            match self.batch(worker, number, start..end, job, &mut clock) {
                // A failure before this batch; the run ends with that.
                Err(RunError::Stopped) if self.has_failed_before(number) => return Ok(()),
                other => other?,
            }
        }
    }

    /// Takes a batch of events through the pipeline.
    fn batch(
        &self,
        worker: &mut BatchWorker,
        number: u64,
        range: std::ops::Range<usize>,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let BatchWorker { direct, part, counters } = worker;
        let (frame, block) = (job.frame, job.block);
        let (chain, idle) = (&frame.chain, &frame.signals.idle);
        let (events, started) = (job.rows().slice(range.clone()), job.clock.now());
        let mut wait = Waited::default();
        let mut failed = false;
        for index in 0..chain.operators.len() {
            let process = |stage: usize, rows: Rows, scratch: &mut Scratch, out: &mut RowBuffer| {
                if self.ordered {
                    // SAFETY: the rows are the operator's; the worker with the turn has the lane.
                    let work = || unsafe { keyed(chain, &frame.lanes[stage], index, rows, scratch, out) };
                    return self.in_turn(stage, number, job, &mut wait, work)?;
                }
                // SAFETY: the rows are the operator's.
                unsafe { self.by_parts(frame, stage, rows, scratch, &mut *part, &mut wait, out) }
            };
            // SAFETY: the rows are the block's events, and what operators before have made of them.
            match unsafe { direct.operate_by(chain, index, events, counters, process) } {
                Ok(()) => {}
                // The outputs of earlier events go on: those may fail, too.
                Err(error @ RunError::Kernel { .. }) => {
                    frame.note(index, error.ordered(|_| 0));
                    failed = true;
                }
                Err(other) => return Err(other),
            }
        }
        if failed {
            // ORDERING: Release; threads that stop because of it need nothing else from this thread.
            self.failed_at.fetch_min(number, Ordering::Release);
            idle.notify();
            return Ok(());
        }
        // SAFETY: as above.
        let out = unsafe { direct.taken_by_sink(chain, events) }?;
        let (preparer, rows) = (&frame.preparer, Rows::of(out, block.text));
        let prepared = preparer.prepare(out, block.text)?;
        // SAFETY: a buffer's rows are readable.
        let kept = unsafe { preparer.keep(rows, &prepared) }?;
        let time = &mut counters.time;
        wait.lap(clock, &mut time.useful, &mut time.sync);
        let deliver = || {
            // SAFETY: it is this batch's turn at the sink, or the lock is held.
            unsafe {
                frame.deliver(0, |delivered| {
                    delivered.sink.take_over(rows, &prepared, kept)?;
                    delivered.record(job.clock.now(), started, job.arrival(range.start));
                    Ok::<_, RunError>(())
                })
            }
        };
        if self.ordered && !planted::has(Fault::LostTurn) {
            self.in_turn(self.turns.len() - 1, number, job, &mut wait, deliver)??
        } else {
            let _held = lock(&self.delivering);
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
        frame: &Frame,
        stage: usize,
        rows: Rows,
        scratch: &mut Scratch,
        part: &mut PartitionRows,
        wait: &mut Waited,
        out: &mut RowBuffer,
    ) -> Result<(), RunError> {
        let (operator, locks) = (&frame.chain.operators[frame.chain.stateful[stage]], &self.locks[stage]);
        let hashes = if operator.key.is_empty() {
            Vec::new()
        } else {
            // SAFETY: as the caller says.
            unsafe { scratch.hash(rows, &operator.key) }?;
            std::mem::take(&mut scratch.hashes)
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
            if !operator.key.is_empty() {
                part.rows.clear();
                let row = |i: usize| rows.slice(positions[i] as usize..rows.n).start;
                // SAFETY: rows of those.
                unsafe { part.rows.gather(positions.len(), row) }?;
                part.hashes.extend(positions.iter().map(|&position| hashes[position as usize]));
                rows = Rows::of(&part.rows, rows.text);
            }
            let part_hashes = &part.hashes;
            let held = wait.during(|| lock(mutex));
            // SAFETY: the rows belong to this lane, and this worker holds its lock.
            let process = |held: &mut Lane| unsafe { held.process(operator, rows, part_hashes, scratch, out) };
            // SAFETY: as above.
            let this = unsafe { frame.lanes[stage].with(lane, process) };
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

#[cfg(all(test, not(loom)))]
mod tests;
