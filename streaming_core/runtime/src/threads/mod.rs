//! Threads: what they share, how they wait for each other, where they run.

pub mod barrier;
pub mod door;
pub mod idle;
pub mod own;
pub mod reorder;
pub mod sync;
pub mod team;
pub mod topology;
