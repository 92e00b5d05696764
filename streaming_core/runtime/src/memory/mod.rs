//! Memory: what growing containers get theirs from, and where it lies.

pub mod arena;
pub mod chunk;
pub mod fallible;
pub mod fetching;
pub mod placement;
