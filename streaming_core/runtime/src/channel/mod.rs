//! What batches travel through between stages; README.md states the protocols.

pub mod reorder;
pub mod worklist;
