//! The wiring of tasks: the outlets, the tasks, and the outlets that each task reads.
//!
//! Four passes over the graph decide about edges, ranks, batches and outlets (`assembly.rs` runs them). Then the tasks are
//! added, upstream first: sources, and for each consumer its finders, mergers and replicas. Last, each task learns which
//! threads it wakes.

mod assembly;
mod batches;
mod edges;
mod elastic;
mod finders;
pub mod graph;
mod outlets;
mod ranks;
mod replicas;
mod sources;
pub mod wakes;

use crate::dataflow::channel::outlet::Outlet;
use crate::dataflow::pinned::task::Task;

use assembly::Assembly;
use graph::Graph;

/// Creates all outlets, and the tasks of each of `threads` threads. Merge tasks get the last threads, one each. A jumbo tuple
/// of channel `pair_queue` has `batch` rows.
pub fn wire(graph: &Graph, threads: usize, batch: usize) -> (Vec<Outlet>, Vec<Vec<Task>>) {
    let mut assembly = Assembly::new(graph, threads, batch);
    sources::add(&mut assembly);
    for consumer in 0..graph.consumers.len() {
        replicas::add(&mut assembly, consumer);
    }
    let (outlets, mut tasks) = assembly.finish();
    wakes::connect(&mut tasks, graph.windows());
    (outlets, tasks)
}
