//! Stages: one partitioned or stateful operator, a worker per lane, batches in order.

use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::in_order::InOrder;
use crate::dataflow::pooled::strategies::Strategies;
use crate::dataflow::pooled::worklist::SINGLE;
use crate::dataflow::pooled::worklist::list::{Dealer, Reach, Shape, Worklist};
use crate::program::OperatorKind;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

#[derive(Debug)]
pub struct Stage {
    /// Position in the chain.
    pub operator: usize,
    pub lanes: usize,
    /// Reorders what the step in front makes.
    pub front: Box<dyn ReorderBuffer>,
    pub queue: Box<dyn Worklist>,
    pub deals: Dealer,
    /// Reorders what the lanes make, if the queue is the paper's (section 5): every partitioned operator has a reorder buffer.
    /// Without operators in the step behind, the buffer behind that step is the same one.
    behind: Option<Box<dyn ReorderBuffer>>,
    /// Batches that all lanes are done with.
    pub done: InOrder,
    /// Rows that have entered the worklist. The worker that releases a batch to the stage writes it.
    entered: CachePadded<AtomicU64>,
    /// Per worker: rows that it has taken from the worklist. That worker writes it.
    taken: Box<[CachePadded<AtomicU64>]>,
}

impl Stage {
    /// Stage `index` of the chain.
    pub fn new(chain: &Chain, index: usize, lanes: usize, workers: usize, window: usize, how: Strategies) -> Self {
        let operator = chain.stateful[index];
        let is_partitioned = chain.operators[operator].kind == OperatorKind::Partitioned;
        let queue = if is_partitioned { how.queue } else { SINGLE };
        // Only lanes are dealt out from the end of the chain.
        let owner = (chain.stateful.len() - 1 - index) % workers;
        let has_buffer = queue.deals == Dealer::Releaser && !chain.step(index + 1).is_empty();
        Self {
            operator,
            lanes,
            front: (how.reorder)(window),
            queue: (queue.make)(Shape { lanes, workers, window, owner }),
            deals: queue.deals,
            behind: has_buffer.then(|| (how.reorder)(window)),
            done: InOrder::new(window),
            entered: CachePadded::default(),
            taken: (0..workers).map(|_| CachePadded::default()).collect(),
        }
    }

    /// Hands on batch `serial`, which all lanes are done with.
    pub fn finish(&self, serial: u64) {
        match &self.behind {
            Some(buffer) => {
                buffer.complete_and_release(serial, &mut |serial| self.done.offer(serial));
            }
            None => self.done.offer(serial),
        }
    }

    /// Whether `worker` would find something, perhaps: a hint.
    pub fn is_waiting(&self, worker: usize, reach: Reach) -> bool {
        self.queue.is_waiting(worker, reach, self.front.released())
    }

    /// Counts the rows of a batch that enters the worklist, for the worker that releases it.
    pub fn count_entered(&self, rows: usize) {
        // ORDERING: Relaxed, both: one worker at a time releases, and others read it as a hint.
        self.entered.store(self.entered.load(Ordering::Relaxed) + rows as u64, Ordering::Relaxed);
    }

    /// Counts rows that `worker` takes from the worklist.
    pub fn count_taken(&self, worker: usize, rows: usize) {
        let taken = &self.taken[worker];
        // ORDERING: Relaxed, both: only this worker writes it, and others read it as a hint.
        taken.store(taken.load(Ordering::Relaxed) + rows as u64, Ordering::Relaxed);
    }

    /// Rows in the worklist, without those that workers have taken: a hint.
    pub fn waiting_rows(&self) -> u64 {
        // ORDERING: Relaxed, both: hints.
        let taken: u64 = self.taken.iter().map(|taken| taken.load(Ordering::Relaxed)).sum();
        self.entered.load(Ordering::Relaxed).saturating_sub(taken)
    }
}
