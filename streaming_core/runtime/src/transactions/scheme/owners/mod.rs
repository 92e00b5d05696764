//! `owners`: every thread owns rows and executes the events of its rows. It takes TStream's idea that the owner of a row
//! applies all accesses to it (section IV), without TStream's barriers between modes.
//!
//! In partitioned applications, nearly all events have all their rows at the same relative position in their tables, give or
//! take a partition. So tables are cut into *shares*: ranges of rows, the same in all tables, drawn by load (`ranges.rs`).
//! Each thread has one share, the same during a block. Batches flow through a ring:
//!
//! 1. *Deal*: some thread claims the next batch. It looks where the rows of each event lie, and lists the events of each share
//!    (`batches.rs`). It plans events that *span* shares, and gives each share the accesses of its rows.
//! 2. *Execute*: each thread takes the batches in order. It executes the events of its share from plan to outputs, and digests
//!    the outputs. Of an event that spans shares, it applies the accesses of its rows (`spanning.rs`).
//! 3. *Post*: once all shares have executed a batch, each makes the outputs of the events that it is home to.
//! 4. *Deliver*: the last share that is done with a batch passes it to a reorder buffer, which delivers batches in order.
//!
//! Shares exchange data by the batch: lists of events, and of events that span shares the accesses, verdicts, captured rows and
//! results. All of it is written by one thread in sequence, and read by others in sequence. Threads meet nowhere. A thread
//! deals when fewer than `threads` batches wait for it, so all of them may deal at a time. A batch grows with the number of
//! threads. It ends early when no event waits, and so does not delay one.
//!
//! **Order.** A batch has one ticket, and the reorder buffer delivers tickets in order. Within a batch, each share has two
//! lists of outputs in event order: of own events, and of those that it is home to. All outputs of an event lie in one list.
//! So a merge by event is the sequential order.
//!
//! **Exactness.** Take a row. One thread applies all accesses to it, in the order of batches, and in event order within a batch.
//! An event that has a row in the bucket of a deferred access waits for it. An event of one share is executed there alone. A write or read
//! of an event that spans shares waits for all its conditions. A condition or capture does not wait, and sees what all earlier
//! events left. That is the sequential meaning. Ranges change
//! between blocks only, when no thread is at a row.
//!
//! **No deadlock.** A thread waits for a verdict, or for all shares to execute a batch. It also waits for a batch that
//! another thread is dealing, and for a free slot. Dealing waits for nothing. At a set rate, it waits for the next event to arrive, but
//! only in a thread that has nothing else to do. Of the deferred events that some share does not go on without, take the earliest.
//! It lacks the verdict of another share. In the list of a share, conditions of an event come before all else of that event.
//! Only earlier deferred events can keep the share from evaluating them. There are none that it waits for. So that share
//! works on an earlier event, and comes to this one. Its batch is dealt, because the first share has reached the same batch or a
//! later one, and batches are claimed in order. So some thread goes on, all shares execute the batch, and post it. Slots become
//! free when batches are delivered, so the earliest batch never waits for a slot.

mod batches;
mod costs;
mod exchange;
mod ranges;
mod spanning;

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
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};
use crate::transactions::batch::Batch;
use crate::transactions::run::{Run, Scheme};
use crate::transactions::workbench::{Workbench, alone};

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use batches::Slot;
use costs::Costs;
use exchange::Part;
use ranges::{Layout, Load, Ranges};
use spanning::{Desk, Share};

/// Batches in flight per thread: enough that no thread waits for a slot, few enough to stay in the shared cache.
const DEPTH: usize = 4;
/// Events of a batch at most, per thread: enough that meeting once a batch costs little. On two threads, a batch is as long as
/// the usual punctuation interval. Tests have few events.
const EVENTS: usize = if cfg!(test) { 16 } else { 250 };
/// The load is that of one batch in so many.
const SAMPLE: usize = 8;

struct Owners {
    /// Events of a batch at most.
    most: usize,
    slots: Vec<CachePadded<Slot>>,
    /// The next batch to deal: its number, then its first event. Threads claim it by compare-and-exchange.
    claimed: CachePadded<AtomicU64>,
    /// Puts finished batches in order.
    order: NonBlocking,
    /// Each part belongs to one thread.
    members: Own<Member>,
    layout: Layout,
}

/// The number of a batch and its first event, as `Owners::claimed` has them.
fn pack(number: usize, begin: usize) -> u64 {
    (number as u64) << 32 | begin as u64
}

/// The data of one thread.
struct Member {
    bench: Workbench,
    costs: Costs,
    /// The batch at hand, and how far the thread has come in the list of its share.
    batch: usize,
    event: usize,
    desk: Desk,
    /// Batches that it has executed and not posted.
    executed: VecDeque<usize>,
    /// Of the batch at hand: of own events, and of the share that is posted.
    outputs: RowBuffer,
    posted: RowBuffer,
    /// Where the rows of the events lie that the thread has dealt.
    load: Load,
    /// The same in all threads.
    ranges: Ranges,
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
        batch: 0,
        event: 0,
        desk: Desk::default(),
        executed: VecDeque::new(),
        outputs: RowBuffer::new(stride, keeps),
        posted: RowBuffer::new(stride, keeps),
        load: Load::NONE,
        ranges: Ranges::new(threads, &Load::NONE),
    };
    Owners {
        most: EVENTS * threads,
        slots: (0..slots).map(|_| CachePadded::new(Slot::new(threads, stride, keeps))).collect(),
        claimed: CachePadded::default(),
        order: NonBlocking::new(slots),
        members: Own::new(threads, member),
        layout: Layout {
            scales: program.tables.iter().map(|table| ranges::scale(table.rows)).collect(),
            stride: program.tables.iter().map(|table| table.stride).max().unwrap_or(0),
            result: program.transaction.as_ref().map_or(0, |transaction| transaction.result_stride),
        },
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

    /// The events of the next batch, once the first one, number `begin` of the part of the block, has arrived: those that have.
    fn cut(&self, run: &Run, begin: usize) -> Range<usize> {
        let (first, end) = (run.events.start + begin, run.events.len().min(begin + self.most));
        run.await_arrival(first + 1);
        begin..run.arrived(first + 1..run.events.start + end) - run.events.start
    }

    /// The only thread executes batch after batch.
    fn alone(&self, own: &mut Member, run: &Run) -> Result<(), RunError> {
        let (mut begin, mut ticket) = (0, run.first_ticket);
        while begin < run.events.len() {
            let Range { start, end } = self.cut(run, begin);
            let batch = Batch { block: run.block, begin: run.events.start + start, end: run.events.start + end };
            // SAFETY: there is only this thread.
            unsafe { alone(&mut own.bench, 0, run, &batch, ticket)? };
            (begin, ticket) = (end, ticket + 1);
        }
        Ok(())
    }

    /// A thread's part of a block.
    fn go_round(&self, thread: usize, own: &mut Member, run: &Run) -> Result<(), RunError> {
        (own.batch, own.event) = (0, 0);
        own.outputs.clear();
        own.posted.clear();
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        loop {
            run.check()?;
            let worked = self.deal(thread, own, run, &mut watch)?
                | self.post(thread, own, run, &mut watch)?
                | self.execute(thread, own, run, &mut watch)?;
            if worked {
                patience = run.idle.patience();
                continue;
            }
            if self.is_done(own, run) {
                return Ok(());
            }
            // Verdicts come without a notification, so a thread that waits for one must not sleep.
            if !patience.pass() && own.desk.is_clear() {
                run.idle.wait(|| self.has_news(own, run));
            }
            watch.lap(&mut own.costs.waiting);
        }
    }

    /// The number of the next batch to deal, and its first event.
    fn next(&self) -> (usize, usize) {
        // ORDERING: Relaxed; the claim decides.
        let claimed = self.claimed.load(Ordering::Relaxed);
        ((claimed >> 32) as usize, claimed as u32 as usize)
    }

    /// Whether the thread has done its part of all batches.
    fn is_done(&self, own: &Member, run: &Run) -> bool {
        self.next() == (own.batch, run.events.len()) && own.executed.is_empty()
    }

    /// The next batch to deal and its first event, if the thread should deal it now. It waits for an event to arrive only if it has
    /// no other work.
    fn claimable(&self, own: &Member, run: &Run) -> Option<(usize, usize)> {
        let (number, begin) = self.next();
        let is_wanted = begin < run.events.len()
            && number < own.batch + self.members.len()
            && number < self.order.released() as usize + self.slots.len();
        let is_idle = number == own.batch && own.executed.is_empty();
        (is_wanted && (is_idle || run.has_arrived(run.events.start + begin + 1))).then_some((number, begin))
    }

    /// Deals the next batch, if few are dealt. Returns whether the thread should look again.
    fn deal(&self, thread: usize, own: &mut Member, run: &Run, watch: &mut Stopwatch) -> Result<bool, RunError> {
        let Some((number, begin)) = self.claimable(own, run) else { return Ok(false) };
        let events = self.cut(run, begin);
        watch.lap(&mut own.costs.arrivals);
        let (now, then) = (pack(number, begin), pack(number + 1, events.end));
        // ORDERING: AcqRel; the thread that claims a number is alone with its slot until the batch is dealt.
        if self.claimed.compare_exchange(now, then, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(true);
        }
        // A sample is enough to draw ranges by.
        let load = number.is_multiple_of(SAMPLE).then_some(&mut own.load);
        let (slot, ticket) = (self.slot(number), run.first_ticket + number as u64);
        // SAFETY: claimed, and the slot was free.
        let dealt = unsafe { slot.deal(run, events, ticket, thread, (&own.ranges, &self.layout), load)? };
        own.bench.counters.dropped += dealt.0;
        own.costs.spanning += dealt.1 as u64;
        own.costs.batches += 1;
        run.idle.notify();
        watch.lap(&mut own.costs.dealing);
        Ok(true)
    }

    /// Whether a thread that found nothing to do should look again.
    fn has_news(&self, own: &Member, run: &Run) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        run.stopped.load(Ordering::Acquire)
            || self.is_done(own, run)
            || self.claimable(own, run).is_some()
            || own.executed.front().is_some_and(|&batch| self.slot(batch).is_executed())
            || self.is_dealt(run, own.batch)
    }

    fn is_dealt(&self, run: &Run, batch: usize) -> bool {
        self.slot(batch).is_dealt(run.first_ticket + batch as u64)
    }

    /// The share of a thread in a batch that is dealt, and the places where shares keep what they planned.
    ///
    /// # Safety
    /// The batch is dealt, and not delivered meanwhile.
    unsafe fn with_share<R>(
        &self,
        thread: usize,
        run: &Run,
        batch: usize,
        work: impl FnOnce(&Share, &Own<Part>) -> R,
    ) -> R {
        let (slot, ticket) = (self.slot(batch), run.first_ticket + batch as u64);
        let work = |deal: &batches::Deal| {
            let batch = deal.batch(run);
            work(&Share { thread, run, batch, deal, ticket, layout: &self.layout }, &slot.parts)
        };
        // SAFETY: as the caller says.
        unsafe { slot.with_deal(work) }
    }

    /// Goes on with the thread's share, at most to the end of a batch. Returns whether it came any further.
    fn execute(&self, thread: usize, own: &mut Member, run: &Run, watch: &mut Stopwatch) -> Result<bool, RunError> {
        let Member { bench, costs, batch, event, desk, executed, outputs, .. } = own;
        let number = *batch;
        if !self.is_dealt(run, number) {
            return Ok(false);
        }
        let mut worked = false;
        // SAFETY: dealt, and the share is this thread's, which has not counted it as executed.
        let (is_through, spans) = unsafe {
            self.with_share(thread, run, number, |share, parts| {
                let part = |part: &mut Part| {
                    if *event == 0 {
                        let deal = share.deal;
                        part.begin(deal.planned.len(), deal.captured, deal.reads[thread] * self.layout.result);
                        desk.begin();
                    }
                    share.go_on(part, (event, desk), bench, outputs, &mut worked)
                };
                Ok::<_, RunError>((parts.with_mut(thread, part)?, !share.deal.planned.is_empty()))
            })?
        };
        if !is_through {
            watch.lap(if worked { &mut costs.executing } else { &mut costs.waiting });
            return Ok(worked);
        }
        bench.counters.dropped += outputs.take_dropped();
        // SAFETY: as above.
        let is_last = unsafe { self.slot(number).finish(run, thread, outputs, false)? };
        watch.lap(&mut costs.executing);
        (*batch, *event) = (number + 1, 0);
        match (spans, is_last) {
            (true, _) => executed.push_back(number),
            (false, true) => self.deliver(run, number, watch, costs)?,
            (false, false) => (),
        }
        if is_last {
            run.idle.notify();
        }
        Ok(true)
    }

    /// Makes the outputs of events that span shares of the earliest batch, if all shares have executed it. Returns whether they have.
    fn post(&self, thread: usize, own: &mut Member, run: &Run, watch: &mut Stopwatch) -> Result<bool, RunError> {
        let Member { bench, costs, desk, executed, posted, .. } = own;
        let Some(&number) = executed.front().filter(|&&batch| self.slot(batch).is_executed()) else { return Ok(false) };
        // SAFETY: all shares have executed the batch, and this one has not counted it as posted.
        let is_last = unsafe {
            let post = |share: &Share, parts: &Own<Part>| share.post(parts, desk, posted);
            bench.counters.rejected += self.with_share(thread, run, number, post)?;
            bench.counters.dropped += posted.take_dropped();
            self.slot(number).finish(run, thread, posted, true)?
        };
        executed.pop_front();
        watch.lap(&mut costs.posting);
        if is_last {
            self.deliver(run, number, watch, costs)?;
        }
        Ok(true)
    }

    /// Delivers batch `number`, with which all shares are done, and the batches that waited for it.
    fn deliver(&self, run: &Run, number: usize, watch: &mut Stopwatch, costs: &mut Costs) -> Result<(), RunError> {
        let mut outcome = Ok(());
        self.order.complete_and_release(number as u64, &mut |number| {
            // Nothing after a failure is delivered.
            if outcome.is_ok() {
                // SAFETY: done, and released in order.
                outcome = unsafe { self.slot(number as usize).deliver(run, run.first_ticket + number) };
            }
        });
        run.idle.notify();
        watch.lap(&mut costs.delivery);
        outcome
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::transactions::testing::world;

    /// Threads deal, execute and deliver two batches of an event each. The model fails if two threads are at one thing at a
    /// time, or before it is passed on. Things are deals, outputs of shares, rows and the sink.
    fn explore(threads: usize, spanning: bool) {
        world::explore_with(threads, spanning, 4 - threads, move |world| {
            let options = Options { threads, ..Options::default() };
            Box::new(Owners { most: 1, ..owners(&world.program, &options) })
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

    /// Only with events of one share. Threads that wait for all others to execute a batch can keep one of three from its turn in
    /// loom. Shuttle explores three threads with events that span shares.
    #[test]
    fn loom_three_threads_share_events() {
        explore(3, false);
    }
}
