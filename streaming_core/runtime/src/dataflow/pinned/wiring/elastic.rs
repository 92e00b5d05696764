//! The elastic ScaleGate in front of a consumer, with parallelism `vsn_esg` (STRETCH, section 7, figure 5). Before a windowed
//! operator it is ESG_in. Before the replicas or sinks behind one it is ESG_out.

use crate::dataflow::channel::elastic::elastic_scale_gate;
use crate::dataflow::channel::elastic::ends::{Inserter, Taker};
use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::SLOTS;
use crate::dataflow::pinned::wiring::assembly::Assembly;
use crate::program::Origin;

/// Adds the elastic ScaleGate of a consumer, and returns the inlet of each of its replicas. `sources`: the replicas of its
/// inputs, as its first replica reads them.
pub fn add(assembly: &mut Assembly, consumer: usize, sources: Vec<Source>) -> Vec<Inlet> {
    let graph = assembly.graph;
    let (readers, epochs) = match graph.elastic(Origin::Operator(consumer)) {
        Some(windowed) => (1, Some(windowed.operator.epochs.clone())),
        None => (graph.consumers[consumer].replicas, None),
    };
    let replicas = vec![true; graph.consumers[consumer].replicas];
    let (feeds, ends) = elastic_scale_gate(&vec![true; sources.len()], &replicas, SLOTS);
    let ranked = !graph.is_sink(consumer) && assembly.ranks.of(Origin::Operator(consumer));
    let takers = Taker::all(ends, &sources, ranked, epochs.is_none());
    let inputs = graph.consumers[consumer].inputs.iter().map(|&origin| graph.producers(origin));
    let first = inputs.scan(0, |next, producers| Some(vec![std::mem::replace(next, *next + producers); producers]));
    let inserter = |((feed, source), first)| Inserter::new(feed, first, source, readers, epochs.clone());
    assembly.inserters.extend(feeds.into_iter().zip(sources).zip(first.flatten()).map(inserter));
    takers.into_iter().map(Inlet::Elastic).collect()
}
