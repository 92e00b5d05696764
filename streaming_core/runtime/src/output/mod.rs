//! Output: where rows end, and what a run says about itself.

pub mod clock;
pub mod counters;
pub mod delivered;
pub mod delivery;
pub mod digest;
pub mod latency;
pub mod metrics;
pub mod ranges;
pub mod sink;
mod vectors;
