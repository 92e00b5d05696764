//! What batches travel through between pinned tasks; README.md states the protocols.

pub mod elastic;
pub mod gate;
pub mod inlet;
pub mod merge_sort;
pub mod outlet;
pub mod rank;
pub mod refill;
pub mod results;
pub mod scale_gate;
pub mod skip_list;
pub mod taken;

#[cfg(all(test, loom))]
mod models;
