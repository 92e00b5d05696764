//! `owners`: every thread owns rows and executes the events of its rows. It takes TStream's idea that the owner of a row
//! applies all accesses to it (section IV), without TStream's barriers between modes.
//!
//! In partitioned applications, nearly all events have all their rows at the same relative position in their tables, give or
//! take a partition. So tables are cut into *shares*: ranges of rows, the same in all tables, drawn by load (`ranges.rs`).
//! Each thread has one share, the same during a block. Batches, the intervals of a punctuated stream, flow through a ring:
//!
//! 1. *Deal*: some thread claims the next batch. It looks where the rows of each event lie, and lists the events of each share
//!    (`batches.rs`). It plans events that *span* shares, and gives each share the accesses of its rows.
//! 2. *Execute*: each thread takes the batches in order. It executes the events of its shares from plan to outputs, and
//!    digests the outputs. Of an event that spans shares, it applies its accesses; the last share to do so makes the outputs.
//! 3. *Deliver*: the last share to finish a batch passes it to a reorder buffer, which delivers batches in order.
//!
//! Only lists of events, and events that span shares, pass from thread to thread. Threads meet nowhere. A thread deals when
//! fewer than `AHEAD` batches wait for it, so a thread that is ahead deals more.
//!
//! **Order.** A batch has one ticket, and the reorder buffer delivers tickets in order. Within a batch, each share has its
//! outputs in event order, and all outputs of an event lie in one share. So a merge by event is the sequential order.
//!
//! **Exactness.** Take a row. One thread applies all accesses to it, in the order of batches, and in event order within a batch.
//! An event of one share is executed there alone. A write or read of an event that spans shares waits for the event's
//! decision. A condition or capture does not wait, and sees what all earlier events left. That is the sequential meaning.
//! Ranges change between blocks only, when no thread is at a row.
//!
//! **No deadlock.** A thread waits for three things: for the decision of an event, for a batch that another thread is dealing,
//! or for a free slot. Dealing waits for nothing. At a set rate, it waits for the batch's events to arrive, but only in a
//! thread that has finished all earlier batches. Of the shares that wait for a decision, take the one that waits for the
//! earliest event. The event lacks a condition, which another share must evaluate. In the list of a share, conditions of an
//! event come before all else of that event. So that share has not reached the event, and works on an earlier one, for
//! which it does not wait. Its batch is dealt, because the first share has reached the same batch or a later one, and
//! batches are claimed in order. So some thread goes on. Slots become free when batches are delivered, so the earliest
//! batch never waits for a slot.

mod batches;
mod costs;
mod ranges;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::SinkKind;
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::buffer::RowBuffer;
use crate::threads::own::Own;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::sync::{AtomicUsize, CachePadded, Ordering, hint};
use crate::transactions::batch::Batch;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::{Run, Scheme, batches, interval, intervals};
use crate::transactions::workbench::{Workbench, alone};

use std::collections::BTreeMap;

use batches::{Deal, Dealing, SPANS, Slot};
use costs::Costs;
use ranges::{Load, Ranges};

/// Batches in flight per thread: enough that no thread waits for a slot, few enough to stay in the shared cache.
const DEPTH: usize = 4;
/// Batches that are dealt before a thread comes to them. They are enough that it does not wait for a thread that deals, and few
/// enough that their events are still in a cache.
const AHEAD: usize = 2;
/// The load is that of one batch in so many.
const SAMPLE: usize = 8;
/// Looks at an undecided event before the thread turns to something else: the thread of the condition is seldom far away.
const LOOKS: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

struct Owners {
    punctuation: usize,
    slots: Vec<CachePadded<Slot>>,
    /// The next batch to deal; threads claim it by compare-and-exchange.
    claimed: CachePadded<AtomicUsize>,
    /// Puts finished batches in order.
    order: NonBlocking,
    /// Each part belongs to one thread.
    members: Own<Member>,
    /// Per table: the factor from a row to its place.
    scales: Vec<u64>,
}

/// The data of one thread.
struct Member {
    bench: Workbench,
    costs: Costs,
    cursor: Cursor,
    /// Of the batch at hand.
    outputs: RowBuffer,
    /// Where the rows of the events lie that the thread has dealt.
    load: Load,
    /// The same for each event of a batch that the thread deals.
    places: Vec<u32>,
    /// The same in all threads.
    ranges: Ranges,
}

/// How far a thread has come.
#[derive(Clone, Copy, Default)]
struct Cursor {
    /// The batch at hand.
    batch: usize,
    /// Of the lists of its share.
    event: usize,
    access: usize,
    /// The event whose decision it waits for.
    awaits: Option<u32>,
}

pub(super) fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(owners(program, options)))
}

fn owners(program: &Program, options: &Options) -> Owners {
    let threads = options.threads;
    let slots = (threads * DEPTH).next_power_of_two();
    let (stride, keeps) = (program.output_stride(), options.sink == SinkKind::Parquet);
    let member = || Member {
        bench: Workbench::new(stride),
        costs: Costs::default(),
        cursor: Cursor::default(),
        outputs: RowBuffer::new(stride, keeps),
        load: Load::NONE,
        places: Vec::new(),
        ranges: Ranges::new(threads, &Load::NONE),
    };
    Owners {
        punctuation: options.punctuation,
        slots: (0..slots).map(|_| CachePadded::new(Slot::new(threads, stride, keeps))).collect(),
        claimed: CachePadded::default(),
        order: NonBlocking::new(slots),
        members: Own::new(threads, member),
        scales: program.tables.iter().map(|table| ranges::scale(table.rows)).collect(),
    }
}

impl Scheme for Owners {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        // SAFETY: the thread's own.
        unsafe {
            self.members.with_mut(thread, |own| match self.members.len() {
                1 => self.alone(own, run),
                _ => self.go_round(thread, own, run),
            })
        }
    }

    /// Draws the ranges by the load of the blocks so far.
    fn rewind(&self) {
        // ORDERING: Relaxed; no thread is in `block`, and starting the next block publishes it.
        self.claimed.store(0, Ordering::Relaxed);
        self.order.restart();
        let mut load = Load::NONE;
        for thread in 0..self.members.len() {
            // SAFETY: no thread is in `block`.
            unsafe {
                self.members.with_mut(thread, |member| {
                    load.add(&member.load);
                    // Older blocks count for less.
                    member.load.halve();
                });
            }
        }
        let ranges = Ranges::new(self.members.len(), &load);
        for thread in 0..self.members.len() {
            // SAFETY: as above.
            unsafe { self.members.with_mut(thread, |member| member.ranges = ranges.clone()) };
        }
    }

    fn homes(&self) -> Option<Vec<usize>> {
        Some((0..self.members.len()).collect())
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe {
            let mut sum = self.members.sum(|member| member.bench.counters);
            sum.time += self.members.sum(|member| member.costs).breakdown();
            sum
        }
    }

    fn costs(&self) -> BTreeMap<&'static str, u64> {
        if self.members.len() == 1 {
            return BTreeMap::new(); // one thread does nothing but execute
        }
        // SAFETY: no thread is in `block`.
        unsafe { self.members.sum(|member| member.costs).named() }
    }
}

impl Owners {
    fn slot(&self, batch: usize) -> &Slot {
        &self.slots[batch % self.slots.len()]
    }

    /// The only thread executes batch after batch.
    fn alone(&self, own: &mut Member, run: &Run) -> Result<(), RunError> {
        for (number, batch) in batches(run, self.punctuation).enumerate() {
            run.await_arrival(batch.end);
            // SAFETY: there is only this thread.
            unsafe { alone(&mut own.bench, 0, run, &batch, run.first_ticket + number as u64)? };
        }
        Ok(())
    }

    /// A thread's part of a block.
    fn go_round(&self, thread: usize, own: &mut Member, run: &Run) -> Result<(), RunError> {
        let count = intervals(run, self.punctuation);
        own.cursor = Cursor::default();
        own.outputs.clear();
        own.places.resize(self.punctuation.min(run.events.len()).max(own.places.len()), 0);
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        loop {
            run.check()?;
            let worked = self.deal(thread, own, run, &mut watch)? | self.advance(thread, own, run, &mut watch)?;
            if own.cursor.batch == count {
                return Ok(());
            }
            if worked {
                patience = run.idle.patience();
                continue;
            }
            // Kernels decide events without a notification, so a thread that waits for a decision must not sleep.
            if !patience.pass() && own.cursor.awaits.is_none() {
                run.idle.wait(|| self.has_news(own, run));
            }
            watch.lap(&mut own.costs.waiting);
        }
    }

    /// The next batch to deal, if the thread should deal it now.
    fn claimable(&self, own: &Member, run: &Run) -> Option<usize> {
        // ORDERING: Relaxed; the claim decides.
        let (number, next) = (self.claimed.load(Ordering::Relaxed), own.cursor.batch);
        let wanted = number < intervals(run, self.punctuation)
            && number < next + AHEAD
            && number < self.order.released() as usize + self.slots.len();
        // A thread waits for arrivals only if it has no other work.
        (wanted && (number == next || run.has_arrived(interval(run, self.punctuation, number).end))).then_some(number)
    }

    /// Deals the next batch, if few are dealt. Returns whether the thread should look again.
    fn deal(&self, thread: usize, own: &mut Member, run: &Run, watch: &mut Stopwatch) -> Result<bool, RunError> {
        let Some(number) = self.claimable(own, run) else { return Ok(false) };
        // ORDERING: AcqRel; the thread that claims a number is alone with its slot until the batch is dealt.
        if self.claimed.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(true);
        }
        let batch = interval(run, self.punctuation, number);
        run.await_arrival(batch.end);
        watch.lap(&mut own.costs.arrivals);
        let Member { ranges, load, places, .. } = own;
        // A sample is enough to draw ranges by.
        let load = number.is_multiple_of(SAMPLE).then_some(load);
        let dealing = Dealing { thread, ranges, scales: &self.scales, load, places };
        // SAFETY: claimed, and the slot was free.
        let dealt = unsafe { self.slot(number).deal(run, &batch, run.first_ticket + number as u64, dealing)? };
        run.idle.notify();
        own.bench.counters.dropped += dealt.dropped;
        own.costs.spanning += dealt.spanning;
        own.costs.intervals += 1;
        watch.lap(&mut own.costs.dealing);
        Ok(true)
    }

    /// Whether a thread that found nothing to do should look again.
    fn has_news(&self, own: &Member, run: &Run) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        run.stopped.load(Ordering::Acquire)
            || self.claimable(own, run).is_some()
            || self.is_dealt(run, own.cursor.batch)
    }

    fn is_dealt(&self, run: &Run, batch: usize) -> bool {
        self.slot(batch).is_dealt(run.first_ticket + batch as u64)
    }

    /// Goes on with the thread's share, at most to the end of a batch. Returns whether it came any further.
    fn advance(&self, thread: usize, own: &mut Member, run: &Run, watch: &mut Stopwatch) -> Result<bool, RunError> {
        let Member { bench, costs, cursor, outputs, .. } = own;
        let number = cursor.batch;
        if !self.is_dealt(run, number) {
            return Ok(false);
        }
        let (slot, batch) = (self.slot(number), interval(run, self.punctuation, number));
        let before = *cursor;
        // SAFETY: dealt, and the share is this thread's.
        let done = unsafe { slot.with_deal(|deal| run_through(thread, run, &batch, deal, cursor, bench, outputs))? };
        if !done {
            let moved = (before.event, before.access) != (cursor.event, cursor.access);
            watch.lap(if moved { &mut costs.executing } else { &mut costs.waiting });
            return Ok(moved);
        }
        // SAFETY: as above.
        let is_last = unsafe { slot.finish(run, thread, outputs)? };
        watch.lap(&mut costs.executing);
        *cursor = Cursor { batch: number + 1, ..Cursor::default() };
        if is_last {
            self.deliver(run, number)?;
            watch.lap(&mut costs.delivery);
        }
        Ok(true)
    }

    /// Delivers batch `number`, which all shares have finished, and the batches that waited for it.
    fn deliver(&self, run: &Run, number: usize) -> Result<(), RunError> {
        let mut outcome = Ok(());
        self.order.complete_and_release(number as u64, &mut |number| {
            // Nothing after a failure is delivered.
            if outcome.is_ok() {
                let batch = interval(run, self.punctuation, number as usize);
                // SAFETY: finished, and released in order.
                outcome = unsafe { self.slot(number as usize).deliver(run, &batch, run.first_ticket + number) };
            }
        });
        run.idle.notify();
        outcome
    }
}

/// Goes on with a share's part of a batch, in event order, up to an event that is not decided. Returns whether the part is done.
///
/// # Safety
/// `thread` is the calling thread's number, and all earlier batches of its share are done.
unsafe fn run_through(
    thread: usize,
    run: &Run,
    batch: &Batch,
    deal: &Deal,
    cursor: &mut Cursor,
    bench: &mut Workbench,
    outputs: &mut RowBuffer,
) -> Result<bool, RunError> {
    let (events, accesses) = (&deal.events[thread][..], &deal.accesses[thread][..]);
    if let Some(event) = cursor.awaits {
        if !is_decided(&deal.outcome, event) {
            return Ok(false);
        }
        cursor.awaits = None;
    }
    let tables = run.tables.bases();
    // SAFETY: the thread's own arena.
    let arena = unsafe { run.tables.arena(thread) };
    while let Some(&event) = events.get(cursor.event) {
        if event & SPANS == 0 {
            let rest = &events[cursor.event..];
            let own = &rest[..rest.iter().position(|event| event & SPANS != 0).unwrap_or(rest.len())];
            // SAFETY: all rows of these events are in this share, and everything before them was applied. `Deal` keeps
            // `SELECTION_AHEAD` entries behind the list.
            let (dropped, rejected) =
                unsafe { run.transaction.execute(batch, tables, arena, &mut bench.slots, Some(own), outputs)? };
            bench.counters.dropped += dropped;
            bench.counters.rejected += rejected;
            cursor.event += own.len();
            continue;
        }
        let number = event & !SPANS;
        let rest = &accesses[cursor.access..];
        let n = rest.iter().take_while(|access| access.event == number).count();
        let mut context = deal.outcome.apply_context(batch, tables, arena, true);
        // SAFETY: these rows are in this share, and everything before this event was applied.
        let done = unsafe { run.transaction.apply(batch, &mut context, rest.as_ptr(), n)? };
        cursor.access += done;
        if done < n {
            cursor.awaits = Some(number);
            if !is_decided(&deal.outcome, number) {
                return Ok(false);
            }
            cursor.awaits = None;
            continue;
        }
        cursor.event += 1;
        // ORDERING: Release passes on what this share read; Acquire takes over what the others did.
        if deal.open[number as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
            let this = number as usize..number as usize + 1;
            bench.counters.rejected += run.transaction.post(batch, this, &deal.outcome, outputs)?;
        }
    }
    bench.counters.dropped += outputs.take_dropped();
    if !run.placement.is_flat() {
        let handed = size_of_val(events) + size_of_val(accesses);
        bench.counters.time.remote += run.placement.fetch(thread, deal.dealer, handed);
        bench.counters.time.remote += run.placement.events(events.len());
    }
    Ok(true)
}

/// Whether an event is decided, or becomes so within a moment.
fn is_decided(outcome: &Outcome, event: u32) -> bool {
    for _ in 0..LOOKS {
        if outcome.is_decided(event) {
            return true;
        }
        hint::spin_loop();
    }
    outcome.is_decided(event)
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::transactions::testing::world;

    /// Threads deal, execute and deliver two batches of an event each. The model fails if two threads are at one thing at a
    /// time, or before it is passed on. Things are deals, outputs of shares, rows and the sink.
    fn explore(threads: usize, spanning: bool) {
        world::explore_with(threads, spanning, 4 - threads, move |world| {
            let options = Options { threads, punctuation: 1, ..Options::default() };
            Box::new(owners(&world.program, &options))
        });
    }

    #[test]
    fn loom_whole_events_are_executed_by_the_owner_of_their_rows() {
        explore(2, false);
    }

    #[test]
    fn loom_events_of_two_shares_wait_for_their_conditions() {
        explore(2, true);
    }

    #[test]
    fn loom_three_threads_share_events() {
        explore(3, true);
    }
}
