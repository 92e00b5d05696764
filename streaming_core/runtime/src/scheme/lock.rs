//! `lock`: strict two-phase locking with ordered lock-ahead (TStream, sections II-C and VI-A). An event asks for the locks
//! of all of its rows when it is its turn, shared where it only reads and exclusive where it may write, runs when all are
//! granted, and holds them to its end, also when it is rejected.
//!
//! A row's queue is a pair of tickets: locks are asked for in event order, so it is enough to count them. A reader is
//! granted when all writers before it are done, a writer when all readers before it are, too. Rows of any kind can be
//! guarded so: nothing but the row itself is ever read or written.

use std::ops::Range;

use super::ahead::{Group, Guard};
use super::requests::{Holds, Request, Requests, number_rows, writes};
use super::{Scheme, ahead};
use crate::kernel::{Access, RunError};
use crate::program::{Options, Program};
use crate::sync::{AtomicU32, Ordering, UnsafeCell};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let (starts, rows) = number_rows(&program.tables);
    let guard = Lock { starts, queues: (0..rows).map(|_| Queue::default()).collect() };
    Ok(ahead::make(guard, program, options))
}

struct Lock {
    /// Number of the first row of each table.
    starts: Vec<usize>,
    queues: Box<[Queue]>,
}

/// A row's lock. Numbers wrap around: they are compared with numbers not far away.
#[derive(Debug, Default)]
struct Queue {
    /// Locks asked for so far; read and written by who has the turn.
    asked: UnsafeCell<Counts>,
    /// Locks given back; written by the writer who holds the row.
    writes: AtomicU32,
    /// By readers who hold it.
    reads: AtomicU32,
}

// SAFETY: `asked` is used under the turn only, which is handed on with Release and taken with Acquire.
unsafe impl Sync for Queue {}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    writes: u32,
    reads: u32,
}

/// A place in a queue: the counts of those before it.
#[derive(Debug, Clone, Copy)]
struct Ticket {
    before: Counts,
    writes: bool,
}

impl Queue {
    /// The next place.
    ///
    /// # Safety
    /// The caller has the turn.
    #[inline]
    unsafe fn ask(&self, writes: bool) -> Ticket {
        self.asked.with_mut(|asked| {
            // SAFETY: as the caller says.
            let asked = unsafe { &mut *asked };
            let before = *asked;
            asked.writes = before.writes.wrapping_add(u32::from(writes));
            asked.reads = before.reads.wrapping_add(u32::from(!writes));
            Ticket { before, writes }
        })
    }

    #[inline]
    fn is_granted(&self, ticket: &Ticket) -> bool {
        // ORDERING: Acquire takes over the row from the writers before.
        let written = self.writes.load(Ordering::Acquire) == ticket.before.writes;
        // ORDERING: Acquire takes over the row from all readers before: their additions are one release sequence. Readers
        // behind a writer are not granted before it is done, so those counted are those before.
        written && (!ticket.writes || self.reads.load(Ordering::Acquire) == ticket.before.reads)
    }

    #[inline]
    fn release(&self, ticket: &Ticket) {
        if ticket.writes {
            // ORDERING: Release hands the row on. Only the writer who holds the row writes the word.
            self.writes.store(ticket.before.writes.wrapping_add(1), Ordering::Release);
        } else {
            // ORDERING: Release hands the row on.
            self.reads.fetch_add(1, Ordering::Release);
        }
    }
}

impl Guard for Lock {
    type Plan = Requests;
    /// Numbers of rows, and the places in their queues.
    type Held = Holds<(u32, Ticket)>;
    const GROUP: usize = 8;

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
    fn request(&self, plan: &Requests, events: Range<usize>, _thread: usize, _number: u64, held: &mut Self::Held) {
        held.take(plan, events, |request| {
            // SAFETY: the caller has the turn.
            (request.subject, unsafe { self.queues[request.subject as usize].ask(request.writes) })
        });
    }

    #[inline]
    fn is_granted(&self, held: &Self::Held, index: usize) -> bool {
        held.of(index..index + 1).iter().all(|(row, ticket)| self.queues[*row as usize].is_granted(ticket))
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
        for (row, ticket) in held.of(events) {
            self.queues[*row as usize].release(ticket);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::scheme::turn::Turn;
    use crate::sync::{Arc, thread};

    /// Events of one row, each taken by whichever of two threads has the turn: loom's cell fails if a write is not alone
    /// or not ordered with the reads before and behind it, and readers must see what is theirs.
    fn model(events: &'static [bool]) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let shared = Arc::new((Turn::default(), Queue::default(), UnsafeCell::new(0)));
            let work = move |shared: &(Turn, Queue, UnsafeCell<usize>)| {
                let (turn, queue, row) = shared;
                while let Some(event) = turn.take(|event| event < events.len()) {
                    // SAFETY: taken.
                    let ticket = unsafe { queue.ask(events[event]) };
                    turn.pass(event + 1);
                    while !queue.is_granted(&ticket) {
                        thread::yield_now();
                    }
                    let earlier = events[..event].iter().filter(|&&writes| writes).count();
                    if ticket.writes {
                        // SAFETY: loom checks that nobody else is at the cell.
                        let before = row.with_mut(|row| unsafe { std::mem::replace(&mut *row, earlier + 1) });
                        assert_eq!(before, earlier);
                    } else {
                        // SAFETY: loom checks that nobody writes it.
                        assert_eq!(row.with(|row| unsafe { *row }), earlier);
                    }
                    queue.release(&ticket);
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

    #[test]
    fn loom_writers_of_a_row_follow_each_other() {
        model(&[true, true, true]);
    }

    #[test]
    fn loom_readers_wait_for_writers_and_writers_for_readers() {
        model(&[true, false, false, true]);
    }
}
