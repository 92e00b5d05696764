//! The finders of keys in front of a windowed operator.

use crate::dataflow::channel::gate::{Gate, Source};
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::{Jumbo, Outlet, SLOTS};
use crate::dataflow::pinned::role::{Keys, Role};
use crate::dataflow::pinned::task::Task;
use crate::dataflow::pinned::wiring::assembly::Assembly;
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::copies::Copies;
use crate::dataflow::windowed::keys::Lister;

/// The outlets of an operator's finders of keys.
#[derive(Debug)]
pub struct KeyOutlets {
    /// For each input, the number of the first outlet.
    first: Vec<usize>,
    /// The number of finders for each input.
    finders: usize,
    /// Whether each replica has a queue of its own from each finder.
    apart: bool,
}

impl KeyOutlets {
    /// The sources of a replica.
    pub fn sources(&self, replica: usize) -> Vec<Source> {
        let (queues, queue, reader) = if self.apart { (self.finders, replica, 0) } else { (1, 0, replica) };
        let mut sources = Vec::new();
        for (stream, &first) in self.first.iter().enumerate() {
            let source = |finder| Source::new(first + finder * queues + queue, reader, stream as u64, Some(0));
            sources.extend((0..self.finders).map(source));
        }
        sources
    }
}

/// Adds a finder of keys for each input of a windowed operator, on the thread of each replica.
pub fn add(assembly: &mut Assembly, operator: usize, windowed: &Replicated) -> KeyOutlets {
    let graph = assembly.graph;
    let replicas = graph.consumers[operator].replicas;
    let apart = windowed.operator.deals_keys(replicas);
    let (queues, readers) = if apart { (replicas, 1) } else { (1, replicas) };
    let mut outlets = KeyOutlets { first: Vec::new(), finders: replicas, apart };
    for (input, &origin) in graph.consumers[operator].inputs.iter().enumerate() {
        outlets.first.push(assembly.outlets.next());
        for (replica, &thread) in graph.plan.operators[operator].iter().enumerate() {
            let stride = graph.program.stride(origin);
            let reader = assembly.edges.to(operator, input, origin).first + replica;
            let source = |producer| {
                let source = Source::new(assembly.outlets.first(origin, producer), reader, 0, None);
                graph.silence(origin, producer, source)
            };
            let ranked = assembly.ranks.of(origin);
            let sources = (0..graph.producers(origin)).map(source).collect();
            let gate = Gate::new(sources, graph.channel.is_ordered(), ranked, false).that_takes(true);
            let role = Role::Keys(Keys {
                operator,
                input,
                replica,
                lister: Lister::new(&windowed.operator),
                copies: apart.then(|| Box::new(Copies::new(&windowed.operator, stride, replicas))),
                announced: i64::MIN,
            });
            let outlet = assembly.outlets.next();
            assembly.add(thread, Task { ranked, ..Task::new(role, Inlet::Gate(gate), Some(outlet), stride) });
            let outlet = |_| Outlet::new(SLOTS, readers, || Jumbo::new(stride, readers, 1)).with_absence();
            assembly.outlets.list.extend((0..queues).map(outlet));
        }
    }
    outlets
}
