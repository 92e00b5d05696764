//! The pass that draws the edges: from each origin to the replicas that take its rows.

use crate::dataflow::pinned::route::{Edge, Route};
use crate::dataflow::pinned::wiring::graph::{Graph, number};
use crate::program::Origin;

/// The edges of all origins.
#[derive(Debug)]
pub struct Edges {
    by_origin: Vec<Vec<Edge>>,
    /// For each input of each consumer, the index of its edge among those of the input's origin.
    by_input: Vec<Vec<usize>>,
}

impl Edges {
    /// Draws the edges of a graph.
    pub fn new(graph: &Graph) -> Self {
        let mut edges = Self { by_origin: vec![Vec::new(); graph.consumers.len()], by_input: Vec::new() };
        for (consumer, inputs) in graph.consumers.iter().map(|consumer| consumer.inputs).enumerate() {
            let mut indices = Vec::new();
            for &origin in inputs {
                let edge = edges.edge(graph, origin, consumer);
                indices.push(edges.of(origin).len());
                edges.by_origin[number(origin)].push(edge);
            }
            edges.by_input.push(indices);
        }
        edges
    }

    /// The next edge of `origin`.
    fn edge(&self, graph: &Graph, origin: Origin, consumer: usize) -> Edge {
        let windowed = graph.windowed(consumer);
        let has_barrier = windowed.is_some_and(|windowed| windowed.operator.has_barrier);
        // One reader stands for all readers of an elastic ScaleGate.
        let readers = if has_barrier { 1 } else { graph.consumers[consumer].replicas };
        let route = match (graph.consumers[consumer].key, windowed) {
            _ if graph.is_sink(consumer) => Route::Range(None),
            // All rows of an event go to one finder of keys, which counts them.
            (_, Some(windowed)) if !has_barrier => Route::Range(Some(windowed.operator.epochs.clone())),
            ([], _) => Route::Turn,
            (key, _) => Route::Key(key.into(), self.keyed(origin)),
        };
        Edge { first: self.readers(origin), readers, route }
    }

    /// The edges of an origin.
    pub fn of(&self, origin: Origin) -> &[Edge] {
        &self.by_origin[number(origin)]
    }

    /// The edge to input `input` of a consumer, from `origin`.
    pub fn to(&self, consumer: usize, input: usize, origin: Origin) -> &Edge {
        &self.of(origin)[self.by_input[consumer][input]]
    }

    /// The number of readers of an origin's outlet.
    pub fn readers(&self, origin: Origin) -> usize {
        self.of(origin).last().map_or(0, |edge| edge.first + edge.readers)
    }

    /// The number of an origin's edges that the key routes.
    pub fn keyed(&self, origin: Origin) -> usize {
        self.of(origin).iter().filter(|edge| matches!(edge.route, Route::Key(..))).count()
    }
}
