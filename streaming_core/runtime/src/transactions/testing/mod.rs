//! What schemes are tested with.

#[cfg(not(loom))]
pub mod bank;
#[cfg(loom)]
pub mod world;
