//! The tasks while the wiring assembles them, with the results of its passes.

use crate::dataflow::channel::elastic::ends::Inserter;
use crate::dataflow::channel::outlet::Outlet;
use crate::dataflow::channel::scale_gate::Feed;
use crate::dataflow::pinned::pairs::PairQueues;
use crate::dataflow::pinned::task::Task;
use crate::dataflow::pinned::wiring::batches::whole;
use crate::dataflow::pinned::wiring::edges::Edges;
use crate::dataflow::pinned::wiring::graph::Graph;
use crate::dataflow::pinned::wiring::outlets::Outlets;
use crate::dataflow::pinned::wiring::ranks::Ranks;
use crate::program::Origin;

/// The tasks so far.
#[derive(Debug)]
pub struct Assembly<'a> {
    pub graph: &'a Graph<'a>,
    pub edges: Edges,
    pub ranks: Ranks,
    /// For each operator, whether it puts out whole events.
    pub whole: Vec<bool>,
    pub outlets: Outlets,
    /// The ends of ScaleGates, until the tasks of their outlets get them.
    pub feeds: Vec<Feed>,
    /// The ends of elastic ScaleGates, likewise.
    pub inserters: Vec<Inserter>,
    /// The rows of a jumbo tuple in a queue of channel `pair_queue`.
    batch: usize,
    /// The tasks of each thread, upstream first.
    tasks: Vec<Vec<Task>>,
    mergers: usize,
}

impl<'a> Assembly<'a> {
    /// Runs the passes over a graph; there are no tasks yet.
    pub fn new(graph: &'a Graph<'a>, threads: usize, batch: usize) -> Self {
        let edges = Edges::new(graph);
        Self {
            graph,
            ranks: Ranks::new(graph),
            whole: whole(graph, &edges),
            outlets: Outlets::new(graph, &edges, batch),
            edges,
            feeds: Vec::new(),
            inserters: Vec::new(),
            batch,
            tasks: (0..threads).map(|_| Vec::new()).collect(),
            mergers: 0,
        }
    }

    /// Adds a task to a thread.
    pub fn add(&mut self, thread: usize, task: Task) {
        let (numbered, period) = (self.graph.numbered, self.graph.period());
        self.tasks[thread].push(Task { planned: thread, numbered, period, ..task });
    }

    /// Adds a merge task, on a thread of its own: the last ones.
    pub fn add_merger(&mut self, task: Task) {
        self.mergers += 1;
        self.add(self.tasks.len() - self.mergers, task);
    }

    /// The queues of replica `replica` of `origin`, if the channel has such.
    pub fn pair_queues(&self, origin: Origin, replica: usize) -> Option<Box<PairQueues>> {
        let (first, stride) = (self.outlets.first(origin, replica), self.graph.program.stride(origin));
        let edges = self.edges.of(origin);
        self.graph.has_pair_queues().then(|| Box::new(PairQueues::new(first, edges, stride, self.batch)))
    }

    /// The outlets and the tasks, which get the ends of their ScaleGates.
    pub fn finish(mut self) -> (Vec<Outlet>, Vec<Vec<Task>>) {
        for task in self.tasks.iter_mut().flatten() {
            task.feeds = self.feeds.extract_if(.., |feed| Some(feed.outlet()) == task.outlet).collect();
            let is_own = |inserter: &mut Inserter| Some(inserter.outlet()) == task.outlet;
            task.inserters = self.inserters.extract_if(.., is_own).collect();
        }
        (self.outlets.list, self.tasks)
    }
}
