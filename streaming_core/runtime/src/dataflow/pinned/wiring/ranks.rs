//! The pass that decides whose rows carry ranks (`channel/rank.rs`).

use crate::dataflow::pinned::wiring::graph::{Graph, number};
use crate::program::Origin;

/// For each origin, whether its rows carry ranks.
#[derive(Debug)]
pub struct Ranks(Vec<bool>);

impl Ranks {
    /// Ranks the rows that meet other rows of their event somewhere, or whose outputs do.
    pub fn new(graph: &Graph) -> Self {
        let mut ranks = Self(vec![false; graph.consumers.len()]);
        let ordered = graph.channel.is_ordered();
        for (index, consumer) in graph.consumers.iter().enumerate().rev() {
            let inputs = consumer.inputs;
            let producers: usize = inputs.iter().map(|&origin| graph.producers(origin)).sum();
            let meets = ordered && !graph.numbered && producers > 1;
            // The rows of a windowed operator come by several tasks.
            let is_windowed = graph.windowed(index).is_some();
            let parts = is_windowed && ordered && (consumer.replicas > 1 || inputs.len() > 1);
            let needs_ranks = parts || meets || (!graph.is_sink(index) && ranks.of(Origin::Operator(index)));
            for &origin in inputs {
                ranks.0[number(origin)] |= needs_ranks;
            }
        }
        ranks
    }

    /// Whether the rows of an origin carry ranks.
    pub fn of(&self, origin: Origin) -> bool {
        self.0[number(origin)]
    }
}
