//! Reorder buffers: what parallel workers complete in any order leaves in serial order (axis `reorder`).
//!
//! One trait (`buffer.rs`), one file per buffer, one registry.

pub mod buffer;
pub mod lock;
pub mod non_blocking;

use buffer::ReorderBuffer;

/// Makes a buffer for at most `window` (a power of two) serials at a time.
pub type Make = fn(window: usize) -> Box<dyn ReorderBuffer>;

/// The registry, the default first: adding a buffer touches its file and this table.
pub const BUFFERS: &[(&str, Make)] = &[("non_blocking", non_blocking::make), ("lock", lock::make)];

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
