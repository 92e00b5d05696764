//! The elastic ScaleGate in front of a windowed operator with parallelism `vsn_esg`.

use crate::dataflow::channel::elastic::elastic_scale_gate;
use crate::dataflow::channel::elastic::ends::{Inserter, Taker};
use crate::dataflow::channel::gate::{Gate, Source};
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::{Jumbo, Outlet, SLOTS};
use crate::dataflow::pinned::role::Role;
use crate::dataflow::pinned::task::Task;
use crate::dataflow::pinned::wiring::assembly::Assembly;
use crate::dataflow::windowed::Replicated;
use crate::program::Origin;

/// Adds the elastic ScaleGate of a windowed operator, and returns the end of each replica.
///
/// Absent replicas of a windowed origin would hold back the others, so a merge task stands between. Its gate knows which
/// replicas are absent.
pub fn add(assembly: &mut Assembly, operator: usize, windowed: &Replicated) -> Vec<Taker> {
    let graph = assembly.graph;
    let replicas = graph.consumers[operator].replicas;
    let mut sources = Vec::new();
    for (input, &origin) in graph.consumers[operator].inputs.iter().enumerate() {
        if graph.windowed_origin(origin).is_some() {
            sources.push(Source::new(add_merger(assembly, operator, input), 0, input as u64, None));
            continue;
        }
        let reader = assembly.edges.to(operator, input, origin).first;
        let source = |producer| Source::new(assembly.outlets.first(origin, producer), reader, input as u64, None);
        sources.extend((0..graph.producers(origin)).map(source));
    }
    let (ends, readers) = elastic_scale_gate(&vec![true; sources.len()], &vec![true; replicas], SLOTS);
    let takers = Taker::all(readers, &sources, assembly.ranks.of(Origin::Operator(operator)));
    let epochs = &windowed.operator.epochs;
    let inserters = ends.into_iter().zip(sources).map(|(end, source)| Inserter::new(end, source, epochs.clone()));
    assembly.inserters.extend(inserters);
    takers
}

/// Adds a merge task for an input, and returns the number of its outlet.
fn add_merger(assembly: &mut Assembly, operator: usize, input: usize) -> usize {
    let graph = assembly.graph;
    let consumer = &graph.consumers[operator];
    let (origin, outlet) = (consumer.inputs[input], assembly.outlets.next());
    let reader = assembly.edges.to(operator, input, origin).first;
    let source = |producer| {
        let source = Source::new(assembly.outlets.first(origin, producer), reader, 0, None);
        graph.silence(origin, producer, source)
    };
    let ranked = assembly.ranks.of(origin);
    let gate = Gate::new((0..graph.producers(origin)).map(source).collect(), true, ranked, false).that_takes(true);
    let (role, stride) = (Role::Merge { operator: Some(operator) }, graph.program.stride(origin));
    let thread = graph.plan.operators[operator][input % consumer.replicas];
    assembly.add(thread, Task { ranked, ..Task::new(role, Inlet::Gate(gate), Some(outlet), stride) });
    assembly.outlets.list.push(Outlet::new(SLOTS, 1, || Jumbo::new(stride, 1, 0)));
    outlet
}
