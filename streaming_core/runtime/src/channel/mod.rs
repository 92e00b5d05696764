//! What batches travel through between stages; README.md states the protocols.

pub mod in_order;
pub mod reorder;
pub mod worklist;
