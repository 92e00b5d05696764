//! Hybrid queue: a queue and a count per partition, and a master queue with the partition of each part, in order. A worker
//! that finds another worker on the partition delegates the part to it. No worker waits.
//!
//! A part is the rows of one partition in a batch. With batches of one event, it is a tuple.
//! Cost: three stores per part for the worker that adds it; an exchange and two additions for the worker that takes it. None
//! depends on the number of partitions.
//! Source: Prasaad et al., section 4.3 and figure 7; the functions have its names. README.md, "Hybrid queue", explains the
//! memory orderings.

use crate::dataflow::pooled::input::Part;
use crate::dataflow::pooled::touched::touch;
use crate::dataflow::pooled::worklist::list::{
    Dealer, Partitions, QueueStrategy, Reach, Shape, Visit, Visitor, Worklist,
};
use crate::dataflow::pooled::worklist::open::OpenParts;
use crate::error::RunError;
use crate::threads::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};

/// The strategy `queue` = `hybrid`.
pub const QUEUE: QueueStrategy = QueueStrategy {
    partitions: Partitions::AsConfigured,
    deals: Dealer::Releaser,
    make: |shape| Box::new(HybridQueue::new(shape)),
};

/// The worklist; see the module.
#[derive(Debug)]
pub struct HybridQueue {
    master: MasterQueue,
    partitions: Box<[CachePadded<Partition>]>,
    /// Per partition, one past the last position of its queue. Only the adding worker uses them, so they are not beside what the
    /// active worker writes.
    tails: Box<[AtomicU64]>,
    open: OpenParts,
}

/// Numbers of partitions, in the order of their parts. One worker at a time adds; any worker takes.
#[derive(Debug)]
struct MasterQueue {
    /// At `position % length`. The adding worker writes it.
    partitions: Box<[AtomicU32]>,
    /// One past the last position. The adding worker writes it.
    tail: CachePadded<AtomicU64>,
    /// The next position to take. The worker that takes it writes it.
    head: CachePadded<AtomicU64>,
}

/// One partition: a queue of the batches that hold parts of it, and a count of parts that a worker has to do.
#[derive(Debug)]
struct Partition {
    /// At `position % length`, the serial of a batch. The adding worker writes it, the active worker reads it.
    serials: Box<[AtomicU64]>,
    /// The next position to take. Only the active worker uses it.
    head: AtomicU64,
    /// The number of parts taken from the master queue and not done. The worker that raises it from 0 is the active one until
    /// it is 0 again. Any worker raises it; the active one lowers it.
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

    fn enqueue(&self, parts: &[Part]) {
        // ORDERING: Relaxed: only adding workers write it, and the release before the stage orders them.
        let tail = self.tail.load(Ordering::Relaxed);
        for (position, part) in (tail..).zip(parts) {
            // ORDERING: Relaxed: the store below publishes it. The place is free, because its former part belongs to a batch
            // that has left.
            self.at(position).store(part.lane as u32, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `try_dequeue`: the worker that takes a part sees it, its place in the
        // partition's queue, and the batch.
        self.tail.store(tail + parts.len() as u64, Ordering::Release);
    }

    fn try_dequeue(&self) -> Option<usize> {
        // ORDERING: Relaxed: the exchange decides.
        let mut head = self.head.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with `enqueue`.
        while head < self.tail.load(Ordering::Acquire) {
            // ORDERING: Relaxed: the tail publishes it. If the place has a new part, `head` has moved, and the exchange
            // fails.
            let partition = self.at(head).load(Ordering::Relaxed);
            // ORDERING: Relaxed: it publishes nothing; the partition's count decides which worker does the part.
            match self.head.compare_exchange(head, head + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(partition as usize),
                Err(moved) => head = moved,
            }
        }
        None
    }

    /// A hint whether there is something to take.
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
            head: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    fn at(&self, position: u64) -> &AtomicU64 {
        &self.serials[position as usize & (self.serials.len() - 1)]
    }

    /// The batch of the next part, for the active worker. The count guarantees that there is one.
    fn dequeue(&self) -> u64 {
        // ORDERING: Relaxed, all three: the count orders active workers. The serial is visible, because a worker that raised
        // the count took this part, or a later one of this partition, from the master queue.
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
            tails: (0..shape.lanes).map(|_| AtomicU64::new(0)).collect(),
            open: OpenParts::new(shape.window),
        }
    }
}

impl Worklist for HybridQueue {
    /// `addInput`.
    fn add(&self, serial: u64, parts: &[Part]) {
        self.open.set(serial, parts.len());
        touch(parts.len());
        for part in parts {
            let tail = &self.tails[part.lane];
            // ORDERING: Relaxed, all three: as in the master queue, whose tail publishes these too.
            let position = tail.load(Ordering::Relaxed);
            self.partitions[part.lane].at(position).store(serial, Ordering::Relaxed);
            tail.store(position + 1, Ordering::Relaxed);
        }
        // From here on the batch may be done before this worker goes on.
        self.master.enqueue(parts);
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
            // ORDERING: Release: the active worker sees what this worker read from the master queue. Acquire: a worker that
            // becomes active sees the state that the last one left.
            if partition.count.fetch_add(1, Ordering::AcqRel) > 0 {
                // Delegated to the active worker.
                continue;
            }
            loop {
                let serial = partition.dequeue();
                // A failed run leaves the count raised, so no worker touches the state any more.
                visitor.run(number, serial)?;
                if self.open.done(serial) {
                    visitor.finish(serial);
                }
                // ORDERING: Release: the next active worker sees the state. Acquire: delegated parts are visible.
                if partition.count.fetch_sub(1, Ordering::AcqRel) == 1 {
                    break;
                }
            }
        }
        Ok(did)
    }
}
