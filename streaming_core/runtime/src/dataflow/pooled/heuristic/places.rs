//! What a heuristic sees, and what it is.

use std::fmt::Debug;

/// The places of a chain, in topological order from the source to the sink, as a worker that chooses sees them. Everything
/// but the worker's own doing may change at any time: hints. Symbols are those of Prasaad et al., section 6.
pub trait Places {
    /// n.
    fn count(&self) -> usize;

    /// Whether this worker may go there: the queue is not empty, and fewer workers are there than may be.
    fn is_schedulable(&self, place: usize) -> bool;

    /// I: rows that wait there.
    fn queue(&self, place: usize) -> f64;

    /// w: other workers that are there.
    fn workers(&self, place: usize) -> usize;

    /// c: nanoseconds that a row costs there, as far as that is known; None: nobody has been there yet.
    fn cost(&self, place: usize) -> Option<f64>;

    /// s: rows that a row turns into there, as far as that is known; 1 while it is not.
    fn selectivity(&self, place: usize) -> f64;

    /// T: nanoseconds that workers have spent there within the current window of time.
    fn spent(&self, place: usize) -> u64;

    /// Nanoseconds that the place spends on an event of the source, as far as this worker knows: the cost of a row, times
    /// the selectivities of everything before. 0: nobody has been there yet.
    fn per_event(&self, place: usize) -> f64;

    /// cs, the cumulative selectivity: rows that an event of the source has turned into behind the place.
    fn cumulative(&self, place: usize) -> f64 {
        (0..=place).map(|place| self.selectivity(place)).product()
    }
}

/// What heuristics are made for.
#[derive(Debug, Clone, Copy)]
pub struct Constants {
    /// The time slice s, in nanoseconds.
    pub slice: u64,
    /// The system's capacity C: events in flight at most.
    pub capacity: u64,
}

/// Chooses.
pub trait Heuristic: Debug + Send + Sync {
    /// A schedulable place; None if there is none, or none that should be worked at now: then somebody else is at work, or
    /// there is none. Whether there is one may not hang on `spent`.
    fn choose(&self, places: &dyn Places) -> Option<usize>;

    /// Whether workers choose one after the other and see every queue, as the paper has it; else each looks after lanes of
    /// its own first, and a queue is what it finds there.
    fn is_central(&self) -> bool {
        true
    }
}
