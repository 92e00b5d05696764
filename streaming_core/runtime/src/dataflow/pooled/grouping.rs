//! Grouping: how many lanes the partitioned stages get, from what they are found to cost.

use crate::dataflow::pooled::input::Input;
use crate::dataflow::pooled::pool::Pool;
use crate::dataflow::pooled::stage::Stage;
use crate::dataflow::pooled::worklist::Partitions;
use crate::error::RunError;
use crate::program::OperatorKind;
use crate::threads::sync::{AtomicU64, CachePadded};

/// Lanes of a partitioned stage per thread: enough to even out skewed keys, few enough to leave rows to each.
const LANES_PER_THREAD: usize = 4;
pub const MOST_LANES: usize = 256;
/// A partitioned stage is split into lanes when its share of the work is above the first, in threads: copying rows into
/// lane order and back must pay. It becomes a single lane again when its share is below the second. Nothing changes any
/// more once it has so many keys that noting all of them anew would hold everybody up (200 ns a key).
const MANY_LANES: f64 = 1.3;
const ONE_LANE: f64 = 0.9;
const FEW_KEYS: usize = 1 << 16;

/// How many lanes the partitioned stages get.
#[derive(Debug, Clone)]
pub enum Grouping {
    /// As the queue has it.
    Queue(Partitions),
    /// One number after the other, and again from the start: so that every change is tested.
    #[cfg(all(test, not(loom)))]
    InTurn(Vec<usize>),
}

impl Grouping {
    /// The number of lanes for a stage that has `lanes` and `keys`, and whose cost is that share of what one of `threads`
    /// can do.
    fn lanes(&mut self, lanes: usize, keys: usize, share: f64, threads: usize) -> usize {
        match self {
            Self::Queue(_) if threads == 1 => 1,
            Self::Queue(Partitions::PerWorker(lanes)) => (*lanes * threads).min(MOST_LANES),
            Self::Queue(Partitions::ByCost) if keys > FEW_KEYS => lanes,
            Self::Queue(Partitions::ByCost) if lanes == 1 && share > MANY_LANES => {
                (LANES_PER_THREAD * threads).min(MOST_LANES)
            }
            Self::Queue(Partitions::ByCost) if share < ONE_LANE => 1,
            Self::Queue(Partitions::ByCost) => lanes,
            #[cfg(all(test, not(loom)))]
            Self::InTurn(numbers) => {
                numbers.rotate_left(1);
                numbers[numbers.len() - 1]
            }
        }
    }
}

impl Pool {
    /// Splits stages that would keep the others waiting into lanes, and joins those that would not.
    ///
    /// Between blocks, when no batch is in flight.
    pub fn regroup(&mut self, grouping: &mut Grouping) -> Result<(), RunError> {
        let threads = self.workers.len();
        let costs = self.estimates.all();
        let all: f64 = costs.iter().sum();
        let mut changed = false;
        for k in 0..self.stages.len() {
            let index = self.stages[k].operator;
            let share = costs[2 * k + 1] * threads as f64 / all.max(f64::MIN_POSITIVE);
            if self.chain.operators[index].kind != OperatorKind::Partitioned {
                continue;
            }
            let count = grouping.lanes(self.lanes[k].count(), self.lanes[k].keys(), share, threads);
            if count == self.lanes[k].count() {
                continue;
            }
            self.split(k, count)?;
            changed = true;
        }
        if changed {
            self.restart();
        }
        Ok(())
    }

    /// Gives stage `k` that many lanes; `restart` must follow.
    fn split(&mut self, k: usize, count: usize) -> Result<(), RunError> {
        let index = self.stages[k].operator;
        self.lanes[k].regroup(&self.chain.operators[index], count)?;
        for slot in &mut self.slots {
            slot.inputs[k] = Input::new(&self.chain, index, count);
        }
        Ok(())
    }

    /// Serial numbers start anew, with empty channels.
    fn restart(&mut self) {
        let window = self.window as usize;
        self.stages = (self.lanes.iter().enumerate())
            .map(|(index, lanes)| {
                Stage::new(&self.chain, index, lanes.count(), self.workers.len(), window, self.strategies)
            })
            .collect();
        self.back = (self.strategies.reorder)(window);
        self.source = CachePadded::new(AtomicU64::new(0));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_split_when_it_holds_others_up_unless_it_is_large() {
        let mut grouping = Grouping::Queue(Partitions::ByCost);
        let mut lanes = |lanes, keys, share| grouping.lanes(lanes, keys, share, 2);
        assert_eq!([lanes(1, 10, 1.2), lanes(1, 10, 1.4), lanes(1, 1 << 30, 1.4)], [1, 8, 1]);
        assert_eq!([lanes(8, 10, 1.0), lanes(8, 10, 0.8), lanes(8, 1 << 30, 0.8)], [8, 1, 8]);
    }
}
