//! Shared queue, a baseline: one queue of parts for all workers, under a lock, and a lock per lane.
//!
//! Workers take parts in order: by batch, then by lane. A worker that takes a part gets the next ticket of its lane, and waits
//! until all earlier tickets of the lane are done. So every free worker has work. But workers wait for each other where
//! neighbouring parts belong to one lane.
//!
//! No cycle of waiting workers: each has one ticket at a time, and waits for parts that were taken before its own.
//!
//! Cost: a lock and a hand-over per part.
//!
//! Source: Prasaad et al., section 4.1. A worker takes a part and locks its partition in one step. In two steps, parts of one
//! partition could change places (figure 5).

use crate::dataflow::pooled::worklist::list::{Partitions, QueueStrategy, Reach, Shape, Visit, Visitor, Worklist};
use crate::dataflow::pooled::worklist::parts::Parts;
use crate::error::RunError;
use crate::threads::door::Door;
use crate::threads::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// The strategy `queue` = `shared`.
pub const QUEUE: QueueStrategy =
    QueueStrategy { partitions: Partitions::AsConfigured, make: |shape| Box::new(SharedQueue::new(shape)) };

/// The worklist; see the module.
#[derive(Debug)]
pub struct SharedQueue {
    head: CachePadded<Mutex<QueueHead>>,
    /// The serial that the head has come to. Written under the lock, read without it: a hint.
    next: CachePadded<AtomicU64>,
    /// Per lane: the worker with the next ticket uses it.
    lanes: Box<[Door]>,
    parts: Parts,
}

/// The next part to take: of this batch, of the first lane from this one on that holds rows.
#[derive(Debug)]
struct QueueHead {
    serial: u64,
    lane: usize,
    /// Per lane: tickets given out.
    tickets: Box<[u64]>,
}

/// A part that a worker has taken.
#[derive(Debug, Clone, Copy)]
struct LanePart {
    serial: u64,
    lane: usize,
    ticket: u64,
}

impl SharedQueue {
    pub fn new(shape: Shape) -> Self {
        Self {
            head: CachePadded::new(Mutex::new(QueueHead { serial: 0, lane: 0, tickets: vec![0; shape.lanes].into() })),
            next: CachePadded::new(AtomicU64::new(0)),
            lanes: (0..shape.lanes).map(|_| Door::default()).collect(),
            parts: Parts::new(shape.lanes, shape.window),
        }
    }

    /// The next part of batches below `released`.
    fn take(&self, released: u64) -> Option<LanePart> {
        let mut head = lock(&self.head);
        let oldest = self.parts.oldest(released);
        if head.serial < oldest {
            (head.serial, head.lane) = (oldest, 0);
        }
        let mut part = None;
        while head.serial < released {
            // Looks on after it has a part, so that `next` moves past batches that are taken whole.
            let lane = self.parts.next_lane(head.serial, head.lane);
            match lane {
                Some(_) if part.is_some() => break,
                Some(lane) => {
                    part = Some(LanePart { serial: head.serial, lane, ticket: head.tickets[lane] });
                    head.tickets[lane] += 1;
                    head.lane = lane + 1;
                }
                None => (head.serial, head.lane) = (head.serial + 1, 0),
            }
        }
        // ORDERING: Relaxed: a hint.
        self.next.store(head.serial, Ordering::Relaxed);
        part
    }
}

impl Worklist for SharedQueue {
    fn offer(&self, serial: u64, has_rows: &dyn Fn(usize) -> bool) {
        self.parts.offer(serial, has_rows);
    }

    fn add(&self, serial: u64) -> bool {
        !self.parts.is_empty(serial)
    }

    fn is_waiting(&self, _: usize, _: Reach, released: u64) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        self.next.load(Ordering::Relaxed) < released
    }

    fn work(&self, visit: &Visit<'_>, visitor: &mut dyn Visitor) -> Result<bool, RunError> {
        let mut did = false;
        while !visitor.is_spent()
            && let Some(part) = self.take(visit.released)
        {
            let lane = &self.lanes[part.lane];
            if lane.next() != part.ticket {
                // ORDERING: Acquire; nothing but the flag is used.
                let leaves = || visit.stopped.load(Ordering::Acquire);
                let mut entered = Ok(());
                visitor.wait(&mut || entered = lane.enter(part.ticket, visit.idle, leaves));
                entered?;
            }
            visitor.run(part.lane, part.serial)?;
            did = true;
            lane.leave(part.ticket, visit.idle);
            if self.parts.done(part.serial) {
                visitor.finish(part.serial);
            }
        }
        Ok(did)
    }
}
