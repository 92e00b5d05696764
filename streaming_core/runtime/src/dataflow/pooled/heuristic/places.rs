//! The input of a heuristic, and its trait.

use std::fmt::Debug;

/// The places of a chain, in topological order from the source to the sink, as a choosing worker sees them. All values are
/// hints that may change at any time, except for the worker's own. Symbols are those of Prasaad et al., section 6.
pub trait Places {
    /// n.
    fn count(&self) -> usize;

    /// Whether this worker may go there: the queue is not empty, and there is room for another worker.
    fn is_schedulable(&self, place: usize) -> bool;

    /// I: the number of rows in the worklist, without those that a worker has taken.
    fn queue(&self, place: usize) -> f64;

    /// w: the number of other workers there.
    fn workers(&self, place: usize) -> usize;

    /// c: the cost of a row there in nanoseconds, as far as it is known; None: no worker has been there yet.
    fn cost(&self, place: usize) -> Option<f64>;

    /// s: the number of rows that a row becomes there; 1 while it is unknown.
    fn selectivity(&self, place: usize) -> f64;

    /// T: nanoseconds that workers have spent there within the current window of time.
    fn spent(&self, place: usize) -> u64;

    /// Nanoseconds that the place spends on an event of the source, as far as this worker knows. It is the cost of a row, times
    /// the selectivities of all places before. 0: no worker has been there yet.
    fn per_event(&self, place: usize) -> f64;

    /// cs, the cumulative selectivity: rows that an event of the source has turned into behind the place.
    fn cumulative(&self, place: usize) -> f64 {
        (0..=place).map(|place| self.selectivity(place)).product()
    }
}

/// The settings of heuristics.
#[derive(Debug, Clone, Copy)]
pub struct Constants {
    /// The time slice s, in nanoseconds.
    pub slice: u64,
    /// The system's capacity C: the largest number of events in flight.
    pub capacity: u64,
}

/// A heuristic, which chooses a worker's next place.
pub trait Heuristic: Debug + Send + Sync {
    /// A schedulable place; None if there is none, or if none should be worked at now because another worker is at work.
    fn choose(&self, places: &dyn Places) -> Option<usize>;

    /// Whether workers choose one after the other and see every queue, as in the paper. Otherwise each worker looks at its own
    /// lanes first, and sees only their queues.
    fn is_central(&self) -> bool {
        true
    }
}
