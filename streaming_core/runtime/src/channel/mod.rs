//! What batches travel through between stages; README.md states the protocols.

pub mod gate;
pub mod in_order;
pub mod outlet;
pub mod rank;
pub mod reorder;
pub mod worklist;
