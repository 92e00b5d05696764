//! The pool: what all workers share.

use std::ptr::null;

use crate::dataflow::direct::Direct;
use crate::dataflow::frame::{Frame, Job};
use crate::dataflow::lane::Scratch;
use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::estimates::Estimates;
use crate::dataflow::pooled::grouping::Grouping;
use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic};
use crate::dataflow::pooled::input::Input;
use crate::dataflow::pooled::places::{Place, places};
use crate::dataflow::pooled::scheduler::Scheduler;
use crate::dataflow::pooled::slot::{BatchHead, Slot};
use crate::dataflow::pooled::stage::Stage;
use crate::dataflow::pooled::strategies::Strategies;
use crate::dataflow::pooled::times::Times;
use crate::error::RunError;
use crate::output::counters::Counters;
use crate::output::sink::Prepared;
use crate::program::options::Options;
use crate::rows::buffer::RowBuffer;
use crate::threads::own::Own;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Ordering, UnsafeCell};

/// Worker `i` has nothing to do right now.
pub const NOWHERE: usize = usize::MAX;
/// Batches in flight: at least this many, and this many per thread.
const WINDOW: usize = 8;
const WINDOW_PER_THREAD: usize = 2;
/// Events in flight, at least: with batches of one event, a slice of each worker must have enough to do.
const EVENTS_IN_FLIGHT: usize = 256;

/// The window: the number of batches in flight, a power of two.
pub fn window(threads: usize, batch: usize) -> usize {
    WINDOW.max(WINDOW_PER_THREAD * threads).max(EVENTS_IN_FLIGHT / batch).next_power_of_two()
}

/// What one worker has for itself.
#[derive(Debug)]
pub struct Worker {
    /// Per operator: room for its outputs within a step.
    pub buffers: Vec<RowBuffer>,
    /// Per operator: room for the union of what it takes.
    pub unions: Vec<RowBuffer>,
    pub scratch: Scratch,
    /// The way through the chain if the pool is direct.
    pub direct: Direct,
    pub counters: Counters,
    /// What the central scheduler has not been told yet: a place, and nanoseconds that were spent there.
    pub slice: (usize, u64),
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
    pub grouping: Grouping,
    pub heuristic: Box<dyn Heuristic>,
    pub estimates: Estimates,
    pub scheduler: Scheduler,
    /// The places that the heuristic sees.
    pub places: Vec<Place>,
    /// Workers that take part: the first ones.
    pub threads: usize,
    /// One thread takes batches straight through the chain, without queues, buffers and heuristic. Only the default
    /// strategies do so, while no stage has several lanes.
    pub is_direct: bool,
    /// Nanoseconds of work after which a worker chooses anew.
    pub slice: u64,
    pub stages: Vec<Stage>,
    pub slots: Vec<Slot>,
    /// Serial of the block's first batch, and one past its last.
    pub first: u64,
    pub end: u64,
    /// The next serial to start. The worker that starts it writes it.
    pub source: CachePadded<AtomicU64>,
    /// Reorders what the last step makes.
    pub back: Box<dyn ReorderBuffer>,
    /// Per worker: the place it is at, a hint for others. Written by that worker, where there is a central scheduler while
    /// it holds that; only going nowhere needs no leave.
    pub at: Vec<CachePadded<AtomicUsize>>,
    pub workers: Own<Worker>,
    /// A kernel raised: no further batch is started, those in flight are finished.
    failed: AtomicBool,
    pub window: u64,
}

// SAFETY: batches, lanes, workers' own parts and the delivery are cells. The channels order all accesses to them (README.md).
// Only the worker itself uses its own part.
unsafe impl Sync for Pool {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Pool {}

impl Pool {
    pub fn new(chain: &Chain, strategies: Strategies, grouping: Grouping, options: &Options) -> Self {
        let threads = options.threads;
        let window = window(threads, options.batch);
        let slot = || Slot {
            head: CachePadded::new(UnsafeCell::new(BatchHead {
                start: 0,
                end: 0,
                started: 0,
                kept: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect(),
                rows: vec![null(); chain.operators.len()],
                out: RowBuffer::new(chain.output_stride(), false),
                outputs: null(),
                prepared: Prepared::default(),
            })),
            inputs: chain.stateful.iter().map(|&index| Input::new(chain, index, 1)).collect(),
        };
        let worker = || Worker {
            buffers: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect(),
            unions: (0..chain.operators.len()).map(|at| RowBuffer::new(chain.input_stride(at), false)).collect(),
            scratch: Scratch::default(),
            direct: Direct::new(chain),
            counters: Counters::default(),
            slice: (0, 0),
        };
        let slice = options.slice * 1_000;
        let heuristic = (strategies.heuristic)(Constants { slice, capacity: (window * options.batch) as u64 });
        let places = places(chain, !heuristic.is_central());
        let is_direct = threads == 1 && strategies.is_default;
        Self {
            strategies,
            grouping,
            heuristic,
            estimates: Estimates::new(threads, places.len()),
            scheduler: Scheduler::new(Times::new(options.throughput_window * 1_000, places.len())),
            places,
            threads,
            is_direct,
            slice,
            stages: (0..chain.stateful.len())
                .map(|index| Stage::new(chain, index, 1, threads, window, strategies))
                .collect(),
            slots: (0..if is_direct { 0 } else { window }).map(|_| slot()).collect(),
            workers: Own::new(threads, worker),
            first: 0,
            end: 0,
            source: CachePadded::new(AtomicU64::new(0)),
            back: (strategies.reorder)(window),
            at: (0..threads).map(|_| CachePadded::new(AtomicUsize::new(NOWHERE))).collect(),
            failed: AtomicBool::new(false),
            window: window as u64,
        }
    }

    pub fn slot(&self, serial: u64) -> &Slot {
        &self.slots[(serial & (self.window - 1)) as usize]
    }

    pub fn has_failed(&self) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        self.failed.load(Ordering::Acquire)
    }

    /// Notes the failure of operator number `operator`'s kernel; anything else breaks the worker down.
    pub fn note(&self, operator: usize, outcome: Result<(), RunError>, frame: &Frame) -> Result<(), RunError> {
        match outcome {
            Err(error @ RunError::Kernel { .. }) => {
                // Positions in batches of several lanes cannot be compared.
                frame.note(operator, error.ordered(|_| 0));
                // ORDERING: Release; those who stop because of it need nothing else from this thread.
                self.failed.store(true, Ordering::Release);
                Ok(())
            }
            other => other,
        }
    }

    /// Every batch of the block is delivered, or after a failure every batch that was started.
    pub fn is_over(&self) -> bool {
        let delivered = self.back.released();
        // ORDERING: Relaxed for `source`: who starts a batch after this look goes on until it is delivered.
        delivered == self.end || self.has_failed() && delivered == self.source.load(Ordering::Relaxed)
    }

    pub fn source_is_open(&self, job: &Job) -> bool {
        // ORDERING: Relaxed: a hint; the exchange in `start` decides.
        let next = self.source.load(Ordering::Relaxed);
        next < self.end.min(self.back.released() + self.window) && !self.has_failed() && self.has_arrived(next, job)
    }

    /// Whether the last event of batch `serial` is there.
    fn has_arrived(&self, serial: u64, job: &Job) -> bool {
        let arrives = || job.has_arrived(job.block.n.min((serial - self.first + 1) as usize * job.frame.batch));
        !job.frame.arrivals.is_open_loop() || arrives()
    }

    /// Batches that could be started now: a hint.
    pub fn startable(&self, job: &Job) -> u64 {
        // ORDERING: Relaxed: a hint.
        let next = self.source.load(Ordering::Relaxed);
        let room = self.end.min(self.back.released() + self.window).saturating_sub(next);
        // Events that have not arrived yet wait for no worker.
        if job.frame.arrivals.is_open_loop() { room.min(u64::from(self.source_is_open(job))) } else { room }
    }

    /// The next batch of the block, for this worker to start.
    pub fn start(&self, job: &Job) -> Option<u64> {
        // ORDERING: Relaxed: the counter only hands out numbers; what the slot held is seen through `back`.
        let next = self.source.load(Ordering::Relaxed);
        if next >= self.end.min(self.back.released() + self.window) || self.has_failed() || !self.has_arrived(next, job)
        {
            return None;
        }
        // ORDERING: as above. The slot is free: `released`, read with Acquire, is beyond the batch it held.
        self.source.compare_exchange(next, next + 1, Ordering::Relaxed, Ordering::Relaxed).ok()
    }

    /// Worker `me` is at `place` now.
    pub fn move_to(&self, me: usize, place: usize) {
        // ORDERING: Relaxed: a hint, written by this worker only.
        if self.at[me].load(Ordering::Relaxed) != place {
            self.at[me].store(place, Ordering::Relaxed);
        }
    }
}
