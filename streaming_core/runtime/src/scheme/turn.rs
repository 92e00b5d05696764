//! The monotone counter that lock-ahead schemes ask for their locks by: events ask when it shows their number, so that
//! every queue is in event order (TStream, section II-C).
//!
//! Whoever is free takes the turn, does what must be done in event order for the next event (or several) and passes it
//! on. It never waits for a lock while it has the turn, so that the turn always comes round.

use crate::sync::{AtomicUsize, CachePadded, Ordering};

const TAKEN: usize = 1;

#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Number of the next event << 1 | TAKEN. Written by who has the turn, and by who takes it.
    word: CachePadded<AtomicUsize>,
}

impl Turn {
    /// The number of the event whose turn it is, taken by the caller, if nobody has it and `ready` says so.
    #[inline]
    pub fn take(&self, ready: impl FnOnce(usize) -> bool) -> Option<usize> {
        // ORDERING: Acquire, so that `ready` looks at things as whoever passed the turn left them.
        let word = self.word.load(Ordering::Acquire);
        if word & TAKEN != 0 || !ready(word >> 1) {
            return None;
        }
        // ORDERING: Acquire takes over what is written under the turn from who had it before. The word never comes back
        // to an earlier value, so what was `ready` still is.
        let taken = self.word.compare_exchange(word, word | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(word >> 1)
    }

    /// Gives the turn to event `next`; by who has it.
    #[inline]
    pub fn pass(&self, next: usize) {
        // ORDERING: Release hands on what was written under the turn.
        self.word.store(next << 1, Ordering::Release);
    }

    /// Every event before this one has had its turn; and whether somebody has this one's.
    pub fn look(&self) -> (usize, bool) {
        // ORDERING: Acquire, as in `take`.
        let word = self.word.load(Ordering::Acquire);
        (word >> 1, word & TAKEN != 0)
    }
}
