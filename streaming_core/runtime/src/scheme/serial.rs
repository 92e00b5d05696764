//! `serial`: a single writer. Batches flow through plan (any thread), apply (one thread at a time, strictly in order) and
//! post (any thread), and are delivered in order; a bounded ring of batches lies between. No access is ever
//! distributed or waits. With one thread it is plan, apply, post per batch, within the thread's cache.

use super::ring::Ring;
use super::{PerThread, Run, Scheme};
use crate::kernel::RunError;
use crate::metrics::{Counters, Stopwatch};
use crate::program::{Options, Program};
use crate::sync::{AtomicBool, AtomicUsize, CachePadded, Ordering};

struct Serial {
    ring: Ring<()>,
    /// Per thread; written by that thread.
    counters: PerThread<Counters>,
    /// Next batch to be applied; written by who holds `applying`.
    applied: CachePadded<AtomicUsize>,
    applying: CachePadded<AtomicBool>,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(Serial {
        ring: Ring::new(program, options, || ()),
        counters: PerThread::new(options.threads, Counters::default),
        applied: CachePadded::default(),
        applying: CachePadded::default(),
    }))
}

impl Scheme for Serial {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        if self.counters.len() == 1 {
            return self.ring.alone(run);
        }
        // SAFETY: the thread's own.
        let counters = unsafe { &mut *self.counters.get(thread) };
        let mut watch = Stopwatch::start();
        let mut patience = run.idle.patience();
        loop {
            run.check()?;
            // The writer first: everything waits for it. Then what frees slots, then what fills them.
            let worked = self.apply(thread, run)?
                || self.ring.post(run, self.applied())?
                || self.ring.plan(run, counters, &mut watch, |_, _| ())?;
            if worked {
                watch.lap(&mut counters.time.useful);
                patience = run.idle.patience();
            } else if self.ring.is_done(run) {
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
        let mut sum = self.ring.counters();
        for thread in 0..self.counters.len() {
            // SAFETY: no thread is in `block`.
            sum += unsafe { *self.counters.get(thread) };
        }
        sum
    }

    fn rewind(&self) {
        self.ring.rewind();
        // ORDERING: Relaxed; no thread is in `block`, and starting the next block publishes it.
        self.applied.store(0, Ordering::Relaxed);
    }
}

impl Serial {
    fn applied(&self) -> usize {
        // ORDERING: Acquire; see `apply_next`.
        self.applied.load(Ordering::Acquire)
    }

    /// Whether batch `number`, the next to be applied, can be.
    fn is_ready(&self, run: &Run, number: usize) -> bool {
        number < self.ring.count(run) && self.ring.is_planned(run, number)
    }

    /// Whether a thread that found nothing to do should look again.
    fn has_news(&self, run: &Run) -> bool {
        let applied = self.applied();
        // ORDERING: Acquire, as in `apply`.
        (self.is_ready(run, applied) && !self.applying.load(Ordering::Acquire)) || self.ring.has_news(run, applied)
    }

    /// Applies as long as the next batch is planned: whoever writes goes on writing, with the rows in its cache.
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
        if !self.is_ready(run, number) {
            return Ok(());
        }
        let batch = self.ring.events(run, number);
        // SAFETY: planned, and applied by the holder of `applying` only.
        let content = unsafe { self.ring.planned(number) };
        // SAFETY: the only writer, in the order of batches.
        unsafe { content.lane.apply_all(run, &batch, thread, &content.outcome)? };
        self.ring.set_applied(number);
        // ORDERING: Release; after the state, so that numbers below `applied` are applied at least.
        self.applied.store(number + 1, Ordering::Release);
        Ok(())
    }
}
