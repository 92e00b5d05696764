//! Hybrid queue: a queue and a count per partition, and a master queue that says, part by part in order, of which partition
//! the next one is. Who finds somebody at work on the partition leaves the part to him, and nobody waits.
//!
//! A part is what a batch holds of a partition: with batches of one event, a tuple.
//! Cost: two stores a part for who adds it; an exchange and two additions for who takes it.
//! Source: Prasaad et al., section 4.3 and figure 7, whose names the functions have. README.md, "Hybrid queue", has what
//! orders what.

use crate::dataflow::pooled::worklist::list::{Partitions, QueueStrategy, Reach, Shape, Visit, Visitor, Worklist};
use crate::dataflow::pooled::worklist::parts::Parts;
use crate::error::RunError;
use crate::threads::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};

/// The strategy `queue` = `hybrid`.
pub const QUEUE: QueueStrategy =
    QueueStrategy { partitions: Partitions::AsAsked, make: |shape| Box::new(HybridQueue::new(shape)) };

/// The worklist; see the module.
#[derive(Debug)]
pub struct HybridQueue {
    master: MasterQueue,
    partitions: Box<[CachePadded<Partition>]>,
    parts: Parts,
}

/// Numbers of partitions, in the order of their parts: one worker at a time adds, any takes.
#[derive(Debug)]
struct MasterQueue {
    /// At `position % length`. Written by who adds.
    partitions: Box<[AtomicU32]>,
    /// One past the last position. Written by who adds.
    tail: CachePadded<AtomicU64>,
    /// The next position to be taken. Written by whoever takes it.
    head: CachePadded<AtomicU64>,
}

/// One partition: a queue of the batches that hold parts of it, and how many of these parts somebody has been made to do.
#[derive(Debug)]
struct Partition {
    /// At `position % length`, the serial of a batch. Written by who adds, read by the active worker.
    serials: Box<[AtomicU64]>,
    /// One past the last position. Written and read by who adds.
    tail: AtomicU64,
    /// The next position to be taken. Written and read by the active worker.
    head: AtomicU64,
    /// Parts taken from the master queue and not done: who raises it from 0 is the active worker until it is 0 again.
    /// Raised by any worker, lowered by the active one.
    count: AtomicU64,
}

impl MasterQueue {
    /// With room for `length` (a power of two) parts.
    fn new(length: usize) -> Self {
        Self {
            partitions: (0..length).map(|_| AtomicU32::new(0)).collect(),
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
        }
    }

    fn at(&self, position: u64) -> &AtomicU32 {
        &self.partitions[position as usize & (self.partitions.len() - 1)]
    }

    fn enqueue(&self, partition: usize) {
        // ORDERING: Relaxed: only who adds writes it, and those who add follow each other by the release in front.
        let tail = self.tail.load(Ordering::Relaxed);
        // ORDERING: Relaxed: published by the store below. A place is free when it is needed: the part that had it was
        // one of a batch that has left.
        self.at(tail).store(partition as u32, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `try_dequeue`: who takes the part sees it, its place in the
        // partition's queue, and the batch.
        self.tail.store(tail + 1, Ordering::Release);
    }

    fn try_dequeue(&self) -> Option<usize> {
        // ORDERING: Relaxed: the exchange decides.
        let mut head = self.head.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with `enqueue`.
        while head < self.tail.load(Ordering::Acquire) {
            // ORDERING: Relaxed: seen through the tail. If the place has been written anew, `head` has moved, and the
            // exchange fails.
            let partition = self.at(head).load(Ordering::Relaxed);
            // ORDERING: Relaxed: it publishes nothing; who does what is settled by the partition's count.
            match self.head.compare_exchange(head, head + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(partition as usize),
                Err(moved) => head = moved,
            }
        }
        None
    }

    /// Whether who takes now would get something, perhaps: a hint.
    fn is_waiting(&self) -> bool {
        // ORDERING: Relaxed: a hint.
        self.head.load(Ordering::Relaxed) < self.tail.load(Ordering::Relaxed)
    }
}

impl Partition {
    /// With room for `length` (a power of two) parts.
    fn new(length: usize) -> Self {
        Self {
            serials: (0..length).map(|_| AtomicU64::new(0)).collect(),
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    fn at(&self, position: u64) -> &AtomicU64 {
        &self.serials[position as usize & (self.serials.len() - 1)]
    }

    fn enqueue(&self, serial: u64) {
        // ORDERING: Relaxed, all three: as in the master queue, whose tail publishes this one, too.
        let tail = self.tail.load(Ordering::Relaxed);
        self.at(tail).store(serial, Ordering::Relaxed);
        self.tail.store(tail + 1, Ordering::Relaxed);
    }

    /// The next part's batch, for the active worker: there is one, since the count says so.
    fn dequeue(&self) -> u64 {
        // ORDERING: Relaxed, all three: active workers follow each other by the count. The serial is seen because one of
        // those who raised the count so far took this part, or a later one of this partition, from the master queue.
        let head = self.head.load(Ordering::Relaxed);
        let serial = self.at(head).load(Ordering::Relaxed);
        self.head.store(head + 1, Ordering::Relaxed);
        serial
    }
}

impl HybridQueue {
    pub fn new(shape: Shape) -> Self {
        Self {
            master: MasterQueue::new((shape.lanes * shape.window).next_power_of_two()),
            partitions: (0..shape.lanes).map(|_| CachePadded::new(Partition::new(shape.window))).collect(),
            parts: Parts::new(shape.lanes, shape.window),
        }
    }
}

impl Worklist for HybridQueue {
    fn offer(&self, serial: u64, has_rows: &dyn Fn(usize) -> bool) {
        self.parts.offer(serial, has_rows);
    }

    /// `addInput`.
    fn add(&self, serial: u64) -> bool {
        let mut next = self.parts.next_lane(serial, 0);
        let has_rows = next.is_some();
        while let Some(partition) = next {
            // Looked for before this part may be done: after the last one is, the batch may leave.
            next = self.parts.next_lane(serial, partition + 1);
            self.partitions[partition].enqueue(serial);
            self.master.enqueue(partition);
        }
        has_rows
    }

    fn is_waiting(&self, _: usize, _: Reach, _: u64) -> bool {
        self.master.is_waiting()
    }

    /// `consumeInputs`.
    fn work(&self, _: &Visit<'_>, visitor: &mut dyn Visitor) -> Result<bool, RunError> {
        let mut did = false;
        while !visitor.is_spent()
            && let Some(number) = self.master.try_dequeue()
        {
            did = true;
            let partition = &self.partitions[number];
            // ORDERING: Release: the active worker sees what the master queue told this one. Acquire: who becomes active
            // sees the state as the last one left it.
            if partition.count.fetch_add(1, Ordering::AcqRel) > 0 {
                // Delegated to the active worker.
                continue;
            }
            loop {
                let serial = partition.dequeue();
                // A failed run leaves the count raised: nobody touches the state any more.
                visitor.run(number, serial)?;
                if self.parts.done(serial) {
                    visitor.finish(serial);
                }
                // ORDERING: Release: the next active worker sees the state. Acquire: what is delegated is seen.
                if partition.count.fetch_sub(1, Ordering::AcqRel) == 1 {
                    break;
                }
            }
        }
        Ok(did)
    }
}
