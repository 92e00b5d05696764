//! A block with everything a scheme runs it with, and what a scheme is.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::RunError;
use crate::interruption;
use crate::memory::placement::Placement;
use crate::output::clock::{Arrivals, Running};
use crate::output::counters::Counters;
use crate::output::sink::{Kept, Prepared, Sink};
use crate::rows::block::Block;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::state::table::Tables;
use crate::threads::choice::Way;
use crate::threads::idle::Idle;
use crate::threads::sync::{AtomicBool, Ordering};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::{Delivery, Timing};
use crate::transactions::transaction::Transaction;

/// A block and everything a scheme runs it with.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    pub block: &'a Block,
    /// The part of the block to run.
    pub events: Range<usize>,
    /// Number, in the run, of the block's first event.
    pub offset: u64,
    pub transaction: &'a Transaction,
    pub tables: &'a Tables,
    pub placement: &'a Placement,
    pub delivery: &'a Delivery,
    /// The first delivery of this part has this ticket.
    pub first_ticket: u64,
    pub arrivals: &'a Arrivals,
    pub clock: Running,
    pub idle: &'a Idle,
    /// Set when a thread has failed: threads that wait or loop leave.
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

    /// Whether the event before `end` (number in the block) has arrived.
    pub fn has_arrived(&self, end: usize) -> bool {
        !self.arrivals.is_open_loop() || self.arrivals.at(self.offset + end as u64 - 1) <= self.clock.now()
    }

    /// The end of those of these events (numbers in the block) that have arrived; the event before the first one has.
    pub fn arrived(&self, events: Range<usize>) -> usize {
        if !self.arrivals.is_open_loop() {
            return events.end;
        }
        let arrived = self.arrivals.until(self.clock.now()).saturating_sub(self.offset) as usize;
        arrived.clamp(events.start, events.end)
    }

    /// Examines outputs before the turn of their delivery comes; any thread.
    pub fn prepare(&self, rows: &RowBuffer) -> Result<Prepared, RunError> {
        self.delivery.preparer.prepare(rows, self.block.text)
    }

    /// Copies of these outputs, if the sink keeps them; any thread.
    pub fn keep(&self, rows: &RowBuffer, prepared: &Prepared) -> Result<Kept, RunError> {
        // SAFETY: a buffer's rows are readable.
        unsafe { self.delivery.preparer.keep(Rows::of(rows, self.block.text), prepared) }
    }

    /// Delivers when it is this ticket's turn, waiting for that. With `timing` the delivery completes a batch.
    pub fn deliver(
        &self,
        ticket: u64,
        rows: &RowBuffer,
        prepared: &Prepared,
        timing: Option<Timing>,
    ) -> Result<(), RunError> {
        // SAFETY: a buffer's rows are readable.
        unsafe { self.deliver_rows(ticket, Rows::of(rows, self.block.text), prepared, timing) }
    }

    /// As `deliver`, wherever the rows lie.
    ///
    /// # Safety
    /// The rows are readable.
    pub unsafe fn deliver_rows(
        &self,
        ticket: u64,
        rows: Rows,
        prepared: &Prepared,
        timing: Option<Timing>,
    ) -> Result<(), RunError> {
        // SAFETY: as the caller says; the copies are made before the turn comes.
        unsafe {
            let kept = self.delivery.preparer.keep(rows, prepared)?;
            self.deliver_by(ticket, timing, |sink| sink.take_over(rows, prepared, kept))
        }
    }

    /// Delivers by `work` when it is this ticket's turn, waiting for that. With `timing` the delivery completes a batch.
    pub fn deliver_by(
        &self,
        ticket: u64,
        timing: Option<Timing>,
        work: impl FnOnce(&mut Sink) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        // ORDERING: Acquire; nothing but the flag is used.
        let leaves = || self.stopped.load(Ordering::Acquire);
        self.delivery.deliver(ticket, self.idle, leaves, |delivered| {
            work(&mut delivered.sink)?;
            if let Some(timing) = timing {
                delivered.record(self.clock.now(), timing.started, timing.arrival);
            }
            Ok(())
        })
    }

    /// The time at which the batch's first event should arrive; None at peak rate.
    pub fn arrival(&self, batch: &Batch) -> Option<u64> {
        self.arrivals.is_open_loop().then(|| self.arrivals.at(self.offset + batch.begin as u64))
    }
}

/// Orders the state accesses of a block's transactions.
pub trait Scheme: Send + Sync {
    /// Does the work of thread `thread` for a block, or a part of it. Each of the scheme's threads calls it. When all calls have
    /// returned, every output of these events has been delivered.
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError>;

    /// Before each call of `block`; the caller sees to it that no thread is in it.
    fn rewind(&self) {}

    /// Per equal part of every table the thread whose rows these mostly are; None where rows are anybody's.
    fn homes(&self) -> Option<Vec<usize>> {
        None
    }

    /// Whether threads belong to sockets that this machine does not have.
    fn makes_up_sockets(&self) -> bool {
        false
    }

    /// The number of each thread's pool; None without pools.
    fn pools(&self) -> Option<Vec<usize>> {
        None
    }

    /// Whether the time to plan counts as useful, and with it the time of look-ups in indexes.
    fn counts_plans_as_useful(&self) -> bool {
        true
    }

    /// Summed over threads. The caller sees to it that no thread is in `block`.
    fn counters(&self) -> Counters;

    /// Times and counts of the scheme's own, by name, summed over threads. The caller sees to it that no thread is in `block`.
    fn costs(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

/// A scheme on a number of threads, one of several between which the executor may choose.
pub struct Candidate {
    pub name: &'static str,
    pub way: Way,
    pub scheme: Box<dyn Scheme>,
}

impl Candidate {
    /// The only scheme of an executor, on all its threads.
    pub fn only(threads: usize, scheme: Box<dyn Scheme>) -> Vec<Self> {
        vec![Self { name: "", way: Way { threads, part: 1 }, scheme }]
    }
}

/// How many batches a punctuated stream has in (a part of) a block.
pub(crate) fn intervals(run: &Run, punctuation: usize) -> usize {
    let Range { start, end } = run.events;
    if start == end { 0 } else { (end - 1) / punctuation - start / punctuation + 1 }
}

/// Batch `number < intervals(...)` of a punctuated stream: a whole punctuation interval, as far as it lies in the block.
pub(crate) fn interval<'a>(run: &Run<'a>, punctuation: usize, number: usize) -> Batch<'a> {
    let Range { start, end } = run.events;
    let first = (start / punctuation + number) * punctuation;
    Batch { block: run.block, begin: first.max(start), end: first.saturating_add(punctuation).min(end) }
}

/// All batches of a punctuated stream.
pub(crate) fn batches<'a>(run: &Run<'a>, punctuation: usize) -> impl Iterator<Item = Batch<'a>> + use<'a> {
    let run = run.clone();
    (0..intervals(&run, punctuation)).map(move |number| interval(&run, punctuation, number))
}
