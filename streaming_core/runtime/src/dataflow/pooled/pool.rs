//! The pool: what all workers share.

use std::ptr::null;

use crate::dataflow::direct::Direct;
use crate::dataflow::frame::{Frame, Job};
use crate::dataflow::lane::Scratch;
use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::estimates::Estimates;
use crate::dataflow::pooled::grouping::Grouping;
use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic};
use crate::dataflow::pooled::input::{Input, Part, PartCursor};
use crate::dataflow::pooled::places::{Place, places};
use crate::dataflow::pooled::scheduler::Scheduler;
use crate::dataflow::pooled::slot::{BatchHead, Slot};
use crate::dataflow::pooled::stage::Stage;
use crate::dataflow::pooled::strategies::Strategies;
use crate::dataflow::pooled::times::Times;
use crate::error::RunError;
use crate::output::counters::Counters;
use crate::output::sink::{Kept, Prepared, SinkKind};
use crate::program::Origin;
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
/// A batch is so many units of events at most: with more threads there are more lanes, and each lane should get as many rows.
const UNITS: usize = 8;
/// Bits of `source` that say how many units were started, and the most units of a section.
const UNIT_BITS: u32 = 24;
pub const MOST_UNITS: usize = (1 << UNIT_BITS) - 1;

/// The window: the number of batches in flight, a power of two.
pub fn window(threads: usize, batch: usize) -> usize {
    WINDOW.max(WINDOW_PER_THREAD * threads).max(EVENTS_IN_FLIGHT / batch).next_power_of_two()
}

/// The last stage, if only stateless operators follow it, one after the other, and each of these operators emits one row for
/// each input.
fn numbered(chain: &Chain) -> Option<usize> {
    let last = chain.stateful.len().checked_sub(1)?;
    let ends = chain.outputs[..] == [Origin::Operator(chain.operators.len() - 1)];
    let is_line = chain.step(last + 1).all(|index| chain.operators[index].inputs[..] == [Origin::Operator(index - 1)]);
    let emits_one = chain.operators[chain.stateful[last]..].iter().all(|operator| operator.emits == (1, Some(1)));
    (ends && is_line && emits_one).then_some(last)
}

/// What one worker has for itself.
#[derive(Debug)]
pub struct Worker {
    /// Per operator: room for its outputs within a step.
    pub buffers: Vec<RowBuffer>,
    /// Per operator: room for the union of what it takes.
    pub unions: Vec<RowBuffer>,
    pub scratch: Scratch,
    /// Room for a merge.
    pub cursors: Vec<PartCursor>,
    /// Room for the parts of a batch that this worker releases.
    pub parts: Vec<Part>,
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
    /// The stage whose lanes digest their own outputs, if it has several. Nothing is behind it but stateless operators and a sink
    /// that keeps no rows, and every input has one output. So the outputs need not meet again: their numbers are those of the
    /// inputs.
    pub numbered: Option<usize>,
    /// Units of events in the section; all but the last have `Frame::batch` events.
    units: usize,
    /// The most units of a batch.
    most: usize,
    /// `serial << UNIT_BITS | unit`: the next batch to start, and the first unit of the section that is in none yet. The worker
    /// that starts a batch writes it.
    source: CachePadded<AtomicU64>,
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
                copies: Kept::default(),
            })),
            inputs: chain.stateful.iter().map(|&index| Input::new(chain, index, 1, threads)).collect(),
        };
        let worker = || Worker {
            buffers: chain.operators.iter().map(|operator| RowBuffer::new(operator.stride, false)).collect(),
            unions: (0..chain.operators.len()).map(|at| RowBuffer::new(chain.input_stride(at), false)).collect(),
            scratch: Scratch::default(),
            cursors: Vec::new(),
            parts: Vec::new(),
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
            numbered: numbered(chain).filter(|_| strategies.is_default && options.sink != SinkKind::Parquet),
            units: 0,
            most: if strategies.is_default { (threads / 2).clamp(1, UNITS) } else { 1 },
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

    /// Begins a section of `n` events, in units of `unit`; no worker is at work.
    pub fn begin_section(&mut self, n: usize, unit: usize) {
        self.units = n.div_ceil(unit);
        let (serial, _) = self.next();
        // ORDERING: Relaxed; no worker is at work.
        self.source.store(serial << UNIT_BITS, Ordering::Relaxed);
    }

    /// Serial numbers start anew; `begin_section` must follow.
    pub fn restart_source(&mut self) {
        self.source = CachePadded::default();
    }

    /// The next serial to start, and its first unit: a hint, unless no worker starts any.
    fn next(&self) -> (u64, usize) {
        // ORDERING: Relaxed: the exchange in `start` decides.
        let word = self.source.load(Ordering::Relaxed);
        (word >> UNIT_BITS, (word & MOST_UNITS as u64) as usize)
    }

    /// Every batch of the section is delivered, or after a failure every batch that was started.
    pub fn is_over(&self) -> bool {
        let delivered = self.back.released();
        // Who starts a batch after this look goes on until it is delivered.
        let (serial, unit) = self.next();
        delivered == serial && (unit == self.units || self.has_failed())
    }

    pub fn source_is_open(&self, job: &Job) -> bool {
        let (serial, unit) = self.next();
        self.may_start(serial, unit) && self.has_arrived(unit, job)
    }

    /// Whether there are events left, and room for batch `serial`.
    fn may_start(&self, serial: u64, unit: usize) -> bool {
        unit < self.units && serial < self.back.released() + self.window && !self.has_failed()
    }

    /// Whether the last event of a unit is there.
    fn has_arrived(&self, unit: usize, job: &Job) -> bool {
        !job.frame.arrivals.is_open_loop() || job.has_arrived(job.block.n.min((unit + 1) * job.frame.batch))
    }

    /// Units of the next batch, which begins with `unit < units`; 0: its events have not arrived. Towards the end of a section
    /// batches become smaller, so that all workers end together. No batch waits for events beyond its first unit.
    fn extent(&self, unit: usize, job: &Job) -> usize {
        let most = ((self.units - unit) / (2 * self.workers.len())).clamp(1, self.most);
        (unit..unit + most).take_while(|&unit| self.has_arrived(unit, job)).count()
    }

    /// Batches that could be started now: a hint.
    pub fn startable(&self, job: &Job) -> u64 {
        let (serial, unit) = self.next();
        let room = (self.back.released() + self.window).saturating_sub(serial);
        let room = room.min(self.units.saturating_sub(unit).div_ceil(self.most) as u64);
        // Events that have not arrived yet wait for no worker.
        if job.frame.arrivals.is_open_loop() { room.min(u64::from(self.source_is_open(job))) } else { room }
    }

    /// The next batch of the section, for this worker to start.
    pub fn start(&self, job: &Job) -> Option<u64> {
        // ORDERING: Relaxed: the word only hands out numbers; what the slot held is seen through `back`.
        let word = self.source.load(Ordering::Relaxed);
        let (serial, unit) = (word >> UNIT_BITS, (word & MOST_UNITS as u64) as usize);
        let units = if self.may_start(serial, unit) { self.extent(unit, job) } else { 0 };
        if units == 0 {
            return None;
        }
        let next = (serial + 1) << UNIT_BITS | (unit + units) as u64;
        // ORDERING: as above. The slot is free: `released`, read with Acquire, is beyond the batch it held.
        self.source.compare_exchange(word, next, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        self.slot(serial).head.with_mut(|head| {
            // SAFETY: the worker that starts a batch owns it.
            let head = unsafe { &mut *head };
            head.start = unit * job.frame.batch;
            head.end = job.block.n.min((unit + units) * job.frame.batch);
        });
        Some(serial)
    }

    /// Worker `me` is at `place` now.
    pub fn move_to(&self, me: usize, place: usize) {
        // ORDERING: Relaxed: a hint, written by this worker only.
        if self.at[me].load(Ordering::Relaxed) != place {
            self.at[me].store(place, Ordering::Relaxed);
        }
    }
}
