//! Batches in flight: planned by any thread, applied in the way of a scheme, post-processed by any thread, delivered in
//! order. A bounded ring, so that memory does not grow with the block, and nobody waits for a place while there is
//! something else to do.

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Prepared;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::sync::{AtomicBool, AtomicU64, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::run::Run;
use crate::transactions::workbench::{Workbench, alone};

/// Batches under way, per thread: enough that nobody waits for a slot, few enough to stay in the shared cache.
const DEPTH: usize = 4;

/// The batches of a block, numbered from 0; `E` is what a scheme keeps with each that is in flight.
pub(crate) struct Ring<E> {
    batch: usize,
    slots: Vec<CachePadded<RingSlot<E>>>,
    /// Next batch to be planned: claimed by compare-and-exchange.
    planned: CachePadded<AtomicUsize>,
    /// Batches that are post-processed leave in order.
    posted: NonBlocking,
}

struct RingSlot<E> {
    /// It may be post-processed, by who takes this back. Set by who applied the batch.
    applied: AtomicBool,
    /// The ticket of the batch that was planned last; written by who planned it.
    planned: AtomicU64,
    /// Used by who has claimed the batch, plans it, applies it (all who do only read it), takes back `applied` and
    /// post-processes it, and by who delivers it, one after the other.
    content: UnsafeCell<Content<E>>,
}

pub(crate) struct Content<E> {
    /// Of the block's batches, the one that is here.
    number: usize,
    pub bench: Workbench,
    pub outcome: Outcome,
    pub extra: E,
    /// It was executed at once: its outputs are there already.
    executed: bool,
    prepared: Prepared,
    pub started: u64,
}

// SAFETY: `content` is handed from thread to thread by `planned`, `applied` and `posted`: written with Release, taken with Acquire.
unsafe impl<E: Send + Sync> Sync for RingSlot<E> {}
// SAFETY: nothing in it refers to a thread.
unsafe impl<E: Send> Send for RingSlot<E> {}

impl<E> Ring<E> {
    pub fn new(program: &Program, options: &Options, extra: impl Fn() -> E) -> Self {
        let slots = if options.threads == 1 { 1 } else { (options.threads * DEPTH).next_power_of_two() };
        Self::of(slots, program.output_stride(), options.batch, extra)
    }

    fn of(slots: usize, stride: usize, batch: usize, extra: impl Fn() -> E) -> Self {
        let slot = || {
            CachePadded::new(RingSlot {
                applied: AtomicBool::new(false),
                planned: AtomicU64::new(u64::MAX),
                content: UnsafeCell::new(Content {
                    number: 0,
                    bench: Workbench::new(stride),
                    outcome: Outcome::new(batch),
                    extra: extra(),
                    executed: false,
                    prepared: Prepared::default(),
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

    /// Before a block, when no thread is at one.
    pub fn rewind(&self) {
        // ORDERING: Relaxed; starting the next block publishes it.
        self.planned.store(0, Ordering::Relaxed);
        self.posted.restart();
    }

    /// What was counted with the batches. The caller sees to it that no thread is at a block.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for slot in &self.slots {
            // SAFETY: as the caller says.
            sum += slot.content.with(|content| unsafe { (*content).bench.counters });
        }
        sum
    }

    /// Takes the block's batches through everything one after the other, when there is one thread.
    pub fn alone(&self, run: &Run) -> Result<(), RunError> {
        for number in 0..self.count(run) {
            let batch = self.events(run, number);
            run.await_arrival(batch.end);
            self.slots[0].content.with_mut(|content| {
                // SAFETY: the only thread there is.
                unsafe {
                    let content = &mut *content;
                    alone(&mut content.bench, 0, run, &batch, run.first_ticket + number as u64)
                }
            })?;
        }
        Ok(())
    }

    /// Events in a batch; the block's last one may have fewer.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How many batches the block has.
    pub fn count(&self, run: &Run) -> usize {
        run.events.len().div_ceil(self.batch)
    }

    pub fn events<'a>(&self, run: &Run<'a>, number: usize) -> Batch<'a> {
        let begin = run.events.start + number * self.batch;
        Batch { block: run.block, begin, end: run.events.end.min(begin + self.batch) }
    }

    fn slot(&self, number: usize) -> &RingSlot<E> {
        &self.slots[number % self.slots.len()]
    }

    pub fn is_done(&self, run: &Run) -> bool {
        // Whoever sees the last delivery may return to the caller.
        self.delivered() == self.count(run)
    }

    /// Whether batch `number` is planned, or was; its slot may have gone on since.
    #[inline]
    pub fn is_planned(&self, run: &Run, number: usize) -> bool {
        // ORDERING: Acquire takes over the content from who planned it.
        self.slot(number).planned.load(Ordering::Acquire) == run.first_ticket + number as u64
    }

    /// Whether a thread that found nothing to plan or post should look again; `applied` as for `post`.
    pub fn has_news(&self, run: &Run, applied: usize) -> bool {
        // ORDERING: Acquire, as in the steps this foretells.
        let (delivered, planned) = (self.delivered(), self.planned.load(Ordering::Acquire));
        run.stopped.load(Ordering::Acquire)
            || delivered == self.count(run)
            || (delivered..applied).any(|number| self.slot(number).applied.load(Ordering::Acquire))
            || (planned < self.count(run) && planned < delivered + self.slots.len())
    }

    /// Plans the next batch if it has a slot; `finish` then works out what the scheme keeps with it.
    pub fn plan(
        &self,
        run: &Run,
        counters: &mut Counters,
        watch: &mut Stopwatch,
        finish: impl FnOnce(&Batch, &mut Content<E>),
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
        // ORDERING: Release hands the content to those who apply it.
        slot.planned.store(run.first_ticket + number as u64, Ordering::Release);
        run.idle.notify();
        Ok(true)
    }

    /// The next batch to be planned, or executed at once.
    pub fn next(&self) -> usize {
        // ORDERING: Relaxed; whoever claims it looks again.
        self.planned.load(Ordering::Relaxed)
    }

    /// Whether batch `number`, which is not planned, has a slot.
    #[inline]
    pub fn has_room(&self, number: usize) -> bool {
        number < self.delivered() + self.slots.len()
    }

    /// Whether the caller is the one to plan or execute batch `number`, which has a slot.
    fn claim(&self, number: usize) -> bool {
        // ORDERING: AcqRel; who claims a number is alone with its slot until it is planned, or applied.
        self.planned.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes batch `number` from plan to outputs at once, unless somebody plans it; `done` is told when that began.
    ///
    /// # Safety
    /// The block has the batch, and it has a slot. All batches before it are applied, and nobody else applies one
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

    /// A planned batch, for those who apply it.
    ///
    /// # Safety
    /// The batch is planned and not applied.
    pub unsafe fn planned(&self, number: usize) -> &Content<E> {
        // SAFETY: as the caller says.
        self.slot(number).content.with(|content| unsafe { &*content })
    }

    /// The batch may be post-processed.
    pub fn set_applied(&self, number: usize) {
        // ORDERING: Release hands the content to who post-processes it.
        self.slot(number).applied.store(true, Ordering::Release);
    }

    /// Post-processes one batch below number `applied` (where those that are not applied yet are passed over), and
    /// delivers what can be; `done` is told whether the batch had been executed at once, and when post-processing began.
    pub fn post(&self, run: &Run, applied: usize, done: impl FnOnce(&Batch, bool, u64)) -> Result<bool, RunError> {
        for number in self.delivered()..applied {
            let slot = self.slot(number);
            // ORDERING: Relaxed; a look that saves the exchange.
            if !slot.applied.load(Ordering::Relaxed) {
                continue;
            }
            // ORDERING: Acquire takes over the content from who applied it.
            if !slot.applied.swap(false, Ordering::Acquire) {
                continue;
            }
            let number = slot.content.with_mut(|content| {
                // SAFETY: claimed above.
                let content = unsafe { &mut *content };
                // Meanwhile it may be a later batch than we looked for.
                let batch = self.events(run, content.number);
                let since = run.clock.now();
                content.prepared = match content.executed {
                    true => run.prepare(&content.bench.outputs)?,
                    false => content.bench.post(run, &batch, 0..batch.len(), &content.outcome)?,
                };
                done(&batch, content.executed, since);
                Ok::<_, RunError>(content.number)
            })?;
            self.deliver(run, number)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Delivers batch `number`, which is post-processed, and what waited for it, unless an earlier one is missing or somebody
    /// is delivering, who goes on with it then.
    fn deliver(&self, run: &Run, number: usize) -> Result<(), RunError> {
        let mut outcome = Ok(());
        self.posted.complete_and_release(number as u64, &mut |number| {
            // Behind a failure nothing is delivered.
            if outcome.is_ok() {
                let batch = self.events(run, number as usize);
                outcome = self.slot(number as usize).content.with(|content| {
                    // SAFETY: post-processed, and nobody plans a batch here before this one has left.
                    let content = unsafe { &*content };
                    let timing = Timing { started: content.started, arrival: run.arrival(&batch) };
                    run.deliver(run.first_ticket + number, &content.bench.outputs, &content.prepared, Some(timing))
                });
            }
        });
        run.idle.notify();
        outcome
    }

    /// How many batches were delivered; their slots are free.
    fn delivered(&self) -> usize {
        self.posted.released() as usize
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::transactions::testing::world::World;

    fn plan_next(ring: &Ring<()>, run: &Run) -> bool {
        ring.plan(run, &mut Counters::default(), &mut Stopwatch::start(), |_, _| ()).unwrap()
    }

    /// Applies a planned batch, as a single writer does.
    fn apply_next(ring: &Ring<()>, run: &Run, number: usize) {
        assert!(ring.is_planned(run, number));
        // SAFETY: planned, and applied here only.
        assert_eq!(unsafe { ring.planned(number) }.number, number);
        ring.set_applied(number);
    }

    /// Two threads do their parts of two batches: loom fails if two are at a slot's content or at the sink at a time, and
    /// the delivery if a batch is left out, comes twice or too early.
    fn explore(slots: usize, before: fn(&Ring<()>, &Run), first: fn(&Ring<()>, &Run), second: fn(&Ring<()>, &Run)) {
        let mut model = loom::model::Builder::new();
        // Every schedule with up to this many involuntary switches; all of them would take hours.
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = Arc::new((Ring::of(slots, 8, 1, || ()), World::new()));
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
        let write = |ring: &Ring<()>, run: &Run| {
            for number in 0..2 {
                while !plan_next(ring, run) {
                    thread::yield_now();
                }
                apply_next(ring, run, number);
            }
        };
        let finish = |ring: &Ring<()>, run: &Run| {
            while !ring.is_done(run) {
                if !ring.post(run, 2, |_, _, _| ()).unwrap() {
                    thread::yield_now();
                }
            }
        };
        explore(1, |_, _| (), write, finish);
    }

    /// Nobody comes back later: a batch that is posted while the other thread delivers must not be left.
    #[test]
    fn loom_no_posted_batch_is_left() {
        let apply = |ring: &Ring<()>, run: &Run| {
            for number in 0..2 {
                assert!(plan_next(ring, run));
                apply_next(ring, run, number);
            }
        };
        let post = |ring: &Ring<()>, run: &Run| while ring.post(run, 2, |_, _, _| ()).unwrap() {};
        explore(2, apply, post, post);
    }

    #[test]
    fn loom_a_batch_is_planned_or_executed_at_once() {
        let write = |ring: &Ring<()>, run: &Run| {
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
        let plan = |ring: &Ring<()>, run: &Run| while plan_next(ring, run) {};
        explore(2, |_, _| (), write, plan);
    }
}
