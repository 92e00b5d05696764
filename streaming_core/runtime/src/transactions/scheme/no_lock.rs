//! `no_lock`: `lock` without locks, and so without the counter that orders their insertion (TStream, section VI-B). It is a
//! bound on the throughput of `lock`, `mvlk` and `pat`, not a result: transactions interleave in any way. `tstream` and `owners`
//! order accesses without locks, so they can be faster.
//!
//! **Tables without containers** need no protection to be memory-safe. Kernels compute addresses from row numbers alone, and
//! never from the content of a row. So a race can only make values stale or torn. The racing accesses are those of compiled
//! kernels, outside of Rust's memory model: plain loads and stores of up to eight bytes.
//!
//! **Tables with containers**, such as those of TP, hold addresses and lengths. A torn address could point anywhere. So a
//! thread holds a latch of the row while it accesses the row. A latch is no lock of the scheme: it orders no events, and a
//! thread releases it before it takes the next. Its time is part of the bound, and the result stays wrong.
//!
//! A latch is enough, because an access touches one row: reads and captures are copies of bytes, without the entries of
//! containers. There is no deadlock, because a thread holds at most one latch, and a kernel waits for nothing.

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::threads::sync::{AtomicBool, CachePadded, Ordering, hint, thread};
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::{Event, Guard};

/// The most latches, a power of two. Rows share them, which is safe because a thread holds at most one.
const LATCHES: usize = 4096;
/// Attempts to take a latch before the thread lets another one of its core run.
const SPINS: u32 = 64;

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let containers: Vec<bool> = program.tables.iter().map(|table| table.containers).collect();
    let rows = program.tables.iter().filter(|table| table.containers).map(|table| table.rows).max().unwrap_or(0);
    let latches = (0..LATCHES.min(rows.next_power_of_two())).map(|_| CachePadded::default()).collect();
    Ok(ahead::make(NoLock { containers, latches }, program, options))
}

struct NoLock {
    /// Whether the rows of each table hold containers.
    containers: Vec<bool>,
    latches: Box<[CachePadded<Latch>]>,
}

/// Keeps other threads from the containers of some rows.
#[derive(Debug, Default)]
struct Latch(AtomicBool);

/// Releases the latch, also if the kernel fails.
struct Held<'a>(&'a Latch);

impl Latch {
    #[inline]
    fn hold(&self) -> Held<'_> {
        let mut spins = 0;
        // ORDERING: Acquire takes over the containers from the thread that held the latch before; Relaxed on failure, because
        // nothing is read then.
        while self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            loop {
                spins += 1;
                // The holder may have lost its core.
                if spins % SPINS == 0 {
                    thread::yield_now()
                } else {
                    hint::spin_loop()
                }
                // ORDERING: Relaxed; the exchange takes the latch. In a model the load may return the old value again and again.
                if cfg!(loom) || !self.0.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // ORDERING: Release passes the containers on.
        self.0.0.store(false, Ordering::Release);
    }
}

impl NoLock {
    /// The latch of an access to a container; None if the row has none.
    #[inline]
    fn latch(&self, access: &Access) -> Option<usize> {
        self.containers[usize::from(access.table)].then_some(access.row as usize & (self.latches.len() - 1))
    }

    /// How many of these accesses to apply at once, and the latch to hold meanwhile: all up to the first one that needs
    /// another latch.
    #[inline]
    fn run(&self, accesses: &[Access]) -> (usize, Option<usize>) {
        let mut needed = None;
        let other = |access: &Access| match self.latch(access) {
            Some(latch) => *needed.get_or_insert(latch) != latch,
            None => false,
        };
        let end = accesses.iter().position(other).unwrap_or(accesses.len());
        (end, needed)
    }
}

impl Guard for NoLock {
    type Held = ();

    fn held(&self) {}

    fn collect(&self, _event: &Event, _held: &mut ()) {}

    fn is_permitted(&self, _event: &Event, _held: &()) -> bool {
        true
    }

    fn insert(&self, _event: &Event, _held: &mut ()) {}

    fn is_granted(&self, _held: &()) -> bool {
        true
    }

    #[inline]
    unsafe fn apply(&self, event: &Event, _held: &mut ()) -> Result<(), RunError> {
        let mut left = event.accesses;
        while !left.is_empty() {
            let (end, latch) = self.run(left);
            let _latch = latch.map(|latch| self.latches[latch].hold());
            // SAFETY: the event is this thread's, and its accesses are in program order. The latch keeps other threads from the
            // containers of these rows. The head of this file says why other races on rows are harmless.
            unsafe { event.apply(&left[..end], event.run.tables.bases())? };
            left = &left[end..];
        }
        Ok(())
    }

    fn release(&self, _held: &()) {}
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn scheme() -> NoLock {
        NoLock { containers: vec![false, true, true], latches: (0..8).map(|_| CachePadded::default()).collect() }
    }

    fn access(table: u8, row: u32) -> Access {
        Access { table, row, ..Access::default() }
    }

    #[test]
    fn a_run_ends_before_the_first_access_that_needs_another_latch() {
        let scheme = scheme();
        assert_eq!(scheme.run(&[access(0, 1), access(0, 2)]), (2, None));
        let accesses = [access(0, 1), access(1, 5), access(0, 2), access(2, 13), access(2, 6), access(0, 3)];
        assert_eq!(scheme.run(&accesses), (4, Some(5)));
        assert_eq!(scheme.run(&accesses[4..]), (2, Some(6)));
    }

    #[test]
    fn a_held_latch_keeps_others_out_and_is_released_with_its_guard() {
        let latch = Latch::default();
        let held = latch.hold();
        assert!(latch.0.load(Ordering::Relaxed));
        drop(held);
        assert!(!latch.0.load(Ordering::Relaxed));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, UnsafeCell};
    use crate::threads::testing::interleave;

    struct Row {
        latch: Latch,
        content: UnsafeCell<u32>,
    }

    // SAFETY: loom checks that the latch protects the content.
    unsafe impl Sync for Row {}
    // SAFETY: nothing refers to a thread.
    unsafe impl Send for Row {}

    #[test]
    fn loom_a_latch_admits_one_thread_at_a_time() {
        interleave(3, || {
            let row = Arc::new(Row { latch: Latch::default(), content: UnsafeCell::new(0) });
            let add = |row: &Row| {
                let _held = row.latch.hold();
                // SAFETY: loom checks that no other thread is at the cell.
                row.content.with_mut(|content| unsafe { *content += 1 });
            };
            let other = {
                let row = row.clone();
                thread::spawn(move || add(&row))
            };
            add(&row);
            other.join().unwrap();
            // SAFETY: the other thread has ended.
            assert_eq!(row.content.with(|content| unsafe { *content }), 2);
        });
    }
}
