//! Locks on rows with a queue, for `lock` and `pat`: shared for readers, exclusive for writers.
//!
//! The queue of a row consists of four numbers. Transactions insert their locks in event order, so counting is enough. A
//! reader holds its lock when all earlier writers are done. A writer holds its lock when all earlier writers and readers are
//! done. Later readers cannot be done before it, because they wait for it.

use crate::planted::{self, Fault};
use crate::threads::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::transactions::scheme::ahead::requests::Request;

/// The lock of a row. Numbers wrap around, so only close numbers are compared.
#[derive(Debug, Default)]
#[repr(align(16))]
pub(crate) struct RowLock {
    inserted: UnsafeCell<Inserted>,
    /// The number of writers that are done. The writer that holds the lock writes it.
    writers_done: AtomicU32,
    /// The number of readers that are done. All readers that hold the lock add to it.
    readers_done: AtomicU32,
}

/// The numbers of inserted locks.
#[derive(Debug, Clone, Copy, Default)]
struct Inserted {
    writers: u32,
    readers: u32,
}

// SAFETY: only the transaction that may insert locks on the row uses `inserted`; `Counter` passes it on.
unsafe impl Sync for RowLock {}

/// A place in the queue of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockTicket {
    pub row: u32,
    writes: bool,
    /// The number of earlier writers.
    writers: u32,
    /// The number of earlier readers.
    readers: u32,
}

impl RowLock {
    /// Inserts a lock behind all others.
    ///
    /// # Safety
    /// The caller's transaction is the one that may insert locks on this row.
    #[inline]
    pub unsafe fn insert(&self, request: &Request) -> LockTicket {
        self.inserted.with_mut(|inserted| {
            // SAFETY: as the caller says.
            let inserted = unsafe { &mut *inserted };
            let Inserted { writers, readers } = *inserted;
            if request.writes {
                inserted.writers = writers.wrapping_add(1);
            } else {
                inserted.readers = readers.wrapping_add(1);
            }
            LockTicket { row: request.row, writes: request.writes, writers, readers }
        })
    }

    #[inline]
    pub fn is_granted(&self, ticket: &LockTicket) -> bool {
        // ORDERING: Acquire takes over the row from earlier writers; a writer also comes after what earlier readers read.
        self.writers_done.load(Ordering::Acquire) == ticket.writers
            && (!ticket.writes
                || self.readers_done.load(Ordering::Acquire) == ticket.readers
                || planted::has(Fault::LostReader))
    }

    #[inline]
    pub fn release(&self, ticket: &LockTicket) {
        if ticket.writes {
            // ORDERING: Release passes the row on.
            self.writers_done.store(ticket.writers.wrapping_add(1), Ordering::Release);
        } else {
            // ORDERING: Release: the reads come before the next write.
            self.readers_done.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;
    use crate::transactions::scheme::ahead::counter::Counter;

    struct LockModel {
        counter: Counter,
        lock: RowLock,
        row: UnsafeCell<u32>,
    }

    // SAFETY: loom checks the protocol.
    unsafe impl Sync for LockModel {}
    // SAFETY: nothing refers to a thread.
    unsafe impl Send for LockModel {}

    impl LockModel {
        fn work(&self, events: &[bool], me: usize) {
            for event in (me..events.len()).step_by(2) {
                while !self.counter.permits(event as u64) {
                    thread::yield_now();
                }
                // SAFETY: the counter permits it.
                let ticket = unsafe { self.lock.insert(&Request { row: 0, writes: events[event] }) };
                self.counter.advance(event as u64);
                while !self.lock.is_granted(&ticket) {
                    thread::yield_now();
                }
                let earlier = events[..event].iter().filter(|&&writes| writes).count() as u32;
                if ticket.writes {
                    // SAFETY: loom checks that no other thread is at the cell.
                    let before = self.row.with_mut(|row| unsafe { std::mem::replace(&mut *row, earlier + 1) });
                    assert_eq!(before, earlier);
                } else {
                    // SAFETY: loom checks that no thread writes it.
                    assert_eq!(self.row.with(|row| unsafe { *row }), earlier);
                }
                self.lock.release(&ticket);
            }
        }
    }

    /// Events of one row, which two threads take in turn. The cell fails if a write is not alone, or not ordered with the reads
    /// before and after it. Readers must see their version.
    fn model(events: &'static [bool]) {
        interleave(3, move || {
            let shared =
                Arc::new(LockModel { counter: Counter::default(), lock: RowLock::default(), row: UnsafeCell::new(0) });
            let other = {
                let shared = shared.clone();
                thread::spawn(move || shared.work(events, 1))
            };
            shared.work(events, 0);
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_writers_of_a_row_follow_each_other() {
        model(&[true, true, true]);
    }

    #[test]
    fn loom_a_writer_waits_for_a_reader() {
        model(&[false, true, false]);
    }

    #[test]
    fn loom_a_reader_waits_for_a_writer() {
        model(&[true, false, true]);
    }

    /// Two readers hold the lock in two threads. The cell fails if the writer does not wait for both.
    #[test]
    fn loom_a_writer_waits_for_all_earlier_readers() {
        interleave(3, || {
            let shared = Arc::new((RowLock::default(), UnsafeCell::new(0)));
            // SAFETY: no other thread is at the lock yet.
            let tickets = [false, false, true].map(|writes| unsafe { shared.0.insert(&Request { row: 0, writes }) });
            let readers = [tickets[0], tickets[1]].map(|ticket| {
                let shared = shared.clone();
                thread::spawn(move || {
                    assert!(shared.0.is_granted(&ticket));
                    // SAFETY: loom checks that no thread writes it.
                    assert_eq!(shared.1.with(|row| unsafe { *row }), 0);
                    shared.0.release(&ticket);
                })
            });
            while !shared.0.is_granted(&tickets[2]) {
                thread::yield_now();
            }
            // SAFETY: loom checks that no other thread is at the cell.
            shared.1.with_mut(|row| unsafe { *row = 1 });
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }
}
