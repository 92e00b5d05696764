//! `serial`: a single writer, one thread at a time, takes batches strictly in order. A bounded ring of batches connects it
//! with the other threads, and finished batches are delivered in order. No access is ever dealt to another thread or waits.
//!
//! The writer has two ways to handle a batch. It executes the batch from plan to outputs, event by event, and other threads
//! examine and deliver the outputs. Or it only applies accesses that other threads plan and post-process. `cost.rs` chooses
//! the faster one, as measured. Executing costs least in total, but splitting shortens the work of the one writer.

pub(crate) mod cost;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::own::Own;
use crate::threads::sync::{AtomicBool, AtomicUsize, CachePadded, Ordering};
use crate::transactions::ring::Ring;
use crate::transactions::run::{Run, Scheme};
use crate::transactions::scheme::serial::cost::Costs;

/// The number of batches of a block in each way, to measure its cost.
const TRIAL: usize = 4;
/// A thread takes the tables over from the last writer after so many rounds without work, because the rows are in that
/// writer's cache.
const HANDOVER: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

struct Serial {
    ring: Ring,
    costs: Costs,
    /// Per thread; written by that thread.
    counters: Own<Counters>,
    /// The next batch to apply; the holder of `applying` writes it.
    applied: CachePadded<AtomicUsize>,
    applying: CachePadded<AtomicBool>,
    /// The last thread that applied; the holder of `applying` writes it.
    writer: CachePadded<AtomicUsize>,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(Serial {
        ring: Ring::new(program, options),
        costs: Costs::unknown(),
        counters: Own::new(options.threads, Counters::default),
        applied: CachePadded::default(),
        applying: CachePadded::default(),
        writer: CachePadded::default(),
    }))
}

impl Scheme for Serial {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        if self.counters.len() == 1 {
            return self.ring.alone(run);
        }
        // SAFETY: the thread's own.
        unsafe { self.counters.with_mut(thread, |counters| self.go_round(thread, run, counters)) }
    }

    fn counters(&self) -> Counters {
        let mut sum = self.ring.counters();
        // SAFETY: no thread is in `block`.
        sum += unsafe { self.counters.sum(|counters| *counters) };
        sum
    }

    fn rewind(&self) {
        self.ring.rewind();
        self.costs.forget();
        // ORDERING: Relaxed; no thread is in `block`, and starting the next block publishes it.
        self.applied.store(0, Ordering::Relaxed);
    }
}

impl Serial {
    fn go_round(&self, thread: usize, run: &Run, counters: &mut Counters) -> Result<(), RunError> {
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        let mut idle = 0;
        loop {
            run.check()?;
            // First the writer's work, because everything waits for it. Then work that frees slots, then work that fills them.
            // ORDERING: Relaxed; a preference that may be out of date.
            let may_write = idle >= HANDOVER || self.writer.load(Ordering::Relaxed) == thread;
            let worked =
                (may_write && self.apply(thread, run)?) || self.post(run)? || self.plan(run, counters, &mut watch)?;
            if worked {
                watch.lap(&mut counters.time.useful);
                (patience, idle) = (run.idle.patience(), 0);
            } else if self.ring.is_done(run) {
                break;
            } else {
                idle += 1;
                if !patience.pass() {
                    run.idle.wait(|| self.has_news(run));
                }
                watch.lap(&mut counters.time.sync);
            }
        }
        Ok(())
    }

    fn plan(&self, run: &Run, counters: &mut Counters, watch: &mut Stopwatch) -> Result<bool, RunError> {
        if self.is_direct(self.ring.next()) {
            return Ok(false);
        }
        self.ring.plan(run, counters, watch, |batch, content| {
            self.costs.plan.note(batch.len(), run.clock.now() - content.started);
        })
    }

    fn post(&self, run: &Run) -> Result<bool, RunError> {
        self.ring.post(run, self.applied(), |batch, executed, since| {
            let cost = if executed { &self.costs.prepare } else { &self.costs.post };
            cost.note(batch.len(), run.clock.now() - since);
        })
    }

    fn applied(&self) -> usize {
        // ORDERING: Acquire; see `apply_next`.
        self.applied.load(Ordering::Acquire)
    }

    /// Whether the writer must execute batch `number` at once. The first batches of a block run in both ways, to measure their
    /// cost. The claim of a batch fixes its way, so threads need not agree here.
    fn is_direct(&self, number: usize) -> bool {
        if number < 2 * TRIAL { number < TRIAL } else { self.costs.favour_execute(self.counters.len()) }
    }

    /// Whether batch `number`, the next to apply, is ready.
    fn is_ready(&self, run: &Run, number: usize) -> bool {
        number < self.ring.count(run)
            && (self.ring.is_planned(run, number) || (self.ring.has_room(number) && self.is_direct(number)))
    }

    /// Whether a thread that found nothing to do should look again.
    fn has_news(&self, run: &Run) -> bool {
        let applied = self.applied();
        // ORDERING: Acquire, as in `apply`.
        (self.is_ready(run, applied) && !self.applying.load(Ordering::Acquire)) || self.ring.has_news(run, applied)
    }

    /// Applies batches as long as the next one is ready. A writer keeps the tables, because their rows are in its cache.
    fn apply(&self, thread: usize, run: &Run) -> Result<bool, RunError> {
        let mut worked = false;
        loop {
            // A look, repeated below under the lock.
            if !self.is_ready(run, self.applied()) {
                return Ok(worked);
            }
            // ORDERING: Acquire takes over the tables from the last writer.
            if self.applying.swap(true, Ordering::Acquire) {
                return Ok(worked);
            }
            // ORDERING: Relaxed, as above.
            self.writer.store(thread, Ordering::Relaxed);
            let mut outcome = self.apply_next(thread, run);
            while outcome == Ok(true) && run.check().is_ok() {
                worked = true;
                run.idle.notify();
                outcome = self.apply_next(thread, run);
            }
            // A thread that fails keeps the tables: the batch must not be applied again, and no thread may wait for it.
            outcome?;
            // ORDERING: Release passes the tables to the next writer.
            self.applying.store(false, Ordering::Release);
            run.idle.notify();
        }
    }

    fn apply_next(&self, thread: usize, run: &Run) -> Result<bool, RunError> {
        // ORDERING: Relaxed; written under this lock only.
        let number = self.applied.load(Ordering::Relaxed);
        if !self.is_ready(run, number) {
            return Ok(false);
        }
        if self.ring.is_planned(run, number) {
            let batch = self.ring.events(run, number);
            // SAFETY: planned, and applied by the holder of `applying` only.
            let content = unsafe { self.ring.planned(number) };
            let since = run.clock.now();
            // SAFETY: the only writer, in the order of batches.
            unsafe { content.bench.apply_all(run, &batch, thread, &content.outcome)? };
            self.costs.apply.note(batch.len(), run.clock.now() - since);
            self.ring.set_applied(number);
        // SAFETY: as above; it is ready and was not planned, so it is there and has a slot.
        } else if !unsafe {
            self.ring.execute(run, thread, number, |batch, since| {
                self.costs.execute.note(batch.len(), run.clock.now() - since);
            })?
        } {
            return Ok(false);
        }
        // ORDERING: Release; after the state, so that numbers below `applied` are applied at least.
        self.applied.store(number + 1, Ordering::Release);
        Ok(true)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::transactions::testing::world;

    /// Two threads write and post-process in any order, and each leaves when everything is delivered.
    #[test]
    #[ignore = "a whole executor, half a minute: in make test-full"]
    fn loom_one_writes_at_a_time() {
        world::explore(2, |world| {
            make(&world.program, &Options { threads: 2, batch: 1, ..Options::default() }).unwrap()
        });
    }
}
