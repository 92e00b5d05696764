//! Threads: what they share, how they wait for each other, where they run.

pub mod barrier;
pub mod bells;
pub mod choice;
pub mod door;
pub mod idle;
pub mod own;
pub mod reorder;
#[cfg(any(feature = "pyo3", all(test, not(any(loom, shuttle)))))]
pub mod stall;
pub mod sync;
pub mod team;
#[cfg(test)]
pub mod testing;
/// Only benchmarks need it.
#[cfg(any(feature = "pyo3", all(test, not(any(loom, shuttle)))))]
pub mod timing;
pub mod topology;
