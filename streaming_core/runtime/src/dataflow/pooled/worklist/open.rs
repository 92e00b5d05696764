//! Open parts: how many parts of each batch are not done.
//!
//! Cost: a store per batch; a decrement per part, or a load for the only one left.

use crate::threads::sync::{AtomicU32, CachePadded, Ordering};

/// The numbers of open parts of all batches in flight.
#[derive(Debug)]
pub struct OpenParts {
    /// Per slot. The worker that releases the batch sets it; a worker that does a part counts it down.
    counts: Box<[CachePadded<AtomicU32>]>,
}

impl OpenParts {
    /// For at most `window` (a power of two) batches in flight.
    pub fn new(window: usize) -> Self {
        assert!(window.is_power_of_two(), "the window must be a power of two");
        Self { counts: (0..window).map(|_| CachePadded::new(AtomicU32::new(0))).collect() }
    }

    /// Batch `serial` has that many parts, for the worker that is releasing it.
    pub fn set(&self, serial: u64, parts: usize) {
        // ORDERING: Relaxed: what publishes the parts publishes it, and no worker counts down before.
        self.count(serial).store(parts as u32, Ordering::Relaxed);
    }

    /// Declares a part of `serial` done; true: it was the last, and the caller owns the batch now.
    #[inline]
    pub fn done(&self, serial: u64) -> bool {
        let count = self.count(serial);
        // ORDERING: Release publishes this part's outputs, Acquire lets the last one see those of all others. With one part
        // left, which is the caller's, no other worker counts down any more.
        count.load(Ordering::Acquire) == 1 || count.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn count(&self, serial: u64) -> &AtomicU32 {
        &self.counts[serial as usize & (self.counts.len() - 1)]
    }
}
