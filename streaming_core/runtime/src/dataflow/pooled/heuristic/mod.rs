//! Heuristics: where a worker goes next, among the places that have work for it.
//!
//! One trait, one file per heuristic, one registry. No result depends on the choice, and every queue is bounded whatever
//! it is. The names are those of the paper (Prasaad et al., the section on scheduling heuristics); the rules are told
//! from memory of it, and each file says how it is read here.

mod ct;
mod et;
mod lp;
mod qst;

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

/// Makes a heuristic for `places` places that have room for `window` batches together.
pub type Make = fn(places: usize, window: usize) -> Box<dyn Heuristic>;

/// The registry, the default first: adding a heuristic touches its file and this table.
pub const HEURISTICS: &[(&str, Make)] = &[("ct", ct::make), ("lp", lp::make), ("et", et::make), ("qst", qst::make)];

#[cfg(all(test, not(loom)))]
mod tests;
