//! Channel `pair_queue`: a queue for each pair of producer and consumer (BriskStream, section 5.2 and appendix A).
//!
//! A task first puts out a batch, as with other channels. Then it copies each row into the queue of the replica that takes
//! it (`channel/refill.rs`). The key decides, or the replicas get row after row in turn (shuffle grouping). A full jumbo tuple
//! has as many rows as a batch has events.
//!
//! **Bounded.** A task copies the whole batch before it takes more input. If a queue is full, the other queues get their rows
//! and the task waits. So a queue has at most its slots, and a task at most one batch more.
//!
//! **No deadlock.** A consumer takes what any of its queues has, and waits for no particular one. Suppose that tasks wait for
//! room, and take one behind which no task does. The queue that it waits for is full of published tuples, and their
//! consumer is free to take them. If no task waits for room, each task with input goes on, and sources go on until the block
//! ends. Then a task publishes all open tuples once all of its producers have. So partly filled tuples delay rows but keep
//! none from arriving.
//!
//! **Open loop.** Events that arrive slowly would wait in open tuples for others. So in an open loop, a task without input
//! publishes its open tuples. At high rates there is always input, and the tuples fill up.

use crate::dataflow::channel::outlet::{Jumbo, Outlet, SLOTS};
use crate::dataflow::channel::refill::Refill;
use crate::dataflow::pinned::route::{Edge, Route};
use crate::error::RunError;
use crate::rows::block::Text;

/// The empty queues of a producer, in the order of its readers; rows have `stride` bytes.
pub(super) fn queues(edges: &[Edge], stride: usize) -> impl Iterator<Item = Outlet> {
    edges.iter().flat_map(move |edge| {
        let keyed = usize::from(matches!(edge.route, Route::Key(..)));
        (0..edge.readers).map(move |_| Outlet::new(SLOTS, 1, || Jumbo::new(stride, 1, keyed)))
    })
}

/// The producer's ends of its queues.
#[derive(Debug)]
pub(super) struct PairQueues {
    /// The number of the first queue's outlet; the others follow.
    first: usize,
    /// What the task has put out last.
    pub outputs: Jumbo,
    ends: Vec<Refill>,
    /// The number of batches put out so far.
    pub serial: u64,
    /// The number of rows put out so far: whose turn it is in shuffle grouping.
    rows: usize,
}

impl PairQueues {
    pub fn new(first: usize, edges: &[Edge], stride: usize, size: usize) -> Self {
        let end = |edge: &Edge| match edge.route {
            Route::Key(_, place) => Refill::new(size, Some(place)),
            _ => Refill::new(size, None),
        };
        let ends: Vec<Refill> = edges.iter().flat_map(|edge| (0..edge.readers).map(move |_| end(edge))).collect();
        let keyed = edges.iter().filter(|edge| matches!(edge.route, Route::Key(..))).count();
        Self { first, outputs: Jumbo::new(stride, ends.len(), keyed), ends, serial: 0, rows: 0 }
    }

    /// The number of queues.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether outputs wait for room.
    pub fn is_waiting(&self) -> bool {
        self.ends.iter().any(Refill::is_waiting)
    }

    /// Whether outputs may move on, or there are none.
    pub fn has_room(&self, outlets: &[Outlet]) -> bool {
        let mut waiting = self.ends.iter().zip(&outlets[self.first..]).filter(|(end, _)| end.is_waiting()).peekable();
        waiting.peek().is_none() || waiting.any(|(_, queue)| queue.has_room())
    }

    /// There are new outputs, with their routes.
    pub fn start(&mut self, edges: &[Edge]) {
        let n = self.outputs.rows.n;
        for edge in edges.iter().filter(|edge| edge.readers > 1 && matches!(edge.route, Route::Turn)) {
            let shares = &mut self.outputs.shares[edge.first..edge.first + edge.readers];
            for (reader, share) in shares.iter_mut().enumerate() {
                share.whole = false;
                let first = (reader + edge.readers - self.rows % edge.readers) % edge.readers;
                share.positions.extend((first..n).step_by(edge.readers).map(|position| position as u32));
            }
        }
        self.rows = self.rows.wrapping_add(n);
        self.serial += 1;
        self.ends.iter_mut().for_each(Refill::start);
    }

    /// Copies outputs into the queues, as far as there is room. Returns whether something was published.
    ///
    /// # Safety
    /// The caller is the queues' writer.
    pub unsafe fn pour(&mut self, outlets: &[Outlet]) -> Result<bool, RunError> {
        let mut has_published = false;
        for (reader, (end, queue)) in self.ends.iter_mut().zip(&outlets[self.first..]).enumerate() {
            // SAFETY: as the caller says.
            has_published |= unsafe { end.pour(queue, &self.outputs, reader) }?;
        }
        Ok(has_published)
    }

    /// Publishes all jumbo tuples with rows. Returns whether there were any.
    ///
    /// # Safety
    /// The caller is the queues' writer.
    pub unsafe fn flush(&mut self, outlets: &[Outlet], text: Text) -> bool {
        let mut has_published = false;
        for (end, queue) in self.ends.iter_mut().zip(&outlets[self.first..]) {
            // SAFETY: as the caller says.
            has_published |= unsafe { end.flush(queue, text) };
        }
        has_published
    }
}
