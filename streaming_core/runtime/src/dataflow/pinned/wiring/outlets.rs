//! The pass that creates the outlets: one for each replica, or with `pair_queue` one for each of its readers.

use crate::dataflow::channel::outlet::{Jumbo, Outlet, SLOTS};
use crate::dataflow::pinned::pairs::queues;
use crate::dataflow::pinned::wiring::edges::Edges;
use crate::dataflow::pinned::wiring::graph::{Graph, PERIOD, number};
use crate::program::Origin;

/// The periods of single tuples for which a task has room. A source has room for twice as many: its rows lie in the block.
const PERIODS: usize = 2;

/// The outlets of all replicas, and later those of finders of keys and of mergers.
#[derive(Debug)]
pub struct Outlets {
    pub list: Vec<Outlet>,
    /// For each origin, the number of its first outlet, and the number of outlets of each of its replicas.
    by_origin: Vec<(usize, usize)>,
}

impl Outlets {
    /// Creates the outlets of the sources and operators.
    pub fn new(graph: &Graph, edges: &Edges, batch: usize) -> Self {
        let mut outlets = Self { list: Vec::new(), by_origin: Vec::new() };
        for origin in graph.origins() {
            let (stride, readers, keyed) = (graph.program.stride(origin), edges.readers(origin), edges.keyed(origin));
            let in_pairs = graph.has_pair_queues();
            let periods = if origin == Origin::Events { 2 * PERIODS } else { PERIODS };
            let slots = if graph.period() > 0 { SLOTS.max(periods * PERIOD / batch) } else { SLOTS };
            outlets.by_origin.push((outlets.list.len(), if in_pairs { readers } else { 1 }));
            for _ in 0..graph.producers(origin) {
                if in_pairs {
                    outlets.list.extend(queues(edges.of(origin), stride));
                    continue;
                }
                outlets.list.push(Outlet::new(slots, readers, || {
                    let mut jumbo = Jumbo::new(stride, readers, keyed);
                    if let Some(windowed) = graph.windowed_origin(origin) {
                        windowed.operator.furnish(&mut jumbo.buffer);
                    }
                    jumbo
                }));
            }
        }
        outlets
    }

    /// The number of the next outlet.
    pub fn next(&self) -> usize {
        self.list.len()
    }

    /// The number of the first outlet of a replica of `origin`.
    pub fn first(&self, origin: Origin, replica: usize) -> usize {
        let (first, each) = self.by_origin[number(origin)];
        first + replica * each
    }
}
