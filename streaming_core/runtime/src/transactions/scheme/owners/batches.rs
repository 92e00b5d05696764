//! Batches in flight: what each share has to do of a batch, and what came of it.

use std::ops::Range;

use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::program::kernel::{Access, SELECTION_AHEAD};
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU32, AtomicU64, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::planner::Planner;
use crate::transactions::run::Run;
use crate::transactions::scheme::owners::ranges::{self, Load, Ranges};

/// Marks an event that spans shares, in `Deal::events`.
pub(super) const SPANS: u32 = 1 << 31;

/// The place of a batch in flight.
pub(super) struct Slot {
    /// The ticket of the last batch that was dealt here. Its dealer writes it, and owners of shares read it.
    dealt: AtomicU64,
    /// How many shares are done with the batch.
    finished: CachePadded<AtomicUsize>,
    /// The dealer writes it. Once `dealt` has the batch's ticket, all threads read it, until the batch is delivered.
    deal: UnsafeCell<Deal>,
    /// Per share. The thread of the share writes it until it counts itself in `finished`. Then the thread that delivers the
    /// batch reads it.
    parts: Own<Part>,
}

// SAFETY: `dealt`, `finished` and the reorder buffer pass the rest from thread to thread, as the fields say.
unsafe impl Sync for Slot {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for Slot {}

/// The events of a batch, by share.
pub(super) struct Deal {
    /// Per share, in event order: events that are its own, and `SPANS | event` for those it has a part of.
    pub events: Vec<Vec<u32>>,
    /// Per share, in event order: accesses of its rows by events that span shares.
    pub accesses: Vec<Vec<Access>>,
    pub outcome: Outcome,
    /// Per event that spans shares: how many of them have not applied their accesses yet.
    pub open: Box<[AtomicU32]>,
    /// The thread that dealt the batch.
    pub dealer: usize,
    /// When that began, in engine time.
    started: u64,
    /// Holds the results of events that span shares.
    planner: Planner,
}

/// What came of a share's events.
struct Part {
    /// Outputs in event order, each beside its event; none if the sink keeps no rows.
    rows: RowBuffer,
    prepared: Prepared,
}

/// What dealing needs besides the batch.
pub(super) struct Dealing<'a> {
    pub thread: usize,
    pub ranges: &'a Ranges,
    /// Per table: the factor from a row to its place.
    pub scales: &'a [u64],
    /// Counts the places of events, if those of this batch count.
    pub load: Option<&'a mut Load>,
    /// Where the rows of each event lie (ABI.md, PlaceContext); has room for a batch.
    pub places: &'a mut [u32],
}

/// What a batch was when it was dealt.
pub(super) struct Dealt {
    pub dropped: u64,
    pub spanning: u64,
}

impl Slot {
    /// `keeps`: whether the sink keeps rows.
    pub fn new(shares: usize, output_stride: usize, keeps: bool) -> Self {
        Self {
            dealt: AtomicU64::new(u64::MAX),
            finished: CachePadded::new(AtomicUsize::new(0)),
            deal: UnsafeCell::new(Deal::new(shares)),
            parts: Own::new(shares, || Part {
                rows: RowBuffer::new(output_stride, keeps),
                prepared: Prepared::default(),
            }),
        }
    }

    /// Whether the batch with this ticket is dealt.
    #[inline]
    pub fn is_dealt(&self, ticket: u64) -> bool {
        // ORDERING: Acquire takes over what the dealer wrote.
        self.dealt.load(Ordering::Acquire) == ticket
    }

    /// Deals a batch to the shares.
    ///
    /// # Safety
    /// The calling thread has claimed the batch, and the last batch of this slot was delivered.
    pub unsafe fn deal(&self, run: &Run, batch: &Batch, ticket: u64, dealing: Dealing) -> Result<Dealt, RunError> {
        // SAFETY: as the caller says.
        let dealt = self.deal.with_mut(|deal| unsafe { (*deal).fill(run, batch, dealing) })?;
        // ORDERING: Relaxed; the next store publishes it.
        self.finished.store(0, Ordering::Relaxed);
        // ORDERING: Release passes the deal to the owners of shares.
        self.dealt.store(ticket, Ordering::Release);
        Ok(dealt)
    }

    /// The events of a batch that is dealt.
    ///
    /// # Safety
    /// The batch is dealt, and a share that the calling thread has is not finished.
    #[inline]
    pub unsafe fn with_deal<R>(&self, work: impl FnOnce(&Deal) -> R) -> R {
        // SAFETY: as the caller says.
        self.deal.with(|deal| work(unsafe { &*deal }))
    }

    /// Counts a share as finished, with its outputs. Returns whether it is the last one, and the batch can be delivered. If the
    /// sink keeps rows, takes them, and leaves an empty buffer.
    ///
    /// # Safety
    /// The batch is dealt and the calling thread has the share. It has not counted the share as finished.
    pub unsafe fn finish(&self, run: &Run, share: usize, rows: &mut RowBuffer) -> Result<bool, RunError> {
        let prepared = run.prepare(rows)?;
        // SAFETY: as the caller says.
        unsafe {
            self.parts.with_mut(share, |part| {
                part.prepared = prepared;
                if run.delivery.preparer.keeps_rows() {
                    std::mem::swap(&mut part.rows, rows);
                }
            });
        }
        rows.clear();
        // ORDERING: Release passes the share's part on; Acquire takes over the others'.
        Ok(self.finished.fetch_add(1, Ordering::AcqRel) + 1 == self.parts.len())
    }

    /// Delivers a batch under its ticket.
    ///
    /// # Safety
    /// All shares have finished the batch, and all earlier batches are delivered.
    pub unsafe fn deliver(&self, run: &Run, batch: &Batch, ticket: u64) -> Result<(), RunError> {
        // SAFETY: as the caller says, here and below.
        let started = self.deal.with(|deal| unsafe { (*deal).started });
        let mut prepared = Prepared::nothing();
        for share in 0..self.parts.len() {
            // SAFETY: see above.
            unsafe { self.parts.with(share, |part| prepared.join(&part.prepared)) };
        }
        let timing = Timing { started, arrival: run.arrival(batch) };
        run.deliver_by(ticket, Some(timing), |sink| {
            if !run.delivery.preparer.keeps_rows() {
                return sink.admit(&prepared);
            }
            // SAFETY: see above; the rows stay where they are.
            unsafe {
                let places = self.in_event_order(prepared.rows());
                let rows = Rows { places: places.as_ptr(), n: places.len(), ..Rows::nothing(self.stride()) };
                sink.deliver_rows(Rows { text: run.block.text, ..rows }, &prepared)
            }
        })
    }

    fn stride(&self) -> usize {
        // SAFETY: no thread changes it.
        unsafe { self.parts.with(0, |part| part.rows.stride()) }
    }

    /// Addresses of the outputs of all shares, in event order.
    ///
    /// # Safety
    /// As for `deliver`.
    unsafe fn in_event_order(&self, rows: usize) -> Vec<*const u8> {
        // SAFETY: as the caller says.
        let mut sources: Vec<(Range<usize>, *const RowBuffer)> = (0..self.parts.len())
            .map(|share| unsafe { self.parts.with(share, |part| (0..part.rows.len(), &raw const part.rows)) })
            .collect();
        let mut places = Vec::with_capacity(rows);
        while places.len() < rows {
            // SAFETY: as the caller says; the buffers have as many rows as their ranges say.
            let origin = |(left, rows): &(Range<usize>, *const RowBuffer)| unsafe {
                left.clone().next().map(|row| (**rows).origins()[row])
            };
            // All outputs of an event lie in one share.
            let Some(source) =
                sources.iter_mut().filter(|source| origin(source).is_some()).min_by_key(|source| origin(source))
            else {
                break;
            };
            let event = origin(source);
            while origin(source) == event {
                // SAFETY: as above.
                source.0.next().into_iter().for_each(|row| places.push(unsafe { (*source.1).row(row) }));
            }
        }
        places
    }
}

impl Deal {
    fn new(shares: usize) -> Self {
        Self {
            events: (0..shares).map(|_| Vec::new()).collect(),
            accesses: (0..shares).map(|_| Vec::new()).collect(),
            outcome: Outcome::new(0),
            open: Box::new([]),
            dealer: 0,
            started: 0,
            planner: Planner::new(),
        }
    }

    /// Sees which shares the rows of each event lie in, and plans the events that span shares.
    fn fill(&mut self, run: &Run, batch: &Batch, dealing: Dealing) -> Result<Dealt, RunError> {
        let Dealing { thread, ranges, scales, load, places } = dealing;
        self.dealer = thread;
        self.started = run.clock.now();
        if self.open.len() < batch.len() {
            // Kept from batch to batch, and no longer than the longest batch.
            self.outcome = Outcome::new(batch.len());
            self.open = (0..batch.len()).map(|_| AtomicU32::new(0)).collect();
        }
        for (accesses, events) in self.accesses.iter_mut().zip(&mut self.events) {
            accesses.clear();
            events.clear();
            events.reserve(batch.len() + SELECTION_AHEAD);
        }
        self.planner.reset();
        run.transaction.place(batch, 0..batch.len(), places.as_mut_ptr())?;
        if let Some(load) = load {
            places[..batch.len()].iter().for_each(|place| load.count(place & 0xFFFF, place >> 16));
        }
        let mut spanning = 0;
        for (event, &place) in places[..batch.len()].iter().enumerate() {
            let (low, high) = (place & 0xFFFF, place >> 16);
            let share = ranges.owner(low);
            // Any share may have an event that names no row (its lowest place is above its highest).
            if low > high || ranges.owner(high) == share {
                let events = &mut self.events[share];
                let len = events.len();
                // SAFETY: a share has at most one entry per event, and room for all events was reserved. `push` would look
                // at the room again.
                unsafe {
                    events.as_mut_ptr().add(len).write(event as u32);
                    events.set_len(len + 1);
                }
            } else {
                spanning += 1;
                self.plan(run, batch, event, share, ranges, scales)?;
            }
        }
        for events in &mut self.events {
            // Kernels look ahead, behind the end of the list too.
            let len = events.len();
            events.extend([0; SELECTION_AHEAD]);
            events.truncate(len);
        }
        Ok(Dealt { dropped: self.planner.take_dropped(), spanning })
    }

    /// Plans an event that spans shares. `first`: the share of its lowest row, which takes part even without an access, so
    /// that some share makes the outputs.
    fn plan(
        &mut self,
        run: &Run,
        batch: &Batch,
        event: usize,
        first: usize,
        ranges: &Ranges,
        scales: &[u64],
    ) -> Result<(), RunError> {
        let before = self.planner.accesses().len();
        run.transaction.plan(batch, event..event + 1, &mut self.planner, &self.outcome)?;
        let mark = SPANS | event as u32;
        self.events[first].push(mark);
        let mut parts = 1;
        for access in &self.planner.accesses()[before..] {
            let share = ranges.owner(ranges::place(access.row, scales[usize::from(access.table)]));
            if self.events[share].last() != Some(&mark) {
                self.events[share].push(mark);
                parts += 1;
            }
            self.accesses[share].push(*access);
        }
        // ORDERING: Relaxed; published with the deal.
        self.open[event].store(parts, Ordering::Relaxed);
        Ok(())
    }
}
