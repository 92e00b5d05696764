//! Stages: one partitioned or stateful operator, a worker per lane, batches in order.

use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::in_order::InOrder;
use crate::dataflow::pooled::strategies::Strategies;
use crate::dataflow::pooled::worklist::SINGLE;
use crate::dataflow::pooled::worklist::list::{Reach, Shape, Worklist};
use crate::program::OperatorKind;
use crate::threads::reorder::buffer::ReorderBuffer;

#[derive(Debug)]
pub struct Stage {
    /// Position in the chain.
    pub operator: usize,
    pub lanes: usize,
    /// Reorders what the step in front makes.
    pub front: Box<dyn ReorderBuffer>,
    pub queue: Box<dyn Worklist>,
    /// Batches that all lanes are done with.
    pub done: InOrder,
}

impl Stage {
    /// Stage `index` of the chain.
    pub fn new(chain: &Chain, index: usize, lanes: usize, workers: usize, window: usize, how: Strategies) -> Self {
        let operator = chain.stateful[index];
        let is_partitioned = chain.operators[operator].kind == OperatorKind::Partitioned;
        let queue = if is_partitioned { how.queue } else { SINGLE };
        // Only lanes are dealt out from the end of the chain.
        let owner = (chain.stateful.len() - 1 - index) % workers;
        Self {
            operator,
            lanes,
            front: (how.reorder)(window),
            queue: (queue.make)(Shape { lanes, workers, window, owner }),
            done: InOrder::new(window),
        }
    }

    /// Whether `worker` would find something, perhaps: a hint.
    pub fn is_waiting(&self, worker: usize, reach: Reach) -> bool {
        self.queue.is_waiting(worker, reach, self.front.released())
    }

    /// Batches that were released to the stage and are not done: a hint.
    pub fn queued(&self) -> u64 {
        self.front.released().saturating_sub(self.done.taken() + self.done.waiting())
    }
}
