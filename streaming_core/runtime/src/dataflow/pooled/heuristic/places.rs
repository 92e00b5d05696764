//! What a heuristic sees, and what it is.

use std::fmt::Debug;

/// The places of a chain, in topological order from the source to the sink, as one worker sees them. Everything but
/// the worker's own doing may change at any time: hints.
pub trait Places {
    fn count(&self) -> usize;

    /// Whether this worker would find something to do there.
    fn has_work(&self, place: usize) -> bool;

    /// Batches that wait there.
    fn queue(&self, place: usize) -> u64;

    /// Other workers that are there.
    fn workers(&self, place: usize) -> usize;

    /// Nanoseconds that the place spends on an event of the source: the estimated cost of a row, times the estimated
    /// selectivities of everything before. 0: nobody has been there yet.
    fn cost(&self, place: usize) -> f64;
}

/// Chooses.
pub trait Heuristic: Debug + Send + Sync {
    /// A place that has work; None only if there is none.
    fn choose(&self, places: &dyn Places) -> Option<usize>;
}
