//! A bounded ring of batches in flight. Any thread plans a batch, the scheme applies it, any thread post-processes it, and
//! batches are delivered in order.
//!
//! The bound keeps memory independent of the size of the block. A thread waits for a slot only if it has no other work.

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::{Kept, Prepared, Sink};
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::view::Rows;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::Run;
use crate::transactions::workbench::{Workbench, alone};

/// Batches in flight per thread: enough that no thread waits for a slot, few enough to stay in the shared cache.
const DEPTH: usize = 4;

/// The batches of a block, numbered from 0.
pub(crate) struct Ring {
    /// Events in a batch; the last one of a block may have fewer.
    batch: usize,
    slots: Vec<CachePadded<RingSlot>>,
    /// The next batch to plan; threads claim it by compare-and-exchange.
    planned: CachePadded<AtomicUsize>,
    /// Puts post-processed batches in order.
    posted: NonBlocking,
}

struct RingSlot {
    /// The thread that applied the batch sets this. The thread that clears it post-processes the batch.
    applied: AtomicBool,
    /// The ticket of the batch that was planned last; the thread that planned it writes this.
    planned: AtomicU64,
    /// Passes from the thread that claims and plans the batch to the one that applies it. Then it passes to the thread that
    /// clears `applied` and post-processes the batch, and to the one that delivers it.
    content: UnsafeCell<Content>,
}

pub(crate) struct Content {
    /// The number of the batch in this slot.
    number: usize,
    pub bench: Workbench,
    pub outcome: Outcome,
    /// The batch was executed at once, so its outputs exist already.
    executed: bool,
    prepared: Prepared,
    kept: Kept,
    pub started: u64,
}

// SAFETY: `planned`, `applied` and `posted` pass `content` from thread to thread: written with Release, taken with Acquire.
unsafe impl Sync for RingSlot {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for RingSlot {}

impl Ring {
    pub fn new(program: &Program, options: &Options) -> Self {
        let slots = if options.threads == 1 { 1 } else { (options.threads * DEPTH).next_power_of_two() };
        Self::of(slots, program.output_stride(), options.batch)
    }

    fn of(slots: usize, stride: usize, batch: usize) -> Self {
        let slot = || {
            CachePadded::new(RingSlot {
                applied: AtomicBool::new(false),
                planned: AtomicU64::new(u64::MAX),
                content: UnsafeCell::new(Content {
                    number: 0,
                    bench: Workbench::new(stride),
                    outcome: Outcome::new(batch),
                    executed: false,
                    prepared: Prepared::default(),
                    kept: Kept::default(),
                    started: 0,
                }),
            })
        };
        Self {
            batch,
            slots: (0..slots).map(|_| slot()).collect(),
            planned: CachePadded::default(),
            posted: NonBlocking::new(slots),
        }
    }

    /// Resets the ring before a block. No thread is at a block.
    pub fn rewind(&self) {
        // ORDERING: Relaxed; starting the next block publishes it.
        self.planned.store(0, Ordering::Relaxed);
        self.posted.restart();
    }

    /// The counters of the batches. No thread may be at a block.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for slot in &self.slots {
            // SAFETY: as the caller says.
            sum += slot.content.with(|content| unsafe { (*content).bench.counters });
        }
        sum
    }

    /// Runs the batches of a block one after the other, with a single thread.
    pub fn alone(&self, run: &Run) -> Result<(), RunError> {
        for number in 0..self.count(run) {
            let batch = self.events(run, number);
            run.await_arrival(batch.end);
            self.slots[0].content.with_mut(|content| {
                // SAFETY: there is only this thread.
                unsafe {
                    let content = &mut *content;
                    alone(&mut content.bench, 0, run, &batch, run.first_ticket + number as u64)
                }
            })?;
        }
        Ok(())
    }

    /// The number of batches of the block.
    pub fn count(&self, run: &Run) -> usize {
        run.events.len().div_ceil(self.batch)
    }

    pub fn events<'a>(&self, run: &Run<'a>, number: usize) -> Batch<'a> {
        let begin = run.events.start + number * self.batch;
        Batch { block: run.block, begin, end: run.events.end.min(begin + self.batch) }
    }

    fn slot(&self, number: usize) -> &RingSlot {
        &self.slots[number % self.slots.len()]
    }

    pub fn is_done(&self, run: &Run) -> bool {
        // A thread that sees the last delivery may return to the caller.
        self.delivered() == self.count(run)
    }

    /// Whether batch `number` is planned, or was; its slot may hold a later batch by now.
    #[inline]
    pub fn is_planned(&self, run: &Run, number: usize) -> bool {
        // ORDERING: Acquire takes over the content from the thread that planned it.
        self.slot(number).planned.load(Ordering::Acquire) == run.first_ticket + number as u64
    }

    /// Whether a thread that found nothing to plan or post should look again; `applied` as for `post`.
    pub fn has_news(&self, run: &Run, applied: usize) -> bool {
        // ORDERING: Acquire, as in the steps that this predicts.
        let (delivered, planned) = (self.delivered(), self.planned.load(Ordering::Acquire));
        run.stopped.load(Ordering::Acquire)
            || delivered == self.count(run)
            || (delivered..applied).any(|number| self.slot(number).applied.load(Ordering::Acquire))
            || (planned < self.count(run) && planned < delivered + self.slots.len())
    }

    /// Plans the next batch if it has a slot. `finish` gets the planned batch.
    pub fn plan(
        &self,
        run: &Run,
        counters: &mut Counters,
        watch: &mut Stopwatch,
        finish: impl FnOnce(&Batch, &mut Content),
    ) -> Result<bool, RunError> {
        // ORDERING: Relaxed; the claim below decides, the slot's state orders its content.
        let number = self.planned.load(Ordering::Relaxed);
        if number >= self.count(run) || !self.has_room(number) {
            return Ok(false);
        }
        if !self.claim(number) {
            return Ok(true);
        }
        let batch = self.events(run, number);
        if run.arrivals.is_open_loop() {
            run.await_arrival(batch.end);
            watch.lap(&mut counters.time.other);
        }
        let slot = self.slot(number);
        slot.content.with_mut(|content| {
            // SAFETY: the slot was free, and its batch is claimed by this thread.
            let content = unsafe { &mut *content };
            content.number = number;
            content.executed = false;
            content.started = run.clock.now();
            content.bench.plan(run, &batch, 0..batch.len(), &content.outcome)?;
            finish(&batch, content);
            Ok::<_, RunError>(())
        })?;
        // ORDERING: Release passes the content to the thread that applies it.
        slot.planned.store(run.first_ticket + number as u64, Ordering::Release);
        run.idle.notify();
        Ok(true)
    }

    /// The next batch to plan, or to execute at once.
    pub fn next(&self) -> usize {
        // ORDERING: Relaxed; the thread that claims the batch looks again.
        self.planned.load(Ordering::Relaxed)
    }

    /// Whether batch `number`, which is not planned, has a slot.
    #[inline]
    pub fn has_room(&self, number: usize) -> bool {
        number < self.delivered() + self.slots.len()
    }

    /// Claims batch `number`, which has a slot. Returns whether the caller may plan or execute it.
    fn claim(&self, number: usize) -> bool {
        // ORDERING: AcqRel; a thread that claims a number is alone with its slot until the batch is planned or applied.
        self.planned.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Executes batch `number` from plan to outputs, unless another thread plans it. `done` gets the time of the start.
    ///
    /// # Safety
    /// The block has the batch, and it has a slot. All batches before it are applied, and no other thread applies one
    /// meanwhile.
    pub unsafe fn execute(
        &self,
        run: &Run,
        thread: usize,
        number: usize,
        done: impl FnOnce(&Batch, u64),
    ) -> Result<bool, RunError> {
        if !self.claim(number) {
            return Ok(false);
        }
        let batch = self.events(run, number);
        run.await_arrival(batch.end);
        self.slot(number).content.with_mut(|content| {
            // SAFETY: the slot was free, and its batch is claimed by this thread.
            let content = unsafe { &mut *content };
            content.number = number;
            content.executed = true;
            content.started = run.clock.now();
            // SAFETY: as the caller says.
            unsafe { content.bench.execute(run, &batch, thread)? };
            done(&batch, content.started);
            Ok::<_, RunError>(())
        })?;
        self.set_applied(number);
        Ok(true)
    }

    /// A planned batch, for the thread that applies it.
    ///
    /// # Safety
    /// The batch is planned and not applied.
    pub unsafe fn planned(&self, number: usize) -> &Content {
        // SAFETY: as the caller says.
        self.slot(number).content.with(|content| unsafe { &*content })
    }

    /// Declares that the batch may be post-processed.
    pub fn set_applied(&self, number: usize) {
        // ORDERING: Release passes the content to the thread that post-processes it.
        self.slot(number).applied.store(true, Ordering::Release);
    }

    /// Post-processes one applied batch below number `applied`, and delivers what can be delivered. `done` gets whether the
    /// batch was executed at once, and when post-processing began.
    pub fn post(&self, run: &Run, applied: usize, done: impl FnOnce(&Batch, bool, u64)) -> Result<bool, RunError> {
        for number in self.delivered()..applied {
            let slot = self.slot(number);
            // ORDERING: Relaxed; a look that saves the exchange.
            if !slot.applied.load(Ordering::Relaxed) {
                continue;
            }
            // ORDERING: Acquire takes over the content from the thread that applied it.
            if !slot.applied.swap(false, Ordering::Acquire) {
                continue;
            }
            let number = slot.content.with_mut(|content| {
                // SAFETY: claimed above.
                let content = unsafe { &mut *content };
                // By now the slot may hold a later batch.
                let batch = self.events(run, content.number);
                let since = run.clock.now();
                content.prepared = match content.executed {
                    true => run.prepare(&content.bench.outputs)?,
                    false => content.bench.post(run, &batch, 0..batch.len(), &content.outcome)?,
                };
                content.kept = run.keep(&content.bench.outputs, &content.prepared)?;
                done(&batch, content.executed, since);
                Ok::<_, RunError>(content.number)
            })?;
            self.deliver(run, number)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Delivers batch `number`, which is post-processed, and the batches that waited for it. If an earlier batch is missing,
    /// it waits too. If another thread is delivering, that thread takes it.
    fn deliver(&self, run: &Run, number: usize) -> Result<(), RunError> {
        let mut outcome = Ok(());
        self.posted.complete_and_release(number as u64, &mut |number| {
            // Nothing after a failure is delivered.
            if outcome.is_ok() {
                let batch = self.events(run, number as usize);
                outcome = self.slot(number as usize).content.with_mut(|content| {
                    // SAFETY: post-processed, and no thread plans a batch here before this one has left.
                    let content = unsafe { &mut *content };
                    let timing = Timing { started: content.started, arrival: run.arrival(&batch) };
                    let rows = Rows::of(&content.bench.outputs, run.block.text);
                    let kept = std::mem::take(&mut content.kept);
                    // SAFETY: a buffer's rows are readable.
                    let work = |sink: &mut Sink| unsafe { sink.take_over(rows, &content.prepared, kept) };
                    run.deliver_by(run.first_ticket + number, Some(timing), work)
                });
            }
        });
        run.idle.notify();
        outcome
    }

    /// The number of delivered batches; their slots are free.
    fn delivered(&self) -> usize {
        self.posted.released() as usize
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;
    use crate::transactions::testing::world::World;

    fn plan_next(ring: &Ring, run: &Run) -> bool {
        ring.plan(run, &mut Counters::default(), &mut Stopwatch::start(), |_, _| ()).unwrap()
    }

    /// Applies a planned batch, as a single writer does.
    fn apply_next(ring: &Ring, run: &Run, number: usize) {
        assert!(ring.is_planned(run, number));
        // SAFETY: planned, and applied here only.
        assert_eq!(unsafe { ring.planned(number) }.number, number);
        ring.set_applied(number);
    }

    /// Two threads do their parts of two batches. loom fails if both are at a slot's content or at the sink at a time. The
    /// delivery fails if a batch is left out, comes twice or comes too early.
    fn explore(slots: usize, before: fn(&Ring, &Run), first: fn(&Ring, &Run), second: fn(&Ring, &Run)) {
        interleave(3, move || {
            let shared = Arc::new((Ring::of(slots, 8, 1), World::new()));
            let (ring, world) = &*shared;
            world.run(|run| before(ring, run));
            let other = {
                let shared = shared.clone();
                thread::spawn(move || shared.1.run(|run| second(&shared.0, run)))
            };
            world.run(|run| first(ring, run));
            other.join().unwrap();
            world.check(2);
        });
    }

    #[test]
    fn loom_a_slot_goes_from_hand_to_hand() {
        let write = |ring: &Ring, run: &Run| {
            for number in 0..2 {
                while !plan_next(ring, run) {
                    thread::yield_now();
                }
                apply_next(ring, run, number);
            }
        };
        let finish = |ring: &Ring, run: &Run| {
            while !ring.is_done(run) {
                if !ring.post(run, 2, |_, _, _| ()).unwrap() {
                    thread::yield_now();
                }
            }
        };
        explore(1, |_, _| (), write, finish);
    }

    /// No thread comes back later, so a batch that is posted while the other thread delivers must not be left.
    #[test]
    fn loom_no_posted_batch_is_left() {
        let apply = |ring: &Ring, run: &Run| {
            for number in 0..2 {
                assert!(plan_next(ring, run));
                apply_next(ring, run, number);
            }
        };
        let post = |ring: &Ring, run: &Run| while ring.post(run, 2, |_, _, _| ()).unwrap() {};
        explore(2, apply, post, post);
    }

    #[test]
    fn loom_a_batch_is_planned_or_executed_at_once() {
        let write = |ring: &Ring, run: &Run| {
            for number in 0..2 {
                // SAFETY: the only writer, in the order of batches, with a slot for each.
                if !unsafe { ring.execute(run, 0, number, |_, _| ()).unwrap() } {
                    while !ring.is_planned(run, number) {
                        thread::yield_now();
                    }
                    apply_next(ring, run, number);
                }
            }
            while ring.post(run, 2, |_, _, _| ()).unwrap() {}
        };
        let plan = |ring: &Ring, run: &Run| while plan_next(ring, run) {};
        explore(2, |_, _| (), write, plan);
    }
}
