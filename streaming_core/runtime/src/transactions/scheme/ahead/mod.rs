//! Lock-ahead, the common part of `lock`, `mvlk`, `pat` and `no_lock` (TStream, section II-C).
//!
//! Threads take events in turn: of n threads, thread t has the events t, t + n, t + 2n and so on. A thread executes one event
//! after the other, each from plan to outputs (the coarse-grained paradigm of section II-C):
//!
//! 1. *plan*: find out which rows the transaction accesses.
//! 2. Wait until a monotone counter permits the transaction to *insert its locks*. Insert all of them at once. Then advance
//!    the counter, so that the next transaction can insert its locks.
//! 3. Wait until all locks are *granted*. Access the rows. Release the locks.
//! 4. *post*: make the outputs.
//!
//! `ahead/outputs.rs` merges the outputs of the threads and delivers them. The schemes differ in their counters and locks; see
//! `Guard`.
//!
//! **Exactness.** Locks on a row are inserted in event order, and two transactions that conflict are granted in the order of
//! insertion. So they run in event order, and each runs as if alone.
//!
//! **No deadlock.** Consider the earliest event that is not executed. All earlier transactions have inserted and released their
//! locks, so the counter permits the transaction to insert its locks, and the locks are granted. Its thread has executed all of
//! its earlier events, so it executes this one now. It may wait for two other things:
//!
//! - For room for outputs, if an earlier batch is not delivered. All events of that batch are executed, so some thread is
//!   delivering it.
//! - In `pat`, for the numbers of its batch, if some thread has not planned the batch. That thread plans it before it executes
//!   an event after this one. Until then it has no event to wait for, and it waits for numbers of earlier batches only.
//!
//! **Distance.** Suppose that a single counter permits event e to insert its locks. Then all events up to e - n are executed:
//! the thread of such an event has inserted the locks of a later one.

pub(crate) mod counter;
pub(crate) mod locks;
pub(crate) mod outputs;
pub(crate) mod requests;
#[cfg(all(test, not(loom)))]
pub(crate) mod stage;

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::{Breakdown, Counters};
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::threads::own::Own;
use crate::threads::sync::{Ordering, hint};
use crate::transactions::batch::Batch;
use crate::transactions::outcome::Outcome;
use crate::transactions::planner::Planner;
use crate::transactions::run::{Run, Scheme};
use crate::transactions::scheme::ahead::outputs::{Outputs, Part};

/// One of so many events is measured in detail, because reading the clock takes as long as inserting a lock. A prime, so that
/// it does not divide the period of an application's events.
const SAMPLE: usize = 17;

/// So many looks come before a wait is measured. Most waits are shorter, and reading the clock would make them longer.
const LOOKS: usize = 64;

/// The counters and locks of a scheme.
pub(crate) trait Guard: Send + Sync + Sized {
    /// What a thread keeps of its transaction: the requests and the inserted locks.
    type Held: Send;
    /// Whether the source numbers the transactions of each batch, before threads execute them. Then threads plan a batch while
    /// others may still execute the one before.
    const NUMBERS: bool = false;

    fn held(&self) -> Self::Held;

    /// Starts a block. No thread is at one.
    fn rewind(&self) {}

    /// Takes the accesses of the thread's transactions of batch `number`, whose events have these positions. When all threads
    /// have called this, the transactions are numbered.
    ///
    /// # Safety
    /// `thread` is the calling thread's number. It has executed its transactions of batch `number - 2`.
    unsafe fn foresee<'a>(
        &self,
        _thread: usize,
        _number: usize,
        _events: Range<usize>,
        _transactions: impl Iterator<Item = &'a [Access]>,
    ) {
    }

    /// Whether the transactions of batch `number` are numbered.
    fn is_numbered(&self, _number: usize) -> bool {
        true
    }

    /// Collects the requests of a transaction.
    fn collect(&self, event: &Event, held: &mut Self::Held);

    /// Whether the transaction may insert its locks.
    fn is_permitted(&self, event: &Event, held: &Self::Held) -> bool;

    /// Inserts all locks of the transaction. Then permits the next transaction to insert its locks.
    fn insert(&self, event: &Event, held: &mut Self::Held);

    /// Whether all inserted locks are granted.
    fn is_granted(&self, held: &Self::Held) -> bool;

    /// Applies the accesses of the transaction.
    ///
    /// # Safety
    /// All of its locks are granted, and its accesses were not applied before.
    unsafe fn apply(&self, event: &Event, held: &mut Self::Held) -> Result<(), RunError>;

    /// Releases all locks of the transaction.
    fn release(&self, held: &Self::Held);
}

/// A planned event on its thread.
pub(crate) struct Event<'a> {
    pub run: &'a Run<'a>,
    pub thread: usize,
    pub batch: Batch<'a>,
    /// The number of the batch in the part of the block.
    pub number: usize,
    /// The position of the event in the block.
    pub position: usize,
    pub outcome: &'a Outcome,
    pub accesses: &'a [Access],
}

impl Event<'_> {
    /// The number of the transaction in the part of the block that is run: its timestamp.
    #[inline]
    pub fn timestamp(&self) -> u64 {
        (self.position - self.run.events.start) as u64
    }

    /// Applies accesses of the event in their order, on the tables at `bases`.
    ///
    /// # Safety
    /// As for `Transaction::apply`. Conditions precede the accesses that wait for them.
    #[inline]
    pub unsafe fn apply(&self, accesses: &[Access], bases: *const *mut u8) -> Result<(), RunError> {
        // SAFETY: `thread` is the calling thread's number.
        let arena = unsafe { self.run.tables.arena(self.thread) };
        let mut context = self.outcome.apply_context(&self.batch, bases, arena, false);
        let (first, n) = (accesses.as_ptr(), accesses.len());
        // SAFETY: as the caller says.
        let done = unsafe { self.run.transaction.apply(&self.batch, &mut context, first, n)? };
        if done != n {
            return Err(RunError::Engine("an event is undecided after all its conditions".into()));
        }
        Ok(())
    }
}

struct Ahead<G: Guard> {
    guard: G,
    outputs: Outputs,
    /// Each used by its thread.
    workers: Own<Worker<G::Held>>,
}

struct Worker<H> {
    thread: usize,
    threads: usize,
    held: H,
    /// The plans of even and of odd batches, if the source numbers transactions. Else all events use the first.
    plans: [Plan; 2],
    times: Times,
    counters: Counters,
}

/// The plan of an event, or of a thread's events of a batch.
struct Plan {
    planner: Planner,
    outcome: Outcome,
}

/// A scheme that executes events under this guard.
pub(crate) fn make<G: Guard + 'static>(guard: G, program: &Program, options: &Options) -> Box<dyn Scheme> {
    let mut thread = 0..options.threads;
    Box::new(Ahead {
        outputs: Outputs::new(program.output_stride(), options.threads, options.batch),
        workers: Own::new(options.threads, || {
            Worker::new(thread.next().unwrap_or_default(), options.threads, options.batch, guard.held())
        }),
        guard,
    })
}

impl<G: Guard> Scheme for Ahead<G> {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        // SAFETY: the thread's own.
        unsafe { self.workers.with_mut(thread, |worker| self.work(run, worker)) }
    }

    fn rewind(&self) {
        self.outputs.rewind();
        self.guard.rewind();
    }

    fn counts_plans_as_useful(&self) -> bool {
        false // only accesses to rows are useful
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe { self.workers.sum(|worker| worker.counters) }
    }
}

impl<G: Guard> Ahead<G> {
    /// Executes the events of a thread.
    fn work(&self, run: &Run, worker: &mut Worker<G::Held>) -> Result<(), RunError> {
        worker.times.start();
        let batches = self.outputs.count(run);
        let mut planned = 0;
        for number in 0..batches {
            run.check()?;
            if G::NUMBERS {
                // Of an open loop, the next batch has not arrived yet.
                let ahead = if run.arrivals.is_open_loop() { 1 } else { 2 };
                while planned < batches.min(number + ahead) {
                    worker.plan_batch(run, &self.guard, &self.outputs.batch(run, planned), planned)?;
                    planned += 1;
                }
                worker.times.wait(run, || self.guard.is_numbered(number))?;
            }
            worker.times.wait(run, || self.outputs.has_room(number))?;
            let (batch, thread) = (self.outputs.batch(run, number), worker.thread);
            let execute = |part: &mut Part| worker.execute(run, &self.guard, &batch, number, part);
            // SAFETY: there is room, and this thread has the worker.
            let events = unsafe { self.outputs.part(run, number, thread, execute)? };
            self.outputs.complete(run, number, events)?;
            worker.times.account(&mut worker.counters.time);
        }
        Ok(())
    }
}

impl<H> Worker<H> {
    fn new(thread: usize, threads: usize, batch: usize, held: H) -> Self {
        let plan = || Plan { planner: Planner::new(), outcome: Outcome::new(batch) };
        let plans = [plan(), plan()];
        Self { thread, threads, held, plans, times: Times::new(), counters: Counters::default() }
    }

    /// The positions of the thread's events of a batch.
    fn own(&self, batch: &Batch) -> impl Iterator<Item = usize> + use<H> {
        let first = (self.thread + self.threads - batch.begin % self.threads) % self.threads;
        (batch.begin + first..batch.end).step_by(self.threads)
    }

    fn plan_event(&mut self, run: &Run, batch: &Batch, plan: usize, position: usize) -> Result<(), RunError> {
        let Plan { planner, outcome } = &mut self.plans[plan];
        let event = position - batch.begin;
        let before = planner.accesses().len();
        run.transaction.plan(batch, event..event + 1, planner, outcome)?;
        self.counters.dropped += planner.take_dropped();
        let accesses = &planner.accesses()[before..];
        self.counters.time.remote += run.placement.rows(accesses.iter().map(|access| access.table));
        Ok(())
    }

    /// Plans the thread's events of a batch, so that the source can number them.
    fn plan_batch<G: Guard>(&mut self, run: &Run, guard: &G, batch: &Batch, number: usize) -> Result<(), RunError> {
        if run.arrivals.is_open_loop() {
            run.await_arrival(batch.end);
        }
        self.plans[number % 2].planner.reset();
        for position in self.own(batch) {
            self.plan_event(run, batch, number % 2, position)?;
        }
        let plan = &self.plans[number % 2];
        let transaction = |position| plan.event(run, self.thread, batch, number, position, self.threads).accesses;
        // SAFETY: the thread has this worker, and executes one batch after the other.
        unsafe {
            guard.foresee(self.thread, number, batch.begin..batch.end, self.own(batch).map(transaction));
        }
        run.idle.notify();
        Ok(())
    }

    /// Executes the thread's events of a batch. Returns their number.
    fn execute<G: Guard<Held = H>>(
        &mut self,
        run: &Run,
        guard: &G,
        batch: &Batch,
        number: usize,
        part: &mut Part,
    ) -> Result<usize, RunError> {
        let mut events = 0;
        for position in self.own(batch) {
            if run.arrivals.is_open_loop() {
                run.await_arrival(position + 1);
            }
            self.times.begin();
            let plan = if G::NUMBERS { number % 2 } else { 0 };
            if !G::NUMBERS {
                self.plans[plan].planner.reset();
                self.plan_event(run, batch, plan, position)?;
            }
            let Self { thread, threads, held, plans, times, counters } = self;
            let event = plans[plan].event(run, *thread, batch, number, position, *threads);
            guard.collect(&event, held);
            times.lap(|time| &mut time.other);
            times.wait(run, || guard.is_permitted(&event, held))?;
            times.lap(|time| &mut time.sync);
            guard.insert(&event, held);
            run.idle.notify();
            times.lap(|time| &mut time.lock);
            let is_granted = guard.is_granted(held);
            times.lap(|time| &mut time.other);
            if !is_granted {
                times.wait(run, || guard.is_granted(held))?;
                times.lap(|time| &mut time.sync);
            }
            // SAFETY: granted, and applied here only.
            unsafe { guard.apply(&event, held)? };
            times.lap(|time| &mut time.useful);
            guard.release(held);
            run.idle.notify();
            let (at, outcome) = (position - batch.begin, event.outcome);
            counters.rejected += run.transaction.post(batch, at..at + 1, outcome, &mut part.rows)?;
            part.end_event();
            times.lap(|time| &mut time.other);
            events += 1;
        }
        self.counters.dropped += part.rows.take_dropped();
        Ok(events)
    }
}

impl Plan {
    /// A planned event. `threads` threads take events in turn.
    fn event<'a>(
        &'a self,
        run: &'a Run<'a>,
        thread: usize,
        batch: &Batch<'a>,
        number: usize,
        position: usize,
        threads: usize,
    ) -> Event<'a> {
        let accesses = self.planner.accesses();
        let begin = self.outcome.first((position - batch.begin) as u32);
        // The planner has this event only, or all of the thread's events of the batch.
        let next = position + threads - batch.begin;
        let is_last = accesses.last().is_none_or(|access| access.event as usize <= position - batch.begin);
        let end = if is_last { accesses.len() } else { self.outcome.first(next as u32) };
        Event { run, thread, batch: *batch, number, position, outcome: &self.outcome, accesses: &accesses[begin..end] }
    }
}

/// The time breakdown of a thread (section VI-D). *Sync* is waiting for the permit and for granted locks. *Lock* is inserting
/// locks. *Useful* is accessing state. *Others* is the rest.
struct Times {
    /// Since the last account.
    total: Stopwatch,
    /// Since the last lap of an event that is measured in detail.
    detail: Option<Stopwatch>,
    events: usize,
    /// Nanoseconds of events that were measured in detail, without long waits.
    sample: Breakdown,
    /// Nanoseconds of long waits since the last account.
    waited: u64,
    /// Whether there was a long wait since the last lap.
    has_waited: bool,
    /// Nanoseconds to read the clock.
    lap_cost: u64,
}

impl Times {
    fn new() -> Self {
        Self {
            total: Stopwatch::start(),
            detail: None,
            events: 0,
            sample: Breakdown::default(),
            waited: 0,
            has_waited: false,
            lap_cost: Stopwatch::cost(),
        }
    }

    /// Starts a block.
    fn start(&mut self) {
        self.total = Stopwatch::start();
    }

    /// Starts an event.
    #[inline]
    fn begin(&mut self) {
        self.detail = self.events.is_multiple_of(SAMPLE).then(Stopwatch::start);
        self.events += 1;
    }

    /// Adds the time since the last lap to a part of the sample, without the time to read the clock.
    #[inline]
    fn lap(&mut self, part: impl FnOnce(&mut Breakdown) -> &mut u64) {
        if let Some(detail) = &mut self.detail {
            let mut spent = 0;
            detail.lap(&mut spent);
            if !self.has_waited {
                *part(&mut self.sample) += spent.saturating_sub(self.lap_cost);
            }
            self.has_waited = false;
        }
    }

    /// Waits until `ready`.
    ///
    /// # Errors
    /// `Stopped`: another thread has failed.
    #[inline]
    fn wait(&mut self, run: &Run, ready: impl Fn() -> bool) -> Result<(), RunError> {
        if ready() {
            return Ok(());
        }
        self.wait_long(run, &ready)
    }

    fn wait_long(&mut self, run: &Run, ready: &dyn Fn() -> bool) -> Result<(), RunError> {
        // A model explores every schedule without them.
        if !cfg!(any(loom, shuttle)) {
            for _ in 0..LOOKS {
                hint::spin_loop();
                if ready() {
                    return Ok(());
                }
            }
        }
        let mut watch = Stopwatch::start();
        let mut stopped = false;
        run.idle.wait(|| {
            // ORDERING: Acquire; nothing but the flag is used.
            stopped = run.stopped.load(Ordering::Acquire);
            stopped || ready()
        });
        watch.lap(&mut self.waited);
        self.has_waited = self.detail.is_some();
        if stopped { Err(RunError::Stopped) } else { Ok(()) }
    }

    /// Adds the time since the last account to `time`: long waits as measured, the rest in the proportions of the sample.
    fn account(&mut self, time: &mut Breakdown) {
        let mut spent = 0;
        self.total.lap(&mut spent);
        let busy = spent.saturating_sub(self.waited);
        let sum = (self.sample.useful + self.sample.sync + self.sample.lock + self.sample.other).max(1);
        let share = |part: u64| (busy as f64 * part as f64 / sum as f64) as u64;
        let (useful, sync, lock) = (share(self.sample.useful), share(self.sample.sync), share(self.sample.lock));
        time.useful += useful;
        time.sync += sync + self.waited;
        time.lock += lock;
        time.other += busy.saturating_sub(useful + sync + lock);
        self.waited = 0;
    }
}
