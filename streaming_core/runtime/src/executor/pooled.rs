//! The `pooled` executor: a pool of workers that choose at run time what to do next, total order end to end
//! (Prasaad, Ramalingam, Kaushik: Scaling Ordered Stream Processing on Shared-Memory Multicores).
//!
//! A block is cut into batches; a batch has a serial number and lives in slot `serial % WINDOW` until it is delivered.
//! The chain is cut into steps (fused stateless operators, any worker on any batch) and stages (one partitioned or
//! stateful operator, a worker per lane, batches in order):
//!
//! ```text
//! source -> step 0 -> [reorder] -> stage 0 by lanes -> step 1 -> [reorder] -> stage 1 ... -> step K -> [reorder] -> sink
//! ```
//!
//! A step also splits its outputs by lane for the stage behind it, after merging what the lanes in front emitted, in
//! order. Channels are in `channel/`; its README says why nothing overflows and nobody waits for a worker that holds
//! a lock. With one thread there is nothing to order: batches pass straight through (`direct`).

mod input;

use std::ptr::null;

use crate::batch::{Block, RowBuffer};
use crate::channel::reorder::ReorderBuffer;
use crate::channel::worklist::{HybridQueue, InOrder};
use crate::digest::ColumnKind;
use crate::executor::direct::Direct;
use crate::executor::flush::flush;
use crate::executor::team::Team;
use crate::executor::{Executor, Keys, States};
use crate::idle::Idle;
use crate::kernel::RunError;
use crate::metrics::{Arrivals, Clock, Counters, Latencies, Metrics, Running, Stopwatch};
use crate::program::{OperatorKind, Options, Program};
use crate::sink::{Prepared, Preparer, Sink};
use crate::stage::{Chain, Lanes, Rows, Scratch};
use crate::state::keyed::KeyRef;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering, UnsafeCell, lock};
use crate::topology::Topology;

use input::{Input, merge};

/// Batches in flight: at least this many, and this many per thread; rounded up to a power of two.
const WINDOW: usize = 8;
const WINDOW_PER_THREAD: usize = 2;
/// Lanes of a partitioned stage per thread: enough to even out skewed keys, few enough to leave rows to each.
const LANES_PER_THREAD: usize = 4;
const MOST_LANES: usize = 256;
/// A partitioned stage is split into lanes when its share of the work is above the first, in threads: copying rows into
/// lane order and back must pay. It becomes a single lane again when its share is below the second.
const MANY_LANES: f64 = 1.3;
const ONE_LANE: f64 = 0.9;
/// Batches after which the shares are looked at for the first time, and then whenever their number has doubled.
const TRIAL: usize = 64;
/// Worker `i` has nothing to do right now.
const NOWHERE: usize = usize::MAX;

/// What one worker has for itself.
#[derive(Debug)]
struct Worker {
    /// Per operator: room for its outputs within a step.
    buffers: Vec<RowBuffer>,
    /// Per stage: room for its merged outputs.
    merged: Vec<RowBuffer>,
    scratch: Scratch,
    counters: Counters,
    /// Nanoseconds per batch of each step (even) and stage (odd), a moving average.
    costs: Vec<f64>,
}

/// Where a batch lives.
#[derive(Debug)]
struct Slot {
    /// Written by whoever runs a step on the batch, read by whoever delivers it.
    head: CachePadded<UnsafeCell<Head>>,
    /// Per stage.
    inputs: Vec<Input>,
}

#[derive(Debug)]
struct Head {
    /// Events of the block.
    start: usize,
    end: usize,
    /// Engine time when processing started.
    started: u64,
    /// Room for the outputs.
    out: RowBuffer,
    /// The outputs: `out`, or what the last stage emitted.
    outputs: *const RowBuffer,
    prepared: Prepared,
}

#[derive(Debug)]
struct Stage {
    /// Position in the chain.
    operator: usize,
    /// Reorders what the step in front makes.
    front: ReorderBuffer,
    queue: HybridQueue,
    /// Batches that all lanes are done with.
    done: InOrder,
}

/// Written by whoever delivers; the last reorder buffer lets one worker at a time do that.
#[derive(Debug)]
struct Delivery {
    sink: Sink,
    processing: Latencies,
    end_to_end: Latencies,
}

/// What all workers share.
#[derive(Debug)]
struct Shared {
    chain: Chain,
    stages: Vec<Stage>,
    /// Per stage; a lane is touched by its holder only. A partitioned stage has one, or several if it would otherwise
    /// keep the workers waiting.
    lanes: Vec<Lanes>,
    slots: Vec<Slot>,
    /// The next serial to start. Written by whoever starts it.
    source: CachePadded<AtomicU64>,
    /// Reorders what the last step makes.
    back: ReorderBuffer,
    delivery: UnsafeCell<Delivery>,
    preparer: Preparer,
    /// Per worker: the step (2k) or stage (2k + 1) it is at, a hint for others. Written by that worker.
    at: Vec<CachePadded<AtomicUsize>>,
    workers: Vec<CachePadded<UnsafeCell<Worker>>>,
    idle: Idle,
    /// A kernel raised: no further batch is started, those in flight are finished.
    failed: AtomicBool,
    /// The failure of the earliest event. Written by any worker.
    failure: Mutex<Option<RunError>>,
    /// A worker broke down: everybody leaves.
    broken: AtomicBool,
    arrivals: Arrivals,
    batch: usize,
    window: u64,
}

// SAFETY: batches, lanes, workers' own parts and the delivery are cells; the channels order all accesses to them
// (channel/README.md), and a worker's own part is used by that worker only.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Shared {}

/// One block's worth of work.
#[derive(Clone, Copy)]
struct Job<'a> {
    block: &'a Block,
    /// Serial of the block's first batch, and one past its last.
    first: u64,
    end: u64,
    /// Events before this block.
    before: u64,
    clock: Running,
}

/// The executor; see the module.
#[derive(Debug)]
pub struct Pooled {
    team: Team,
    shared: Shared,
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
    Ok(Box::new(Pooled::new(program, options, Grouping::ByCost)?))
}

/// How many lanes the partitioned stages get.
#[derive(Debug, Clone)]
enum Grouping {
    ByCost,
    /// One number after the other, and again from the start: so that every change is tested.
    #[cfg(all(test, not(loom)))]
    InTurn(Vec<usize>),
}

impl Grouping {
    /// The number of lanes for a stage that has `lanes`, and whose cost is that share of what one of `threads` can do.
    fn lanes(&mut self, lanes: usize, share: f64, threads: usize) -> usize {
        match self {
            Self::ByCost if lanes == 1 && share > MANY_LANES => (LANES_PER_THREAD * threads).min(MOST_LANES),
            Self::ByCost if share < ONE_LANE => 1,
            Self::ByCost => lanes,
            #[cfg(all(test, not(loom)))]
            Self::InTurn(numbers) => {
                numbers.rotate_left(1);
                numbers[numbers.len() - 1]
            }
        }
    }
}

impl Pooled {
    fn new(program: Program, options: Options, grouping: Grouping) -> Result<Self, RunError> {
        for (axis, value, known) in [
            ("heuristic", &options.heuristic, "ct"),
            ("queue", &options.queue, "hybrid"),
            ("reorder", &options.reorder, "non_blocking"),
        ] {
            if let Some(value) = value.as_deref().filter(|value| *value != known) {
                return Err(RunError::Invalid(format!("unknown {axis} {value:?} of executor pooled; known: {known}")));
            }
        }
        // SAFETY: whoever hands over a program answers for its addresses.
        let chain = unsafe { Chain::bind(&program) }?;
        let sink = Sink::new(options.sink, program.hasher()?);
        let team = Team::new(options.threads, options.idle, options.pin)?;
        let direct = Direct::new(&chain);
        let shared = Shared::new(chain, sink, &options);
        Ok(Self { team, shared, direct, grouping, clock: Clock::default(), events: 0 })
    }
}

impl Shared {
    fn new(chain: Chain, sink: Sink, options: &Options) -> Self {
        let threads = options.threads;
        let window = WINDOW.max(WINDOW_PER_THREAD * threads).next_power_of_two();
        let slot = || Slot {
            head: CachePadded::new(UnsafeCell::new(Head {
                start: 0,
                end: 0,
                started: 0,
                out: RowBuffer::new(chain.operators[chain.operators.len() - 1].stride, false),
                outputs: null(),
                prepared: Prepared::default(),
            })),
            inputs: chain.stateful.iter().map(|&index| Input::new(&chain, index, 1)).collect(),
        };
        let worker = || Worker {
            buffers: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect(),
            merged: chain.stateful.iter().map(|&index| RowBuffer::new(chain.operators[index].stride, false)).collect(),
            scratch: Scratch::default(),
            counters: Counters::default(),
            costs: vec![0.0; 2 * chain.stateful.len() + 1],
        };
        Self {
            stages: chain.stateful.iter().map(|&operator| Stage::new(operator, 1, window)).collect(),
            lanes: chain.stateful.iter().map(|&index| Lanes::new(&chain.operators[index], 1)).collect(),
            slots: (0..if threads > 1 { window } else { 0 }).map(|_| slot()).collect(),
            workers: (0..threads).map(|_| CachePadded::new(UnsafeCell::new(worker()))).collect(),
            chain,
            source: CachePadded::new(AtomicU64::new(0)),
            back: ReorderBuffer::new(window),
            preparer: sink.preparer().clone(),
            delivery: UnsafeCell::new(Delivery { sink, processing: Latencies::new(), end_to_end: Latencies::new() }),
            at: (0..threads).map(|_| CachePadded::new(AtomicUsize::new(NOWHERE))).collect(),
            idle: Idle::new(options.idle, threads, Topology::probe().cores.len()),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            broken: AtomicBool::new(false),
            arrivals: Arrivals::new(options.rate),
            batch: options.batch,
            window: window as u64,
        }
    }
}

impl Stage {
    fn new(operator: usize, lanes: usize, window: usize) -> Self {
        Self {
            operator,
            front: ReorderBuffer::new(window),
            queue: HybridQueue::new(lanes, window),
            done: InOrder::new(window),
        }
    }
}

/// Where the rows that a step makes have to stay.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// With the batch, until it is delivered.
    Sink,
    /// With the batch, for the only lane of the stage behind.
    Lane,
    /// They are copied into lane order at once.
    Lanes,
}

impl Shared {
    /// Splits stages that would keep the others waiting into lanes, and joins those that would not.
    ///
    /// Between blocks, when no batch is in flight.
    fn regroup(&mut self, grouping: &mut Grouping) -> Result<(), RunError> {
        let threads = self.workers.len();
        let mut costs = vec![(0.0, 0_u32); 2 * self.stages.len() + 1];
        for worker in &self.workers {
            worker.with(|worker| {
                // SAFETY: no worker is at work.
                for (sum, &cost) in costs.iter_mut().zip(unsafe { &(*worker).costs }) {
                    *sum = (sum.0 + cost, sum.1 + u32::from(cost > 0.0));
                }
            });
        }
        let costs: Vec<f64> = costs.into_iter().map(|(sum, n)| sum / f64::from(n.max(1))).collect();
        let all: f64 = costs.iter().sum();
        let mut changed = false;
        for k in 0..self.stages.len() {
            let index = self.stages[k].operator;
            let share = costs[2 * k + 1] * threads as f64 / all.max(1.0);
            if self.chain.operators[index].kind != OperatorKind::Partitioned {
                continue;
            }
            let count = grouping.lanes(self.lanes[k].count(), share, threads);
            if count == self.lanes[k].count() {
                continue;
            }
            self.split(k, count)?;
            changed = true;
        }
        if changed {
            self.restart();
        }
        Ok(())
    }

    /// Gives stage `k` that many lanes; `restart` must follow.
    fn split(&mut self, k: usize, count: usize) -> Result<(), RunError> {
        let index = self.stages[k].operator;
        self.lanes[k].regroup(&self.chain.operators[index], count)?;
        for slot in &mut self.slots {
            slot.inputs[k] = Input::new(&self.chain, index, count);
        }
        Ok(())
    }

    /// Serial numbers start anew, with empty channels.
    fn restart(&mut self) {
        let window = self.window as usize;
        self.stages = (self.stages.iter().zip(&self.lanes))
            .map(|(stage, lanes)| Stage::new(stage.operator, lanes.count(), window))
            .collect();
        self.back = ReorderBuffer::new(window);
        self.source = CachePadded::new(AtomicU64::new(0));
    }

    /// Everything that worker `index` does for a block.
    fn work(&self, index: usize, job: &Job<'_>) -> Result<(), RunError> {
        /// Whoever leaves early, also by a panic, takes the others along.
        struct Leave<'a>(&'a Shared, bool);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    // ORDERING: Release; those who leave because of it need nothing else from this thread.
                    self.0.broken.store(true, Ordering::Release);
                    self.0.idle.notify();
                }
            }
        }
        let mut leave = Leave(self, false);
        self.workers[index].with_mut(|worker| {
            // SAFETY: each worker has its own.
            let worker = unsafe { &mut *worker };
            let mut clock = Stopwatch::start();
            loop {
                // ORDERING: Acquire; nothing but the flag is used.
                if self.broken.load(Ordering::Acquire) {
                    return Err(RunError::Stopped);
                }
                if self.is_over(job) {
                    return Ok(());
                }
                let did = match self.choose(index, worker, job) {
                    Some(place) => self.run(place, index, worker, job, &mut clock)?,
                    None => false,
                };
                if !did && !self.steal(index, worker, &mut clock)? {
                    self.move_to(index, NOWHERE);
                    clock.lap(&mut worker.counters.time.other);
                    self.rest(job);
                    clock.lap(&mut worker.counters.time.sync);
                }
            }
        })?;
        leave.1 = true;
        Ok(())
    }

    /// Every batch of the block is delivered, or after a failure every batch that was started.
    fn is_over(&self, job: &Job<'_>) -> bool {
        let delivered = self.back.released();
        // ORDERING: Relaxed for `source`: who starts a batch after this look goes on until it is delivered.
        delivered == job.end || self.has_failed() && delivered == self.source.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        self.failed.load(Ordering::Acquire)
    }

    /// Waits until there may be something to do.
    fn rest(&self, job: &Job<'_>) {
        let something = || {
            // ORDERING: Acquire; nothing but the flag is used.
            self.broken.load(Ordering::Acquire)
                || self.is_over(job)
                || self.source_is_open(job)
                || self.stages.iter().enumerate().any(|(k, stage)| {
                    stage.done.is_waiting() || (0..self.lanes[k].count()).any(|lane| self.lane_is_waiting(k, lane))
                })
        };
        if self.arrivals.is_open_loop() {
            // Nobody rings a bell when an event arrives: sleepers look again soon.
            let mut patience = self.idle.patience();
            while !something() {
                if !patience.pass() {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            }
        } else {
            self.idle.wait(something);
        }
    }

    fn lane_is_waiting(&self, stage: usize, lane: usize) -> bool {
        self.stages[stage].queue.is_waiting(lane, self.stages[stage].front.released())
    }

    fn source_is_open(&self, job: &Job<'_>) -> bool {
        // ORDERING: Relaxed: a hint; the exchange in `start` decides.
        let next = self.source.load(Ordering::Relaxed);
        next < job.end.min(self.back.released() + self.window) && !self.has_failed() && self.has_arrived(next, job)
    }

    /// Whether the last event of batch `serial` is there.
    fn has_arrived(&self, serial: u64, job: &Job<'_>) -> bool {
        if !self.arrivals.is_open_loop() {
            return true;
        }
        let last = ((serial - job.first + 1) * self.batch as u64).min(job.block.n as u64) - 1;
        job.clock.now() >= self.arrivals.at(job.before + last)
    }

    /// Lanes of a stage that a worker looks after first, so that their state stays in its cache.
    fn home(&self, stage: usize, index: usize) -> std::ops::Range<usize> {
        let (threads, lanes) = (self.workers.len(), self.lanes[stage].count());
        if lanes == 1 {
            // Single lanes are dealt out from the end of the chain.
            let mine = (self.stages.len() - 1 - stage) % threads == index;
            return 0..usize::from(mine);
        }
        index * lanes / threads..(index + 1) * lanes / threads
    }

    /// The heuristic `ct`: among the places with work, the one with the lowest current throughput, that is workers
    /// there by the cost of a batch there. Ties, among them all places without a worker, go to this worker's own lanes,
    /// which nobody else should have to do, and then to the end of the chain.
    fn choose(&self, index: usize, worker: &Worker, job: &Job<'_>) -> Option<usize> {
        let mut best = None;
        let stages = self.stages.len();
        for place in (0..stages).rev().map(|k| 2 * k + 1).chain((0..=stages).rev().map(|k| 2 * k)) {
            let stage = place / 2;
            let waiting = match place {
                0 => self.source_is_open(job),
                _ if place % 2 == 0 => self.stages[stage - 1].done.is_waiting(),
                _ => self.home(stage, index).any(|lane| self.lane_is_waiting(stage, lane)),
            };
            if !waiting {
                continue;
            }
            let Some((other, throughput)) = best else {
                best = Some((place, None));
                continue;
            };
            // Throughputs are found out only once there is a choice.
            let throughput = throughput.unwrap_or_else(|| self.throughput(other, index, worker));
            if throughput == 0.0 {
                return Some(other);
            }
            let this = self.throughput(place, index, worker);
            best = Some(if this < throughput { (place, Some(this)) } else { (other, Some(throughput)) });
        }
        best.map(|(place, _)| place)
    }

    fn throughput(&self, place: usize, index: usize, worker: &Worker) -> f64 {
        // ORDERING: Relaxed: a hint.
        let others = self.at.iter().enumerate().filter(|(i, at)| *i != index && at.load(Ordering::Relaxed) == place);
        others.count() as f64 / worker.costs[place].max(1.0)
    }

    fn move_to(&self, index: usize, place: usize) {
        // ORDERING: Relaxed: a hint, written by this worker only.
        if self.at[index].load(Ordering::Relaxed) != place {
            self.at[index].store(place, Ordering::Relaxed);
        }
    }

    /// Does one piece of work at `place`; false: somebody else was faster.
    fn run(
        &self,
        place: usize,
        index: usize,
        worker: &mut Worker,
        job: &Job<'_>,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        if place % 2 == 1 {
            let home = self.home(place / 2, index);
            return self.run_lanes(place / 2, home, index, worker, clock);
        }
        let serial = if place == 0 { self.start(job) } else { self.stages[place / 2 - 1].done.take() };
        let Some(serial) = serial else { return Ok(false) };
        self.move_to(index, place);
        let before = worker.counters.time;
        self.run_step(place / 2, serial, worker, job, clock)?;
        let after = worker.counters.time;
        average(&mut worker.costs[place], (after.useful + after.other - before.useful - before.other) as f64);
        Ok(true)
    }

    /// Lanes that others look after: the last resort, since their state is in another cache.
    fn steal(&self, index: usize, worker: &mut Worker, clock: &mut Stopwatch) -> Result<bool, RunError> {
        for stage in (0..self.stages.len()).rev() {
            let home = self.home(stage, index);
            for lane in (home.end..self.lanes[stage].count()).chain(0..home.start) {
                if self.run_lanes(stage, lane..lane + 1, index, worker, clock)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The next batch of the block, for this worker to start.
    fn start(&self, job: &Job<'_>) -> Option<u64> {
        // ORDERING: Relaxed: the counter only hands out numbers; what the slot held is seen through `back`.
        let next = self.source.load(Ordering::Relaxed);
        if next >= job.end.min(self.back.released() + self.window) || self.has_failed() || !self.has_arrived(next, job)
        {
            return None;
        }
        // ORDERING: as above. The slot is free: `released`, read with Acquire, is beyond the batch it held.
        self.source.compare_exchange(next, next + 1, Ordering::Relaxed, Ordering::Relaxed).ok()
    }

    fn slot(&self, serial: u64) -> &Slot {
        &self.slots[(serial & (self.window - 1)) as usize]
    }

    /// Takes what is waiting for `lanes` of a stage through its operator; false: nothing was.
    fn run_lanes(
        &self,
        index: usize,
        lanes: std::ops::Range<usize>,
        me: usize,
        worker: &mut Worker,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        let stage = &self.stages[index];
        let operator = &self.chain.operators[stage.operator];
        let released = stage.front.released();
        let mut done = 0;
        for lane in lanes {
            let Some(mut held) = stage.queue.take(lane, released) else { continue };
            if done == 0 {
                self.move_to(me, 2 * index + 1);
                clock.lap(&mut worker.counters.time.other);
            }
            while let Some(serial) = held.next(released) {
                let input = &self.slot(serial).inputs[index];
                let outcome = input.batch.with(|batch| {
                    input.outputs[lane].with_mut(|output| {
                        // SAFETY: the batch was released, and is not written until all its lanes are done; this
                        // worker holds the lane, and with it the lane's outputs.
                        let (batch, output) = unsafe { (&*batch, &mut *output) };
                        let (rows, hashes) = batch.lane(lane);
                        output.rows.clear();
                        // SAFETY: the lane was made for this operator and is held; the rows are the batch's.
                        let outcome = unsafe {
                            self.lanes[index].with(lane, |state| {
                                state.process(operator, rows, hashes, &mut worker.scratch, &mut output.rows)
                            })
                        };
                        let origins = output.rows.origins();
                        output.one_each = origins.len() == rows.n
                            && origins.iter().enumerate().fold(true, |same, (i, &origin)| same & (origin == i as u32));
                        worker.counters.dropped += output.rows.take_dropped();
                        outcome
                    })
                });
                self.note(outcome)?;
                done += 1;
                if held.done(serial) {
                    stage.done.offer(serial);
                    self.idle.notify();
                }
            }
            held.put_back();
            self.idle.notify();
        }
        if done > 0 {
            let before = worker.counters.time.useful;
            clock.lap(&mut worker.counters.time.useful);
            let per_lane = (worker.counters.time.useful - before) as f64 / done as f64;
            average(&mut worker.costs[2 * index + 1], per_lane * self.lanes[index].count() as f64);
        }
        Ok(done > 0)
    }

    /// Takes batch `serial` through step `k`: merges what the lanes in front emitted, runs the stateless operators,
    /// and hands the result to the stage behind, or to the sink.
    fn run_step(
        &self,
        k: usize,
        serial: u64,
        worker: &mut Worker,
        job: &Job<'_>,
        clock: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let slot = self.slot(serial);
        clock.lap(&mut worker.counters.time.other);
        let Worker { buffers, merged, scratch, counters, .. } = worker;
        let text = job.block.text;
        slot.head.with_mut(|head| {
            // SAFETY: the worker that took the batch for this step owns its head until it hands the batch on.
            let head = unsafe { &mut *head };
            head.out.clear();
            let step = self.chain.step(k);
            let place = match self.lanes.get(k).map(Lanes::count) {
                None => Place::Sink,
                Some(1) => Place::Lane,
                Some(_) => Place::Lanes,
            };
            // What comes in.
            let mut outputs: *const RowBuffer = null();
            let mut rows;
            if k == 0 {
                head.start = (serial - job.first) as usize * self.batch;
                head.end = job.block.n.min(head.start + self.batch);
                head.started = job.clock.now();
                let block = job.block;
                rows = Rows { start: block.row(0), n: block.n, stride: block.stride, text }.slice(head.start..head.end);
            } else {
                let input = &slot.inputs[k - 1];
                if let [only] = &input.outputs[..] {
                    // SAFETY: the lane is done, and the batch is this worker's.
                    let is_empty = input.batch.with(|batch| unsafe { (*batch).n == 0 });
                    outputs = only.with_mut(|output| {
                        // SAFETY: as above; nobody writes the outputs before the slot is reused.
                        let rows = unsafe { &mut (*output).rows };
                        if is_empty {
                            // The lane never saw this batch: these are outputs of an older one.
                            rows.clear();
                        }
                        rows as *const RowBuffer
                    });
                } else {
                    let mut run = |out: &mut RowBuffer| {
                        out.clear();
                        outputs = out;
                        input.batch.with(|batch| {
                            // SAFETY: all lanes are done with the batch.
                            let batch = unsafe { &*batch };
                            // SAFETY: as above.
                            unsafe { merge(batch, &input.outputs, out) }
                        })
                    };
                    match place {
                        Place::Sink if step.is_empty() => run(&mut head.out),
                        // SAFETY: the batch is this worker's until it is released.
                        Place::Lane if step.is_empty() => unsafe { slot.inputs[k].with_buffer(run) },
                        _ => run(&mut merged[k - 1]),
                    }?;
                }
                // SAFETY: not null: set above, and not written while the rows are used.
                rows = Rows::of(unsafe { &*outputs }, text);
            }
            clock.lap(&mut counters.time.other);
            // The stateless operators. The last one writes where the rows are to stay.
            for index in step.clone() {
                let operator = &self.chain.operators[index];
                let mut run = |out: &mut RowBuffer| {
                    out.clear();
                    // SAFETY: the rows are events, or outputs of the operator before.
                    let outcome = unsafe { operator.map(rows, out) };
                    counters.dropped += out.take_dropped();
                    outputs = out;
                    rows = Rows::of(out, text);
                    self.note(outcome)
                };
                match place {
                    Place::Sink if index + 1 == step.end => run(&mut head.out),
                    // SAFETY: the batch is this worker's until it is released.
                    Place::Lane if index + 1 == step.end => unsafe { slot.inputs[k].with_buffer(run) },
                    _ => run(&mut buffers[index]),
                }?;
            }
            if place == Place::Sink {
                // SAFETY: a chain has an operator, so there are outputs; they stay until the batch is delivered.
                head.prepared = self.preparer.prepare(unsafe { &*outputs }, text)?;
                head.outputs = outputs;
                clock.lap(&mut counters.time.useful);
                return Ok(());
            }
            clock.lap(&mut counters.time.useful);
            slot.inputs[k].batch.with_mut(|batch| {
                // SAFETY: the batch is this worker's until it is released.
                let batch = unsafe { &mut *batch };
                match self.chain.operators[self.stages[k].operator].key {
                    // SAFETY: the rows have the layout of the key's operator's inputs.
                    Some(key) => unsafe {
                        scratch.hash(rows, key)?;
                        if place == Place::Lane {
                            batch.whole(rows, &mut scratch.hashes);
                        } else {
                            batch.sort(rows, &scratch.hashes)?;
                        }
                    },
                    None => batch.whole(rows, &mut Vec::new()),
                }
                self.stages[k].queue.offer(serial, |lane| batch.starts[lane] < batch.starts[lane + 1]);
                Ok(())
            })
        })?;
        if k == self.stages.len() {
            self.deliver(serial, job)?;
        } else {
            let stage = &self.stages[k];
            stage.front.complete_and_release(serial, |serial| {
                if stage.queue.is_empty(serial) {
                    stage.done.offer(serial);
                }
            });
        }
        self.idle.notify();
        clock.lap(&mut worker.counters.time.other);
        Ok(())
    }

    /// Lets batch `serial` leave, and whatever waited for it.
    fn deliver(&self, serial: u64, job: &Job<'_>) -> Result<(), RunError> {
        let mut failure = None;
        self.back.complete_and_release(serial, |serial| {
            let outcome = self.delivery.with_mut(|delivery| {
                self.slot(serial).head.with(|head| {
                    // SAFETY: the reorder buffer lets one worker at a time deliver, after the batch was completed.
                    let (delivery, head) = unsafe { (&mut *delivery, &*head) };
                    // SAFETY: the outputs stay until the slot is reused.
                    delivery.sink.deliver(unsafe { &*head.outputs }, &head.prepared, job.block.text)?;
                    delivery.record(job, &self.arrivals, head.started, head.start);
                    Ok(())
                })
            });
            failure = failure.take().or(outcome.err());
        });
        failure.map_or(Ok(()), Err)
    }

    /// Keeps the failure of the earliest event; anything but a kernel's failure breaks the worker down.
    fn note(&self, outcome: Result<(), RunError>) -> Result<(), RunError> {
        match outcome {
            Err(error @ RunError::Kernel { .. }) => {
                let mut first = lock(&self.failure);
                if first.as_ref().is_none_or(|other| error.rank() < other.rank()) {
                    *first = Some(error);
                }
                // ORDERING: Release; those who stop because of it need nothing else from this thread.
                self.failed.store(true, Ordering::Release);
                Ok(())
            }
            other => other,
        }
    }
}

/// A moving average that starts with the first value.
fn average(mean: &mut f64, value: f64) {
    *mean += (value - *mean) * if *mean == 0.0 { 1.0 } else { 0.125 };
}

impl Delivery {
    /// Latencies of a batch that was just delivered; `start` is its first event in the block.
    fn record(&mut self, job: &Job<'_>, arrivals: &Arrivals, started: u64, start: usize) {
        let now = job.clock.now();
        self.processing.record(now.saturating_sub(started));
        if arrivals.is_open_loop() {
            self.end_to_end.record(now.saturating_sub(arrivals.at(job.before + start as u64)));
        }
    }
}

/// With one thread: batch after batch straight through the chain.
fn alone(shared: &Shared, direct: &mut Direct, job: &Job<'_>) -> Result<(), RunError> {
    shared.workers[0].with_mut(|worker| {
        shared.delivery.with_mut(|delivery| {
            // SAFETY: there is no other thread.
            let (worker, delivery) = unsafe { (&mut *worker, &mut *delivery) };
            let block = job.block;
            let rows = Rows { start: block.row(0), n: block.n, stride: block.stride, text: block.text };
            let mut start = 0;
            while start < block.n {
                let end = block.n.min(start + shared.batch);
                if shared.arrivals.is_open_loop() {
                    let mut clock = Stopwatch::start();
                    shared.arrivals.wait(job.before + end as u64 - 1, &job.clock, || false);
                    clock.lap(&mut worker.counters.time.other);
                }
                let started = job.clock.now();
                let batch = rows.slice(start..end);
                let sink = &mut delivery.sink;
                // SAFETY: the rows are the block's events; there is no other thread.
                unsafe { direct.events(&shared.chain, &shared.lanes, batch, sink, &mut worker.counters) }?;
                delivery.record(job, &shared.arrivals, started, start);
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
        self.shared.regroup(&mut self.grouping)?;
        let shared = &self.shared;
        // ORDERING: Relaxed; no worker is at work.
        let first = shared.source.load(Ordering::Relaxed);
        let end = first + block.n.div_ceil(shared.batch) as u64;
        let job = Job { block, first, end, before: self.events, clock };
        let outcome = if self.team.threads() == 1 {
            let direct = Mutex::new(&mut self.direct);
            self.team.run(&|_| alone(shared, &mut lock(&direct), &job))
        } else {
            self.team.run(&|index| shared.work(index, &job))
        };
        self.clock.stop(clock);
        self.events += block.n as u64;
        outcome?;
        lock(&shared.failure).take().map_or(Ok(()), Err)
    }
}

impl Executor for Pooled {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        let mut start = 0;
        while start < block.n {
            // What was processed so far tells how to go on.
            let section = (TRIAL * self.shared.batch).max(self.events as usize);
            let n = if self.team.threads() > 1 { section.min(block.n - start) } else { block.n };
            // SAFETY: a part of the block.
            let part = unsafe { Block::new(block.row(start), n, block.stride, block.text) };
            self.part(&part)?;
            start += n;
        }
        Ok(())
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let shared = &self.shared;
        let clock = self.clock.start();
        let direct = Mutex::new(&mut self.direct);
        let outcome = self.team.run(&|index| {
            if index > 0 {
                return Ok(());
            }
            shared.workers[0].with_mut(|worker| {
                shared.delivery.with_mut(|delivery| {
                    // SAFETY: the other threads do nothing.
                    let (counters, sink) = unsafe { (&mut (*worker).counters, &mut (*delivery).sink) };
                    let mut direct = lock(&direct);
                    // SAFETY: the lanes are the chain's; the other threads do nothing.
                    unsafe { flush(&shared.chain, &shared.lanes, &mut direct, seq, sink, counters) }
                })
            })
        });
        self.clock.stop(clock);
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        // SAFETY: no worker is at work.
        self.shared.delivery.with_mut(|delivery| unsafe { (*delivery).sink.take() })
    }

    fn metrics(&self) -> Metrics {
        let mut counters = self.team.counters();
        for worker in &self.shared.workers {
            // SAFETY: no worker is at work.
            counters += worker.with(|worker| unsafe { (*worker).counters });
        }
        self.shared.delivery.with(|delivery| {
            // SAFETY: no worker is at work.
            let delivery = unsafe { &*delivery };
            Metrics {
                events: self.events,
                counters,
                seconds: self.clock.seconds(),
                digest: delivery.sink.digest(),
                in_order: delivery.sink.in_order(),
                processing: delivery.processing.clone(),
                end_to_end: delivery.end_to_end.clone(),
                binding: self.team.binding(),
                memory: Default::default(),
                chosen: Default::default(),
            }
        })
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        let shared = &self.shared;
        let Some(stage) = shared.chain.stateful.iter().position(|&index| index == operator) else {
            return Err(RunError::Invalid(format!("operator {operator} has no state")));
        };
        let size = shared.chain.operators[operator].state_size;
        let (mut integers, mut texts, mut states) = (Vec::new(), Vec::new(), Vec::new());
        // SAFETY: no worker is at work.
        for (key, _, state) in unsafe { shared.lanes[stage].sorted() } {
            match key {
                Some(KeyRef::Integer(key)) => integers.push(key),
                Some(KeyRef::Text(key)) => texts.push(key.to_vec()),
                None => {}
            }
            // SAFETY: a state of this operator.
            states.extend_from_slice(unsafe { std::slice::from_raw_parts(state, size) });
        }
        let keys = match shared.chain.operators[operator].key {
            None => Keys::None,
            Some(key) if key.kind == ColumnKind::Text => Keys::Texts(texts),
            Some(_) => Keys::Integers(integers),
        };
        Ok(States { keys, states })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
