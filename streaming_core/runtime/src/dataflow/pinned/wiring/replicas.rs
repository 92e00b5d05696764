//! The replicas of operators and the sinks, with what stands before them: finders of keys, mergers, ScaleGates.

use crate::dataflow::channel::gate::{Gate, Source};
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::merge_sort::MergeSort;
use crate::dataflow::channel::outlet::{Jumbo, Outlet, SLOTS};
use crate::dataflow::channel::results::Results;
use crate::dataflow::channel::scale_gate::scale_gate;
use crate::dataflow::pinned::channels::Channel;
use crate::dataflow::pinned::role::Role;
use crate::dataflow::pinned::route::Route;
use crate::dataflow::pinned::task::Task;
use crate::dataflow::pinned::wiring::assembly::Assembly;
use crate::dataflow::pinned::wiring::{elastic, finders};
use crate::dataflow::windowed::keys::Finder;
use crate::program::{OperatorKind, Origin};

/// Adds the replicas of a consumer: of an operator, or of the sink.
pub fn add(assembly: &mut Assembly, consumer: usize) {
    let graph = assembly.graph;
    for (replica, inlet) in inlets(assembly, consumer).into_iter().enumerate() {
        if graph.is_sink(consumer) {
            let stride = graph.program.stride(graph.consumers[consumer].inputs[0]);
            let task = Task::new(Role::Sink { number: replica }, inlet, None, stride);
            assembly.add(graph.plan.sink[replica], task);
        } else {
            let task = replica_task(assembly, consumer, replica, inlet);
            assembly.add(graph.plan.operators[consumer][replica], task);
        }
    }
}

/// The inlets of the replicas of a consumer.
fn inlets(assembly: &mut Assembly, consumer: usize) -> Vec<Inlet> {
    let graph = assembly.graph;
    if graph.reads_elastic(consumer) {
        let sources = sources(assembly, consumer, 0);
        return elastic::add(assembly, consumer, sources);
    }
    let keys = graph.windowed(consumer).map(|windowed| finders::add(assembly, consumer, windowed));
    let of_replica = |replica| {
        let sources = match &keys {
            Some(keys) => keys.sources(replica),
            None => sources(assembly, consumer, replica),
        };
        inlet(assembly, consumer, sources)
    };
    (0..graph.consumers[consumer].replicas).map(of_replica).collect()
}

/// The task of a replica of an operator.
fn replica_task(assembly: &Assembly, operator: usize, replica: usize, inlet: Inlet) -> Task {
    let graph = assembly.graph;
    let (origin, spec) = (Origin::Operator(operator), &graph.program.operators[operator]);
    let lane = if spec.kind == OperatorKind::Stateless { 0 } else { replica };
    // The consumers of queues get copies of the rows, so results would not reach them.
    let prepares = graph.sink_producer() == Some(operator) && !graph.has_pair_queues();
    let outlet = assembly.outlets.first(origin, replica);
    let stride = graph.program.stride(spec.inputs[0]);
    Task {
        pairs: assembly.pair_queues(origin, replica),
        edges: assembly.edges.of(origin).to_vec(),
        finder: graph.elastic(origin).map(|windowed| Finder::new(&windowed.operator)),
        ranked: assembly.ranks.of(origin),
        preparer: prepares.then(|| graph.preparer.clone()),
        whole: assembly.whole[operator],
        ..Task::new(Role::Operator { operator, lane }, inlet, Some(outlet), stride)
    }
}

/// The sources of a replica that takes its rows straight from their producers.
fn sources(assembly: &Assembly, consumer: usize, replica: usize) -> Vec<Source> {
    let graph = assembly.graph;
    let mut sources = Vec::new();
    for (stream, &origin) in graph.consumers[consumer].inputs.iter().enumerate() {
        let edge = assembly.edges.to(consumer, stream, origin);
        let hashes = match &edge.route {
            Route::Key(_, place) => Some(*place),
            Route::Turn | Route::Range(_) => None,
        };
        for producer in 0..graph.producers(origin) {
            let outlet = assembly.outlets.first(origin, producer);
            let source = if graph.has_pair_queues() {
                Source::new(outlet + edge.first + replica, 0, stream as u64, hashes.map(|_| 0))
            } else {
                Source::new(outlet, edge.first + replica, stream as u64, hashes)
            };
            sources.push(graph.silence(origin, producer, source));
        }
    }
    sources
}

/// The inlet of a replica that reads `sources`.
fn inlet(assembly: &mut Assembly, consumer: usize, mut sources: Vec<Source>) -> Inlet {
    let graph = assembly.graph;
    let (channel, is_sink) = (graph.channel, graph.is_sink(consumer));
    let ranked = !is_sink && assembly.ranks.of(Origin::Operator(consumer));
    // A row is ready if each source has a later event, so all rows of an event come at once.
    let whole = channel.is_vipers() || (!is_sink && assembly.whole[consumer]);
    if channel == Channel::MergeSort && sources.len() > 1 {
        sources = vec![add_merger(assembly, consumer, MergeSort::new(sources, ranked), ranked)];
    }
    if is_sink && graph.numbered {
        return Inlet::Results(Results::new(&sources));
    }
    if channel == Channel::ScaleGate && sources.len() > 1 {
        let (feeds, reader) = scale_gate(sources, ranked);
        assembly.feeds.extend(feeds);
        return Inlet::ScaleGate(reader);
    }
    let ordered = channel.is_ordered();
    let prepared = is_sink && ordered && !graph.numbered && graph.sink_producer().is_some();
    // An operator takes batch after batch from a queue. A sink that has one source takes as much at once as one with several.
    let gate = Gate::new(sources, ordered, ranked, prepared).that_takes(whole).that_joins(is_sink);
    Inlet::Gate(gate.of_numbered(graph.numbered))
}

/// Adds the merge task of a replica, and returns the source that reads it.
fn add_merger(assembly: &mut Assembly, consumer: usize, merger: MergeSort, ranked: bool) -> Source {
    let graph = assembly.graph;
    let (key, outlet) = (graph.consumers[consumer].key, assembly.outlets.next());
    let stride = graph.program.stride(graph.consumers[consumer].inputs[0]);
    let role = Role::Merge { operator: (!graph.is_sink(consumer)).then_some(consumer) };
    assembly.add_merger(Task { ranked, ..Task::new(role, Inlet::MergeSort(merger), Some(outlet), stride) });
    assembly.outlets.list.push(Outlet::new(SLOTS, 1, || Jumbo::new(stride, 1, usize::from(!key.is_empty()))));
    Source::new(outlet, 0, 0, (!key.is_empty()).then_some(0))
}
