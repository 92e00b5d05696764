//! Lock-based reorder buffer, the baseline: one mutex around everything. Who completes a batch waits for the lock, and
//! holds it while it delivers what is next in order.
//!
//! Cost: a lock per batch, and the wait of all other threads while one delivers.
//! Source: Prasaad et al., which compares its non-blocking buffer with one under a lock.

use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// The buffer; see the module.
#[derive(Debug)]
pub struct Locked {
    waiting: CachePadded<Mutex<Waiting>>,
    /// The first unreleased serial. Written under the lock, read without it.
    released: CachePadded<AtomicU64>,
}

#[derive(Debug)]
struct Waiting {
    /// The next serial to be released.
    next: u64,
    /// `is_complete[serial % window]`: completed, not yet released.
    is_complete: Box<[bool]>,
}

impl Locked {
    /// A buffer for at most `window` serials at a time.
    pub fn new(window: usize) -> Self {
        let waiting = Waiting { next: 0, is_complete: (0..window).map(|_| false).collect() };
        Self { waiting: CachePadded::new(Mutex::new(waiting)), released: CachePadded::new(AtomicU64::new(0)) }
    }
}

impl ReorderBuffer for Locked {
    #[inline]
    fn released(&self) -> u64 {
        // ORDERING: Acquire pairs with the store below. A thread that sees a serial as released sees the writes of its
        // releaser and, by way of the lock, of its completer.
        self.released.load(Ordering::Acquire)
    }

    fn complete_and_release(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize {
        let mut waiting = lock(&self.waiting);
        let Waiting { next, is_complete } = &mut *waiting;
        let window = is_complete.len() as u64;
        let place = |serial: u64| (serial % window) as usize;
        debug_assert!(!is_complete[place(serial)] && (*next..*next + window).contains(&serial));
        is_complete[place(serial)] = true;
        let first = *next;
        while std::mem::take(&mut is_complete[place(*next)]) {
            deliver(*next);
            *next += 1;
            // ORDERING: Release publishes what was delivered, and what the completer wrote.
            self.released.store(*next, Ordering::Release);
        }
        (*next - first) as usize
    }
}

/// The buffer for `reorder` = `lock`.
pub fn make(window: usize) -> Box<dyn ReorderBuffer> {
    Box::new(Locked::new(window))
}
