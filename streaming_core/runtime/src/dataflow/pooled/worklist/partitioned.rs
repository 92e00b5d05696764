//! Partitioned queue, a baseline: every lane belongs to one worker for good, and no other worker ever works on it.
//!
//! Nothing is taken and nothing is contended for; but a worker whose lanes have little to do cannot help the others.
//! Cost: one decrement per batch and lane that holds rows.
//!
//! Source: Prasaad et al., section 4.2, with as many partitions as workers (section 7.2.1). Partitions have fixed workers, as
//! in Volcano, where the strategy comes from (section 8.1).

use crate::dataflow::pooled::input::Part;
use crate::dataflow::pooled::worklist::list::{
    Dealer, Partitions, QueueStrategy, Reach, Shape, Visit, Visitor, Worklist,
};
use crate::dataflow::pooled::worklist::parts::FlaggedParts;
use crate::error::RunError;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// The strategy `queue` = `partitioned`.
pub const QUEUE: QueueStrategy = QueueStrategy {
    partitions: Partitions::OnePerWorker,
    deals: Dealer::Releaser,
    make: |shape| Box::new(PartitionedQueue::new(shape)),
};

/// The worklist; see the module.
#[derive(Debug)]
pub struct PartitionedQueue {
    /// Per lane: the next serial to look at. Written and read by the lane's worker only.
    cursors: Box<[CachePadded<AtomicU64>]>,
    parts: FlaggedParts,
    shape: Shape,
}

impl PartitionedQueue {
    pub fn new(shape: Shape) -> Self {
        Self {
            cursors: (0..shape.lanes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            parts: FlaggedParts::new(shape.lanes, shape.window),
            shape,
        }
    }
}

impl Worklist for PartitionedQueue {
    fn add(&self, serial: u64, parts: &[Part]) {
        self.parts.add(serial, parts);
    }

    fn is_waiting(&self, worker: usize, _: Reach, released: u64) -> bool {
        // ORDERING: Relaxed: this worker wrote it.
        self.shape.home(worker).any(|lane| self.cursors[lane].load(Ordering::Relaxed) < released)
    }

    fn work(&self, visit: &Visit<'_>, visitor: &mut dyn Visitor) -> Result<bool, RunError> {
        let mut did = false;
        for lane in self.shape.home(visit.worker) {
            // ORDERING: Relaxed: this worker wrote it.
            let cursor = self.cursors[lane].load(Ordering::Relaxed);
            let mut next = visit.released;
            for serial in cursor.max(self.parts.oldest(visit.released))..visit.released {
                if !self.parts.holds(serial, lane) {
                    continue;
                }
                if visitor.is_spent() {
                    next = serial;
                    break;
                }
                visitor.run(lane, serial)?;
                did = true;
                if self.parts.done(serial) {
                    visitor.finish(serial);
                }
            }
            // ORDERING: Relaxed: no other worker reads it.
            self.cursors[lane].store(next, Ordering::Relaxed);
        }
        Ok(did)
    }
}
