//! The monotone counter that orders the insertion of locks (TStream, section II-C).

use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// A transaction inserts its locks when the counter shows the transaction's number. Then it advances the counter, and the
/// next transaction may insert its locks.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// The number of transactions that have inserted their locks. The transaction with this number writes it.
    inserted: CachePadded<AtomicU64>,
}

impl Counter {
    /// Returns whether transaction `number` may insert its locks.
    #[inline]
    pub fn permits(&self, number: u64) -> bool {
        // ORDERING: Acquire takes over the lock queues from the transaction before.
        self.inserted.load(Ordering::Acquire) == number
    }

    /// Permits the transaction after `number`, which has inserted its locks.
    #[inline]
    pub fn advance(&self, number: u64) {
        // ORDERING: Release passes on the lock queues. It also passes on what the thread did in its earlier transactions, which
        // `mvlk` relies on.
        self.inserted.store(number + 1, Ordering::Release);
    }

    /// Starts again with transaction 0. No thread uses the counter.
    pub fn rewind(&self) {
        // ORDERING: Relaxed; starting the next block publishes it.
        self.inserted.store(0, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, UnsafeCell, thread};
    use crate::threads::testing::interleave;

    /// Two threads take transactions in turn. The cell fails if two transactions insert at a time, or if one does not see what
    /// the one before inserted.
    #[test]
    fn loom_transactions_insert_in_order() {
        interleave(3, || {
            let shared = Arc::new((Counter::default(), UnsafeCell::new(0)));
            let work = |(counter, last): &(Counter, UnsafeCell<u64>), me: u64| {
                for number in [me, me + 2] {
                    while !counter.permits(number) {
                        thread::yield_now();
                    }
                    // SAFETY: loom checks that no other thread is at the cell.
                    last.with_mut(|last| unsafe {
                        assert_eq!(*last, number);
                        *last += 1;
                    });
                    counter.advance(number);
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
