//! `pat`: partition counters, as in S-Store (TStream, section VI-A).
//!
//! Every table is cut into the same number of equal ranges of rows; the last range takes the rest. At its turn, an event
//! queues on the counters of all partitions that it touches. It runs when it is first on all of them, and then leaves them.
//! Partitions of different tables with the same number share a counter, as one site would store them.
//!
//! The number of partitions belongs to the program and not to the threads. Generators draw keys by partition, and a run must
//! not depend on the thread that executes it.

use std::ops::Range;

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::threads::sync::{AtomicU32, CachePadded, Ordering, UnsafeCell};
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::requests::{Holds, Request, Requests, writes};
use crate::transactions::scheme::ahead::{Group, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let most = program.tables.iter().map(|table| table.rows).max().unwrap_or(1);
    let partitions = program.partitions.min(most).max(1);
    let guard = Pat {
        // A table of fewer rows than partitions has a partition per row.
        sizes: program.tables.iter().map(|table| (table.rows / partitions).max(1) as u32).collect(),
        counters: (0..partitions).map(|_| CachePadded::default()).collect(),
    };
    Ok(ahead::make(guard, program, options))
}

struct Pat {
    /// The number of rows in a partition of each table.
    sizes: Vec<u32>,
    counters: Box<[CachePadded<Counter>]>,
}

/// The counters of a partition. They wrap around, so only close numbers are compared.
#[derive(Debug, Default)]
struct Counter {
    /// The number of queued events; the thread with the turn reads and writes it.
    queued: UnsafeCell<u32>,
    /// The number of events that have left; the first event in the queue writes it.
    left: AtomicU32,
}

// SAFETY: only the thread with the turn uses `queued`; the turn is passed on with Release and taken with Acquire.
unsafe impl Sync for Counter {}

impl Counter {
    /// The number of events before the caller's.
    ///
    /// # Safety
    /// The caller has the turn.
    #[inline]
    unsafe fn queue(&self) -> u32 {
        self.queued.with_mut(|queued| {
            // SAFETY: as the caller says.
            unsafe {
                let before = *queued;
                *queued = before.wrapping_add(1);
                before
            }
        })
    }

    #[inline]
    fn is_first(&self, before: u32) -> bool {
        // ORDERING: Acquire takes over the partition from the event that left last.
        self.left.load(Ordering::Acquire) == before
    }

    #[inline]
    fn leave(&self, before: u32) {
        // ORDERING: Release passes the partition on.
        self.left.store(before.wrapping_add(1), Ordering::Release);
    }
}

impl Guard for Pat {
    type Plan = Requests;
    /// Numbers of partitions, and of the events before on their counters.
    type Held = Holds<(u32, u32)>;
    const GROUP: usize = 8;

    fn held(&self) -> Self::Held {
        Holds::new()
    }

    fn plan(&self, accesses: &[Access], events: usize, plan: &mut Requests) {
        let last = self.counters.len() as u32 - 1;
        plan.collect(accesses, events, |access| {
            let partition = (access.row / self.sizes[usize::from(access.table)]).min(last);
            Request { subject: partition, writes: writes(access) }
        });
    }

    #[inline]
    fn request(&self, plan: &Requests, events: Range<usize>, _thread: usize, _number: u64, held: &mut Self::Held) {
        held.take(plan, events, |_, request| {
            // SAFETY: the caller has the turn.
            (request.subject, unsafe { self.counters[request.subject as usize].queue() })
        });
    }

    #[inline]
    fn is_granted(&self, held: &Self::Held, index: usize) -> bool {
        let mut wanted = held.of(index..index + 1).iter();
        wanted.all(|(partition, before)| self.counters[*partition as usize].is_first(*before))
    }

    #[inline]
    unsafe fn apply(
        &self,
        group: &Group<Requests>,
        events: Range<usize>,
        _held: &mut Self::Held,
    ) -> Result<(), RunError> {
        let accesses = &group.accesses[group.plan.accesses(events)];
        // SAFETY: this thread is first on all partitions of these events.
        unsafe { group.apply(accesses, group.run.tables.bases()) }
    }

    #[inline]
    fn release(&self, held: &Self::Held, events: Range<usize>) {
        for (partition, before) in held.of(events) {
            self.counters[*partition as usize].leave(*before);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::transactions::scheme::ahead::turn::Turn;

    /// Events of one or two partitions; of two threads, the one with the turn takes the next event. The cells fail unless
    /// an event is alone on its partitions.
    #[test]
    fn loom_an_event_is_alone_on_its_partitions() {
        const EVENTS: [&[usize]; 3] = [&[0], &[0, 1], &[1]];
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let partition = || (Counter::default(), UnsafeCell::new(0));
            let shared = Arc::new((Turn::default(), [partition(), partition()]));
            let work = |shared: &(Turn, [(Counter, UnsafeCell<usize>); 2])| {
                let (turn, partitions) = shared;
                while turn.look().0 < EVENTS.len() {
                    let Some(event) = turn.take(|event| event < EVENTS.len()) else {
                        thread::yield_now();
                        continue;
                    };
                    // SAFETY: it is the event's turn.
                    let before: Vec<_> =
                        EVENTS[event].iter().map(|&p| (p, unsafe { partitions[p].0.queue() })).collect();
                    turn.pass(event + 1);
                    while !before.iter().all(|&(p, before)| partitions[p].0.is_first(before)) {
                        thread::yield_now();
                    }
                    for &(p, before) in &before {
                        // SAFETY: loom checks that no other thread is at the cell.
                        let others =
                            partitions[p].1.with_mut(|cell| unsafe { std::mem::replace(&mut *cell, event + 1) });
                        assert!(others <= event);
                        partitions[p].0.leave(before);
                    }
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
