//! Non-blocking reorder buffer: a worker that completes a batch goes on at once; batches leave in serial order.
//!
//! Invariant: a completed serial is released as soon as its predecessors are, and never left behind.
//! Cost: one store and two read-modify-writes a batch. `dataflow/pooled/README.md`, "Reorder buffers", has the proof.
//! Source: Prasaad et al., the non-blocking reorder buffer for the outputs of concurrent workers.

use crate::planted::{self, Fault};
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// Set in `turn` while a thread releases.
const BUSY: u64 = 1;

/// The buffer; see the module.
#[derive(Debug)]
pub struct NonBlocking {
    /// `stamps[serial % window]` = serial + 1 once that serial is complete. The thread that completes it writes the stamp; the
    /// thread that releases reads it.
    stamps: Box<[AtomicU64]>,
    /// `next << 1 | busy`. A thread that wants to release sets BUSY. The first one owns `next` until it clears BUSY.
    turn: CachePadded<AtomicU64>,
    mask: u64,
    /// How far ahead the release looks: 0, except in a broken buffer for tests, which releases what is complete.
    #[cfg(test)]
    broken: bool,
}

impl NonBlocking {
    /// A buffer for at most `window` (a power of two) serials at a time.
    pub fn new(window: usize) -> Self {
        assert!(window.is_power_of_two(), "the window must be a power of two");
        Self {
            stamps: (0..window).map(|_| AtomicU64::new(0)).collect(),
            turn: CachePadded::new(AtomicU64::new(0)),
            mask: window as u64 - 1,
            #[cfg(test)]
            broken: false,
        }
    }

    /// A buffer that does not wait for predecessors. Checkers of ordered streams must notice it.
    #[cfg(test)]
    pub fn broken(window: usize) -> Self {
        Self { broken: true, ..Self::new(window) }
    }

    /// Starts again with serial 0. No thread is at the buffer; the thread that hands out the next serials publishes it.
    pub fn restart(&self) {
        // ORDERING: Relaxed; see above.
        self.stamps.iter().for_each(|stamp| stamp.store(0, Ordering::Relaxed));
        self.turn.store(0, Ordering::Relaxed);
    }

    /// Declares `serial` complete. It must be below `released() + window`, and is declared only once.
    #[inline]
    fn complete(&self, serial: u64) {
        // ORDERING: Release pairs with the Acquire load in `is_complete`: the releaser sees the batch.
        self.stamps[(serial & self.mask) as usize].store(serial + 1, Ordering::Release);
    }

    /// Releases all completed serials that are next in order. Returns at once if another thread is doing that.
    fn release(&self, deliver: &mut dyn FnMut(u64)) -> usize {
        let mut total = 0;
        loop {
            // ORDERING: Acquire: the owner sees what earlier owners delivered. Release: if BUSY was set, the owner's
            // addition below reads this modification or a later one, and so sees our stamp. Both require a
            // read-modify-write that always writes.
            let turn = self.turn.fetch_or(BUSY, Ordering::AcqRel);
            if turn & BUSY != 0 {
                return total;
            }
            let first = turn >> 1;
            let mut next = first;
            while self.is_complete(next) {
                if planted::has(Fault::UnorderedRelease) && self.is_complete(next + 1) {
                    deliver(next + 1);
                    deliver(next);
                    next += 2;
                    continue;
                }
                deliver(next);
                next += 1;
            }
            // Moves `next` on and clears BUSY in one step.
            // ORDERING: Release publishes what was delivered; Acquire sees the stamps of threads that found BUSY set.
            let step = ((next - first) << 1).wrapping_sub(BUSY);
            self.turn.fetch_add(step, Ordering::AcqRel);
            total += (next - first) as usize;
            if !self.is_complete(next) {
                return total;
            }
        }
    }

    #[inline(always)]
    fn is_complete(&self, serial: u64) -> bool {
        // ORDERING: Acquire pairs with `complete`.
        self.stamps[(serial & self.mask) as usize].load(Ordering::Acquire) == serial + 1
    }

    #[cfg(test)]
    fn release_at_once(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize {
        // ORDERING: AcqRel, as in `release`; this variant only fails to wait for predecessors.
        while self.turn.fetch_or(BUSY, Ordering::AcqRel) & BUSY != 0 {
            crate::threads::sync::thread::yield_now();
        }
        deliver(serial);
        self.turn.fetch_add(1, Ordering::AcqRel);
        1
    }
}

impl ReorderBuffer for NonBlocking {
    #[inline]
    fn released(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release half of the addition in `release`. A thread that sees a serial as
        // released also sees what the threads wrote that completed and released it.
        self.turn.load(Ordering::Acquire) >> 1
    }

    /// If another thread is releasing, returns at once: that thread releases this serial too.
    #[inline]
    fn complete_and_release(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize {
        #[cfg(test)]
        if self.broken {
            return self.release_at_once(serial, deliver);
        }
        self.complete(serial);
        self.release(deliver)
    }
}

/// The buffer for `reorder` = `non_blocking`.
pub fn make(window: usize) -> Box<dyn ReorderBuffer> {
    Box::new(NonBlocking::new(window))
}
