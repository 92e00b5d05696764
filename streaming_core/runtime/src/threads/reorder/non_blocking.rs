//! Non-blocking reorder buffer: whoever completes a batch may go on at once; batches leave in serial order.
//!
//! Invariant: a completed serial whose predecessors were released is never left behind.
//! Cost: one store and two read-modify-writes a batch. README.md, "Reorder buffers", has the proof.
//! Source: Prasaad et al., the non-blocking reorder buffer for what concurrent workers put out.

use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// Set in `turn` while somebody releases.
const BUSY: u64 = 1;

/// The buffer; see the module.
#[derive(Debug)]
pub struct NonBlocking {
    /// `stamps[serial % window]` = serial + 1 once completed. Written by whoever completes that serial, read by
    /// whoever releases.
    stamps: Box<[AtomicU64]>,
    /// `next << 1 | busy`. BUSY is set by whoever wants to release; who set it first owns `next` until it clears it.
    turn: CachePadded<AtomicU64>,
    mask: u64,
    /// How far ahead the release looks; 0 in production. A broken buffer for tests releases whatever is there.
    #[cfg(test)]
    broken: bool,
}

impl NonBlocking {
    /// A buffer for at most `window` (a power of two) serials at a time.
    pub fn new(window: usize) -> Self {
        assert!(window.is_power_of_two(), "a window is a power of two");
        Self {
            stamps: (0..window).map(|_| AtomicU64::new(0)).collect(),
            turn: CachePadded::new(AtomicU64::new(0)),
            mask: window as u64 - 1,
            #[cfg(test)]
            broken: false,
        }
    }

    /// A buffer that does not wait for predecessors: what the checkers of ordered streams must notice.
    #[cfg(test)]
    pub fn broken(window: usize) -> Self {
        Self { broken: true, ..Self::new(window) }
    }

    /// Begins anew with serial 0, when nobody is at it; who hands out the next serials publishes it.
    pub fn restart(&self) {
        // ORDERING: Relaxed, as said.
        self.stamps.iter().for_each(|stamp| stamp.store(0, Ordering::Relaxed));
        self.turn.store(0, Ordering::Relaxed);
    }

    /// Declares `serial` complete; each serial below `released() + window` exactly once.
    #[inline]
    fn complete(&self, serial: u64) {
        // ORDERING: Release pairs with the Acquire load in `is_complete`: the releaser sees the batch.
        self.stamps[(serial & self.mask) as usize].store(serial + 1, Ordering::Release);
    }

    /// Releases every completed serial that is next in order; returns at once if somebody else is doing that.
    fn release(&self, deliver: &mut dyn FnMut(u64)) -> usize {
        let mut total = 0;
        loop {
            // ORDERING: Acquire: the owner sees what earlier owners delivered. Release: if BUSY was set, the owner's
            // addition below reads this very modification (or a later one), and thereby sees our stamp. Both need
            // this to be a read-modify-write that always writes.
            let turn = self.turn.fetch_or(BUSY, Ordering::AcqRel);
            if turn & BUSY != 0 {
                return total;
            }
            let first = turn >> 1;
            let mut next = first;
            while self.is_complete(next) {
                deliver(next);
                next += 1;
            }
            // Moves `next` on and clears BUSY in one step.
            // ORDERING: Release publishes what was delivered; Acquire sees the stamps of those who found BUSY set.
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
        // ORDERING: AcqRel as in `release`; this variant only forgets to wait for its predecessors.
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
        // ORDERING: Acquire pairs with the Release half of `release`'s addition: who sees a serial as released sees
        // what its completer and its releaser wrote.
        self.turn.load(Ordering::Acquire) >> 1
    }

    /// If somebody is at releasing, returns at once: who is will do this one, too.
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
