//! What schemes are tested with.

#[cfg(not(loom))]
mod bank;
#[cfg(loom)]
pub mod world;
