//! The pool: what all workers share, and what each of them does until a block is over.

use std::ptr::null;

use crate::dataflow::lane::{Lanes, Scratch};
use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::estimates::Estimates;
use crate::dataflow::pooled::heuristic::Heuristic;
use crate::dataflow::pooled::input::Input;
use crate::dataflow::pooled::place::NOWHERE;
use crate::dataflow::pooled::slot::{Head, Slot};
use crate::dataflow::pooled::stage::Stage;
use crate::dataflow::pooled::strategies::Strategies;
use crate::dataflow::pooled::worklist::Reach;
use crate::error::RunError;
use crate::output::clock::{Arrivals, Running, Stopwatch};
use crate::output::counters::Counters;
use crate::output::delivered::Delivered;
use crate::output::sink::{Prepared, Preparer, Sink};
use crate::program::options::Options;
use crate::rows::block::Block;
use crate::rows::buffer::RowBuffer;
use crate::threads::idle::Idle;
use crate::threads::reorder::ReorderBuffer;
use crate::threads::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering, UnsafeCell, lock};
use crate::threads::topology::Topology;

/// Batches in flight: at least this many, and this many per thread; rounded up to a power of two.
pub const WINDOW: usize = 8;
pub const WINDOW_PER_THREAD: usize = 2;

/// What one worker has for itself.
#[derive(Debug)]
pub struct Worker {
    /// Per operator: room for its outputs within a step.
    pub buffers: Vec<RowBuffer>,
    /// Per operator: room for the union of what it takes.
    pub unions: Vec<RowBuffer>,
    pub scratch: Scratch,
    pub counters: Counters,
}

impl Worker {
    /// Nanoseconds of work so far, without waiting.
    pub fn spent(&self) -> u64 {
        self.counters.time.useful + self.counters.time.other
    }
}

/// What all workers share.
#[derive(Debug)]
pub struct Pool {
    pub strategies: Strategies,
    pub heuristic: Box<dyn Heuristic>,
    pub estimates: Estimates,
    pub chain: Chain,
    pub stages: Vec<Stage>,
    /// Per stage; a lane is touched by its holder only. A partitioned stage has one, or several if it would otherwise
    /// keep the workers waiting.
    pub lanes: Vec<Lanes>,
    pub slots: Vec<Slot>,
    /// The next serial to start. Written by whoever starts it.
    pub source: CachePadded<AtomicU64>,
    /// Reorders what the last step makes.
    pub back: Box<dyn ReorderBuffer>,
    /// Written by whoever delivers; the last reorder buffer lets one worker at a time do that.
    pub delivered: UnsafeCell<Delivered>,
    pub preparer: Preparer,
    /// Per worker: the place it is at, a hint for others. Written by that worker.
    pub at: Vec<CachePadded<AtomicUsize>>,
    pub workers: Vec<CachePadded<UnsafeCell<Worker>>>,
    pub idle: Idle,
    /// A kernel raised: no further batch is started, those in flight are finished.
    pub failed: AtomicBool,
    /// The failure of the earliest event. Written by any worker.
    pub failure: Mutex<Option<RunError>>,
    /// A worker broke down: everybody leaves.
    pub broken: AtomicBool,
    pub arrivals: Arrivals,
    pub batch: usize,
    pub window: u64,
}

// SAFETY: batches, lanes, workers' own parts and the delivery are cells; the channels order all accesses to them
// (channel/README.md), and a worker's own part is used by that worker only.
unsafe impl Sync for Pool {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Pool {}

/// One block's worth of work.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    pub block: &'a Block,
    /// Serial of the block's first batch, and one past its last.
    pub first: u64,
    pub end: u64,
    /// Events before this block.
    pub before: u64,
    pub clock: Running,
}

impl Pool {
    pub fn new(chain: Chain, sink: Sink, strategies: Strategies, options: &Options) -> Self {
        let threads = options.threads;
        let window = WINDOW.max(WINDOW_PER_THREAD * threads).next_power_of_two();
        let slot = || Slot {
            head: CachePadded::new(UnsafeCell::new(Head {
                start: 0,
                end: 0,
                started: 0,
                kept: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect(),
                rows: vec![null(); chain.operators.len()],
                out: RowBuffer::new(chain.output_stride(), false),
                outputs: null(),
                prepared: Prepared::default(),
            })),
            inputs: chain.stateful.iter().map(|&index| Input::new(&chain, index, 1)).collect(),
        };
        let worker = || Worker {
            buffers: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect(),
            unions: (0..chain.operators.len()).map(|at| RowBuffer::new(chain.input_stride(at), false)).collect(),
            scratch: Scratch::default(),
            counters: Counters::default(),
        };
        let places = 2 * chain.stateful.len() + 1;
        Self {
            strategies,
            heuristic: (strategies.heuristic)(places, window),
            estimates: Estimates::new(threads, places),
            stages: (0..chain.stateful.len())
                .map(|index| Stage::new(&chain, index, 1, threads, window, strategies))
                .collect(),
            lanes: chain.stateful.iter().map(|&index| Lanes::new(&chain.operators[index], 1)).collect(),
            slots: (0..if threads > 1 { window } else { 0 }).map(|_| slot()).collect(),
            workers: (0..threads).map(|_| CachePadded::new(UnsafeCell::new(worker()))).collect(),
            chain,
            source: CachePadded::new(AtomicU64::new(0)),
            back: (strategies.reorder)(window),
            preparer: sink.preparer().clone(),
            delivered: UnsafeCell::new(Delivered::new(sink)),
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

impl Pool {
    /// Everything that worker `index` does for a block.
    pub fn work(&self, index: usize, job: &Job<'_>) -> Result<(), RunError> {
        /// Whoever leaves early, also by a panic, takes the others along.
        struct Leave<'a>(&'a Pool, bool);
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
                if !self.go_on(index, worker, job, &mut clock)? && !self.help(index, worker, &mut clock)? {
                    self.move_to(index, NOWHERE);
                    clock.lap(&mut worker.counters.time.other);
                    self.rest(index, job);
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

    pub fn has_failed(&self) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        self.failed.load(Ordering::Acquire)
    }

    /// Waits until there may be something to do.
    fn rest(&self, index: usize, job: &Job<'_>) {
        let something = || {
            // ORDERING: Acquire; nothing but the flag is used.
            self.broken.load(Ordering::Acquire)
                || self.is_over(job)
                || self.source_is_open(job)
                || self.stages.iter().any(|stage| {
                    stage.done.is_waiting() || [Reach::Own, Reach::Others].iter().any(|&r| stage.is_waiting(index, r))
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

    /// Keeps the failure of the earliest event; anything but a kernel's failure breaks the worker down.
    pub fn note(&self, outcome: Result<(), RunError>) -> Result<(), RunError> {
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
