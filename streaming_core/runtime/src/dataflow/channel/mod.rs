//! What batches travel through between pinned tasks; README.md states the protocols.

pub mod gate;
pub mod outlet;
pub mod rank;
