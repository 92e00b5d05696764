//! `lock`: strict two-phase locking with ordered lock-ahead (TStream, sections II-C and VI-A).
//!
//! At its turn, an event requests the locks of all of its rows. It requests shared locks for rows that it only reads, and
//! exclusive locks for rows that it may write. It runs when it holds all of them, and keeps them to its end, even if it is rejected.
//!
//! The queue of a row is a pair of numbers: requests come in event order, so counting is enough. A reader gets the lock when
//! all earlier writers are done. A writer gets it when all earlier readers are done too. Writers count themselves off at the
//! row. For readers, such a write would cost more than the read. So the row remembers only its last reader. A writer that
//! finds that this reader may still be reading waits until every thread has run past it. So readers return a group of locks
//! with one number. This guards rows of any kind, because it reads and writes only the row itself.

use std::ops::Range;

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::threads::sync::{AtomicU32, Ordering, UnsafeCell};
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::requests::{Holds, Request, Requests, number_rows, prefetch, writes};
use crate::transactions::scheme::ahead::turn::Progress;
use crate::transactions::scheme::ahead::{Group, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let (starts, rows) = number_rows(&program.tables)?;
    let queues = (0..rows).map(|_| RowLock::default()).collect();
    Ok(ahead::make(Lock { starts, queues, progress: Progress::new(options.threads) }, program, options))
}

struct Lock {
    /// The number of the first row of each table.
    starts: Vec<usize>,
    queues: Box<[RowLock]>,
    progress: Progress,
}

/// A row's lock.
#[derive(Debug, Default)]
struct RowLock {
    asked: UnsafeCell<LockState>,
    /// The number of finished writers; the writer that holds the row writes it. It wraps around, so only close numbers are
    /// compared.
    done: AtomicU32,
}

/// The thread with the turn reads and writes this.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, packed(4))]
struct LockState {
    /// One more than the number, in the run, of the last event that reads the row; 0: none did.
    read: u64,
    /// The number of writers that have made a request.
    writers: u32,
}

// SAFETY: only the thread with the turn uses `asked`; the turn is passed on with Release and taken with Acquire.
unsafe impl Sync for RowLock {}

/// A place in a queue.
#[derive(Debug, Clone, Copy)]
struct LockTicket {
    row: u32,
    /// The number of earlier writers.
    writers: u32,
    /// For a writer: all events before this number must be done first; 0: all earlier readers are known to be done.
    read: u64,
    writes: bool,
}

impl RowLock {
    /// The next place, for event `number`. All events below `low` have run.
    ///
    /// # Safety
    /// The caller has the turn.
    #[inline]
    unsafe fn ask(&self, request: &Request, number: u64, low: u64) -> LockTicket {
        self.asked.with_mut(|asked| {
            // SAFETY: as the caller says.
            let asked = unsafe { &mut *asked };
            let LockState { read, writers } = *asked;
            let writes = request.writes;
            if writes {
                asked.writers = writers.wrapping_add(1);
            } else {
                asked.read = number + 1;
            }
            LockTicket { row: request.subject, writers, read: if writes && read > low { read } else { 0 }, writes }
        })
    }

    #[inline]
    fn is_granted(&self, ticket: &LockTicket, progress: &Progress) -> bool {
        // ORDERING: Acquire takes over the row from earlier writers. `Progress` orders its readers.
        self.done.load(Ordering::Acquire) == ticket.writers && (ticket.read == 0 || progress.low() >= ticket.read)
    }

    #[inline]
    fn release(&self, ticket: &LockTicket) {
        if ticket.writes {
            // ORDERING: Release passes the row on.
            self.done.store(ticket.writers.wrapping_add(1), Ordering::Release);
        }
    }
}

impl Guard for Lock {
    type Plan = Requests;
    type Held = Holds<LockTicket>;
    const GROUP: usize = 16;

    fn held(&self) -> Self::Held {
        Holds::new()
    }

    fn plan(&self, accesses: &[Access], events: usize, plan: &mut Requests) {
        plan.collect(accesses, events, |access| {
            let row = self.starts[usize::from(access.table)] + access.row as usize;
            Request { subject: row as u32, writes: writes(access) }
        });
    }

    #[inline]
    fn request(&self, plan: &Requests, events: Range<usize>, thread: usize, number: u64, held: &mut Self::Held) {
        for request in plan.of(events.clone()) {
            prefetch(&raw const self.queues[request.subject as usize]);
        }
        self.progress.enter(thread, number);
        let low = self.progress.low();
        held.take(plan, events, |event, request| {
            // SAFETY: the caller has the turn.
            unsafe { self.queues[request.subject as usize].ask(request, number + event, low) }
        });
    }

    #[inline]
    fn is_granted(&self, held: &Self::Held, index: usize) -> bool {
        let mut tickets = held.of(index..index + 1).iter();
        tickets.all(|ticket| self.queues[ticket.row as usize].is_granted(ticket, &self.progress))
    }

    #[inline]
    unsafe fn apply(
        &self,
        group: &Group<Requests>,
        events: Range<usize>,
        _held: &mut Self::Held,
    ) -> Result<(), RunError> {
        let accesses = &group.accesses[group.plan.accesses(events)];
        // SAFETY: all rows of these events are locked by this thread.
        unsafe { group.apply(accesses, group.run.tables.bases()) }
    }

    #[inline]
    fn release(&self, held: &Self::Held, events: Range<usize>) {
        for ticket in held.of(events) {
            self.queues[ticket.row as usize].release(ticket);
        }
    }

    #[inline]
    fn advance(&self, thread: usize, number: u64) {
        self.progress.advance(thread, number);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::transactions::scheme::ahead::turn::Turn;

    struct LockModel {
        turn: Turn,
        queue: RowLock,
        progress: Progress,
        row: UnsafeCell<u32>,
    }

    // SAFETY: loom checks the protocol.
    unsafe impl Sync for LockModel {}
    // SAFETY: nothing refers to a thread.
    unsafe impl Send for LockModel {}

    impl LockModel {
        fn work(&self, events: &[bool], me: usize) {
            while self.turn.look().0 < events.len() {
                let Some(event) = self.turn.take(|event| event < events.len()) else {
                    thread::yield_now();
                    continue;
                };
                self.progress.enter(me, event as u64);
                let request = Request { subject: 0, writes: events[event] };
                // SAFETY: it is the event's turn.
                let ticket = unsafe { self.queue.ask(&request, event as u64, self.progress.low()) };
                self.turn.pass(event + 1);
                while !self.queue.is_granted(&ticket, &self.progress) {
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
                self.queue.release(&ticket);
                self.progress.advance(me, u64::MAX);
            }
        }
    }

    /// Events of one row; of two threads, the one with the turn takes the next event. The cell fails if a write is not
    /// alone, or not ordered with the reads before and after it. Readers must see their version.
    fn model(events: &'static [bool]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = Arc::new(LockModel {
                turn: Turn::default(),
                queue: RowLock::default(),
                progress: Progress::new(2),
                row: UnsafeCell::new(0),
            });
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
    fn loom_writers_wait_for_readers() {
        model(&[false, true, false]);
    }

    #[test]
    fn loom_readers_wait_for_writers() {
        model(&[true, false, true]);
    }
}
