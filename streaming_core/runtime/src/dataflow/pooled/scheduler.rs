//! The central scheduler: workers ask it one after the other where to go, and learn when to ask again.
//!
//! A resting worker does not evaluate the heuristic. It watches one counter, `changes`. A worker counts a change when it
//! leaves a place. While workers rest, it also counts one after each piece of work.
//!
//! No change is missed. All that a worker does lies between two of its questions. The second question counts a change under
//! the lock. A resting worker read `changes` under the same lock, when it last asked. So it has either seen the work of the
//! other worker, or it sees the counter move.

use crate::dataflow::pooled::times::Times;
use crate::threads::sync::{AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering, lock};

/// The state that workers share when they ask where to go.
#[derive(Debug)]
pub struct Scheduler {
    times: Mutex<Times>,
    /// The number of changes so far. Workers that work write it; resting workers read it.
    changes: CachePadded<AtomicU64>,
    /// The number of resting workers. They write it; workers that work read it.
    resting: CachePadded<AtomicUsize>,
}

impl Scheduler {
    pub fn new(times: Times) -> Self {
        Self {
            times: Mutex::new(times),
            changes: CachePadded::new(AtomicU64::new(0)),
            resting: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Calls `choose` for one worker at a time. Returns its result, and the number of changes that it has seen. `has_worked`:
    /// the worker was at a place since it asked last.
    pub fn ask<R>(&self, has_worked: bool, choose: impl FnOnce(&mut Times) -> R) -> (R, u64) {
        let mut times = lock(&self.times);
        if has_worked {
            self.count();
        }
        // ORDERING: Relaxed: the lock orders it after the changes of all workers that asked before.
        let seen = self.changes.load(Ordering::Relaxed);
        (choose(&mut times), seen)
    }

    /// Counts a change for resting workers, if there are any. It may miss a worker that begins to rest now. The next question
    /// of this worker makes up for that.
    pub fn announce(&self) {
        // ORDERING: Relaxed: a hint.
        if self.resting.load(Ordering::Relaxed) > 0 {
            self.count();
        }
    }

    /// Calls `wait` for a worker that has nothing to do.
    pub fn rest(&self, wait: impl FnOnce()) {
        // ORDERING: Relaxed, both: a hint for `announce`.
        self.resting.fetch_add(1, Ordering::Relaxed);
        wait();
        self.resting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there may be a place for a worker that saw `seen` changes and got none.
    pub fn has_changed(&self, seen: u64) -> bool {
        // ORDERING: Acquire pairs with `count`: the worker sees the work that was announced.
        self.changes.load(Ordering::Acquire) != seen
    }

    fn count(&self) {
        // ORDERING: Release publishes the work that this worker has done.
        self.changes.fetch_add(1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::threads::sync::{Arc, AtomicBool, thread};
    use crate::threads::testing::interleave;

    /// One worker rests while the other makes work without an announcement, and asks again.
    #[test]
    fn a_resting_worker_sees_each_change() {
        interleave(3, || {
            let shared = Arc::new((Scheduler::new(Times::new(1, 1)), AtomicBool::new(false)));
            let other = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1.store(true, Ordering::Relaxed);
                    shared.0.announce();
                    shared.0.ask(true, |_| ());
                })
            };
            let (scheduler, work) = &*shared;
            loop {
                let (has_work, seen) = scheduler.ask(false, |_| work.load(Ordering::Relaxed));
                if has_work {
                    break;
                }
                scheduler.rest(|| {
                    while !scheduler.has_changed(seen) {
                        thread::yield_now();
                    }
                });
            }
            other.join().unwrap();
        });
    }
}
