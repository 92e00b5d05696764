//! The pass that decides which operators put out only whole events.

use crate::dataflow::pinned::wiring::edges::Edges;
use crate::dataflow::pinned::wiring::graph::Graph;
use crate::program::Origin;

/// Whether each operator puts out whole events.
///
/// An operator may put out parts of events if all of them reach the sink by one way. A part then waits only for rows that
/// already exist, or that come from other operators' rows. On several ways, it might wait for the rest of its own event.
/// A source of an elastic ScaleGate announces its progress only by watermarks, which stand behind whole events.
pub fn whole(graph: &Graph, edges: &Edges) -> Vec<bool> {
    let mut whole = vec![true; graph.program.operators.len()];
    for index in (0..whole.len()).rev() {
        let origin = Origin::Operator(index);
        let consumer = graph.consumers.iter().position(|consumer| consumer.inputs.contains(&origin));
        if let ([edge], Some(consumer)) = (edges.of(origin), consumer) {
            let takes_whole = graph.windowed(consumer).is_some() || graph.reads_elastic(consumer);
            whole[index] = edge.readers > 1 || takes_whole || whole.get(consumer).is_some_and(|&whole| whole);
        }
    }
    whole
}
