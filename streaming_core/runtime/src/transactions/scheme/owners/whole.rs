//! Whole events, executed by the owner of their rows.
//!
//! Dealing single accesses to shares costs more than most operators do, because all data goes from core to core. In
//! partitioned applications, nearly all events have all their rows at the same relative position in their tables, give or take
//! a partition. So shares are ranges (`ranges.rs`), drawn by load. The compute mode only looks where the rows of an event lie.
//! If one share has them all, the event is executed there from plan to outputs. Only events that *span* shares are split into
//! accesses.
//!
//! A thread handles its shares in event order. It sets a share aside at an event that is not decided, and goes on when it is.

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::sink::Prepared;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::rows::buffer::RowBuffer;
use crate::threads::own::Own;
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::scheme::owners::ranges::{self, BUCKETS, Load, Ranges};
use crate::transactions::workbench::Workbench;

/// Marks an event that spans shares, in `places` and in `Plan::events`.
const SPANS: u32 = 1 << 31;
/// The number of batches between two draws of ranges, or between two trials of whole events.
pub(super) const EPOCH: usize = 64;
/// The largest share of spanning events (1 in so many) with which whole events are executed.
const FEW: usize = 4;

/// The whole events of a batch, and their outputs.
pub(super) struct Whole {
    /// Per thread. The thread writes it in compute mode. In state access mode, after a barrier, the threads with its shares read
    /// it.
    plans: Own<Dealt>,
    /// Per share. The thread that takes the share uses it to the end of state access mode. In post-processing, after a barrier,
    /// all threads read it, until the first barrier of the next batch.
    shares: Own<Executed>,
    /// Per table: the factor from a row to its place.
    scales: Vec<u64>,
}

/// The plan of a thread for its slice of a batch.
struct Dealt {
    /// Per share: events that are its own, and SPANS | event for those it has accesses of, in event order.
    events: Vec<Vec<u32>>,
    /// Per share: accesses of its rows by events that span shares, in event order.
    accesses: Vec<Vec<Access>>,
    /// The number of events that span shares.
    spanning: usize,
    load: Load,
}

/// Outputs of the events of a share, each row beside its event, and the thread that executed them.
struct Executed {
    rows: RowBuffer,
    by: usize,
}

/// The data of one thread.
pub(super) struct Desk {
    /// Per event of the thread's slice: which share it is executed in, or SPANS.
    places: Vec<u32>,
    /// The same in all threads: made from the same figures at the same batch.
    ranges: Ranges,
    /// Whether the next batch's events are executed whole; the same in all threads, likewise.
    pub next: bool,
    /// Shares that wait for a spanning event.
    waiting: Vec<ShareCursor>,
}

impl Desk {
    /// For batches of up to `events` events.
    pub fn new(shares: usize, events: usize) -> Self {
        let ranges = Ranges::new(shares, &[1; BUCKETS]);
        Self { places: vec![0; events], ranges, next: true, waiting: Vec::new() }
    }
}

/// How far a share has come, of what each thread has planned for it.
struct ShareCursor {
    share: usize,
    planner: usize,
    event: usize,
    access: usize,
    /// The event whose decision it waits for.
    awaits: u32,
}

impl Whole {
    pub fn new(program: &Program, threads: usize, shares: usize) -> Self {
        let plan = || Dealt {
            events: (0..shares).map(|_| Vec::new()).collect(),
            accesses: (0..shares).map(|_| Vec::new()).collect(),
            spanning: 0,
            load: [0; BUCKETS],
        };
        let stride = program.output_stride();
        Self {
            plans: Own::new(threads, plan),
            shares: Own::new(shares, || Executed { rows: RowBuffer::new(stride, true), by: 0 }),
            scales: program.tables.iter().map(|table| ranges::scale(table.rows)).collect(),
        }
    }

    /// Compute mode of a batch whose events are executed whole: sees in which shares those of a slice lie, and plans the
    /// spanning ones.
    pub fn deal(
        &self,
        task: Assignment,
        slice: Range<usize>,
        bench: &mut Workbench,
        desk: &mut Desk,
    ) -> Result<(), RunError> {
        // SAFETY: the others have passed the barrier behind the last state access mode, in which they read it.
        unsafe { self.plans.with_mut(task.thread, |plan| self.plan(task, slice, bench, desk, plan)) }
    }

    fn plan(
        &self,
        task: Assignment,
        slice: Range<usize>,
        bench: &mut Workbench,
        desk: &mut Desk,
        plan: &mut Dealt,
    ) -> Result<(), RunError> {
        let Assignment { run, batch, outcome, .. } = task;
        if task.number % EPOCH == 2 {
            // Older batches count for less.
            plan.load.iter_mut().for_each(|events| *events /= 2);
        }
        plan.spanning = 0;
        for (accesses, events) in plan.accesses.iter_mut().zip(&mut plan.events) {
            accesses.clear();
            events.clear();
        }
        bench.planner.reset();
        run.transaction.place(batch, slice.clone(), desk.places.as_mut_ptr())?;
        for event in slice {
            let (low, high) = (desk.places[event] & 0xFFFF, desk.places[event] >> 16);
            plan.load[ranges::bucket(low)] += 1;
            let share = desk.ranges.owner(low);
            // Any share may have an event that names no row (its lowest place is above its highest).
            if low > high || desk.ranges.owner(high) == share {
                desk.places[event] = share as u32;
                plan.events[share].push(event as u32);
                continue;
            }
            desk.places[event] = SPANS;
            plan.spanning += 1;
            let before = bench.planner.accesses().len();
            run.transaction.plan(batch, event..event + 1, &mut bench.planner, outcome)?;
            for access in &bench.planner.accesses()[before..] {
                let place = ranges::place(access.row, self.scales[usize::from(access.table)]);
                let share = desk.ranges.owner(place);
                if plan.events[share].last() != Some(&(SPANS | event as u32)) {
                    plan.events[share].push(SPANS | event as u32);
                }
                plan.accesses[share].push(*access);
            }
        }
        bench.counters.dropped += bench.planner.take_dropped();
        Ok(())
    }

    /// State access mode of a batch whose events are executed whole. A share is taken in event order; one that comes to
    /// an undecided event is put aside until that is decided.
    pub fn execute(
        &self,
        task: Assignment,
        mut taking: impl Iterator<Item = usize>,
        bench: &mut Workbench,
        desk: &mut Desk,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let Assignment { run, outcome, .. } = task;
        let waiting = &mut desk.waiting;
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
                if self.advance(task, &mut waiting[at], bench)? {
                    waiting.swap_remove(at);
                }
            }
            if let Some(share) = taking.next() {
                // SAFETY: the share is this thread's now.
                unsafe {
                    self.shares.with_mut(share, |executed| {
                        executed.rows.clear();
                        executed.by = task.thread;
                    });
                }
                let mut cursor = ShareCursor { share, planner: 0, event: 0, access: 0, awaits: 0 };
                if !self.advance(task, &mut cursor, bench)? {
                    waiting.push(cursor);
                }
            } else if waiting.is_empty() {
                return Ok(());
            } else if worked {
                patience = run.idle.patience();
            } else {
                watch.lap(&mut bench.counters.time.useful);
                run.check()?;
                // Kernels decide events without a notification, so the thread must not sleep here.
                patience.pass();
                watch.lap(&mut bench.counters.time.sync);
            }
        }
    }

    /// Goes on with a share of the thread's as far as it need not wait; returns whether it is done.
    fn advance(&self, task: Assignment, cursor: &mut ShareCursor, bench: &mut Workbench) -> Result<bool, RunError> {
        // SAFETY: the share is this thread's.
        unsafe {
            self.shares.with_mut(cursor.share, |executed| {
                while cursor.planner < task.threads {
                    // SAFETY: plans are only read between the two barriers.
                    let done = self.plans.with(cursor.planner, |plan| {
                        let (events, accesses) = (&plan.events[cursor.share], &plan.accesses[cursor.share]);
                        run_through(task, cursor, events, accesses, &mut executed.rows, bench)
                    })?;
                    if !done {
                        return Ok(false);
                    }
                    (cursor.planner, cursor.event, cursor.access) = (cursor.planner + 1, 0, 0);
                }
                bench.counters.dropped += executed.rows.take_dropped();
                Ok(true)
            })
        }
    }

    /// In state access mode: works out, from what all threads have planned, how the next batches are done.
    pub fn settle(&self, task: Assignment, desk: &mut Desk) {
        // SAFETY: what is planned is only read between the two barriers.
        unsafe {
            let spanning = self.plans.sum(|plan| plan.spanning);
            desk.next |= spanning * FEW <= task.batch.len();
            if (task.number - 1).is_multiple_of(EPOCH) {
                let mut load = [0; BUCKETS];
                for planner in 0..task.threads {
                    self.plans.with(planner, |plan| {
                        load.iter_mut().zip(&plan.load).for_each(|(sum, events)| *sum += events);
                    });
                }
                desk.ranges = Ranges::new(self.shares.len(), &load);
            }
        }
    }

    /// Post-processing: puts the outputs of a slice's events together in their order, from the shares they were executed in,
    /// and examines them.
    pub fn gather(
        &self,
        task: Assignment,
        slice: Range<usize>,
        bench: &mut Workbench,
        desk: &Desk,
    ) -> Result<Prepared, RunError> {
        let Assignment { thread, run, batch, outcome, .. } = task;
        // Of each share how far it has come, and where its outputs lie. They stay as they are until the next batch's first
        // barrier.
        let mut views: Vec<(usize, *const [u32], *const u8)> = (0..self.shares.len())
            .map(|share| {
                // SAFETY: outputs are only read between this batch's second barrier and the next one's first.
                unsafe {
                    self.shares.with(share, |executed| {
                        let origins = executed.rows.origins();
                        let at = origins.partition_point(|&event| (event as usize) < slice.start);
                        (at, &raw const *origins, executed.rows.pointer())
                    })
                }
            })
            .collect();
        let first: Vec<usize> = views.iter().map(|view| view.0).collect();
        let stride = bench.outputs.stride();
        bench.outputs.clear();
        let mut event = slice.start;
        while event < slice.end {
            let place = desk.places[event];
            // Neighbours that were executed in one share, or that span shares, are taken together.
            let end = (event + 1..slice.end).find(|&next| desk.places[next] != place).unwrap_or(slice.end);
            if place == SPANS {
                bench.counters.rejected += run.transaction.post(batch, event..end, outcome, &mut bench.outputs)?;
            } else {
                let (at, origins, rows) = &mut views[place as usize];
                // SAFETY: as above; the rows lie in another buffer.
                unsafe {
                    let origins = &**origins;
                    while origins.get(*at).is_some_and(|&origin| (origin as usize) < end) {
                        bench.outputs.push(rows.add(*at * stride), 0)?;
                        *at += 1;
                    }
                }
            }
            event = end;
        }
        for (share, (at, ..)) in views.iter().enumerate().filter(|_| !run.placement.is_flat()) {
            // SAFETY: as above.
            let by = unsafe { self.shares.with(share, |executed| executed.by) };
            bench.counters.time.remote += run.placement.fetch(thread, by, (at - first[share]) * stride);
        }
        bench.counters.dropped += bench.outputs.take_dropped();
        run.prepare(&bench.outputs)
    }
}

/// Goes on with what one thread has planned for a share, in event order; returns whether it is done.
///
/// # Safety
/// The share is the calling thread's, and everything planned before was applied.
unsafe fn run_through(
    task: Assignment,
    cursor: &mut ShareCursor,
    events: &[u32],
    accesses: &[Access],
    outputs: &mut RowBuffer,
    bench: &mut Workbench,
) -> Result<bool, RunError> {
    let Assignment { thread, run, batch, outcome, .. } = task;
    let tables = run.tables.bases();
    // SAFETY: the thread's own arena.
    let arena = unsafe { run.tables.arena(thread) };
    let mut context = outcome.apply_context(batch, tables, arena, true);
    while let Some(&event) = events.get(cursor.event) {
        if event & SPANS == 0 {
            let own = &events[cursor.event..];
            let own = &own[..own.iter().position(|event| event & SPANS != 0).unwrap_or(own.len())];
            // SAFETY: all rows of these events are in this share, and everything before them was applied.
            let (dropped, rejected) =
                unsafe { run.transaction.execute(batch, tables, arena, &mut bench.slots, Some(own), outputs)? };
            bench.counters.dropped += dropped;
            bench.counters.rejected += rejected;
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
    let handed = size_of_val(events) + size_of_val(accesses);
    bench.counters.time.remote += run.placement.fetch(thread, cursor.planner, handed);
    bench.counters.time.remote += run.placement.events(events.len());
    Ok(true)
}
