//! Lock-ahead, the common part of `lock`, `mvlk` and `pat` (TStream, sections II-C and VI-A).
//!
//! An event requests everything that it needs at once, when a monotone counter shows its turn. It runs when all of it is
//! granted, and returns all of it at its end.
//!
//! Any thread plans a batch, any thread applies and post-processes it, and batches are delivered in order. All threads apply
//! the same batch. A free thread takes the turn, makes the requests of the next few events and passes the turn on. Then it
//! runs these events, in the order in which they are granted. Neighbours that are granted together run in one kernel call.
//! With one thread there is no conflict, so it only plans, applies and post-processes.
//!
//! **Exactness.** Requests are granted in the order of requests, which is event order. So two events that conflict run in
//! event order, and each event runs as if alone.
//!
//! **No deadlock.** Only events that had their turn hold or await anything, and they await only earlier events. The earliest
//! of them that has not run is granted, and its thread looks at all of its events until none is left. The thread with the
//! turn awaits nothing.

pub(crate) mod requests;
pub(crate) mod turn;

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicUsize, Ordering};
use crate::transactions::batch::Batch;
use crate::transactions::outcome::Outcome;
use crate::transactions::ring::Ring;
use crate::transactions::run::{Run, Scheme};
use crate::transactions::scheme::ahead::turn::Turn;

/// One of so many groups is measured in detail, because reading the clock takes as long as a lock.
const SAMPLE: usize = 16;

/// The guard of the state. Numbers of events count within their batch.
pub(crate) trait Guard: Send + Sync + Sized {
    /// The guard's data for a planned batch.
    type Plan: Default + Send + Sync;
    /// The requests that a thread holds for its group of events.
    type Held: Send;
    /// The number of events that make requests at one turn, at most 64. With few, conflicting events seldom wait for each
    /// other's threads. With many, the turn seldom changes hands.
    const GROUP: usize;

    fn held(&self) -> Self::Held;

    fn plan(&self, accesses: &[Access], events: usize, plan: &mut Self::Plan);

    /// Requests everything that the events need. The calling thread has their turn. `number` is the number of the first one
    /// in the run.
    fn request(&self, plan: &Self::Plan, events: Range<usize>, thread: usize, number: u64, held: &mut Self::Held);

    /// Whether the `index`-th event of the group holds everything that it needs.
    fn is_granted(&self, held: &Self::Held, index: usize) -> bool;

    /// Applies the accesses of consecutive events that hold everything.
    ///
    /// # Safety
    /// They are granted, and their accesses were not applied before.
    unsafe fn apply(
        &self,
        group: &Group<Self::Plan>,
        events: Range<usize>,
        held: &mut Self::Held,
    ) -> Result<(), RunError>;

    /// Returns what events of the group (by their index in it) hold, after they are applied.
    fn release(&self, held: &Self::Held, events: Range<usize>);

    /// Declares that the thread has run all its events before event `number` of the run, and returned what they held. The
    /// largest number stands for all events.
    fn advance(&self, _thread: usize, _number: u64) {}
}

/// Events of a batch that one thread runs.
pub(crate) struct Group<'a, P> {
    pub run: &'a Run<'a>,
    pub thread: usize,
    pub batch: Batch<'a>,
    pub outcome: &'a Outcome,
    pub accesses: &'a [Access],
    pub plan: &'a P,
    /// The group's first event.
    pub from: usize,
}

impl<P> Group<'_, P> {
    /// Applies accesses in their order, on the tables at `bases`.
    ///
    /// # Safety
    /// As for `Transaction::apply`. The events are this thread's, and their conditions precede what waits for them.
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

/// A guard's plan of a batch, and the number of its events that have not run.
#[derive(Debug, Default)]
struct Planned<P> {
    plan: P,
    left: AtomicUsize,
}

struct Ahead<G: Guard> {
    guard: G,
    ring: Ring<Planned<G::Plan>>,
    /// The number, in the block, of the next event to make its requests.
    turn: Turn,
    /// Each used by its thread.
    threads: Own<Runner<G::Held>>,
}

struct Runner<H> {
    held: H,
    counters: Counters,
    groups: usize,
    /// Nanoseconds that the measured groups spent with locks, and with accesses.
    sample: (u64, u64),
}

/// A scheme that runs events under this guard.
pub(crate) fn make<G: Guard + 'static>(guard: G, program: &Program, options: &Options) -> Box<dyn Scheme> {
    assert!((1..=64).contains(&G::GROUP));
    let thread = || Runner { held: guard.held(), counters: Counters::default(), groups: 0, sample: (0, 0) };
    Box::new(Ahead {
        ring: Ring::new(program, options, Planned::default),
        turn: Turn::default(),
        threads: Own::new(options.threads, thread),
        guard,
    })
}

impl<G: Guard> Scheme for Ahead<G> {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        if self.threads.len() == 1 {
            return self.ring.alone(run);
        }
        // SAFETY: the thread's own.
        unsafe { self.threads.with_mut(thread, |own| self.go_round(thread, run, own)) }
    }

    fn rewind(&self) {
        self.ring.rewind();
        self.turn.pass(0);
    }

    fn counters(&self) -> Counters {
        let mut sum = self.ring.counters();
        // SAFETY: no thread is in `block`.
        sum += unsafe { self.threads.sum(|thread| thread.counters) };
        sum
    }
}

impl<H> Runner<H> {
    /// Splits the time since the last lap, without the `waited` part, in the proportions of the measured groups.
    fn account(&mut self, watch: &mut Stopwatch, waited: u64) {
        let mut spent = 0;
        watch.lap(&mut spent);
        let busy = spent.saturating_sub(waited);
        let (locks, accesses) = self.sample;
        let lock = (busy as f64 * locks as f64 / (locks + accesses).max(1) as f64) as u64;
        self.counters.time.sync += waited;
        self.counters.time.lock += lock;
        self.counters.time.useful += busy.saturating_sub(lock);
    }
}

impl<G: Guard> Ahead<G> {
    fn go_round(&self, thread: usize, run: &Run, own: &mut Runner<G::Held>) -> Result<(), RunError> {
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        loop {
            run.check()?;
            let mut waited = 0;
            let mut worked = false;
            while self.group(thread, run, own, &mut waited)? {
                worked = true;
            }
            if worked {
                own.account(&mut watch, waited);
            } else if self.ring.post(run, self.entered(), |_, _, _| ())? || self.plan(run, own, &mut watch)? {
                watch.lap(&mut own.counters.time.useful);
                worked = true;
            }
            if worked {
                patience = run.idle.patience();
            } else if self.ring.is_done(run) {
                return Ok(());
            } else {
                if !patience.pass() {
                    run.idle.wait(|| self.has_news(run));
                }
                watch.lap(&mut own.counters.time.sync);
            }
        }
    }

    /// A bound: all batches that may be applied have lower numbers.
    fn entered(&self) -> usize {
        self.turn.look().0.div_ceil(self.ring.batch())
    }

    /// Whether event `at`, the next one, can make its requests.
    #[inline]
    fn is_ready(&self, run: &Run, at: usize) -> bool {
        at < run.events.len() && self.ring.is_planned(run, at / self.ring.batch())
    }

    /// Whether a thread that found nothing to do should look again.
    fn has_news(&self, run: &Run) -> bool {
        let (at, taken) = self.turn.look();
        (!taken && self.is_ready(run, at)) || self.ring.has_news(run, self.entered())
    }

    fn plan(&self, run: &Run, own: &mut Runner<G::Held>, watch: &mut Stopwatch) -> Result<bool, RunError> {
        self.ring.plan(run, &mut own.counters, watch, |batch, content| {
            self.guard.plan(content.bench.planner.accesses(), batch.len(), &mut content.extra.plan);
            // ORDERING: Relaxed; published with the batch.
            content.extra.left.store(batch.len(), Ordering::Relaxed);
        })
    }

    /// Takes the turn, makes the requests of the next group of events, and runs it. False: there is no group yet, or another
    /// thread has the turn.
    fn group(&self, thread: usize, run: &Run, own: &mut Runner<G::Held>, waited: &mut u64) -> Result<bool, RunError> {
        let Some(at) = self.turn.take(|at| self.is_ready(run, at)) else { return Ok(false) };
        let number = at / self.ring.batch();
        let batch = self.ring.events(run, number);
        let from = at - batch.begin;
        let to = batch.len().min(from + G::GROUP);
        let measured = own.groups % SAMPLE == 0;
        own.groups += 1;
        let mut watch = measured.then(Stopwatch::start);
        // SAFETY: planned, and not applied before this group is; content is only read meanwhile.
        let content = unsafe { self.ring.planned(number) };
        self.guard.request(&content.extra.plan, from..to, thread, run.offset + at as u64, &mut own.held);
        self.turn.pass(at + to - from);
        run.idle.notify();
        let group = Group {
            run,
            thread,
            batch,
            outcome: &content.outcome,
            accesses: content.bench.planner.accesses(),
            plan: &content.extra.plan,
            from,
        };
        self.run(&group, to - from, own, &mut watch, waited)?;
        // ORDERING: AcqRel; the last thread takes over what all others wrote, and passes it to the one that post-processes.
        if content.extra.left.fetch_sub(to - from, Ordering::AcqRel) == to - from {
            self.ring.set_applied(number);
            run.idle.notify();
        }
        if let Some(watch) = &mut watch {
            watch.lap(&mut own.sample.0);
        }
        Ok(true)
    }

    /// Runs the events of a group, each when it is granted.
    fn run(
        &self,
        group: &Group<G::Plan>,
        events: usize,
        own: &mut Runner<G::Held>,
        watch: &mut Option<Stopwatch>,
        waited: &mut u64,
    ) -> Result<(), RunError> {
        let Group { run, from, .. } = *group;
        let mut pending = u64::MAX >> (64 - events);
        while pending != 0 {
            let before = pending;
            let mut at = 0;
            while at < events {
                let is_ready = |own: &Runner<_>, i: usize| pending >> i & 1 == 1 && self.guard.is_granted(&own.held, i);
                if !is_ready(own, at) {
                    at += 1;
                    continue;
                }
                let end = (at + 1..events).find(|&i| !is_ready(own, i)).unwrap_or(events);
                if let Some(watch) = watch {
                    watch.lap(&mut own.sample.0);
                }
                // SAFETY: granted; pending events were not applied yet.
                unsafe { self.guard.apply(group, from + at..from + end, &mut own.held)? };
                if let Some(watch) = watch {
                    watch.lap(&mut own.sample.1);
                }
                self.guard.release(&own.held, at..end);
                pending &= !(u64::MAX >> (64 - (end - at)) << at);
                let first = match pending {
                    0 => u64::MAX,
                    _ => run.offset + (group.batch.begin + from) as u64 + u64::from(pending.trailing_zeros()),
                };
                self.guard.advance(group.thread, first);
                run.idle.notify();
                at = end;
            }
            if pending == before {
                let mut wait = Stopwatch::start();
                let mut stopped = false;
                run.idle.wait(|| {
                    // ORDERING: Acquire; nothing but the flag is used.
                    stopped = run.stopped.load(Ordering::Acquire);
                    stopped || (0..events).any(|i| pending >> i & 1 == 1 && self.guard.is_granted(&own.held, i))
                });
                wait.lap(waited);
                if let Some(watch) = watch {
                    // Waiting is no part of the sample.
                    watch.lap(&mut 0);
                }
                if stopped {
                    return Err(RunError::Stopped);
                }
            }
        }
        Ok(())
    }
}
