//! The tasks that deal events.

use crate::dataflow::channel::gate::Gate;
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::pinned::role::Role;
use crate::dataflow::pinned::task::Task;
use crate::dataflow::pinned::wiring::assembly::Assembly;
use crate::program::Origin;

/// Adds the sources of the plan.
pub fn add(assembly: &mut Assembly) {
    let graph = assembly.graph;
    for (index, &thread) in graph.plan.source.iter().enumerate() {
        let role = Role::Source { index, of: graph.plan.source.len() };
        let inlet = Inlet::Gate(Gate::new(Vec::new(), true, false, false));
        let outlet = assembly.outlets.first(Origin::Events, index);
        let task = Task {
            pairs: assembly.pair_queues(Origin::Events, index),
            edges: assembly.edges.of(Origin::Events).to_vec(),
            ..Task::new(role, inlet, Some(outlet), graph.program.event.stride)
        };
        assembly.add(thread, task);
    }
}
