//! Batches in flight: planned by any thread, applied in the way of a scheme, post-processed by any thread, delivered in
//! order. A bounded ring, so that memory does not grow with the block, and nobody waits for a place while there is
//! something else to do.

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Prepared;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::delivery::Timing;
use crate::transactions::lane::{Lane, alone};
use crate::transactions::outcome::Outcome;
use crate::transactions::run::Run;
use crate::transactions::scheme::serial::cost::Costs;
use crate::transactions::transaction::Batch;

/// Batches under way, per thread: enough that nobody waits for a slot, few enough to stay in the shared cache.
const DEPTH: usize = 4;

/// A slot's life: FREE, (planning, planned, being applied), APPLIED, POSTING, POSTED, FREE. Batch b uses slot b mod n.
const FREE: u32 = 0;
const APPLIED: u32 = 1;
const POSTING: u32 = 2;
const POSTED: u32 = 3;

/// The batches of a block, numbered from 0; `E` is what a scheme keeps with each that is in flight.
pub(crate) struct Ring<E> {
    pub costs: Costs,
    batch: usize,
    slots: Vec<CachePadded<Slot<E>>>,
    /// Next batch to be planned: claimed by compare-and-exchange.
    planned: CachePadded<AtomicUsize>,
    /// Next batch to be delivered; written by who holds `delivering`.
    delivered: CachePadded<AtomicUsize>,
    delivering: CachePadded<AtomicBool>,
}

struct Slot<E> {
    state: AtomicU32,
    /// The ticket of the batch that was planned last; written by who planned it.
    planned: AtomicU64,
    /// Used by who moved `state` or `planned` last, or is the one allowed to move it next; between planned and APPLIED by
    /// all who apply the batch, who only read it then.
    content: UnsafeCell<Content<E>>,
}

pub(crate) struct Content<E> {
    /// Of the block's batches, the one that is here.
    number: usize,
    pub lane: Lane,
    pub outcome: Outcome,
    pub extra: E,
    /// It was executed at once: its outputs are there already.
    executed: bool,
    prepared: Prepared,
    started: u64,
}

// SAFETY: `content` is handed from thread to thread by `state` and `planned`: written with Release, taken with Acquire.
unsafe impl<E: Send + Sync> Sync for Slot<E> {}
// SAFETY: nothing in it refers to a thread.
unsafe impl<E: Send> Send for Slot<E> {}

impl<E> Ring<E> {
    pub fn new(program: &Program, options: &Options, extra: impl Fn() -> E) -> Self {
        let slots = if options.threads == 1 { 1 } else { options.threads * DEPTH };
        Self::of(slots, program.output_stride(), options.batch, extra)
    }

    fn of(slots: usize, stride: usize, batch: usize, extra: impl Fn() -> E) -> Self {
        let slot = || {
            CachePadded::new(Slot {
                state: AtomicU32::new(FREE),
                planned: AtomicU64::new(u64::MAX),
                content: UnsafeCell::new(Content {
                    number: 0,
                    lane: Lane::new(stride),
                    outcome: Outcome::new(batch),
                    extra: extra(),
                    executed: false,
                    prepared: Prepared::default(),
                    started: 0,
                }),
            })
        };
        Self {
            costs: Costs::unknown(),
            batch,
            slots: (0..slots).map(|_| slot()).collect(),
            planned: CachePadded::default(),
            delivered: CachePadded::default(),
            delivering: CachePadded::default(),
        }
    }

    /// Before a block, when no thread is at one.
    pub fn rewind(&self) {
        self.costs.forget();
        // ORDERING: Relaxed; starting the next block publishes it.
        self.planned.store(0, Ordering::Relaxed);
        self.delivered.store(0, Ordering::Relaxed);
    }

    /// What was counted with the batches. The caller sees to it that no thread is at a block.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for slot in &self.slots {
            // SAFETY: as the caller says.
            sum += slot.content.with(|content| unsafe { (*content).lane.counters });
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
                    alone(&mut content.lane, 0, run, &batch, run.first_ticket + number as u64)
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

    fn slot(&self, number: usize) -> &Slot<E> {
        &self.slots[number % self.slots.len()]
    }

    pub fn is_done(&self, run: &Run) -> bool {
        // ORDERING: Acquire; whoever sees the last delivery may return to the caller.
        self.delivered.load(Ordering::Acquire) == self.count(run)
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
        let (delivered, planned) = (self.delivered.load(Ordering::Acquire), self.planned.load(Ordering::Acquire));
        run.stopped.load(Ordering::Acquire)
            || delivered == self.count(run)
            || (delivered..applied).any(|number| self.slot(number).state.load(Ordering::Acquire) == APPLIED)
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
            content.lane.plan(run, &batch, 0..batch.len(), &content.outcome)?;
            self.costs.plan.note(batch.len(), run.clock.now() - content.started);
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
        // ORDERING: Acquire takes over the slots that were freed before `delivered` moved.
        number < self.delivered.load(Ordering::Acquire) + self.slots.len()
    }

    /// Whether the caller is the one to plan or execute batch `number`, which has a slot.
    fn claim(&self, number: usize) -> bool {
        // ORDERING: AcqRel; who claims a number is alone with its slot until it is planned, or applied.
        self.planned.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes batch `number` from plan to outputs at once, unless somebody plans it.
    ///
    /// # Safety
    /// The block has the batch, and it has a slot. All batches before it are applied, and nobody else applies one
    /// meanwhile.
    pub unsafe fn execute(&self, run: &Run, thread: usize, number: usize) -> Result<bool, RunError> {
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
            unsafe { content.lane.execute(run, &batch, thread)? };
            self.costs.execute.note(batch.len(), run.clock.now() - content.started);
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
        self.slot(number).state.store(APPLIED, Ordering::Release);
    }

    /// Post-processes one batch below number `applied` (where those that are not applied yet are passed over), and
    /// delivers what can be.
    pub fn post(&self, run: &Run, applied: usize) -> Result<bool, RunError> {
        // ORDERING: Acquire; whose slot was freed is not looked at.
        let delivered = self.delivered.load(Ordering::Acquire);
        for number in delivered..applied {
            let slot = self.slot(number);
            // ORDERING: Relaxed; a look that saves the exchange.
            if slot.state.load(Ordering::Relaxed) != APPLIED {
                continue;
            }
            // ORDERING: Acquire takes over the content from who applied it.
            let claimed = slot.state.compare_exchange(APPLIED, POSTING, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if !claimed {
                continue;
            }
            slot.content.with_mut(|content| {
                // SAFETY: claimed above.
                let content = unsafe { &mut *content };
                // Meanwhile it may be a later batch than we looked for.
                let batch = self.events(run, content.number);
                let since = run.clock.now();
                let (prepared, cost) = if content.executed {
                    (run.delivery.preparer.prepare(&content.lane.outputs, run.block.text), &self.costs.prepare)
                } else {
                    (content.lane.post(run, &batch, 0..batch.len(), &content.outcome), &self.costs.post)
                };
                content.prepared = prepared?;
                cost.note(batch.len(), run.clock.now() - since);
                Ok::<_, RunError>(())
            })?;
            // ORDERING: Release hands the content to who delivers it.
            slot.state.store(POSTED, Ordering::Release);
            self.deliver(run)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Delivers what is posted, in order. Whoever cannot get in leaves its batch to who is in.
    fn deliver(&self, run: &Run) -> Result<(), RunError> {
        loop {
            // ORDERING: AcqRel; who finds somebody in hands over the batch it has posted: either the swap below comes
            // later and takes it over, or this one finds the lock free.
            if self.delivering.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            let outcome = self.deliver_ready(run);
            // ORDERING: AcqRel; Release hands the sink on. A swap and not a store, to take over from those who found the
            // lock taken.
            self.delivering.swap(false, Ordering::AcqRel);
            run.idle.notify();
            outcome?;
            // ORDERING: Acquire; as late as those who left their batches.
            let next = self.delivered.load(Ordering::Acquire);
            if next >= self.count(run) || self.slot(next).state.load(Ordering::Acquire) != POSTED {
                return Ok(());
            }
        }
    }

    fn deliver_ready(&self, run: &Run) -> Result<(), RunError> {
        loop {
            // ORDERING: Relaxed; written under this lock only.
            let number = self.delivered.load(Ordering::Relaxed);
            let slot = self.slot(number);
            // ORDERING: Acquire takes over the content from who post-processed it.
            if number >= self.count(run) || slot.state.load(Ordering::Acquire) != POSTED {
                return Ok(());
            }
            let batch = self.events(run, number);
            slot.content.with(|content| {
                // SAFETY: posted, and the holder of `delivering` is the one to move it on.
                let content = unsafe { &*content };
                let timing = Timing { started: content.started, arrival: run.arrival(&batch) };
                let ticket = run.first_ticket + number as u64;
                run.delivery.deliver(ticket, &content.lane.outputs, &content.prepared, Some(timing), run)
            })?;
            // ORDERING: Relaxed; published by the next store.
            slot.state.store(FREE, Ordering::Relaxed);
            // ORDERING: Release hands the slot to who plans its next batch.
            self.delivered.store(number + 1, Ordering::Release);
        }
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
            world.check();
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
                if !ring.post(run, 2).unwrap() {
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
        let post = |ring: &Ring<()>, run: &Run| while ring.post(run, 2).unwrap() {};
        explore(2, apply, post, post);
    }

    #[test]
    fn loom_a_batch_is_planned_or_executed_at_once() {
        let write = |ring: &Ring<()>, run: &Run| {
            for number in 0..2 {
                // SAFETY: the only writer, in the order of batches, with a slot for each.
                if !unsafe { ring.execute(run, 0, number).unwrap() } {
                    while !ring.is_planned(run, number) {
                        thread::yield_now();
                    }
                    apply_next(ring, run, number);
                }
            }
            while ring.post(run, 2).unwrap() {}
        };
        let plan = |ring: &Ring<()>, run: &Run| while plan_next(ring, run) {};
        explore(2, |_, _| (), write, plan);
    }
}
