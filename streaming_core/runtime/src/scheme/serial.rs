//! `serial`: a single writer. Batches flow through plan (any thread), apply (one thread at a time, strictly in order) and
//! post (any thread), and are delivered in order; a bounded ring of batches lies between. No access is ever
//! distributed or waits. With one thread it is plan, apply, post per batch, within the thread's cache.

use super::{Lane, PerThread, Run, Scheme, Timing, alone, batches};
use crate::kernel::RunError;
use crate::metrics::{Counters, Stopwatch};
use crate::program::{Options, Program};
use crate::sink::Prepared;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transaction::{Batch, Outcome};

/// Batches under way, per thread: enough that nobody waits for a slot, few enough to stay in the shared cache.
const DEPTH: usize = 4;

struct Serial {
    batch: usize,
    slots: Vec<CachePadded<Slot>>,
    /// Per thread; written by that thread.
    counters: PerThread<Counters>,
    /// Next batch of the block to be planned: claimed by fetch-and-add.
    planned: CachePadded<AtomicUsize>,
    /// Next batch to be applied; written by who holds `applying`.
    applied: CachePadded<AtomicUsize>,
    applying: CachePadded<AtomicBool>,
    /// Next batch to be delivered; written by who holds `delivering`.
    delivered: CachePadded<AtomicUsize>,
    delivering: CachePadded<AtomicBool>,
}

/// A slot's life: FREE, (planning), PLANNED, (applying), APPLIED, POSTING, POSTED, FREE. Batch b uses slot b mod n.
const FREE: u32 = 0;
const PLANNED: u32 = 1;
const APPLIED: u32 = 2;
const POSTING: u32 = 3;
const POSTED: u32 = 4;

struct Slot {
    state: AtomicU32,
    /// Used by who moved `state` last, or is the one allowed to move it next.
    content: UnsafeCell<Content>,
}

struct Content {
    /// Of the block's batches, the one that is here.
    number: usize,
    lane: Lane,
    outcome: Outcome,
    prepared: Prepared,
    started: u64,
}

// SAFETY: `content` is handed from thread to thread by `state`: written with Release, taken with Acquire.
unsafe impl Sync for Slot {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for Slot {}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let stride = program.output_stride();
    let slots = if options.threads == 1 { 1 } else { options.threads * DEPTH };
    let slot = || {
        CachePadded::new(Slot {
            state: AtomicU32::new(FREE),
            content: UnsafeCell::new(Content {
                number: 0,
                lane: Lane::new(stride),
                outcome: Outcome::new(options.batch),
                prepared: Prepared::default(),
                started: 0,
            }),
        })
    };
    Ok(Box::new(Serial {
        batch: options.batch,
        slots: (0..slots).map(|_| slot()).collect(),
        counters: PerThread::new(options.threads, Counters::default),
        planned: CachePadded::default(),
        applied: CachePadded::default(),
        applying: CachePadded::default(),
        delivered: CachePadded::default(),
        delivering: CachePadded::default(),
    }))
}

impl Scheme for Serial {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        if self.counters.len() == 1 {
            return self.alone(run);
        }
        // SAFETY: the thread's own.
        let counters = unsafe { &mut *self.counters.get(thread) };
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        loop {
            run.check()?;
            // The writer first: everything waits for it. Then what frees slots, then what fills them.
            let worked = self.apply(thread, run)? || self.post(run)? || self.plan(run, counters, &mut watch)?;
            if worked {
                watch.lap(&mut counters.time.useful);
                patience = run.idle.patience();
            } else if self.is_done(run) {
                break;
            } else {
                if !patience.pass() {
                    run.idle.wait(|| self.has_news(run));
                }
                watch.lap(&mut counters.time.sync);
            }
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for thread in 0..self.counters.len() {
            // SAFETY: no thread is in `block`.
            sum += unsafe { *self.counters.get(thread) };
        }
        for slot in &self.slots {
            // SAFETY: as above.
            sum += slot.content.with(|content| unsafe { (*content).lane.counters });
        }
        sum
    }

    fn rewind(&self) {
        // ORDERING: Relaxed; no thread is in `block`, and starting the next block publishes it.
        self.planned.store(0, Ordering::Relaxed);
        self.applied.store(0, Ordering::Relaxed);
        self.delivered.store(0, Ordering::Relaxed);
    }
}

impl Serial {
    fn alone(&self, run: &Run) -> Result<(), RunError> {
        self.slots[0].content.with_mut(|content| {
            // SAFETY: the only thread there is.
            let content = unsafe { &mut *content };
            for (number, (batch, _)) in batches(run.block, self.batch, self.batch).enumerate() {
                run.await_arrival(batch.end);
                let ticket = run.first_ticket + number as u64;
                // SAFETY: as above.
                unsafe { alone(&mut content.lane, 0, run, &batch, ticket)? };
            }
            Ok(())
        })
    }

    fn count(&self, run: &Run) -> usize {
        run.block.n.div_ceil(self.batch)
    }

    fn events<'a>(&self, run: &Run<'a>, number: usize) -> Batch<'a> {
        let begin = number * self.batch;
        Batch { block: run.block, begin, end: run.block.n.min(begin + self.batch) }
    }

    fn slot(&self, number: usize) -> &Slot {
        &self.slots[number % self.slots.len()]
    }

    fn is_done(&self, run: &Run) -> bool {
        // ORDERING: Acquire; whoever sees the last delivery may return to the caller.
        self.delivered.load(Ordering::Acquire) == self.count(run)
    }

    /// Whether a thread that found nothing to do should look again.
    fn has_news(&self, run: &Run) -> bool {
        // ORDERING: Acquire, as in the steps this foretells.
        let (applied, planned) = (self.applied.load(Ordering::Acquire), self.planned.load(Ordering::Acquire));
        let delivered = self.delivered.load(Ordering::Acquire);
        let state = |number: usize| self.slot(number).state.load(Ordering::Acquire);
        run.stopped.load(Ordering::Acquire)
            || delivered == self.count(run)
            || (applied < planned && state(applied) == PLANNED && !self.applying.load(Ordering::Acquire))
            || (delivered..applied).any(|number| state(number) == APPLIED)
            || (planned < self.count(run) && planned < delivered + self.slots.len())
    }

    fn plan(&self, run: &Run, counters: &mut Counters, watch: &mut Stopwatch) -> Result<bool, RunError> {
        // ORDERING: Relaxed; the claim below decides, the slot's state orders its content.
        let number = self.planned.load(Ordering::Relaxed);
        // ORDERING: Acquire takes over the slots that were freed before `delivered` moved.
        let delivered = self.delivered.load(Ordering::Acquire);
        if number >= self.count(run) || number >= delivered + self.slots.len() {
            return Ok(false);
        }
        // ORDERING: AcqRel; who claims a number is alone with its slot until it is planned.
        let claimed = self.planned.compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !claimed {
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
            content.started = run.clock.now();
            content.lane.plan(run, &batch, 0..batch.len(), &content.outcome)
        })?;
        // ORDERING: Release hands the content to who applies it.
        slot.state.store(PLANNED, Ordering::Release);
        run.idle.notify();
        Ok(true)
    }

    /// Applies as long as the next batch is planned: whoever writes goes on writing, with the rows in its cache.
    fn apply(&self, thread: usize, run: &Run) -> Result<bool, RunError> {
        let mut worked = false;
        loop {
            // ORDERING: Acquire; a look, repeated below under the lock.
            let number = self.applied.load(Ordering::Acquire);
            // ORDERING: Acquire; `PLANNED` of another round is impossible: the slot of a batch not yet applied is not
            // reused.
            if number >= self.count(run) || self.slot(number).state.load(Ordering::Acquire) != PLANNED {
                return Ok(worked);
            }
            // ORDERING: Acquire takes over the tables from the last writer.
            if self.applying.swap(true, Ordering::Acquire) {
                return Ok(worked);
            }
            worked = true;
            let outcome = self.apply_next(thread, run);
            // ORDERING: Release hands the tables to the next writer.
            self.applying.store(false, Ordering::Release);
            outcome?;
            run.idle.notify();
        }
    }

    fn apply_next(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        // ORDERING: Relaxed; written under this lock only.
        let number = self.applied.load(Ordering::Relaxed);
        // ORDERING: Acquire takes over the content from who planned it.
        if number >= self.count(run) || self.slot(number).state.load(Ordering::Acquire) != PLANNED {
            return Ok(());
        }
        let batch = self.events(run, number);
        let slot = self.slot(number);
        slot.content.with_mut(|content| {
            // SAFETY: the slot is planned, and the holder of `applying` is the one to move it on.
            let content = unsafe { &mut *content };
            // SAFETY: the only writer, in the order of batches.
            unsafe { content.lane.apply_all(run, &batch, thread, &content.outcome) }
        })?;
        // ORDERING: Release hands the content to who post-processes it.
        slot.state.store(APPLIED, Ordering::Release);
        // ORDERING: Release; after the state, so that numbers below `applied` are applied at least.
        self.applied.store(number + 1, Ordering::Release);
        Ok(())
    }

    fn post(&self, run: &Run) -> Result<bool, RunError> {
        // ORDERING: Acquire; see `apply_next`.
        let (delivered, applied) = (self.delivered.load(Ordering::Acquire), self.applied.load(Ordering::Acquire));
        for number in delivered..applied {
            let slot = self.slot(number);
            // ORDERING: Acquire takes over the content from the writer.
            let claimed = slot.state.compare_exchange(APPLIED, POSTING, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if !claimed {
                continue;
            }
            slot.content.with_mut(|content| {
                // SAFETY: claimed above.
                let content = unsafe { &mut *content };
                let batch = self.events(run, content.number);
                content.prepared = content.lane.post(run, &batch, 0..batch.len(), &content.outcome)?;
                Ok::<_, RunError>(())
            })?;
            // ORDERING: Release hands the content to who delivers it. SeqCst fence semantics come with the swap in
            // `deliver`: either its holder sees this state, or we get the lock.
            slot.state.store(POSTED, Ordering::SeqCst);
            self.deliver(run)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Delivers what is posted, in order. Whoever cannot get in leaves its batch to who is in.
    fn deliver(&self, run: &Run) -> Result<(), RunError> {
        loop {
            // ORDERING: SeqCst, with the store of POSTED and the loads below: a batch posted while somebody is in is
            // either seen by that thread's last look, or its poster finds the lock free.
            if self.delivering.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            let outcome = self.deliver_ready(run);
            // ORDERING: SeqCst as above; Release in it hands the sink on.
            self.delivering.store(false, Ordering::SeqCst);
            run.idle.notify();
            outcome?;
            // ORDERING: SeqCst, as above.
            let next = self.delivered.load(Ordering::SeqCst);
            if next >= self.count(run) || self.slot(next).state.load(Ordering::SeqCst) != POSTED {
                return Ok(());
            }
        }
    }

    fn deliver_ready(&self, run: &Run) -> Result<(), RunError> {
        loop {
            // ORDERING: Relaxed; written under this lock only.
            let number = self.delivered.load(Ordering::Relaxed);
            let slot = self.slot(number);
            // ORDERING: SeqCst, see `deliver`; Acquire in it takes over the content from who post-processed it.
            if number >= self.count(run) || slot.state.load(Ordering::SeqCst) != POSTED {
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
            // ORDERING: SeqCst for `deliver`; Release in it hands the slot to who plans its next batch.
            self.delivered.store(number + 1, Ordering::SeqCst);
        }
    }
}
