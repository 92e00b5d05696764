//! `tstream`: dual-mode scheduling (TStream, section IV). Per batch of a punctuated stream:
//!
//! 1. compute mode: each thread plans a slice of the events and sorts their accesses by the owners of their rows;
//! 2. state access mode: each thread applies all accesses of its rows, in event order, whoever planned them;
//! 3. post-processing: each thread on its slice again, delivered slice by slice in event order.
//!
//! Rows belong to threads, so that nothing of a row is ever locked. Threads depend on each other only where an event's
//! writes and reads must wait for conditions that other threads evaluate. Then the row is *blocked*: this access and all
//! later ones of the row form a chain, and the thread goes on with other rows, looking at the chains now and then.
//! To make that rare, conditions on rows that the batch has not written before are evaluated ahead of everything else:
//! then most events are decided when the first write comes.
//!
//! **Whole events.** Dealing single accesses to owners costs more than most operators do, because everything goes from core
//! to core. Where applications are partitioned, nearly all events have all their rows at the same relative position in
//! their tables, give or take a partition. So owners are first given ranges (`ranges.rs`), drawn by load, and the
//! compute mode only looks where an event's rows lie: if one owner has them all, it executes the event from plan to
//! outputs. Only events that are *shared* are taken apart as above. When too many are, the next batches are dealt by
//! access, to owners of single units, and now and then it is tried again.
//!
//! **No deadlock.** Take the earliest event that is not decided while no thread can apply anything. Every access that
//! stands before one of its conditions in the row's order belongs to an earlier event (within an event conditions stand
//! first), which is decided; so nothing before the condition has to wait, and its owner applies everything up to and
//! including the condition: contradiction. That needs an owner to get to every access: it takes in its whole share
//! without waiting (blocked rows are put aside), then looks at its chains until none is left.
//!
//! **Exactness.** A row's accesses are applied by one thread, in event order but for conditions evaluated ahead, and those
//! stand before the batch's first write of the row. So a condition reads the state that all earlier events left, and a
//! write or read waits for its event's decision. That is the sequential meaning.

use std::cell::UnsafeCell;

use super::ranges::{self, BUCKETS, Load, Ranges};
use super::{Lane, PerThread, Run, Scheme, Timing, alone, batches};
use crate::batch::RowBuffer;
use crate::executor::team::Barrier;
use crate::kernel::{Access, ApplyContext, RunError, kind};
use crate::key_group::{OwnerMap, group, hash_i64};
use crate::metrics::{Counters, Stopwatch};
use crate::program::{Options, Program};
use crate::sink::Prepared;
use crate::sync::Shared;
use crate::transaction::{Batch, Outcome};

/// Events per batch at most: longer punctuation intervals are cut (results never depend on it), so that a batch's
/// accesses and results stay in the cache between the modes.
const PART: usize = 2048;
/// Rows per unit of ownership: neighbours on one cache line have one owner, or owners would steal it from each other.
const UNIT: u32 = 16;
/// An event of which several threads own rows, in `places` and in `Thread::events`.
const SHARED: u32 = 1 << 31;
/// Batches between two times that ranges are drawn anew, or that executing whole events is tried again.
const EPOCH: usize = 64;
/// The largest share of shared events (1 in so many) with which whole events are executed.
const FEW: usize = 8;
/// Accesses between two looks at the blocked rows.
const LOOK: usize = 64;
/// Accesses scanned ahead for blocked rows before a kernel call.
const RUN: usize = 64;

struct Tstream {
    punctuation: usize,
    owners: OwnerMap,
    barrier: Barrier,
    threads: PerThread<Thread>,
    /// Per table: what turns a row into its place.
    scales: Vec<u64>,
    /// Two sets, used in turn: a thread may plan the next batch while another post-processes the last one. Shared by all
    /// threads: in compute mode and post-processing each is at its slice's entries, in between decisions are atomic.
    outcomes: [Outcome; 2],
    /// Each entry is used by the row's owner.
    #[expect(dead_code, reason = "keeps the memory that `Deferred` points into")]
    marks: Marks,
}

// SAFETY: see the fields; each says which thread uses it when.
unsafe impl Sync for Tstream {}

/// One thread's part. `lane` and `deferred` are its own; `outbox` is written by it in compute mode and read by the
/// owners in state access mode, with a barrier between.
struct Thread {
    lane: Lane,
    /// Per owner: accesses of its rows, in event order.
    outbox: Vec<Vec<Access>>,
    /// How many of all the accesses are conditions or captures. Written and read like `outbox`.
    conditions: usize,
    deferred: Deferred,
    whole: Whole,
    /// Outputs of the events it has executed whole, each row beside its event. Written by it in state access mode and
    /// read by the others in post-processing, with a barrier between; they are done with it at the next batch's first.
    executed: RowBuffer,
}

/// What a thread needs to have whole events executed. `plan_*` is written by it in compute mode and read by the others
/// in state access mode, with a barrier between; the rest is its own. In state access mode references are made to
/// fields only, never to all of it.
struct Whole {
    /// Per owner: events that are its own, and SHARED | event for those it has accesses of, in event order.
    plan_events: Vec<Vec<u32>>,
    /// How many of the events are shared.
    plan_shared: usize,
    plan_load: Load,
    /// Per event of the thread's slice: who executes it, or SHARED.
    places: Vec<u32>,
    /// The same in all threads: made from the same figures at the same batch.
    ranges: Ranges,
    /// Whether the next batch's events are executed whole; the same in all threads, likewise.
    next: bool,
    /// Batches so far.
    number: usize,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let threads = options.threads;
    let stride = program.output_stride();
    let marks = Marks::new(program);
    Ok(Box::new(Tstream {
        punctuation: options.punctuation,
        owners: OwnerMap::even(threads),
        barrier: Barrier::new(threads),
        threads: PerThread::new(threads, || Thread {
            lane: Lane::new(stride),
            outbox: (0..threads).map(|_| Vec::new()).collect(),
            conditions: 0,
            deferred: Deferred::new(&marks),
            whole: Whole {
                plan_events: (0..threads).map(|_| Vec::new()).collect(),
                plan_shared: 0,
                plan_load: [0; BUCKETS],
                places: vec![0; PART],
                ranges: Ranges::new(threads, &[1; BUCKETS]),
                next: true,
                number: 0,
            },
            executed: RowBuffer::new(stride, true),
        }),
        scales: program.tables.iter().map(|table| ranges::scale(table.rows)).collect(),
        outcomes: [Outcome::new(PART), Outcome::new(PART)],
        marks,
    }))
}

impl Scheme for Tstream {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        let threads = self.threads.len();
        let mut ticket = run.first_ticket + thread as u64;
        for (number, (batch, interval)) in batches(run.block, self.punctuation, PART).enumerate() {
            run.await_arrival(interval);
            let outcome = &self.outcomes[number % 2];
            if threads == 1 {
                // SAFETY: the only thread there is.
                unsafe { alone(&mut (*self.threads.get(0)).lane, 0, run, &batch, ticket)? };
            } else {
                // SAFETY: the thread's own.
                if unsafe { (*self.threads.get(thread)).whole.next } {
                    self.whole_events(thread, run, &batch, outcome, ticket)?;
                } else {
                    self.batch(thread, run, &batch, outcome, ticket)?;
                }
                // SAFETY: as above; nobody else looks at it.
                let whole = unsafe { &mut (*self.threads.get(thread)).whole };
                whole.number += 1;
                whole.next |= whole.number.is_multiple_of(EPOCH);
            }
            ticket += threads as u64;
        }
        Ok(())
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

impl Tstream {
    fn batch(&self, thread: usize, run: &Run, batch: &Batch, outcome: &Outcome, ticket: u64) -> Result<(), RunError> {
        let threads = self.threads.len();
        let slice = batch.slice(thread, threads);
        let started = run.clock.now();
        let mut watch = Stopwatch::start();

        // Compute mode.
        {
            // SAFETY: in compute mode a thread is alone with these: the others have passed the barrier behind the last
            // state access mode, in which they read its outbox.
            let (lane, outbox, conditions) = unsafe {
                let own = self.threads.get(thread);
                (&mut (*own).lane, &mut (*own).outbox, &mut (*own).conditions)
            };
            lane.plan(run, batch, slice.clone(), outcome)?;
            watch.lap(&mut lane.counters.time.useful);
            *conditions = self.distribute(lane.planner.accesses(), outbox);
            watch.lap(&mut lane.counters.time.other);
        }
        self.barrier.wait(thread, run.idle, run.stopped)?;

        // State access mode. Outboxes are only read; of its own part a thread writes `deferred`, which nobody else
        // looks at, so references are made to the fields and never to the whole.
        // SAFETY: a thread is alone with its counters and chains at all times.
        let own = unsafe { self.threads.get(thread) };
        // SAFETY: as above.
        let (counters, deferred) = unsafe { (&mut (*own).lane.counters, &mut (*own).deferred) };
        watch.lap(&mut counters.time.sync);
        let waited = counters.time.sync;
        self.access(thread, run, batch, outcome, deferred, &mut counters.time.sync)?;
        let mut accessed = 0;
        watch.lap(&mut accessed);
        counters.time.useful += accessed.saturating_sub(counters.time.sync - waited);
        self.barrier.wait(thread, run.idle, run.stopped)?;
        watch.lap(&mut counters.time.sync);

        // Post-processing.
        // SAFETY: a thread is alone with its lane at all times.
        let lane = unsafe { &mut (*own).lane };
        let prepared = lane.post(run, batch, slice, outcome)?;
        watch.lap(&mut lane.counters.time.useful);
        let timing = (thread + 1 == threads).then(|| Timing { started, arrival: run.arrival(batch) });
        run.delivery.deliver(ticket, &lane.outputs, &prepared, timing, run)?;
        watch.lap(&mut lane.counters.time.sync);
        Ok(())
    }

    /// A batch most of whose events lie in one owner's range each: owners execute these at once, from plan to outputs,
    /// and in between apply their accesses of the few that are shared. All in event order: an owner that comes to an
    /// undecided event waits for it. That ends, for the earliest of them has all its conditions evaluated by owners that
    /// are at it or still before it.
    fn whole_events(
        &self,
        thread: usize,
        run: &Run,
        batch: &Batch,
        outcome: &Outcome,
        ticket: u64,
    ) -> Result<(), RunError> {
        let threads = self.threads.len();
        let slice = batch.slice(thread, threads);
        let started = run.clock.now();
        let mut watch = Stopwatch::start();

        // Compute mode.
        {
            // SAFETY: as in `batch`.
            let (lane, outbox, whole) = unsafe {
                let own = self.threads.get(thread);
                (&mut (*own).lane, &mut (*own).outbox, &mut (*own).whole)
            };
            self.deal(lane, outbox, whole, run, batch, slice.clone(), outcome)?;
            watch.lap(&mut lane.counters.time.useful);
        }
        self.barrier.wait(thread, run.idle, run.stopped)?;

        // State access mode.
        // SAFETY: as in `batch`: references are made to fields that nobody else looks at now.
        let own = unsafe { self.threads.get(thread) };
        {
            // SAFETY: as above.
            let (lane, outputs) = unsafe { (&mut (*own).lane, &mut (*own).executed) };
            watch.lap(&mut lane.counters.time.sync);
            outputs.clear();
            for planner in 0..threads {
                self.take_share(planner, thread, run, batch, outcome, lane, outputs, &mut watch)?;
            }
            lane.counters.dropped += outputs.take_dropped();
            watch.lap(&mut lane.counters.time.useful);
        }
        self.settle(thread, batch.len());
        self.barrier.wait(thread, run.idle, run.stopped)?;

        // Post-processing.
        // SAFETY: a thread is alone with its lane and places at all times.
        let (lane, places) = unsafe { (&mut (*own).lane, &(*own).whole.places) };
        watch.lap(&mut lane.counters.time.sync);
        let prepared = self.gather(lane, places, run, batch, slice, outcome)?;
        watch.lap(&mut lane.counters.time.useful);
        let timing = (thread + 1 == threads).then(|| Timing { started, arrival: run.arrival(batch) });
        run.delivery.deliver(ticket, &lane.outputs, &prepared, timing, run)?;
        watch.lap(&mut lane.counters.time.sync);
        Ok(())
    }

    /// Does owner `thread`'s part of the events that `planner` has dealt, in their order.
    #[expect(clippy::too_many_arguments, reason = "a thread's fields, which are borrowed one by one")]
    fn take_share(
        &self,
        planner: usize,
        thread: usize,
        run: &Run,
        batch: &Batch,
        outcome: &Outcome,
        lane: &mut Lane,
        outputs: &mut RowBuffer,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let tables = run.tables.bases();
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, tables, arena, true);
        // SAFETY: only read between the two barriers.
        let events = unsafe { &(&(*self.threads.get(planner)).whole.plan_events)[thread] };
        let mut accesses = self.inbox(planner, thread);
        // Runs of events of the owner's own, each but the last followed by a shared one.
        for (number, own) in events.split(|event| event & SHARED != 0).enumerate() {
            if number > 0 {
                let n = accesses.iter().take_while(|access| access.event == accesses[0].event).count();
                let (event, rest) = accesses.split_at(n);
                self.take_part(run, batch, outcome, &mut context, event, lane, watch)?;
                accesses = rest;
            }
            // SAFETY: all rows of these events are in this thread's range.
            let (dropped, rejected) =
                unsafe { run.transaction.execute(batch, tables, arena, &mut lane.scratch, Some(own), outputs)? };
            lane.counters.dropped += dropped;
            lane.counters.rejected += rejected;
        }
        Ok(())
    }

    /// Applies an owner's accesses of a shared event, waiting until it is decided where they have to.
    #[expect(clippy::too_many_arguments, reason = "a thread's fields, which are borrowed one by one")]
    fn take_part(
        &self,
        run: &Run,
        batch: &Batch,
        outcome: &Outcome,
        context: &mut ApplyContext,
        mut accesses: &[Access],
        lane: &mut Lane,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let mut patience = run.idle.patience();
        loop {
            // SAFETY: these rows are in this thread's range, and everything before this event was applied.
            let done = unsafe { run.transaction.apply(batch, context, accesses.as_ptr(), accesses.len())? };
            accesses = &accesses[done..];
            let Some(waiting) = accesses.first() else { return Ok(()) };
            watch.lap(&mut lane.counters.time.useful);
            while !outcome.is_decided(waiting.event) {
                run.check()?;
                patience.pass();
            }
            watch.lap(&mut lane.counters.time.sync);
        }
    }

    /// Sees whose the events of a slice are, and plans the shared ones.
    #[expect(clippy::too_many_arguments, reason = "a thread's fields, which are borrowed one by one")]
    fn deal(
        &self,
        lane: &mut Lane,
        outbox: &mut [Vec<Access>],
        whole: &mut Whole,
        run: &Run,
        batch: &Batch,
        slice: std::ops::Range<usize>,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        if whole.number % EPOCH == 1 {
            // What is long past counts for less.
            whole.plan_load.iter_mut().for_each(|events| *events /= 2);
        }
        whole.plan_shared = 0;
        for (outbox, events) in outbox.iter_mut().zip(&mut whole.plan_events) {
            outbox.clear();
            events.clear();
        }
        lane.planner.reset();
        run.transaction.place(batch, slice.clone(), whole.places.as_mut_ptr())?;
        for event in slice {
            let (low, high) = (whole.places[event] & 0xFFFF, whole.places[event] >> 16);
            whole.plan_load[ranges::bucket(low)] += 1;
            let owner = whole.ranges.owner(low);
            // An event that names no row (its lowest place is above its highest) is whoever's.
            if low > high || whole.ranges.owner(high) == owner {
                whole.places[event] = owner as u32;
                whole.plan_events[owner].push(event as u32);
                continue;
            }
            whole.places[event] = SHARED;
            whole.plan_shared += 1;
            let before = lane.planner.accesses().len();
            run.transaction.plan(batch, event..event + 1, &mut lane.planner, outcome)?;
            for access in &lane.planner.accesses()[before..] {
                let place = ranges::place(access.row, self.scales[usize::from(access.table)]);
                let owner = whole.ranges.owner(place);
                if whole.plan_events[owner].last() != Some(&(SHARED | event as u32)) {
                    whole.plan_events[owner].push(SHARED | event as u32);
                }
                outbox[owner].push(*access);
            }
        }
        lane.counters.dropped += lane.planner.take_dropped();
        Ok(())
    }

    /// In state access mode: works out, from what all threads have planned, how the next batches are done.
    fn settle(&self, thread: usize, events: usize) {
        let threads = self.threads.len();
        // SAFETY: what is planned is only read between the two barriers; `number`, `next` and `ranges` are the thread's.
        unsafe {
            let own = self.threads.get(thread);
            let shared: usize = (0..threads).map(|planner| (*self.threads.get(planner)).whole.plan_shared).sum();
            (*own).whole.next = shared * FEW <= events;
            if (*own).whole.number.is_multiple_of(EPOCH) {
                let mut load = [0; BUCKETS];
                for planner in 0..threads {
                    let planned = &(*self.threads.get(planner)).whole.plan_load;
                    load.iter_mut().zip(planned).for_each(|(sum, events)| *sum += events);
                }
                (*own).whole.ranges = Ranges::new(threads, &load);
            }
        }
    }

    /// Puts the outputs of a slice's events together in their order, from those who executed them, and examines them.
    fn gather(
        &self,
        lane: &mut Lane,
        places: &[u32],
        run: &Run,
        batch: &Batch,
        slice: std::ops::Range<usize>,
        outcome: &Outcome,
    ) -> Result<Prepared, RunError> {
        // SAFETY: outputs are only read between this batch's second barrier and the next one's first.
        let outputs = |owner: usize| unsafe { &(*self.threads.get(owner)).executed };
        let mut cursors: Vec<(usize, &[u32], &RowBuffer)> = (0..self.threads.len())
            .map(|owner| {
                let origins = outputs(owner).origins();
                (origins.partition_point(|&event| (event as usize) < slice.start), origins, outputs(owner))
            })
            .collect();
        lane.outputs.clear();
        for event in slice {
            if places[event] == SHARED {
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
        lane.counters.dropped += lane.outputs.take_dropped();
        run.delivery.preparer.prepare(&lane.outputs, run.block.text)
    }

    #[inline(always)]
    fn owner(&self, access: &Access) -> usize {
        let unit = u64::from(access.table) << 32 | u64::from(access.row / UNIT);
        self.owners.owner(group(hash_i64(unit as i64)))
    }

    /// Copies the planned accesses to one buffer per owner, each in event order. Returns how many are conditions or
    /// captures.
    fn distribute(&self, accesses: &[Access], outbox: &mut [Vec<Access>]) -> usize {
        let conditions = accesses.iter().map(|access| usize::from(!access.waits())).sum();
        for outbox in outbox.iter_mut() {
            outbox.clear();
            outbox.reserve(accesses.len());
        }
        if let [first, second] = outbox {
            // Two owners, the common case on small machines: written to both, kept by one; no branch to mispredict.
            let (to_first, to_second) = (first.as_mut_ptr(), second.as_mut_ptr());
            let mut seconds = 0;
            for (i, access) in accesses.iter().enumerate() {
                let owner = self.owner(access);
                // SAFETY: both buffers have room for all accesses; of `i` accesses, `seconds` were the second's.
                unsafe {
                    to_first.add(i - seconds).write(*access);
                    to_second.add(seconds).write(*access);
                }
                seconds += owner;
            }
            // SAFETY: that many were written.
            unsafe {
                first.set_len(accesses.len() - seconds);
                second.set_len(seconds);
            }
            return conditions;
        }
        for access in accesses {
            let outbox = &mut outbox[self.owner(access)];
            let len = outbox.len();
            // SAFETY: room for all accesses was reserved in every buffer.
            unsafe {
                outbox.as_mut_ptr().add(len).write(*access);
                outbox.set_len(len + 1);
            }
        }
        conditions
    }

    /// What planner `planner` has for owner `thread`; in state access mode.
    fn inbox(&self, planner: usize, thread: usize) -> &[Access] {
        // SAFETY: outboxes are only read between the two barriers.
        unsafe { &(&(*self.threads.get(planner)).outbox)[thread] }
    }

    /// How many conditions and captures planner `planner` has; in state access mode.
    fn conditions(&self, planner: usize) -> usize {
        // SAFETY: only read between the two barriers.
        unsafe { (*self.threads.get(planner)).conditions }
    }

    /// Applies all accesses of the thread's rows.
    fn access(
        &self,
        thread: usize,
        run: &Run,
        batch: &Batch,
        outcome: &Outcome,
        deferred: &mut Deferred,
        waiting: &mut u64,
    ) -> Result<(), RunError> {
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, run.tables.bases(), arena, true);
        let threads = self.threads.len();
        let conditions: usize = (0..threads).map(|planner| self.conditions(planner)).sum();
        if conditions == 0 {
            for planner in 0..threads {
                deferred.apply(run, batch, outcome, &mut context, self.inbox(planner, thread))?;
            }
        } else {
            let mut later = std::mem::take(&mut deferred.later);
            deferred.split((0..threads).map(|planner| self.inbox(planner, thread)), &mut later);
            // Each thread begins elsewhere, so that the threads do not write the same events' decisions at once.
            let ahead = &deferred.ready;
            let (second, first) = ahead.split_at(ahead.len() * thread / threads);
            for part in [first, second] {
                // SAFETY: these rows are this thread's, and nothing in the batch writes them before.
                let done = unsafe { run.transaction.apply(batch, &mut context, part.as_ptr(), part.len())? };
                if done != part.len() {
                    return Err(RunError::Engine("a condition had to wait".into()));
                }
            }
            deferred.apply(run, batch, outcome, &mut context, &later)?;
            deferred.later = later;
        }
        if deferred.is_empty() {
            return Ok(());
        }
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        while !deferred.is_empty() {
            if deferred.look(run, batch, outcome, &mut context)? {
                patience = run.idle.patience();
            } else {
                run.check()?;
                // Kernels decide events without ringing a bell, so nobody sleeps here.
                patience.pass();
            }
        }
        watch.lap(waiting);
        Ok(())
    }
}

/// What an owner remembers of a row during a batch.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// Number of the row's chain + 1; 0: not blocked.
    chain: u32,
    /// The last batch that writes the row.
    written: u32,
}

/// Marks of all rows of all tables.
struct Marks {
    marks: Box<[UnsafeCell<Mark>]>,
    /// Number of the first row of each table.
    starts: Vec<usize>,
}

impl Marks {
    fn new(program: &Program) -> Self {
        let mut starts = Vec::new();
        let mut rows = 0;
        for table in &program.tables {
            starts.push(rows);
            // Tables begin at a unit, for the same reason that rows are owned by units.
            rows += table.rows.next_multiple_of(UNIT as usize);
        }
        Self { marks: (0..rows).map(|_| UnsafeCell::default()).collect(), starts }
    }
}

/// An access that waits, and the next one of its row.
#[derive(Debug, Clone, Copy)]
struct Node {
    access: Access,
    next: u32,
}

const END: u32 = u32::MAX;

/// A blocked row: its accesses that wait, in event order. The first waits for its event's decision.
#[derive(Debug, Clone, Copy)]
struct Chain {
    head: u32,
    tail: u32,
    row: usize,
}

/// The blocked rows of one thread.
struct Deferred {
    /// `Marks`, of which this thread uses its own rows'. No row is blocked when `chains` is empty.
    marks: Shared<Mark>,
    starts: Vec<usize>,
    nodes: Vec<Node>,
    chains: Vec<Chain>,
    /// Accesses for one kernel call: conditions evaluated ahead, then those that have become ready.
    ready: Vec<Access>,
    /// What is left when conditions are evaluated ahead.
    later: Vec<Access>,
    /// Number of the batch, never 0.
    batch: u32,
}

impl Deferred {
    fn new(marks: &Marks) -> Self {
        // SAFETY: the entries live as long as the scheme, at a fixed address; each is used by the thread that owns the
        // row.
        let shared = unsafe { Shared::new(UnsafeCell::raw_get(marks.marks.as_ptr())) };
        Self {
            marks: shared,
            starts: marks.starts.clone(),
            nodes: Vec::new(),
            chains: Vec::new(),
            ready: Vec::new(),
            later: Vec::new(),
            batch: 0,
        }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    #[inline(always)]
    fn row(&self, access: &Access) -> usize {
        self.starts[usize::from(access.table)] + access.row as usize
    }

    #[inline(always)]
    fn mark(&self, row: usize) -> *mut Mark {
        self.marks.get().wrapping_add(row)
    }

    #[inline(always)]
    fn number(&self, row: usize) -> u32 {
        // SAFETY: the row's entry, which only this thread uses.
        unsafe { (*self.mark(row)).chain }
    }

    #[inline(always)]
    fn set_number(&mut self, row: usize, number: u32) {
        // SAFETY: the row's entry, which only this thread uses.
        unsafe { (*self.mark(row)).chain = number };
    }

    /// Takes the conditions on rows that the batch has not written so far into `ready`, everything else into `later`.
    fn split<'a>(&mut self, inboxes: impl Iterator<Item = &'a [Access]>, later: &mut Vec<Access>) {
        // Numbers come round again after 2^32 batches; a mark that old would merely keep a condition in its place.
        self.batch = self.batch.wrapping_add(1).max(1);
        self.ready.clear();
        later.clear();
        for inbox in inboxes {
            self.ready.reserve(inbox.len());
            later.reserve(inbox.len());
            let (mut ahead, mut behind) = (self.ready.len(), later.len());
            for access in inbox {
                let mark = self.mark(self.row(access));
                // SAFETY: the row's entry is this thread's. Both have room for all accesses; what is written but not counted is overwritten.
                unsafe {
                    let condition = !access.waits();
                    if condition && (*mark).written != self.batch {
                        self.ready.as_mut_ptr().add(ahead).write(*access);
                        ahead += 1;
                    } else {
                        later.as_mut_ptr().add(behind).write(*access);
                        behind += 1;
                        if access.kind == kind::MODIFY {
                            (*mark).written = self.batch;
                        }
                    }
                }
            }
            // SAFETY: that many were written.
            unsafe {
                self.ready.set_len(ahead);
                later.set_len(behind);
            }
        }
    }

    /// Applies accesses of the thread's rows in their order, as far as they need not wait; the rest forms chains.
    fn apply(
        &mut self,
        run: &Run,
        batch: &Batch,
        outcome: &Outcome,
        context: &mut ApplyContext,
        accesses: &[Access],
    ) -> Result<(), RunError> {
        let (mut at, mut since_look) = (0, 0);
        while at < accesses.len() {
            let end = if self.is_empty() {
                accesses.len()
            } else {
                if self.follow(&accesses[at]) {
                    at += 1;
                    continue;
                }
                let limit = accesses.len().min(at + RUN);
                (at + 1..limit).find(|&next| self.is_blocked(&accesses[next])).unwrap_or(limit)
            };
            // SAFETY: these rows are this thread's, and no earlier access of them is put aside.
            let done = unsafe { run.transaction.apply(batch, context, accesses.as_ptr().add(at), end - at)? };
            at += done;
            since_look += done;
            if at < end {
                self.block(&accesses[at]);
                at += 1;
            }
            if since_look >= LOOK && !self.is_empty() {
                since_look = 0;
                self.look(run, batch, outcome, context)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn is_blocked(&self, access: &Access) -> bool {
        self.number(self.row(access)) != 0
    }

    /// Puts the access behind its row's chain, if the row is blocked.
    #[inline(always)]
    fn follow(&mut self, access: &Access) -> bool {
        let number = self.number(self.row(access));
        if number == 0 {
            return false;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { access: *access, next: END });
        let chain = &mut self.chains[number as usize - 1];
        self.nodes[chain.tail as usize].next = node;
        chain.tail = node;
        true
    }

    /// Blocks the access's row, which is not blocked yet.
    fn block(&mut self, access: &Access) {
        let row = self.row(access);
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { access: *access, next: END });
        self.chains.push(Chain { head: node, tail: node, row });
        self.set_number(row, self.chains.len() as u32);
    }

    /// Applies what has become ready. Returns whether anything had.
    fn look(
        &mut self,
        run: &Run,
        batch: &Batch,
        outcome: &Outcome,
        context: &mut ApplyContext,
    ) -> Result<bool, RunError> {
        self.ready.clear();
        let mut index = 0;
        while index < self.chains.len() {
            let Chain { mut head, row, .. } = self.chains[index];
            while head != END {
                let node = self.nodes[head as usize];
                if node.access.waits() && !outcome.is_decided(node.access.event) {
                    break;
                }
                self.ready.push(node.access);
                head = node.next;
            }
            if head != END {
                self.chains[index].head = head;
                index += 1;
                continue;
            }
            self.set_number(row, 0);
            self.chains.swap_remove(index);
            if let Some(moved) = self.chains.get(index) {
                let moved = moved.row;
                self.set_number(moved, index as u32 + 1);
            }
        }
        if self.chains.is_empty() {
            self.nodes.clear();
        }
        if self.ready.is_empty() {
            return Ok(false);
        }
        // SAFETY: the rows are this thread's, and what stood before these accesses was applied.
        let done = unsafe { run.transaction.apply(batch, context, self.ready.as_ptr(), self.ready.len())? };
        if done != self.ready.len() {
            return Err(RunError::Engine("a decision was taken back".into()));
        }
        Ok(true)
    }
}
