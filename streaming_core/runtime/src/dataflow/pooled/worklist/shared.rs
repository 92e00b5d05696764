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

use std::collections::VecDeque;

use crate::dataflow::pooled::input::Part;
use crate::dataflow::pooled::worklist::list::{
    Dealer, Partitions, QueueStrategy, Reach, Shape, Visit, Visitor, Worklist,
};
use crate::dataflow::pooled::worklist::open::OpenParts;
use crate::error::RunError;
use crate::threads::door::Door;
use crate::threads::sync::{AtomicU64, CachePadded, Mutex, Ordering, lock};

/// The strategy `queue` = `shared`.
pub const QUEUE: QueueStrategy = QueueStrategy {
    partitions: Partitions::AsConfigured,
    deals: Dealer::Releaser,
    make: |shape| Box::new(SharedQueue::new(shape)),
};

/// The worklist; see the module.
#[derive(Debug)]
pub struct SharedQueue {
    queue: CachePadded<Mutex<Queue>>,
    /// Parts in the queue. Written under the lock, read without it: a hint.
    waiting: CachePadded<AtomicU64>,
    /// Per lane: the worker with the next ticket uses it.
    lanes: Box<[Door]>,
    open: OpenParts,
}

#[derive(Debug)]
struct Queue {
    /// Per part its batch and its lane.
    parts: VecDeque<(u64, usize)>,
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
        let queue = Queue { parts: VecDeque::new(), tickets: vec![0; shape.lanes].into() };
        Self {
            queue: CachePadded::new(Mutex::new(queue)),
            waiting: CachePadded::new(AtomicU64::new(0)),
            lanes: (0..shape.lanes).map(|_| Door::default()).collect(),
            open: OpenParts::new(shape.window),
        }
    }

    /// The next part.
    fn take(&self) -> Option<LanePart> {
        let mut queue = lock(&self.queue);
        let (serial, lane) = queue.parts.pop_front()?;
        // ORDERING: Relaxed: a hint.
        self.waiting.store(queue.parts.len() as u64, Ordering::Relaxed);
        let ticket = queue.tickets[lane];
        queue.tickets[lane] += 1;
        Some(LanePart { serial, lane, ticket })
    }
}

impl Worklist for SharedQueue {
    fn add(&self, serial: u64, parts: &[Part]) {
        self.open.set(serial, parts.len());
        let mut queue = lock(&self.queue);
        queue.parts.extend(parts.iter().map(|part| (serial, part.lane)));
        // ORDERING: Relaxed: a hint.
        self.waiting.store(queue.parts.len() as u64, Ordering::Relaxed);
    }

    fn is_waiting(&self, _: usize, _: Reach, _: u64) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn work(&self, visit: &Visit<'_>, visitor: &mut dyn Visitor) -> Result<bool, RunError> {
        let mut did = false;
        while !visitor.is_spent()
            && let Some(part) = self.take()
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
            if self.open.done(part.serial) {
                visitor.finish(part.serial);
            }
        }
        Ok(did)
    }
}
