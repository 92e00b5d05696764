//! A bell per thread: a notification wakes only the threads that can use it, and only while they wait for its kind.
//!
//! The bell belongs to the thread and not to a task. A thread that runs several tasks sleeps only when none of them can go
//! on, and any of them may end that sleep. With a bell per task, it would have to wait for several bells at once.
//!
//! A thread writes what it waits for before it sleeps. So a task that releases a slot does not wake a writer that waits for
//! input. Strategies that never sleep need no bell: `ring` then reads the strategy and returns.

use crate::planted::{self, Fault};
use crate::threads::idle::{Idle, Strategy};
use crate::threads::sync::{AtomicUsize, CachePadded, Ordering, fence};

/// The kinds of changes that a thread may wait for, as a set.
pub type Kinds = usize;

/// Rows or heartbeats from a source.
pub const INPUT: Kinds = 1;
/// Room in an outlet.
pub const ROOM: Kinds = 2;
/// Progress of another replica of a windowed operator.
pub const PEERS: Kinds = 4;

const ANY: Kinds = INPUT | ROOM | PEERS;

/// The bells of a team; see the module.
#[derive(Debug)]
pub struct Bells {
    strategy: Strategy,
    of: Box<[Bell]>,
}

#[derive(Debug)]
struct Bell {
    idle: Idle,
    /// What the thread waits for, or waited for last. The thread writes it.
    awaited: CachePadded<AtomicUsize>,
}

impl Bells {
    /// For `threads` threads on `cores` cores.
    pub fn new(strategy: Strategy, threads: usize, cores: usize) -> Self {
        let bell =
            |_| Bell { idle: Idle::new(strategy, threads, cores), awaited: CachePadded::new(AtomicUsize::new(0)) };
        Self { strategy, of: (0..threads).map(bell).collect() }
    }

    /// Returns once `ready` does, which only changes of these kinds can achieve. For thread `thread`.
    pub fn wait(&self, thread: usize, kinds: Kinds, ready: impl FnMut() -> bool) {
        let bell = &self.of[thread];
        // ORDERING: Relaxed; the fences in `Idle::sleep` and `ring` order it, as they order the count of sleepers.
        bell.awaited.store(kinds, Ordering::Relaxed);
        bell.idle.wait(ready);
    }

    /// After changes: wakes the threads of each change, if they wait for one of its kinds.
    #[inline]
    pub fn ring(&self, changes: &[(&[usize], Kinds)]) {
        if self.strategy == Strategy::Park {
            self.ring_some(
                changes.iter().flat_map(|&(threads, kinds)| threads.iter().map(move |&thread| (thread, kinds))),
            );
        }
    }

    /// Wakes all threads, whatever they wait for.
    pub fn ring_all(&self) {
        if self.strategy == Strategy::Park {
            self.ring_some((0..self.of.len()).map(|thread| (thread, ANY)));
        }
    }

    fn ring_some(&self, changes: impl Iterator<Item = (usize, Kinds)>) {
        // ORDERING: SeqCst fence, paired with the one in `Idle::sleep`. Either the sleeper sees the change, or this thread
        // sees the sleeper and what it waits for, which it wrote before.
        fence(Ordering::SeqCst);
        for (thread, kinds) in changes {
            let bell = &self.of[thread];
            // ORDERING: Relaxed, ordered by the fence.
            let kinds = if planted::has(Fault::LostBell) { kinds & !ROOM } else { kinds };
            if bell.awaited.load(Ordering::Relaxed) & kinds != 0 {
                bell.idle.wake();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::threads::sync::{Arc, AtomicBool, thread};

    #[test]
    fn a_ring_wakes_the_thread_with_every_strategy() {
        for strategy in [Strategy::Spin, Strategy::Yield, Strategy::Park] {
            let shared = Arc::new((Bells::new(strategy, 2, 2), AtomicBool::new(false)));
            let waiter = {
                let shared = shared.clone();
                thread::spawn(move || shared.0.wait(1, ROOM, || shared.1.load(Ordering::Acquire)))
            };
            shared.1.store(true, Ordering::Release);
            shared.0.ring(&[(&[1], ROOM)]);
            waiter.join().unwrap();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, AtomicBool, thread};
    use crate::threads::testing::interleave;

    /// Two threads wait one after the other for a change of different kinds, and each change rings one bell. Loom reports a
    /// deadlock if a thread sleeps on after its change.
    #[test]
    fn loom_no_ring_is_lost() {
        interleave(3, || {
            let shared = Arc::new((Bells::new(Strategy::Park, 2, 2), [AtomicBool::new(false), AtomicBool::new(false)]));
            let waiter = {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (bells, [input, room]) = &*shared;
                    bells.wait(1, INPUT, || input.load(Ordering::Acquire));
                    room.store(true, Ordering::Release);
                    bells.ring(&[(&[0], ROOM)]);
                    // What it waited for first must not hide what it waits for now.
                    bells.wait(1, ROOM, || !room.load(Ordering::Acquire));
                })
            };
            let (bells, [input, room]) = &*shared;
            input.store(true, Ordering::Release);
            bells.ring(&[(&[1], INPUT)]);
            bells.wait(0, ROOM, || room.load(Ordering::Acquire));
            room.store(false, Ordering::Release);
            bells.ring(&[(&[1], ROOM)]);
            waiter.join().unwrap();
        });
    }

    /// A thread that waits for either of two kinds is woken by a change of one of them, which another thread makes.
    #[test]
    fn loom_a_thread_that_waits_for_several_kinds_is_woken_by_each() {
        interleave(3, || {
            let shared = Arc::new((Bells::new(Strategy::Park, 3, 3), [AtomicBool::new(false), AtomicBool::new(false)]));
            let waker = |kind: usize| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1[kind - 1].store(true, Ordering::Release);
                    shared.0.ring(&[(&[0], kind)]);
                })
            };
            let threads = [waker(INPUT), waker(ROOM)];
            let (bells, changes) = &*shared;
            for _ in 0..2 {
                let mut seen = None;
                bells.wait(0, INPUT | ROOM, || {
                    seen = changes.iter().position(|change| change.load(Ordering::Acquire));
                    seen.is_some()
                });
                changes[seen.unwrap()].store(false, Ordering::Relaxed);
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
