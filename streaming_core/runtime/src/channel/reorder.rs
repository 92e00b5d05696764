//! Non-blocking reorder buffer: whoever completes a batch may go on at once; batches leave in serial order.
//!
//! Invariant: serials are released 0, 1, 2, ..., each once, one release after the other, each by a worker that sees
//! everything its completer wrote. A completed serial whose predecessors were released is never left behind.
//! Cost: one store and two read-modify-writes a batch. README.md, "Reorder buffer", has the proof.

use crate::sync::{AtomicU64, CachePadded, Ordering};

/// Set in `turn` while somebody releases.
const BUSY: u64 = 1;

/// Serials leave in order, at most `window` of them between the first unreleased and the last completed.
#[derive(Debug)]
pub struct ReorderBuffer {
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

impl ReorderBuffer {
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

    /// All serials below this one have been released.
    #[inline(always)]
    pub fn released(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release half of `release`'s addition: who sees a serial as released sees
        // what its completer and its releaser wrote.
        self.turn.load(Ordering::Acquire) >> 1
    }

    /// Declares `serial` complete; each serial below `released() + window` exactly once.
    #[inline]
    pub fn complete(&self, serial: u64) {
        // ORDERING: Release pairs with the Acquire load in `is_complete`: the releaser sees the batch.
        self.stamps[(serial & self.mask) as usize].store(serial + 1, Ordering::Release);
    }

    /// Completes `serial` and releases what is next in order, unless somebody is at it, who then does it instead.
    ///
    /// `deliver(serial)` is called in order, never by two workers at once; returns how many were delivered here.
    #[inline]
    pub fn complete_and_release(&self, serial: u64, deliver: impl FnMut(u64)) -> usize {
        #[cfg(test)]
        if self.broken {
            return self.release_at_once(serial, deliver);
        }
        self.complete(serial);
        self.release(deliver)
    }

    /// Releases every completed serial that is next in order; returns at once if somebody else is doing that.
    pub fn release(&self, mut deliver: impl FnMut(u64)) -> usize {
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
    fn release_at_once(&self, serial: u64, mut deliver: impl FnMut(u64)) -> usize {
        // ORDERING: AcqRel as in `release`; this variant only forgets to wait for its predecessors.
        while self.turn.fetch_or(BUSY, Ordering::AcqRel) & BUSY != 0 {
            crate::sync::thread::yield_now();
        }
        deliver(serial);
        self.turn.fetch_add(1, Ordering::AcqRel);
        1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// What a consumer of an ordered stream must see: 0, 1, 2, ...
    fn first_out_of_order(delivered: &[u64]) -> Option<usize> {
        (0..delivered.len()).find(|&i| delivered[i] != i as u64)
    }

    proptest! {
        #[test]
        fn any_order_of_completion_leaves_in_serial_order(
            order in Just((0..64_u64).collect::<Vec<_>>()).prop_shuffle(), log in 0_u32..7,
        ) {
            let window = 1_u64 << log;
            let buffer = ReorderBuffer::new(window as usize);
            let (mut waiting, mut delivered) = (order, Vec::new());
            while !waiting.is_empty() {
                let limit = buffer.released() + window;
                let next = waiting.iter().position(|&serial| serial < limit).expect("the first unreleased fits");
                buffer.complete_and_release(waiting.remove(next), |serial| delivered.push(serial));
            }
            prop_assert_eq!(delivered.len(), 64);
            prop_assert_eq!(first_out_of_order(&delivered), None);
        }
    }

    fn run(buffer: &ReorderBuffer, workers: usize, serials: u64, window: u64) -> Vec<u64> {
        let (next, delivered) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        // ORDERING: Relaxed: the counter only hands out numbers.
                        let serial = next.fetch_add(1, Ordering::Relaxed);
                        if serial >= serials {
                            break;
                        }
                        while serial >= buffer.released() + window {
                            std::thread::yield_now();
                        }
                        if serial % 3 == 0 {
                            std::thread::yield_now();
                        }
                        buffer.complete_and_release(serial, |serial| delivered.lock().unwrap().push(serial));
                    }
                });
            }
        });
        delivered.into_inner().unwrap()
    }

    #[test]
    fn many_workers_release_everything_in_order() {
        for workers in [1, 2, 3, 8] {
            let buffer = ReorderBuffer::new(8);
            let delivered = run(&buffer, workers, 20_000, 8);
            assert_eq!((delivered.len(), first_out_of_order(&delivered)), (20_000, None));
            assert_eq!(buffer.released(), 20_000);
        }
    }

    #[test]
    fn the_checker_notices_a_buffer_that_does_not_wait() {
        let buffer = ReorderBuffer::broken(4);
        let mut delivered = Vec::new();
        for serial in [1, 0, 3, 2] {
            buffer.complete_and_release(serial, |serial| delivered.push(serial));
        }
        assert_eq!(first_out_of_order(&delivered), Some(0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::sync::{Arc, UnsafeCell, thread};

    struct Stream {
        buffer: ReorderBuffer,
        /// Written by the completer of the serial, read by its releaser.
        cells: Vec<UnsafeCell<u64>>,
        /// Written by releasers, one at a time.
        delivered: UnsafeCell<Vec<u64>>,
    }

    // SAFETY: the buffer orders all accesses to the cells; loom checks that.
    unsafe impl Sync for Stream {}
    // SAFETY: as above.
    unsafe impl Send for Stream {}

    fn model(build: fn() -> ReorderBuffer, serials: &'static [&'static [u64]]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let total: usize = serials.iter().map(|own| own.len()).sum();
            let stream = Arc::new(Stream {
                buffer: build(),
                cells: (0..total).map(|_| UnsafeCell::new(0)).collect(),
                delivered: UnsafeCell::new(Vec::new()),
            });
            let work = |stream: &Stream, own: &[u64]| {
                for &serial in own {
                    // SAFETY: only the completer touches the cell before it completes the serial.
                    stream.cells[serial as usize].with_mut(|cell| unsafe { *cell = serial + 100 });
                    stream.buffer.complete_and_release(serial, |serial| {
                        // SAFETY: the serial is complete: its cell is written; releasers come one after the other.
                        let value = stream.cells[serial as usize].with(|cell| unsafe { *cell });
                        stream.delivered.with_mut(|delivered| unsafe { (*delivered).push(value) });
                    });
                }
            };
            let threads: Vec<_> = serials[1..]
                .iter()
                .map(|own| {
                    let stream = stream.clone();
                    thread::spawn(move || work(&stream, own))
                })
                .collect();
            work(&stream, serials[0]);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            // Nothing is left behind, though nobody ever waited.
            // SAFETY: all other threads have ended.
            let delivered = stream.delivered.with(|delivered| unsafe { (*delivered).clone() });
            assert_eq!(delivered, (100..100 + total as u64).collect::<Vec<_>>());
        });
    }

    #[test]
    fn two_workers() {
        model(|| ReorderBuffer::new(4), &[&[0, 3], &[1, 2]]);
    }

    #[test]
    fn three_workers() {
        model(|| ReorderBuffer::new(4), &[&[1], &[0], &[2]]);
    }

    #[test]
    #[should_panic]
    fn a_buffer_that_does_not_wait_is_caught() {
        model(|| ReorderBuffer::broken(4), &[&[0], &[1]]);
    }
}
