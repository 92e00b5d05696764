//! `tstream`: dual-mode scheduling (TStream, section IV). Per batch of a punctuated stream:
//!
//! 1. compute mode: each thread plans a slice of the events and sorts their accesses by the shares of their rows;
//! 2. state access mode: each thread applies all accesses of the shares that it takes from its pool (`pool.rs`), each
//!    row's in event order, whoever planned them;
//! 3. post-processing: each thread on its slice again, delivered slice by slice in event order.
//!
//! A share has one thread at a time, so that nothing of a row is ever locked. Threads depend on each other only where an
//! event's writes and reads must wait for conditions that other threads evaluate. Then the row is *blocked*: this access
//! and all later ones of the row form a chain (`chains.rs`), and the thread goes on with other rows, looking at the
//! chains now and then. To make that rare, conditions on rows that the batch has not written before are evaluated ahead
//! of everything else: then most events are decided when the first write comes.
//!
//! **Whole events.** Dealing single accesses to shares costs more than most operators do, because everything goes from
//! core to core. Where applications are partitioned, nearly all events have all their rows at the same relative position
//! in their tables, give or take a partition. So shares are first given ranges (`ranges.rs`), drawn by load, and the
//! compute mode only looks where an event's rows lie: if one share has them all, it is executed there from plan to
//! outputs. Only events that *span* shares are taken apart as above. When too many do, the next batches are dealt by
//! access, to shares of single units, and now and then it is tried again.
//!
//! **No deadlock.** Take the earliest event that is not decided while no thread can apply anything. Every access that
//! stands before one of its conditions in the row's order belongs to an earlier event (within an event conditions stand
//! first), which is decided; so nothing before the condition has to wait, and who has the row applies everything up to
//! and including the condition: contradiction. That needs every access to be come to: a thread takes in all its shares
//! without waiting (blocked rows, and shares at a spanning event, are put aside), and every share is somebody's.
//!
//! **Exactness.** A row's accesses are applied by one thread, in event order but for conditions evaluated ahead, and those
//! stand before the batch's first write of the row. So a condition reads the state that all earlier events left, and a
//! write or read waits for its event's decision. That is the sequential meaning.

mod chains;
mod pool;
mod ranges;

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Prepared;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::rows::buffer::RowBuffer;
use crate::state::key_group::{OwnerMap, group, hash_i64};
use crate::threads::barrier::Barrier;
use crate::threads::own::PerThread;
use crate::transactions::delivery::Timing;
use crate::transactions::lane::{Lane, alone};
use crate::transactions::outcome::Outcome;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::scheme::tstream::chains::{Chains, Marks};
use crate::transactions::scheme::tstream::pool::Pools;
use crate::transactions::scheme::tstream::ranges::{BUCKETS, Load, Ranges};
use crate::transactions::transaction::Batch;

/// Events per batch at most: longer punctuation intervals are cut (results never depend on it), so that a batch's
/// accesses and results stay in the cache between the modes.
const PART: usize = 2048;
/// Rows per unit of ownership: neighbours on one cache line are in one share, or threads would steal it from each other.
pub(super) const UNIT: u32 = 16;
/// An event that spans shares, in `places` and in `Whole::plan_events`.
const SPANS: u32 = 1 << 31;
/// Batches between two times that ranges are drawn anew, or that executing whole events is tried again.
const EPOCH: usize = 64;
/// The largest part of spanning events (1 in so many) with which whole events are executed.
const FEW: usize = 4;

struct Tstream {
    punctuation: usize,
    pools: Pools,
    owners: OwnerMap,
    barrier: Barrier,
    threads: PerThread<Thread>,
    /// Used by who takes the share, from then on to the end of state access mode; `executed` is read by all in
    /// post-processing, with a barrier between, and they are done with it at the next batch's first.
    shares: PerThread<Share>,
    /// Per table: what turns a row into its place.
    scales: Vec<u64>,
    /// Two sets, used in turn: a thread may plan the next batch while another post-processes the last one. Shared by all
    /// threads: in compute mode and post-processing each is at its slice's entries, in between decisions are atomic.
    outcomes: [Outcome; 2],
    #[expect(dead_code, reason = "keeps the memory that `Chains` points into")]
    marks: Marks,
}

// SAFETY: see the fields; each says which thread uses it when.
unsafe impl Sync for Tstream {}

/// One thread's part. `outbox` and `conditions` are written by it in compute mode and read by those who take its shares
/// in state access mode, with a barrier between; the rest is its own.
struct Thread {
    lane: Lane,
    /// Per share: accesses of its rows, in event order.
    outbox: Vec<Vec<Access>>,
    /// How many of all the accesses are conditions or captures.
    conditions: usize,
    chains: Chains,
    whole: Whole,
    /// Shares that wait for a spanning event.
    waiting: Vec<Cursor>,
    /// Batches, and rounds of taking shares, so far; the same in all threads.
    batch: usize,
    round: usize,
}

/// What becomes of a share.
struct Share {
    /// Its accesses but for those applied ahead, in event order.
    later: Vec<Access>,
    /// Outputs of the events executed whole, each row beside its event, and the thread that did.
    executed: RowBuffer,
    by: usize,
}

/// What a thread needs to have whole events executed. `plan_*` is written by it in compute mode and read by the others
/// in state access mode, with a barrier between; the rest is its own. In state access mode references are made to
/// fields only, never to all of it.
struct Whole {
    /// Per share: events that are its own, and SPANS | event for those it has accesses of, in event order.
    plan_events: Vec<Vec<u32>>,
    /// How many of the events span shares.
    plan_spanning: usize,
    plan_load: Load,
    /// Per event of the thread's slice: which share it is executed in, or SPANS.
    places: Vec<u32>,
    /// The same in all threads: made from the same figures at the same batch.
    ranges: Ranges,
    /// Whether the next batch's events are executed whole; the same in all threads, likewise.
    next: bool,
}

/// How far a share has come, of what each thread has planned for it.
struct Cursor {
    share: usize,
    planner: usize,
    event: usize,
    access: usize,
    /// The event whose decision it waits for.
    awaits: u32,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let threads = options.threads;
    let stride = program.output_stride();
    let marks = Marks::new(program);
    let pools = Pools::new(options)?;
    let shares = pools.shares();
    Ok(Box::new(Tstream {
        punctuation: options.punctuation,
        pools,
        owners: OwnerMap::even(shares),
        barrier: Barrier::new(threads),
        threads: PerThread::new(threads, || Thread {
            lane: Lane::new(stride),
            outbox: (0..shares).map(|_| Vec::new()).collect(),
            conditions: 0,
            chains: Chains::new(&marks),
            whole: Whole {
                plan_events: (0..shares).map(|_| Vec::new()).collect(),
                plan_spanning: 0,
                plan_load: [0; BUCKETS],
                places: vec![0; PART],
                ranges: Ranges::new(shares, &[1; BUCKETS]),
                next: true,
            },
            waiting: Vec::new(),
            batch: 0,
            round: 0,
        }),
        shares: PerThread::new(shares, || Share { later: Vec::new(), executed: RowBuffer::new(stride, true), by: 0 }),
        scales: program.tables.iter().map(|table| ranges::scale(table.rows)).collect(),
        outcomes: [Outcome::new(PART), Outcome::new(PART)],
        marks,
    }))
}

impl Scheme for Tstream {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        let threads = self.threads.len();
        let mut ticket = run.first_ticket + thread as u64;
        for (number, (batch, interval)) in batches(run, self.punctuation, PART).enumerate() {
            run.await_arrival(interval);
            let outcome = &self.outcomes[number % 2];
            if threads == 1 {
                // SAFETY: the only thread there is.
                unsafe { alone(&mut (*self.threads.get(0)).lane, 0, run, &batch, ticket)? };
            } else {
                // SAFETY: the thread's own; nobody else looks at these fields.
                let (next, number) = unsafe {
                    let own = self.threads.get(thread);
                    (&mut (*own).whole.next, &mut (*own).batch)
                };
                // Settled anew in `settle`, which has no say when it is tried again.
                let whole = std::mem::replace(next, (*number + 1).is_multiple_of(EPOCH));
                *number += 1;
                self.batch(Task { thread, run, batch: &batch, outcome }, ticket, whole)?;
            }
            ticket += threads as u64;
        }
        Ok(())
    }

    fn homes(&self) -> Option<Vec<usize>> {
        self.pools.homes()
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for thread in 0..self.threads.len() {
            // SAFETY: no thread is in `block`.
            sum += unsafe { (*self.threads.get(thread)).lane.counters };
        }
        sum
    }
}

/// A batch as one thread works on it.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub thread: usize,
    pub run: &'a Run<'a>,
    pub batch: &'a Batch<'a>,
    pub outcome: &'a Outcome,
}

impl Tstream {
    /// Takes a thread's part of a batch through the three modes; `whole`: events are executed whole where they can be.
    fn batch(&self, task: Task, ticket: u64, whole: bool) -> Result<(), RunError> {
        let Task { thread, run, batch, outcome } = task;
        let threads = self.threads.len();
        let slice = batch.slice(thread, threads);
        let started = run.clock.now();
        let mut watch = Stopwatch::start();
        // SAFETY: whoever makes a reference of it says why.
        let own = unsafe { self.threads.get(thread) };

        // Compute mode.
        {
            // SAFETY: a thread is alone with all of its part: the others have passed the barrier behind the last state
            // access mode, in which they read what it had planned.
            let own = unsafe { &mut *own };
            if whole {
                self.deal(task, slice.clone(), own)?;
                watch.lap(&mut own.lane.counters.time.useful);
            } else {
                own.lane.plan(run, batch, slice.clone(), outcome)?;
                watch.lap(&mut own.lane.counters.time.useful);
                own.conditions = self.distribute(own.lane.planner.accesses(), &mut own.outbox);
                watch.lap(&mut own.lane.counters.time.other);
            }
        }
        self.barrier.wait(thread, run.idle, run.stopped)?;

        // State access mode. What is planned is only read, by all; of its own part a thread writes what nobody else looks
        // at, so references are made to these fields and never to the whole, until post-processing is over.
        // SAFETY: as said.
        let (lane, chains, waiting, round) =
            unsafe { (&mut (*own).lane, &mut (*own).chains, &mut (*own).waiting, &mut (*own).round) };
        watch.lap(&mut lane.counters.time.sync);
        if whole {
            self.execute(task, lane, waiting, round, &mut watch)?;
            watch.lap(&mut lane.counters.time.useful);
            self.settle(thread, batch.len());
        } else {
            self.access(task, lane, chains, round, &mut watch)?;
            watch.lap(&mut lane.counters.time.useful);
        }
        self.barrier.wait(thread, run.idle, run.stopped)?;
        watch.lap(&mut lane.counters.time.sync);

        // Post-processing.
        let prepared = if whole {
            // SAFETY: the thread's own.
            self.gather(task, slice, lane, unsafe { &(*own).whole.places })?
        } else {
            lane.post(run, batch, slice, outcome)?
        };
        watch.lap(&mut lane.counters.time.useful);
        let timing = (thread + 1 == threads).then(|| Timing { started, arrival: run.arrival(batch) });
        run.delivery.deliver(ticket, &lane.outputs, &prepared, timing, run)?;
        watch.lap(&mut lane.counters.time.sync);
        Ok(())
    }

    /// Compute mode of a batch whose events are executed whole: sees in which shares those of a slice lie, and plans the
    /// spanning ones.
    fn deal(&self, task: Task, slice: Range<usize>, own: &mut Thread) -> Result<(), RunError> {
        let Task { run, batch, outcome, .. } = task;
        let Thread { lane, outbox, whole, .. } = own;
        if own.batch % EPOCH == 2 {
            // What is long past counts for less.
            whole.plan_load.iter_mut().for_each(|events| *events /= 2);
        }
        whole.plan_spanning = 0;
        for (outbox, events) in outbox.iter_mut().zip(&mut whole.plan_events) {
            outbox.clear();
            events.clear();
        }
        lane.planner.reset();
        run.transaction.place(batch, slice.clone(), whole.places.as_mut_ptr())?;
        for event in slice {
            let (low, high) = (whole.places[event] & 0xFFFF, whole.places[event] >> 16);
            whole.plan_load[ranges::bucket(low)] += 1;
            let share = whole.ranges.owner(low);
            // An event that names no row (its lowest place is above its highest) is whoever's.
            if low > high || whole.ranges.owner(high) == share {
                whole.places[event] = share as u32;
                whole.plan_events[share].push(event as u32);
                continue;
            }
            whole.places[event] = SPANS;
            whole.plan_spanning += 1;
            let before = lane.planner.accesses().len();
            run.transaction.plan(batch, event..event + 1, &mut lane.planner, outcome)?;
            for access in &lane.planner.accesses()[before..] {
                let place = ranges::place(access.row, self.scales[usize::from(access.table)]);
                let share = whole.ranges.owner(place);
                if whole.plan_events[share].last() != Some(&(SPANS | event as u32)) {
                    whole.plan_events[share].push(SPANS | event as u32);
                }
                outbox[share].push(*access);
            }
        }
        lane.counters.dropped += lane.planner.take_dropped();
        Ok(())
    }

    /// State access mode of a batch whose events are executed whole. A share is taken in event order; one that comes to
    /// an undecided event is put aside until that is decided.
    fn execute(
        &self,
        task: Task,
        lane: &mut Lane,
        waiting: &mut Vec<Cursor>,
        round: &mut usize,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let Task { thread, run, outcome, .. } = task;
        let mut taking = self.pools.round(thread, *round);
        *round += 1;
        waiting.clear();
        let mut patience = run.idle.patience();
        loop {
            let mut worked = false;
            let mut at = 0;
            while at < waiting.len() {
                if !outcome.is_decided(waiting[at].awaits) {
                    at += 1;
                    continue;
                }
                worked = true;
                if self.advance(task, &mut waiting[at], lane)? {
                    waiting.swap_remove(at);
                }
            }
            if let Some(share) = taking.next() {
                // SAFETY: the share is this thread's now.
                unsafe {
                    (*self.shares.get(share)).executed.clear();
                    (*self.shares.get(share)).by = thread;
                }
                let mut cursor = Cursor { share, planner: 0, event: 0, access: 0, awaits: 0 };
                if !self.advance(task, &mut cursor, lane)? {
                    waiting.push(cursor);
                }
            } else if waiting.is_empty() {
                return Ok(());
            } else if worked {
                patience = run.idle.patience();
            } else {
                watch.lap(&mut lane.counters.time.useful);
                run.check()?;
                // Kernels decide events without ringing a bell, so nobody sleeps here.
                patience.pass();
                watch.lap(&mut lane.counters.time.sync);
            }
        }
    }

    /// Goes on with a share of the thread's as far as it need not wait; returns whether it is done.
    fn advance(&self, task: Task, cursor: &mut Cursor, lane: &mut Lane) -> Result<bool, RunError> {
        let Task { thread, run, batch, outcome } = task;
        let tables = run.tables.bases();
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, tables, arena, true);
        // SAFETY: the share is this thread's.
        let outputs = unsafe { &mut (*self.shares.get(cursor.share)).executed };
        while cursor.planner < self.threads.len() {
            // SAFETY: only read between the two barriers.
            let events = unsafe { &(&(*self.threads.get(cursor.planner)).whole.plan_events)[cursor.share] };
            let accesses = self.inbox(cursor.planner, cursor.share);
            while let Some(&event) = events.get(cursor.event) {
                if event & SPANS == 0 {
                    let own = &events[cursor.event..];
                    let own = &own[..own.iter().position(|event| event & SPANS != 0).unwrap_or(own.len())];
                    // SAFETY: all rows of these events are in this share, and everything before them was applied.
                    let (dropped, rejected) = unsafe {
                        run.transaction.execute(batch, tables, arena, &mut lane.scratch, Some(own), outputs)?
                    };
                    lane.counters.dropped += dropped;
                    lane.counters.rejected += rejected;
                    cursor.event += own.len();
                    continue;
                }
                let part = &accesses[cursor.access..];
                let n = part.iter().take_while(|access| access.event == event & !SPANS).count();
                // SAFETY: these rows are in this share, and everything before this event was applied.
                let done = unsafe { run.transaction.apply(batch, &mut context, part.as_ptr(), n)? };
                cursor.access += done;
                if done < n {
                    cursor.awaits = event & !SPANS;
                    return Ok(false);
                }
                cursor.event += 1;
            }
            let handed = size_of_val(&events[..]) + size_of_val(accesses);
            lane.counters.time.remote += run.placement.fetch(thread, cursor.planner, handed);
            lane.counters.time.remote += run.placement.events(events.len());
            (cursor.planner, cursor.event, cursor.access) = (cursor.planner + 1, 0, 0);
        }
        lane.counters.dropped += outputs.take_dropped();
        Ok(true)
    }

    /// In state access mode: works out, from what all threads have planned, how the next batches are done.
    fn settle(&self, thread: usize, events: usize) {
        let threads = self.threads.len();
        // SAFETY: what is planned is only read between the two barriers; the rest is the thread's.
        unsafe {
            let own = self.threads.get(thread);
            let spanning: usize = (0..threads).map(|planner| (*self.threads.get(planner)).whole.plan_spanning).sum();
            (*own).whole.next |= spanning * FEW <= events;
            if ((*own).batch - 1).is_multiple_of(EPOCH) {
                let mut load = [0; BUCKETS];
                for planner in 0..threads {
                    let planned = &(*self.threads.get(planner)).whole.plan_load;
                    load.iter_mut().zip(planned).for_each(|(sum, events)| *sum += events);
                }
                (*own).whole.ranges = Ranges::new(self.pools.shares(), &load);
            }
        }
    }

    /// Puts the outputs of a slice's events together in their order, from the shares they were executed in, and examines
    /// them.
    fn gather(&self, task: Task, slice: Range<usize>, lane: &mut Lane, places: &[u32]) -> Result<Prepared, RunError> {
        let Task { thread, run, batch, outcome } = task;
        // SAFETY: outputs are only read between this batch's second barrier and the next one's first.
        let outputs = |share: usize| unsafe { &(*self.shares.get(share)).executed };
        let mut cursors: Vec<(usize, &[u32], &RowBuffer)> = (0..self.shares.len())
            .map(|share| {
                let origins = outputs(share).origins();
                (origins.partition_point(|&event| (event as usize) < slice.start), origins, outputs(share))
            })
            .collect();
        lane.outputs.clear();
        let begin = slice.start;
        for event in slice {
            if places[event] == SPANS {
                let post = run.transaction.post(batch, event..event + 1, outcome, &mut lane.outputs);
                lane.counters.rejected += post?;
                continue;
            }
            let (at, origins, rows) = &mut cursors[places[event] as usize];
            while origins.get(*at) == Some(&(event as u32)) {
                // SAFETY: the row lies in another buffer.
                unsafe { lane.outputs.push(rows.row(*at), 0)? };
                *at += 1;
            }
        }
        for (share, (at, _, rows)) in cursors.iter().enumerate().filter(|_| !run.placement.is_flat()) {
            let first = outputs(share).origins().partition_point(|&event| (event as usize) < begin);
            // SAFETY: as `outputs`.
            let by = unsafe { (*self.shares.get(share)).by };
            lane.counters.time.remote += run.placement.fetch(thread, by, (at - first) * rows.stride());
        }
        lane.counters.dropped += lane.outputs.take_dropped();
        run.delivery.preparer.prepare(&lane.outputs, run.block.text)
    }

    /// The share of an access's row, when accesses are dealt one by one.
    #[inline(always)]
    fn share(&self, access: &Access) -> usize {
        let unit = u64::from(access.table) << 32 | u64::from(access.row / UNIT);
        self.owners.owner(group(hash_i64(unit as i64)))
    }

    /// Copies the planned accesses to one buffer per share, each in event order. Returns how many are conditions or
    /// captures.
    fn distribute(&self, accesses: &[Access], outbox: &mut [Vec<Access>]) -> usize {
        let conditions = accesses.iter().map(|access| usize::from(!access.waits())).sum();
        for outbox in outbox.iter_mut() {
            outbox.clear();
            outbox.reserve(accesses.len());
        }
        if let [first, second] = outbox {
            // Two shares, the common case on small machines: written to both, kept by one; no branch to mispredict.
            let (to_first, to_second) = (first.as_mut_ptr(), second.as_mut_ptr());
            let mut seconds = 0;
            for (i, access) in accesses.iter().enumerate() {
                let share = self.share(access);
                // SAFETY: both buffers have room for all accesses; of `i` accesses, `seconds` were the second's.
                unsafe {
                    to_first.add(i - seconds).write(*access);
                    to_second.add(seconds).write(*access);
                }
                seconds += share;
            }
            // SAFETY: that many were written.
            unsafe {
                first.set_len(accesses.len() - seconds);
                second.set_len(seconds);
            }
            return conditions;
        }
        for access in accesses {
            let outbox = &mut outbox[self.share(access)];
            let len = outbox.len();
            // SAFETY: room for all accesses was reserved in every buffer.
            unsafe {
                outbox.as_mut_ptr().add(len).write(*access);
                outbox.set_len(len + 1);
            }
        }
        conditions
    }

    /// What planner `planner` has for a share; in state access mode.
    fn inbox(&self, planner: usize, share: usize) -> &[Access] {
        // SAFETY: outboxes are only read between the two barriers.
        unsafe { &(&(*self.threads.get(planner)).outbox)[share] }
    }

    /// State access mode of a batch dealt by access: applies all accesses of the shares that the thread takes.
    fn access(
        &self,
        task: Task,
        lane: &mut Lane,
        chains: &mut Chains,
        round: &mut usize,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let Task { thread, run, batch, outcome } = task;
        let threads = self.threads.len();
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, run.tables.bases(), arena, true);
        let fetched = |share: usize| -> u64 {
            let handed = |planner| size_of_val(self.inbox(planner, share));
            (0..threads).map(|planner| run.placement.fetch(thread, planner, handed(planner))).sum()
        };
        // SAFETY: only read between the two barriers.
        let conditions: usize = (0..threads).map(|planner| unsafe { (*self.threads.get(planner)).conditions }).sum();
        if conditions > 0 {
            // SAFETY: the thread's own.
            let number = unsafe { (*self.threads.get(thread)).batch };
            for share in self.pools.round(thread, *round) {
                let inboxes = (0..threads).map(|planner| self.inbox(planner, share));
                // SAFETY: the share is this thread's.
                let later = unsafe { &mut (*self.shares.get(share)).later };
                chains.ahead(task, &mut context, number, threads, inboxes, later)?;
            }
            *round += 1;
            if self.pools.stealing() {
                // Another thread may go on with the share.
                watch.lap(&mut lane.counters.time.useful);
                self.barrier.wait(thread, run.idle, run.stopped)?;
                watch.lap(&mut lane.counters.time.sync);
            }
        }
        for share in self.pools.round(thread, *round) {
            lane.counters.time.remote += fetched(share);
            if conditions > 0 {
                // SAFETY: the share is this thread's.
                let later = unsafe { &(*self.shares.get(share)).later };
                chains.apply(task, &mut context, later)?;
            } else {
                for planner in 0..threads {
                    chains.apply(task, &mut context, self.inbox(planner, share))?;
                }
            }
        }
        *round += 1;
        if chains.is_empty() {
            return Ok(());
        }
        watch.lap(&mut lane.counters.time.useful);
        let mut patience = run.idle.patience();
        while !chains.is_empty() {
            if chains.look(task, &mut context)? {
                patience = run.idle.patience();
            } else {
                run.check()?;
                // As in `execute`.
                patience.pass();
            }
        }
        watch.lap(&mut lane.counters.time.sync);
        Ok(())
    }
}
