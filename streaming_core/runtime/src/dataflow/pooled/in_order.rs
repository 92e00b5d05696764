//! In-order list: batches that any worker may go on with, taken in serial order.
//!
//! It cannot overflow: a batch lives in slot `serial % window`, and serials in flight span less than `window`.

use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// Batches that any worker may go on with, taken in serial order.
#[derive(Debug)]
pub struct InOrder {
    /// `stamps[serial % window]` = serial + 1 once offered. Written by the batch's owner.
    stamps: Box<[AtomicU64]>,
    /// The next serial to take. The worker that takes it writes it.
    next: CachePadded<AtomicU64>,
    mask: u64,
}

impl InOrder {
    /// A worklist for at most `window` (a power of two) batches in flight.
    pub fn new(window: usize) -> Self {
        assert!(window.is_power_of_two(), "the window must be a power of two");
        Self {
            stamps: (0..window).map(|_| AtomicU64::new(0)).collect(),
            next: CachePadded::new(AtomicU64::new(0)),
            mask: window as u64 - 1,
        }
    }

    /// Hands batch `serial` on, once.
    #[inline]
    pub fn offer(&self, serial: u64) {
        // ORDERING: Release pairs with the Acquire in `take`: the taker sees the batch.
        self.stamps[(serial & self.mask) as usize].store(serial + 1, Ordering::Release);
    }

    /// A hint whether a worker that takes now would get a batch.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        let next = self.next.load(Ordering::Relaxed);
        self.stamps[(next & self.mask) as usize].load(Ordering::Relaxed) == next + 1
    }

    /// How many batches could be taken one after the other: a hint.
    pub fn waiting(&self) -> u64 {
        // ORDERING: Relaxed: a hint.
        let next = self.next.load(Ordering::Relaxed);
        // ORDERING: Relaxed: a hint.
        let is_offered = |serial: u64| self.stamps[(serial & self.mask) as usize].load(Ordering::Relaxed) == serial + 1;
        (next..=next + self.mask).take_while(|&serial| is_offered(serial)).count() as u64
    }

    /// The next batch in serial order, if it was offered; the caller owns it.
    #[inline]
    pub fn take(&self) -> Option<u64> {
        // ORDERING: Relaxed: the stamp publishes the batch, the exchange decides who gets it.
        let next = self.next.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with `offer`.
        if self.stamps[(next & self.mask) as usize].load(Ordering::Acquire) != next + 1 {
            return None;
        }
        // ORDERING: Relaxed: nothing else is published by the counter.
        self.next.compare_exchange(next, next + 1, Ordering::Relaxed, Ordering::Relaxed).ok()
    }
}
