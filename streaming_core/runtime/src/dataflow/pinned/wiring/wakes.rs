//! The threads that each task wakes.

use std::collections::{BTreeMap, BTreeSet};

use crate::dataflow::pinned::task::{Task, Wakes};
use crate::dataflow::windowed::Replicated;

/// Tells each task which threads it wakes.
pub fn connect(tasks: &mut [Vec<Task>], windows: &[Option<Replicated>]) {
    let (mut readers, mut writers) = (BTreeMap::<usize, Vec<usize>>::new(), BTreeMap::new());
    let mut replicas = BTreeMap::<usize, Vec<usize>>::new();
    for (thread, tasks) in tasks.iter().enumerate() {
        for task in tasks {
            writers.extend(task.outlets().map(|outlet| (outlet, thread)));
            task.inlet.outlets().into_iter().for_each(|outlet| readers.entry(outlet).or_default().push(thread));
            if let Some(operator) = task.windowed(windows) {
                replicas.entry(operator).or_default().push(thread);
            }
        }
    }
    for (thread, tasks) in tasks.iter_mut().enumerate() {
        for task in tasks {
            let others = |threads: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
                threads.filter(|&other| other != thread).collect::<BTreeSet<_>>().into_iter().collect()
            };
            let sources = task.inlet.outlets();
            task.wakes = Wakes {
                readers: others(&mut task.outlets().filter_map(|outlet| readers.get(&outlet)).flatten().copied()),
                writers: others(&mut sources.iter().map(|outlet| writers[outlet])),
                peers: others(&mut task.windowed(windows).into_iter().flat_map(|operator| replicas[&operator].clone())),
            };
        }
    }
}
