//! What lock-ahead schemes know about the order of events: whose turn it is to ask, and which events have run.

use crate::threads::sync::{AtomicU64, AtomicUsize, CachePadded, Ordering};

/// The monotone counter: an event asks for its locks when it shows the event's number, so that every queue is in event
/// order (TStream, section II-C).
///
/// Whoever is free takes the turn, does what must be done in event order for the next event (or several) and passes it
/// on. It never waits for anything while it has the turn, so that the turn always comes round.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Number of the next event << 1 | TAKEN. Written by who has the turn, and by who takes it.
    word: CachePadded<AtomicUsize>,
}

const TAKEN: usize = 1;

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
    #[inline]
    pub fn look(&self) -> (usize, bool) {
        // ORDERING: Acquire, as in `take`.
        let word = self.word.load(Ordering::Acquire);
        (word >> 1, word & TAKEN != 0)
    }
}

/// What a thread runs that runs nothing.
const NOTHING: u64 = u64::MAX;

/// How far every thread is with the events it has asked for: all of them have run but for some from a certain one on. The
/// least of these numbers is the run's low-water mark.
#[derive(Debug)]
pub(crate) struct Progress(
    /// Per thread: the first event, by its number in the run, that it has asked for and not run. Written by that thread:
    /// set while it has the turn, then rising.
    Box<[CachePadded<AtomicU64>]>,
);

impl Progress {
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| CachePadded::new(AtomicU64::new(NOTHING))).collect())
    }

    /// The thread, which has the turn of event `number`, begins to ask from there on.
    #[inline]
    pub fn enter(&self, thread: usize, number: u64) {
        // ORDERING: Release, as in `advance`: who waits for this thread's last group may find this number and not the one
        // before.
        self.0[thread].store(number, Ordering::Release);
    }

    /// The thread has run everything it has asked for that stands before event `number`.
    #[inline]
    pub fn advance(&self, thread: usize, number: u64) {
        // ORDERING: Release: what these events have read was read before, and what they wrote is seen.
        self.0[thread].store(number, Ordering::Release);
    }

    /// Of the events that have had their turn, as far as the caller knows, all below this one have run.
    #[inline]
    pub fn low(&self) -> u64 {
        // ORDERING: Acquire, pairs with `advance`.
        self.0.iter().map(|first| first.load(Ordering::Acquire)).min().unwrap_or(NOTHING)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, UnsafeCell, thread};

    #[test]
    fn loom_turns_come_in_order_and_hand_on_what_was_written() {
        loom::model(|| {
            let shared = Arc::new((Turn::default(), UnsafeCell::new(0)));
            let work = |(turn, last): &(Turn, UnsafeCell<usize>)| {
                while turn.look().0 < 3 {
                    let Some(event) = turn.take(|event| event < 3) else {
                        thread::yield_now();
                        continue;
                    };
                    // SAFETY: loom checks that nobody else is at the cell.
                    last.with_mut(|last| unsafe {
                        assert_eq!(*last, event);
                        *last += 1;
                    });
                    turn.pass(event + 1);
                }
            };
            let other = {
                let shared = shared.clone();
                thread::spawn(move || work(&shared))
            };
            work(&shared);
            other.join().unwrap();
        });
    }
}
