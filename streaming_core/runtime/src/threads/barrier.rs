//! Where all threads of a team meet.

use crate::error::RunError;
use crate::threads::idle::Idle;
use crate::threads::sync::{AtomicBool, AtomicUsize, CachePadded, Ordering};

/// All threads of a team meet here. Every thread has a line of its own: arriving costs one write, and waiting reads
/// the others' lines.
#[derive(Debug)]
pub struct Barrier {
    /// Per thread: how often it has arrived; written by that thread only.
    arrivals: Vec<CachePadded<AtomicUsize>>,
}

impl Barrier {
    pub fn new(threads: usize) -> Self {
        Self { arrivals: (0..threads).map(|_| CachePadded::new(AtomicUsize::new(0))).collect() }
    }

    /// How often the first thread has arrived, of several.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn meetings(&self) -> usize {
        // ORDERING: Relaxed; tests call it when all threads are done.
        self.arrivals[0].load(Ordering::Relaxed)
    }

    /// Returns when every thread has called it as often as this one: what they wrote before is then visible.
    ///
    /// # Errors
    /// `Stopped` if another thread has failed and so may never come.
    #[inline]
    pub fn wait(&self, index: usize, idle: &Idle, stopped: &AtomicBool) -> Result<(), RunError> {
        if self.arrivals.len() == 1 {
            return Ok(());
        }
        // ORDERING: Relaxed; only this thread writes it.
        let round = self.arrivals[index].load(Ordering::Relaxed) + 1;
        // ORDERING: Release passes everything written so far to threads that see the arrival.
        self.arrivals[index].store(round, Ordering::Release);
        idle.notify();
        for (other, arrival) in self.arrivals.iter().enumerate() {
            if other == index {
                continue;
            }
            let mut failed = false;
            idle.wait(|| {
                // ORDERING: Acquire pairs with the Release above; another thread may be one round ahead already.
                let arrived = arrival.load(Ordering::Acquire) >= round;
                // ORDERING: Acquire; nothing but the flag is used.
                failed = !arrived && stopped.load(Ordering::Acquire);
                arrived || failed
            });
            if failed {
                return Err(RunError::Stopped);
            }
        }
        Ok(())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::idle::Strategy;
    use crate::threads::sync::thread;
    use crate::threads::sync::{Arc, UnsafeCell};
    use crate::threads::testing::interleave;

    /// Two threads write their own cells, meet, read the other's cell, meet, and write again. The model fails if the barrier
    /// does not order a read and a write.
    #[test]
    fn loom_the_barrier_publishes_what_was_written() {
        interleave(3, || {
            let shared = Arc::new((
                Barrier::new(2),
                Idle::new(Strategy::Yield, 2, 2),
                AtomicBool::new(false),
                [UnsafeCell::new(0), UnsafeCell::new(0)],
            ));
            let turn = |shared: &(Barrier, Idle, AtomicBool, [UnsafeCell<usize>; 2]), me: usize| {
                // SAFETY: loom checks that no other thread is at the cell.
                shared.3[me].with_mut(|cell| unsafe { *cell = 1 });
                shared.0.wait(me, &shared.1, &shared.2).unwrap();
                // SAFETY: as above.
                assert_eq!(shared.3[1 - me].with(|cell| unsafe { *cell }), 1);
                shared.0.wait(me, &shared.1, &shared.2).unwrap();
                // SAFETY: as above.
                shared.3[me].with_mut(|cell| unsafe { *cell = 2 });
            };
            let other = {
                let shared = shared.clone();
                thread::spawn(move || turn(&shared, 1))
            };
            turn(&shared, 0);
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_a_failure_frees_those_who_wait() {
        interleave(3, || {
            let shared = Arc::new((Barrier::new(2), Idle::new(Strategy::Park, 2, 2), AtomicBool::new(false)));
            let other = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.2.store(true, Ordering::Release);
                    shared.1.notify();
                })
            };
            assert_eq!(shared.0.wait(0, &shared.1, &shared.2), Err(RunError::Stopped));
            other.join().unwrap();
        });
    }
}
