//! The order of events in lock-ahead schemes: whose turn it is to make requests, and which events have run.

use crate::threads::sync::{AtomicU64, AtomicUsize, CachePadded, Ordering};

/// The monotone counter. An event requests its locks when the counter shows the event's number, so every queue is in event
/// order (TStream, section II-C).
///
/// A free thread takes the turn, does the ordered work for the next event (or several), and passes the turn on. It never
/// waits while it has the turn, so the turn always moves on.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Number of the next event << 1 | TAKEN. The thread that has the turn writes it, and the one that takes the turn.
    word: CachePadded<AtomicUsize>,
}

const TAKEN: usize = 1;

impl Turn {
    /// Takes the turn, if no thread has it and `ready` agrees. Returns the number of the event whose turn it is.
    #[inline]
    pub fn take(&self, ready: impl FnOnce(usize) -> bool) -> Option<usize> {
        // ORDERING: Acquire, so that `ready` sees what the thread that passed on the turn wrote.
        let word = self.word.load(Ordering::Acquire);
        if word & TAKEN != 0 || !ready(word >> 1) {
            return None;
        }
        // ORDERING: Acquire takes over what the thread wrote that had the turn before. The word never returns to an earlier
        // value, so `ready` still holds.
        let taken = self.word.compare_exchange(word, word | TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then_some(word >> 1)
    }

    /// Passes the turn to event `next`. The calling thread has the turn.
    #[inline]
    pub fn pass(&self, next: usize) {
        // ORDERING: Release passes on what was written under the turn.
        self.word.store(next << 1, Ordering::Release);
    }

    /// The event whose turn it is (all earlier ones had theirs), and whether a thread has the turn.
    #[inline]
    pub fn look(&self) -> (usize, bool) {
        // ORDERING: Acquire, as in `take`.
        let word = self.word.load(Ordering::Acquire);
        (word >> 1, word & TAKEN != 0)
    }
}

/// The number of a thread without events to run.
const NOTHING: u64 = u64::MAX;

/// The progress of every thread: all of its requested events below a number have run. The least of these numbers is the
/// low-water mark of the run.
#[derive(Debug)]
pub(crate) struct Progress(
    /// Per thread, the number in the run of the first event that it has requested for and not run. That thread writes it: it
    /// sets the number while it has the turn, and then raises it.
    Box<[CachePadded<AtomicU64>]>,
);

impl Progress {
    pub fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| CachePadded::new(AtomicU64::new(NOTHING))).collect())
    }

    /// The thread, which has the turn of event `number`, starts its requests there.
    #[inline]
    pub fn enter(&self, thread: usize, number: u64) {
        // ORDERING: Release, as in `advance`: a thread that waits for this thread's last group may find this number instead
        // of the one before.
        self.0[thread].store(number, Ordering::Release);
    }

    /// Declares that the thread has run all its requested events before event `number`.
    #[inline]
    pub fn advance(&self, thread: usize, number: u64) {
        // ORDERING: Release: the reads of these events come before, and their writes are visible.
        self.0[thread].store(number, Ordering::Release);
    }

    /// The low-water mark: of the events that had their turn, as far as the caller knows, all below it have run.
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
                    // SAFETY: loom checks that no other thread is at the cell.
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
