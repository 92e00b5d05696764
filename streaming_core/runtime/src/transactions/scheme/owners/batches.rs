//! Batches in flight: what each share has to do of a batch, and what came of it.

use std::ops::Range;

use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::program::kernel::{Access, SELECTION_AHEAD, kind};
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU64, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Columns;
use crate::transactions::planner::Planner;
use crate::transactions::run::Run;
use crate::transactions::scheme::owners::exchange::{Note, Part};
use crate::transactions::scheme::owners::ranges::{self, Layout, Load, Ranges};

/// Marks an event that spans shares, in `Deal::shares`.
pub(super) const SPANS: u32 = 1 << 31;

/// The place of a batch in flight.
pub(super) struct Slot {
    /// The ticket of the last batch that was dealt here. Its dealer writes it, and owners of shares read it.
    dealt: AtomicU64,
    /// How many shares have executed their events of the batch, and how many have made their outputs of events that span shares.
    executed: CachePadded<AtomicUsize>,
    posted: CachePadded<AtomicUsize>,
    /// The dealer writes it. Once `dealt` has the batch's ticket, all threads read it, until the batch is delivered.
    deal: UnsafeCell<Deal>,
    /// Per share. The thread of the share writes it until it counts itself in `executed`. Once all have, every thread reads it.
    pub parts: Own<Part>,
    /// Per share. The thread of the share writes it until it counts itself in `executed`, and in `posted`. Then the thread that
    /// delivers the batch reads it.
    outputs: Own<[Outputs; 2]>,
}

// SAFETY: `dealt`, `executed`, `posted` and the reorder buffer pass the rest from thread to thread, as the fields say.
unsafe impl Sync for Slot {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for Slot {}

/// The events of a batch, by share.
pub(super) struct Deal {
    /// The events of the batch, from the start of the part of the block.
    events: Range<usize>,
    /// Per share, in event order: events that are its own, and `SPANS | number` for those in `planned` that it has a part of.
    pub shares: Vec<Vec<u32>>,
    /// Per share, in event order: accesses of its rows by events that span shares. A read has its number among the share's reads.
    pub accesses: Vec<Vec<Access>>,
    /// Per share, the number of these reads.
    pub reads: Vec<usize>,
    /// The events that span shares, and their accesses. These have the share of the row in place of the event, and a read has its
    /// number among the reads of that share.
    pub planned: Vec<Planned>,
    pub planner: Planner,
    /// The words of all captures.
    pub captured: usize,
    /// Where the rows of each event lie (ABI.md, PlaceContext).
    pub places: Vec<u32>,
    /// Per share, what it tells the others of each event in `planned`.
    pub notes: Vec<Vec<Note>>,
    /// The thread that dealt the batch.
    pub dealer: usize,
    /// When that began, in engine time.
    started: u64,
}

/// An event that spans shares, as its dealer planned it. The kernel writes the first four fields.
pub(super) struct Planned {
    pub decision: u32,
    /// The first of its accesses; behind the last one; and how many of them are conditions, which come first.
    pub first: u32,
    results: u64,
    pub captures: u64,
    pub end: u32,
    pub conditions: u32,
    pub event: u32,
    /// The share of the lowest row, which makes the outputs.
    pub home: u32,
    /// Where its captures begin, among those of a share.
    pub captured: u32,
}

impl Planned {
    /// Columns that have this at the event's index.
    fn columns(&mut self) -> Columns {
        let event = self.event as usize;
        Columns {
            decisions: (&raw mut self.decision).wrapping_sub(event),
            results: (&raw mut self.results).wrapping_sub(event),
            captures: (&raw mut self.captures).wrapping_sub(event),
            first: (&raw mut self.first).wrapping_sub(event),
        }
    }
}

/// Outputs of a share in event order, each beside its event; no rows if the sink keeps none.
struct Outputs {
    rows: RowBuffer,
    prepared: Prepared,
}

impl Slot {
    /// `keeps`: whether the sink keeps rows.
    pub fn new(shares: usize, output_stride: usize, keeps: bool) -> Self {
        let outputs = || Outputs { rows: RowBuffer::new(output_stride, keeps), prepared: Prepared::default() };
        Self {
            dealt: AtomicU64::new(u64::MAX),
            executed: CachePadded::default(),
            posted: CachePadded::default(),
            deal: UnsafeCell::new(Deal::new(shares)),
            parts: Own::new(shares, Part::new),
            outputs: Own::new(shares, || [outputs(), outputs()]),
        }
    }

    /// Whether the batch with this ticket is dealt.
    #[inline]
    pub fn is_dealt(&self, ticket: u64) -> bool {
        // ORDERING: Acquire takes over what the dealer wrote.
        self.dealt.load(Ordering::Acquire) == ticket
    }

    /// Whether all shares have executed the batch.
    #[inline]
    pub fn is_executed(&self) -> bool {
        // ORDERING: Acquire takes over the parts of all shares.
        self.executed.load(Ordering::Acquire) == self.parts.len()
    }

    /// Deals events of the block to the shares. Returns how many events are invalid, and how many span shares.
    ///
    /// # Safety
    /// The calling thread has claimed the batch, and the last batch of this slot was delivered.
    pub unsafe fn deal(
        &self,
        run: &Run,
        events: Range<usize>,
        ticket: u64,
        dealer: usize,
        (ranges, layout): (&Ranges, &Layout),
        load: Option<&mut Load>,
    ) -> Result<(u64, usize), RunError> {
        // SAFETY: as the caller says.
        let dealt = self.deal.with_mut(|deal| unsafe {
            (*deal).fill(run, events, dealer, (ranges, layout), load)?;
            Ok::<_, RunError>(((*deal).planner.take_dropped(), (*deal).planned.len()))
        })?;
        // ORDERING: Relaxed; the next store publishes them.
        self.executed.store(0, Ordering::Relaxed);
        self.posted.store(0, Ordering::Relaxed);
        // ORDERING: Release passes the deal to the owners of shares.
        self.dealt.store(ticket, Ordering::Release);
        Ok(dealt)
    }

    /// The events of a batch that is dealt.
    ///
    /// # Safety
    /// The batch is dealt, and not delivered meanwhile.
    #[inline]
    pub unsafe fn with_deal<R>(&self, work: impl FnOnce(&Deal) -> R) -> R {
        // SAFETY: as the caller says.
        self.deal.with(|deal| work(unsafe { &*deal }))
    }

    /// Counts a share as done with its events of the batch (`spanning`: with the outputs of those that span shares), which made
    /// these outputs. Returns whether it is the last share. If the sink keeps rows, takes them, and leaves an empty buffer.
    ///
    /// # Safety
    /// The batch is dealt and the calling thread has the share. It has not counted the share yet.
    pub unsafe fn finish(
        &self,
        run: &Run,
        share: usize,
        rows: &mut RowBuffer,
        spanning: bool,
    ) -> Result<bool, RunError> {
        let prepared = run.prepare(rows)?;
        // SAFETY: as the caller says.
        unsafe {
            self.outputs.with_mut(share, |outputs| {
                let [own, others] = outputs;
                if !spanning {
                    // A batch without events that span shares stays without such outputs.
                    others.rows.clear();
                    others.prepared = Prepared::nothing();
                }
                let outputs = if spanning { others } else { own };
                outputs.prepared = prepared;
                if run.delivery.preparer.keeps_rows() {
                    std::mem::swap(&mut outputs.rows, rows);
                }
            });
        }
        rows.clear();
        let count = if spanning { &self.posted } else { &self.executed };
        // ORDERING: Release passes the share's part on; Acquire takes over the others'.
        Ok(count.fetch_add(1, Ordering::AcqRel) + 1 == self.parts.len())
    }

    /// Delivers a batch under its ticket.
    ///
    /// # Safety
    /// All shares have made all outputs of the batch, and all earlier batches are delivered.
    pub unsafe fn deliver(&self, run: &Run, ticket: u64) -> Result<(), RunError> {
        // SAFETY: as the caller says, here and below.
        let (started, arrival) = unsafe { self.with_deal(|deal| (deal.started, run.arrival(&deal.batch(run)))) };
        let mut prepared = Prepared::nothing();
        for share in 0..self.outputs.len() {
            // SAFETY: see above.
            unsafe {
                self.outputs.with(share, |outputs| outputs.iter().for_each(|more| prepared.join(&more.prepared)))
            };
        }
        run.deliver_by(ticket, Some(Timing { started, arrival }), |sink| {
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
        unsafe { self.outputs.with(0, |outputs| outputs[0].rows.stride()) }
    }

    /// Addresses of the outputs of all shares, in event order.
    ///
    /// # Safety
    /// As for `deliver`.
    unsafe fn in_event_order(&self, rows: usize) -> Vec<*const u8> {
        let mut sources: Vec<(Range<usize>, *const RowBuffer)> = Vec::with_capacity(2 * self.outputs.len());
        for share in 0..self.outputs.len() {
            let source = |outputs: &Outputs| (0..outputs.rows.len(), &raw const outputs.rows);
            // SAFETY: as the caller says.
            unsafe { self.outputs.with(share, |outputs| sources.extend(outputs.iter().map(source))) };
        }
        let mut places = Vec::with_capacity(rows);
        while places.len() < rows {
            // SAFETY: as the caller says; the buffers have as many rows as their ranges say.
            let origin = |(left, rows): &(Range<usize>, *const RowBuffer)| unsafe {
                left.clone().next().map(|row| (**rows).origins()[row])
            };
            // All outputs of an event lie in one buffer.
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
            events: 0..0,
            shares: (0..shares).map(|_| Vec::new()).collect(),
            accesses: (0..shares).map(|_| Vec::new()).collect(),
            reads: vec![0; shares],
            planned: Vec::new(),
            planner: Planner::new(),
            captured: 0,
            places: Vec::new(),
            notes: (0..shares).map(|_| Vec::new()).collect(),
            dealer: 0,
            started: 0,
        }
    }

    /// The batch that was dealt.
    pub fn batch<'a>(&self, run: &Run<'a>) -> Batch<'a> {
        part(run, &self.events)
    }

    /// Sees which shares the rows of each event lie in.
    fn fill(
        &mut self,
        run: &Run,
        events: Range<usize>,
        dealer: usize,
        (ranges, layout): (&Ranges, &Layout),
        load: Option<&mut Load>,
    ) -> Result<(), RunError> {
        self.dealer = dealer;
        self.started = run.clock.now();
        let batch = part(run, &events);
        self.events = events;
        for events in &mut self.shares {
            events.clear();
            events.reserve(batch.len() + SELECTION_AHEAD);
        }
        self.accesses.iter_mut().for_each(Vec::clear);
        self.reads.fill(0);
        self.planned.clear();
        self.planner.reset();
        self.captured = 0;
        self.places.resize(batch.len().max(self.places.len()), 0);
        run.transaction.place(&batch, &mut self.places)?;
        if let Some(load) = load {
            self.places[..batch.len()].iter().for_each(|place| load.count(place & 0xFFFF, place >> 16));
        }
        for event in 0..batch.len() {
            let place = self.places[event];
            let (low, high) = (place & 0xFFFF, place >> 16);
            let share = ranges.owner(low);
            // Any share may have an event that names no row (its lowest place is above its highest).
            if low > high || ranges.owner(high) == share {
                let events = &mut self.shares[share];
                let len = events.len();
                // SAFETY: a share has at most one entry per event, and room for all events was reserved. `push` would look at
                // the room again.
                unsafe {
                    events.as_mut_ptr().add(len).write(event as u32);
                    events.set_len(len + 1);
                }
            } else {
                self.plan(run, &batch, event, share, ranges, layout)?;
            }
        }
        for (events, notes) in self.shares.iter_mut().zip(&mut self.notes) {
            // Kernels look ahead, behind the end of the list too.
            let len = events.len();
            events.extend([0; SELECTION_AHEAD]);
            events.truncate(len);
            notes.resize_with(self.planned.len().max(notes.len()), Note::default);
        }
        Ok(())
    }

    /// Plans an event that spans shares. `home` takes part even without an access, because it makes the outputs.
    fn plan(
        &mut self,
        run: &Run,
        batch: &Batch,
        event: usize,
        home: usize,
        ranges: &Ranges,
        layout: &Layout,
    ) -> Result<(), RunError> {
        let number = self.planned.len();
        let (event, home) = (event as u32, home as u32);
        let captured = self.captured as u32;
        let (decision, first, results, captures, end, conditions) = (0, 0, 0, 0, 0, 0);
        self.planned.push(Planned { decision, first, results, captures, end, conditions, event, home, captured });
        let planned = &mut self.planned[number];
        // SAFETY: the columns have an entry for this event.
        unsafe {
            let this = event as usize;
            run.transaction.plan_into(batch, this..this + 1, &mut self.planner, planned.columns())?;
        }
        let accesses = &mut self.planner.accesses_mut()[planned.first as usize..];
        planned.end = planned.first + accesses.len() as u32;
        let mark = SPANS | number as u32;
        self.shares[home as usize].push(mark);
        for access in accesses {
            let share = ranges.owner(ranges::place(access.row, layout.scales[usize::from(access.table)]));
            if self.shares[share].last() != Some(&mark) {
                self.shares[share].push(mark);
            }
            if access.kind == kind::READ {
                access.slot = self.reads[share] as u32;
                self.reads[share] += 1;
            }
            self.accesses[share].push(*access);
            access.event = share as u32;
            if !access.waits() {
                planned.conditions += 1;
            }
            if access.kind >= kind::CAPTURE {
                let rows = usize::from(access.kind - kind::CAPTURE) + 1;
                let words = (access.slot as usize * 8 + 8 + rows * layout.stride).div_ceil(8);
                self.captured = self.captured.max(planned.captured as usize + words);
            }
        }
        Ok(())
    }
}

/// Events of a part of the block.
fn part<'a>(run: &Run<'a>, events: &Range<usize>) -> Batch<'a> {
    Batch { block: run.block, begin: run.events.start + events.start, end: run.events.start + events.end }
}
