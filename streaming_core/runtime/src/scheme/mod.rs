//! Schemes of the transactional executor: how the accesses of concurrent state transactions are ordered.
//!
//! One trait, one file per scheme, one registry. A scheme is called once per block and thread and works per batch.

mod ahead;
mod auto;
mod chains;
mod cost;
mod lock;
mod mvlk;
mod no_lock;
mod pat;
mod pool;
mod ranges;
mod requests;
mod ring;
mod serial;
mod tstream;
mod turn;
#[cfg(all(test, loom))]
mod world;

use std::ops::Range;

use crate::batch::{Block, RowBuffer};
use crate::delivered::Delivered;
use crate::idle::Idle;
use crate::interruption;
use crate::kernel::RunError;
use crate::metrics::{Arrivals, Counters, Running, Stopwatch};
use crate::placement::Placement;
use crate::program::{Options, Program};
use crate::sink::{Prepared, Preparer, Sink};
use crate::state::table::Tables;
use crate::sync::{AtomicBool, AtomicU64, CachePadded, Ordering, UnsafeCell};
use crate::transaction::{Batch, Outcome, Planner, Scratch, Transaction};

/// A block and everything a scheme runs it with.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    pub block: &'a Block,
    /// The part of the block to be run.
    pub events: Range<usize>,
    /// Number, in the run, of the block's first event.
    pub offset: u64,
    pub transaction: &'a Transaction,
    pub tables: &'a Tables,
    pub placement: &'a Placement,
    pub delivery: &'a Delivery,
    /// The first delivery of this part has this ticket.
    pub first_ticket: u64,
    pub arrivals: Arrivals,
    pub clock: Running,
    pub idle: &'a Idle,
    /// Set when some thread has failed: whoever waits or loops leaves.
    pub stopped: &'a AtomicBool,
}

impl Run<'_> {
    /// An error once some thread has failed, or a signal has come.
    #[inline]
    pub fn check(&self) -> Result<(), RunError> {
        interruption::check()?;
        // ORDERING: Acquire; nothing but the flag is used.
        if self.stopped.load(Ordering::Acquire) { Err(RunError::Stopped) } else { Ok(()) }
    }

    /// Waits until the event before `end` (number in the block) has arrived.
    pub fn await_arrival(&self, end: usize) {
        // ORDERING: Acquire; nothing but the flag is used.
        let stopped = || self.stopped.load(Ordering::Acquire) || interruption::noted() != 0;
        self.arrivals.wait(self.offset + end as u64 - 1, &self.clock, stopped);
    }

    /// When the batch's first event was meant to arrive; None at peak rate.
    pub fn arrival(&self, batch: &Batch) -> Option<u64> {
        self.arrivals.is_open_loop().then(|| self.arrivals.at(self.offset + batch.begin as u64))
    }
}

/// Orders the state accesses of a block's transactions.
pub trait Scheme: Send + Sync {
    /// What thread `thread` does with (a part of) a block; every thread of the team calls it, and it returns when the
    /// thread's part is done. When all have returned, every output of these events is delivered.
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError>;

    /// Before each call of `block`; the caller sees to it that no thread is in it.
    fn rewind(&self) {}

    /// Per equal part of every table the thread whose rows these mostly are; None where rows are anybody's.
    fn homes(&self) -> Option<Vec<usize>> {
        None
    }

    /// Events that were run in either way, of a scheme that chooses between several.
    fn chosen(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Summed over threads. The caller sees to it that no thread is in `block`.
    fn counters(&self) -> Counters;
}

type Make = fn(&Program, &Options) -> Result<Box<dyn Scheme>, RunError>;

/// The registry: adding a scheme touches its file and this table.
const SCHEMES: &[(&str, Make)] = &[
    ("tstream", tstream::make),
    ("serial", serial::make),
    ("lock", lock::make),
    ("mvlk", mvlk::make),
    ("pat", pat::make),
    ("auto", auto::make),
    ("no_lock", no_lock::make),
];

/// The scheme the options name (the first one if they name none).
pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let name = options.scheme.as_deref().unwrap_or(SCHEMES[0].0);
    let Some((_, make)) = SCHEMES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = SCHEMES.iter().map(|(name, _)| *name).collect();
        return Err(RunError::Invalid(format!("unknown scheme {name:?}; known: {}", known.join(", "))));
    };
    make(program, options)
}

/// Batches of a punctuated stream: they end at punctuations, and long intervals are cut into parts of at most `part`.
fn batches<'a>(run: &Run<'a>, punctuation: usize, part: usize) -> impl Iterator<Item = (Batch<'a>, usize)> + use<'a> {
    let (block, Range { start: mut begin, end }) = (run.block, run.events.clone());
    std::iter::from_fn(move || {
        if begin == end {
            return None;
        }
        let interval = (begin / punctuation + 1).saturating_mul(punctuation).min(end);
        let end = interval.min(begin + part);
        let batch = Batch { block, begin, end };
        begin = end;
        Some((batch, interval))
    })
}

/// A thread's own things, used by that thread only (by the executor between blocks).
#[derive(Debug)]
struct PerThread<T>(Vec<CachePadded<UnsafeCell<T>>>);

// SAFETY: `get` makes its caller answer for who is at an element.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self((0..threads).map(|_| CachePadded::new(UnsafeCell::new(make()))).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// # Safety
    /// For the time of the result nobody else uses this element mutably, nor at all if the result is written through.
    unsafe fn get(&self, thread: usize) -> *mut T {
        self.0[thread].with_mut(|element| element)
    }
}

/// What a thread needs to take events through plan, apply and post.
#[derive(Debug)]
struct Lane {
    planner: Planner,
    scratch: Scratch,
    outputs: RowBuffer,
    counters: Counters,
}

impl Lane {
    fn new(output_stride: usize) -> Self {
        Self {
            planner: Planner::new(),
            scratch: Scratch::new(),
            outputs: RowBuffer::new(output_stride, false),
            counters: Counters::default(),
        }
    }

    /// Plans some events of a batch into the empty planner.
    fn plan(&mut self, run: &Run, batch: &Batch, events: Range<usize>, outcome: &Outcome) -> Result<(), RunError> {
        self.planner.reset();
        run.transaction.plan(batch, events, &mut self.planner, outcome)?;
        self.counters.dropped += self.planner.take_dropped();
        self.counters.time.remote += run.placement.rows(self.planner.accesses());
        Ok(())
    }

    /// Applies everything planned, in order: for who is alone with the events in the planner.
    ///
    /// # Safety
    /// As for `Transaction::apply`; nobody else applies accesses of these events.
    unsafe fn apply_all(&self, run: &Run, batch: &Batch, thread: usize, outcome: &Outcome) -> Result<(), RunError> {
        // SAFETY: `thread` is the calling thread's number.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, run.tables.bases(), arena, false);
        let accesses = self.planner.accesses();
        // SAFETY: as the caller says.
        let done = unsafe { run.transaction.apply(batch, &mut context, accesses.as_ptr(), accesses.len())? };
        if done != accesses.len() {
            // All conditions of an event stand before what waits for them, and nobody else was to evaluate any.
            return Err(RunError::Engine("an event stayed undecided after all its conditions".into()));
        }
        Ok(())
    }

    /// Takes a batch from plan to outputs, one event after the other.
    ///
    /// # Safety
    /// As for `Transaction::execute`.
    unsafe fn execute(&mut self, run: &Run, batch: &Batch, thread: usize) -> Result<(), RunError> {
        self.outputs.clear();
        // SAFETY: `thread` is the calling thread's number; the caller answers for the tables.
        let (dropped, rejected) = unsafe {
            let arena = run.tables.arena(thread);
            run.transaction.execute(batch, run.tables.bases(), arena, &mut self.scratch, None, &mut self.outputs)?
        };
        self.counters.dropped += dropped + self.outputs.take_dropped();
        self.counters.rejected += rejected;
        self.counters.time.remote += run.placement.events(batch.len());
        Ok(())
    }

    /// Post-processes some events and examines their outputs.
    fn post(
        &mut self,
        run: &Run,
        batch: &Batch,
        events: Range<usize>,
        outcome: &Outcome,
    ) -> Result<Prepared, RunError> {
        self.outputs.clear();
        self.counters.rejected += run.transaction.post(batch, events, outcome, &mut self.outputs)?;
        self.counters.dropped += self.outputs.take_dropped();
        run.delivery.prepare(&self.outputs, run)
    }
}

/// Executes some events by themselves and delivers under `ticket`.
///
/// # Safety
/// As for `Transaction::execute`.
unsafe fn alone(lane: &mut Lane, thread: usize, run: &Run, batch: &Batch, ticket: u64) -> Result<(), RunError> {
    let started = run.clock.now();
    let mut watch = Stopwatch::start();
    // SAFETY: as the caller says.
    unsafe { lane.execute(run, batch, thread)? };
    let prepared = run.delivery.preparer.prepare(&lane.outputs, run.block.text)?;
    watch.lap(&mut lane.counters.time.useful);
    let timing = Timing { started, arrival: run.arrival(batch) };
    run.delivery.deliver(ticket, &lane.outputs, &prepared, Some(timing), run)?;
    watch.lap(&mut lane.counters.time.other);
    Ok(())
}

/// When a batch started and when its first event was to arrive, in engine time.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub started: u64,
    pub arrival: Option<u64>,
}

/// The sink behind a door that opens for one ticket after the other.
#[derive(Debug)]
pub struct Delivery {
    preparer: Preparer,
    /// The ticket whose turn it is; written by who holds it.
    turn: CachePadded<AtomicU64>,
    /// Used by who holds the current ticket.
    delivered: UnsafeCell<Delivered>,
}

// SAFETY: `delivered` is only used by who holds the current ticket, handed on with Release and taken with Acquire.
unsafe impl Sync for Delivery {}
// SAFETY: nothing refers to a thread.
unsafe impl Send for Delivery {}

impl Delivery {
    pub fn new(sink: Sink) -> Self {
        Self {
            preparer: sink.preparer().clone(),
            turn: CachePadded::new(AtomicU64::new(0)),
            delivered: UnsafeCell::new(Delivered::new(sink)),
        }
    }

    /// Examines outputs before their turn to be delivered comes; any thread.
    pub fn prepare(&self, rows: &RowBuffer, run: &Run) -> Result<Prepared, RunError> {
        self.preparer.prepare(rows, run.block.text)
    }

    /// The next ticket to be delivered, when nobody is delivering.
    pub fn next_ticket(&self) -> u64 {
        // ORDERING: Relaxed; asked between blocks, or by who holds the ticket.
        self.turn.load(Ordering::Relaxed)
    }

    /// Delivers when it is this ticket's turn, waiting for that. With `timing` the delivery completes a batch.
    pub fn deliver(
        &self,
        ticket: u64,
        rows: &RowBuffer,
        prepared: &Prepared,
        timing: Option<Timing>,
        run: &Run,
    ) -> Result<(), RunError> {
        run.idle.wait(|| {
            // ORDERING: Acquire takes over the sink from who delivered before.
            self.turn.load(Ordering::Acquire) == ticket || run.stopped.load(Ordering::Acquire)
        });
        // ORDERING: Acquire, as above.
        if self.turn.load(Ordering::Acquire) != ticket {
            return Err(RunError::Stopped);
        }
        self.delivered.with_mut(|delivered| {
            // SAFETY: the current ticket is ours alone.
            let delivered = unsafe { &mut *delivered };
            delivered.sink.deliver(rows, prepared, run.block.text)?;
            if let Some(timing) = timing {
                delivered.record(run.clock.now(), timing.started, timing.arrival);
            }
            Ok(())
        })?;
        // ORDERING: Release hands the sink to the next ticket.
        self.turn.store(ticket + 1, Ordering::Release);
        run.idle.notify();
        Ok(())
    }

    /// What was delivered.
    ///
    /// # Safety
    /// No thread is in `deliver` while the result is used.
    pub unsafe fn delivered(&self) -> &Delivered {
        // SAFETY: as the caller says.
        self.delivered.with(|delivered| unsafe { &*delivered })
    }

    pub fn delivered_mut(&mut self) -> &mut Delivered {
        // SAFETY: `&mut self` is alone.
        self.delivered.with_mut(|delivered| unsafe { &mut *delivered })
    }
}
