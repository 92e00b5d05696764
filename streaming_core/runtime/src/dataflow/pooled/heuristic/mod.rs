//! Heuristics: where a worker goes next, among the places that have work for it (axis `heuristic`).
//!
//! One trait (`places.rs`), one file per heuristic, one registry. No result depends on the choice, and every queue is bounded
//! whatever it is. `ct`, `lp`, `et` and `qst` follow the equations of the paper (Prasaad et al., section 6). Workers ask them
//! through the central scheduler, and they see every operator's queue. `affinity` is ours.
//!
//! An operator of the paper is a place here: a stateful operator, or a fused run of stateless ones. Section 2 leaves fusion to
//! the compiler. `affinity` alone also sees steps without operators. Where the paper says nothing, the file
//! of the heuristic says what it does. Ties go to the end of the chain.

mod affinity;
mod ct;
mod et;
mod lp;
pub mod places;
mod qst;

use places::{Constants, Heuristic};

/// Makes a heuristic.
pub type Make = fn(Constants) -> Box<dyn Heuristic>;

/// The registry, the default first: adding a heuristic touches its file and this table.
pub const HEURISTICS: &[(&str, Make)] =
    &[("affinity", affinity::make), ("ct", ct::make), ("lp", lp::make), ("et", et::make), ("qst", qst::make)];

#[cfg(all(test, not(loom)))]
mod tests;
