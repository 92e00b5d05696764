//! Lanes: a worker takes a free lane and does the work released to it, until its time slice is over. Work for a taken lane
//! stays with its holder. So no worker waits, and nothing is enqueued.
//!
//! Workers look after their own lanes first, and take others' lanes when they have nothing else to do.
//! Cost: one exchange to take a lane, one decrement per batch and lane that holds rows; nothing per row.
//! README.md, "Lanes", has the protocol, and compares it with the paper's hybrid queue.

use crate::dataflow::pooled::input::Part;
use crate::dataflow::pooled::worklist::list::{
    Dealer, Partitions, QueueStrategy, Reach, Shape, Visit, Visitor, Worklist,
};
use crate::dataflow::pooled::worklist::parts::FlaggedParts;
use crate::error::RunError;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// The strategy `queue` = `lanes`.
pub const QUEUE: QueueStrategy = QueueStrategy {
    partitions: Partitions::ByCost,
    deals: Dealer::Maker,
    make: |shape| Box::new(LaneQueue::new(shape)),
};

/// Set in a lane's word while a worker holds the lane.
const HELD: u64 = 1;

/// The worklist; see the module.
#[derive(Debug)]
pub struct LaneQueue {
    /// Per lane `cursor << 1 | HELD`: the next serial to look at. The holder of the lane writes it.
    lanes: Box<[CachePadded<AtomicU64>]>,
    parts: FlaggedParts,
    shape: Shape,
}

impl LaneQueue {
    pub fn new(shape: Shape) -> Self {
        Self {
            lanes: (0..shape.lanes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            parts: FlaggedParts::new(shape.lanes, shape.window),
            shape,
        }
    }

    /// A hint whether a worker that takes `lane` now would find work.
    #[inline(always)]
    fn lane_is_waiting(&self, lane: usize, released: u64) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        let word = self.lanes[lane].load(Ordering::Relaxed);
        word & HELD == 0 && word >> 1 < released
    }

    /// Takes `lane`, unless a worker holds it or no work below `released` is left for it. Returns its cursor.
    #[inline]
    fn take(&self, lane: usize, released: u64) -> Option<u64> {
        // ORDERING: Relaxed: the exchange decides.
        let word = self.lanes[lane].load(Ordering::Relaxed);
        if word & HELD != 0 || word >> 1 >= released {
            return None;
        }
        // ORDERING: Acquire pairs with the Release below: the new holder sees the state that the last one left.
        self.lanes[lane].compare_exchange(word, word | HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(word >> 1)
    }

    /// Does the work released to `lane` until the slice is over, unless a worker holds it. A failed run leaves the lane held,
    /// so no worker touches its state any more.
    fn work_on(&self, lane: usize, released: u64, visitor: &mut dyn Visitor) -> Result<bool, RunError> {
        let Some(cursor) = self.take(lane, released) else { return Ok(false) };
        let (mut did, mut next) = (false, released);
        for serial in cursor.max(self.parts.oldest(released))..released {
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
        // ORDERING: Release pairs with the Acquire in `take`. Any worker may take the rest, and what is released from now on.
        self.lanes[lane].store(next << 1, Ordering::Release);
        Ok(did)
    }
}

impl Worklist for LaneQueue {
    fn add(&self, serial: u64, parts: &[Part]) {
        self.parts.add(serial, parts);
    }

    #[inline]
    fn is_waiting(&self, worker: usize, reach: Reach, released: u64) -> bool {
        let home = self.shape.home(worker);
        match reach {
            Reach::Own => home.into_iter().any(|lane| self.lane_is_waiting(lane, released)),
            Reach::All => (0..self.shape.lanes).any(|lane| self.lane_is_waiting(lane, released)),
        }
    }

    fn work(&self, visit: &Visit<'_>, visitor: &mut dyn Visitor) -> Result<bool, RunError> {
        let home = self.shape.home(visit.worker);
        let mut did = false;
        for lane in home.clone() {
            did |= self.work_on(lane, visit.released, visitor)?;
        }
        if visit.reach == Reach::All {
            // One lane at a time, because afterwards this worker's own lanes may have work.
            for lane in (home.end..self.shape.lanes).chain(0..home.start) {
                if did {
                    break;
                }
                did = self.work_on(lane, visit.released, visitor)?;
            }
        }
        Ok(did)
    }
}
