//! Shared queue, a baseline: one queue of parts for all workers, under a lock, and a lock per lane.
//!
//! Parts are taken in order: by batch, then by lane. Who takes one is given the next ticket of its lane, and waits until
//! all earlier tickets of the lane are done. So every free worker has work, but workers wait for each other where
//! parts that follow each other are of one lane.
//! Nobody waits in a circle: a worker has one ticket at a time, and waits for parts that were taken before its own.
//! Cost: a lock and a hand-over per part.
//! Source: Prasaad et al., the shared queue with locked partitions that its hybrid queue is compared with.

use crate::dataflow::pooled::worklist::parts::Parts;
use crate::dataflow::pooled::worklist::{Partitions, Queue, Reach, Run, Shape, Turn, Worklist};
use crate::error::RunError;
use crate::threads::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// Lanes per worker: as the hybrid queue has when it is split.
const LANES_PER_WORKER: usize = 4;

/// The strategy `queue` = `shared`.
pub const QUEUE: Queue =
    Queue { partitions: Partitions::PerWorker(LANES_PER_WORKER), make: |shape| Box::new(SharedQueue::new(shape)) };

/// The worklist; see the module.
#[derive(Debug)]
pub struct SharedQueue {
    head: CachePadded<Mutex<Head>>,
    /// The serial that the head has come to. Written under the lock, read without it: a hint.
    next: CachePadded<AtomicU64>,
    /// Per lane: tickets done. Written by who has the ticket of that number.
    done: Box<[CachePadded<AtomicU64>]>,
    parts: Parts,
}

/// The next part to be taken: of this batch, of the first lane from this one on that holds rows.
#[derive(Debug)]
struct Head {
    serial: u64,
    lane: usize,
    /// Per lane: tickets given out.
    tickets: Box<[u64]>,
}

/// A part that a worker has taken.
#[derive(Debug, Clone, Copy)]
struct Part {
    serial: u64,
    lane: usize,
    ticket: u64,
}

impl SharedQueue {
    pub fn new(shape: Shape) -> Self {
        Self {
            head: CachePadded::new(Mutex::new(Head { serial: 0, lane: 0, tickets: vec![0; shape.lanes].into() })),
            next: CachePadded::new(AtomicU64::new(0)),
            done: (0..shape.lanes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            parts: Parts::new(shape.lanes, shape.window),
        }
    }

    /// The next part of batches below `released`.
    fn take(&self, released: u64) -> Option<Part> {
        let mut head = lock(&self.head);
        let oldest = self.parts.oldest(released);
        if head.serial < oldest {
            (head.serial, head.lane) = (oldest, 0);
        }
        let mut found = None;
        while head.serial < released {
            // Looks on after a part was found, so that `next` moves past batches that are taken whole.
            let lane = self.parts.next_lane(head.serial, head.lane);
            match lane {
                Some(_) if found.is_some() => break,
                Some(lane) => {
                    found = Some(Part { serial: head.serial, lane, ticket: head.tickets[lane] });
                    head.tickets[lane] += 1;
                    head.lane = lane + 1;
                }
                None => (head.serial, head.lane) = (head.serial + 1, 0),
            }
        }
        // ORDERING: Relaxed: a hint.
        self.next.store(head.serial, Ordering::Relaxed);
        found
    }
}

impl Worklist for SharedQueue {
    fn offer(&self, serial: u64, has_rows: &dyn Fn(usize) -> bool) {
        self.parts.offer(serial, has_rows);
    }

    fn is_empty(&self, serial: u64) -> bool {
        self.parts.is_empty(serial)
    }

    fn is_waiting(&self, _: usize, reach: Reach, released: u64) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        reach == Reach::Own && self.next.load(Ordering::Relaxed) < released
    }

    fn work(&self, turn: &Turn<'_>, run: &mut dyn Run) -> Result<bool, RunError> {
        let mut did = false;
        if turn.reach == Reach::Others {
            return Ok(false);
        }
        while let Some(part) = self.take(turn.released) {
            // ORDERING: Acquire pairs with the Release below: this worker sees the state as the last one left it.
            let is_next = || self.done[part.lane].load(Ordering::Acquire) == part.ticket;
            if !is_next() {
                // ORDERING: Acquire; nothing but the flag is used.
                let is_stopped = || turn.stopped.load(Ordering::Acquire);
                run.wait(&mut || turn.idle.wait(|| is_next() || is_stopped()));
                if !is_next() {
                    return Err(RunError::Stopped);
                }
            }
            run.run(part.lane, part.serial)?;
            did = true;
            // ORDERING: Release hands the lane's state to the next ticket.
            self.done[part.lane].store(part.ticket + 1, Ordering::Release);
            turn.idle.notify();
            if self.parts.done(part.serial) {
                run.finish(part.serial);
            }
        }
        Ok(did)
    }
}
