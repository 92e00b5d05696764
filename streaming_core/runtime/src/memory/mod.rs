//! Memory: what growing containers get theirs from, and where it lies.

pub mod arena;
pub mod chunk;
pub mod fetching;
pub mod placement;
