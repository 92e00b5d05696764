//! Grouping: how many lanes the partitioned stages get, by their measured cost.

use crate::dataflow::pooled::input::MOST_LANES;
use crate::dataflow::pooled::worklist::list::Partitions;

/// Lanes of a partitioned stage per thread: enough to even out skewed keys, few enough to leave rows to each.
const LANES_PER_THREAD: usize = 4;
/// Shares of the work, in threads. A partitioned stage gets several lanes when its share is above the first, so that copying
/// rows into lane order and back pays. It gets a single lane again when its share is below the second. With more than
/// `FEW_KEYS` keys, a stage stays as it is: to note all keys anew would hold up every worker (200 ns a key).
const MANY_LANES: f64 = 1.3;
const ONE_LANE: f64 = 0.9;
const FEW_KEYS: usize = 1 << 16;

/// How many lanes the partitioned stages get.
#[derive(Debug, Clone)]
pub enum Grouping {
    /// As the queue has it; the number that the options ask for.
    Queue(Partitions, usize),
    /// One number after the other, and again from the start: so that every change is tested.
    #[cfg(all(test, not(loom)))]
    InTurn(Vec<usize>),
}

impl Grouping {
    /// The number of lanes for a stage that has `lanes` and `keys`, and whose cost is that share of what one of `threads`
    /// can do.
    pub fn lanes(&mut self, lanes: usize, keys: usize, share: f64, threads: usize) -> usize {
        match self {
            Self::Queue(Partitions::OnePerWorker, _) => threads.min(MOST_LANES),
            Self::Queue(Partitions::AsConfigured, configured) => *configured,
            Self::Queue(Partitions::ByCost, _) if keys > FEW_KEYS => lanes,
            Self::Queue(Partitions::ByCost, _) if threads == 1 => 1,
            Self::Queue(Partitions::ByCost, _) if lanes == 1 && share > MANY_LANES => {
                (LANES_PER_THREAD * threads).min(MOST_LANES)
            }
            Self::Queue(Partitions::ByCost, _) if share < ONE_LANE => 1,
            Self::Queue(Partitions::ByCost, _) => lanes,
            #[cfg(all(test, not(loom)))]
            Self::InTurn(numbers) => {
                numbers.rotate_left(1);
                numbers[numbers.len() - 1]
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_split_when_it_holds_others_up_unless_it_is_large() {
        let mut grouping = Grouping::Queue(Partitions::ByCost, 100);
        let mut lanes = |lanes, keys, share| grouping.lanes(lanes, keys, share, 2);
        assert_eq!([lanes(1, 10, 1.2), lanes(1, 10, 1.4), lanes(1, 1 << 30, 1.4)], [1, 8, 1]);
        assert_eq!([lanes(8, 10, 1.0), lanes(8, 10, 0.8), lanes(8, 1 << 30, 0.8)], [8, 1, 8]);
    }

    #[test]
    fn the_queues_of_the_paper_have_their_partitions_from_the_start() {
        let lanes = |partitions, threads| Grouping::Queue(partitions, 100).lanes(1, 0, 0.0, threads);
        assert_eq!([lanes(Partitions::OnePerWorker, 3), lanes(Partitions::AsConfigured, 3)], [3, 100]);
        assert_eq!([lanes(Partitions::OnePerWorker, 1), lanes(Partitions::AsConfigured, 1)], [1, 100]);
    }
}
