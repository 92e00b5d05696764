//! A block with everything a scheme runs it with, and what a scheme is.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::RunError;
use crate::interruption;
use crate::memory::placement::Placement;
use crate::output::clock::{Arrivals, Running};
use crate::output::counters::Counters;
use crate::output::sink::Prepared;
use crate::rows::block::Block;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::state::table::Tables;
use crate::threads::idle::Idle;
use crate::threads::sync::{AtomicBool, Ordering};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::{Delivery, Timing};
use crate::transactions::transaction::Transaction;

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

    /// Examines outputs before their turn to be delivered comes; any thread.
    pub fn prepare(&self, rows: &RowBuffer) -> Result<Prepared, RunError> {
        self.delivery.preparer.prepare(rows, self.block.text)
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
        // ORDERING: Acquire; nothing but the flag is used.
        let leaves = || self.stopped.load(Ordering::Acquire);
        self.delivery.deliver(ticket, self.idle, leaves, |delivered| {
            // SAFETY: as the caller says.
            unsafe { delivered.sink.deliver_rows(rows, prepared)? };
            if let Some(timing) = timing {
                delivered.record(self.clock.now(), timing.started, timing.arrival);
            }
            Ok(())
        })
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

    /// Whether threads were dealt to sockets that this machine does not have.
    fn makes_up_sockets(&self) -> bool {
        false
    }

    /// Events that were run in either way, of a scheme that chooses between several.
    fn chosen(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
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

/// Batches of a punctuated stream: whole punctuation intervals, as far as they lie in the block.
pub(crate) fn batches<'a>(run: &Run<'a>, punctuation: usize) -> impl Iterator<Item = Batch<'a>> + use<'a> {
    let (block, Range { start: mut begin, end }) = (run.block, run.events.clone());
    std::iter::from_fn(move || {
        if begin == end {
            return None;
        }
        let end = (begin / punctuation + 1).saturating_mul(punctuation).min(end);
        let batch = Batch { block, begin, end };
        begin = end;
        Some(batch)
    })
}
