//! A door: it lets in one number after the other: 0, 1, 2, ... The thread with the next number waits before the door. The
//! thread inside owns what is behind the door.
//!
//! A thread that must not wait completes into a reorder buffer (`reorder/`) instead. The thread that delivers takes its work
//! over.

use crate::error::RunError;
use crate::threads::idle::Idle;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Door {
    /// The number whose turn it is; the thread inside writes it.
    next: CachePadded<AtomicU64>,
}

impl Door {
    /// The number whose turn it is.
    #[inline]
    pub fn next(&self) -> u64 {
        // ORDERING: Acquire takes over what is behind the door from the thread that was inside before.
        self.next.load(Ordering::Acquire)
    }

    /// Waits for the turn of `number`, unless `leaves` says that it never comes.
    ///
    /// # Errors
    /// `Stopped`: the turn never comes.
    #[inline]
    pub fn enter(&self, number: u64, idle: &Idle, leaves: impl Fn() -> bool) -> Result<(), RunError> {
        if self.next() != number {
            idle.wait(|| self.next() == number || leaves());
            if self.next() != number {
                return Err(RunError::Stopped);
            }
        }
        Ok(())
    }

    /// Lets the next number in. The thread inside, with `number`, calls this.
    #[inline]
    pub fn leave(&self, number: u64, idle: &Idle) {
        // ORDERING: Release passes on what is behind the door.
        self.next.store(number + 1, Ordering::Release);
        idle.notify();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::idle::Strategy;
    use crate::threads::sync::{Arc, UnsafeCell, thread};
    use crate::threads::testing::interleave;

    #[test]
    fn loom_one_is_in_at_a_time_and_in_order() {
        interleave(3, || {
            let shared = Arc::new((Door::default(), Idle::new(Strategy::Park, 2, 2), UnsafeCell::new(0)));
            let work = |(door, idle, last): &(Door, Idle, UnsafeCell<u64>), me: u64| {
                for number in [me, me + 2] {
                    door.enter(number, idle, || false).unwrap();
                    // SAFETY: loom checks that no other thread is at the cell.
                    last.with_mut(|last| unsafe {
                        assert_eq!(*last, number);
                        *last += 1;
                    });
                    door.leave(number, idle);
                }
            };
            let other = {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, 1))
            };
            work(&shared, 0);
            other.join().unwrap();
        });
    }
}
