//! Heuristics: where a worker goes next, among the places that have work for it (axis `heuristic`).
//!
//! One trait (`places.rs`), one file per heuristic, one registry. No result depends on the choice, and every queue is bounded whatever
//! it is. The names are those of the paper (Prasaad et al., the section on scheduling heuristics); the rules are told
//! from memory of it, and each file says how it is read here.

mod ct;
mod et;
mod lp;
pub mod places;
mod qst;

use places::Heuristic;

/// Makes a heuristic for `places` places that have room for `window` batches together.
pub type Make = fn(places: usize, window: usize) -> Box<dyn Heuristic>;

/// The registry, the default first: adding a heuristic touches its file and this table.
pub const HEURISTICS: &[(&str, Make)] = &[("ct", ct::make), ("lp", lp::make), ("et", et::make), ("qst", qst::make)];

#[cfg(all(test, not(loom)))]
mod tests;
