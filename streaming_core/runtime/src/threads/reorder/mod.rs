//! Reorder buffers: what parallel workers complete in any order leaves in serial order.
//!
//! One trait, one file per buffer, one registry. Invariant of them all: serials are released 0, 1, 2, ..., each once,
//! one release after the other, each by a worker that sees everything its completer wrote.

pub mod lock;
pub mod non_blocking;

use std::fmt::Debug;

/// Serials leave in order, fewer than a window of them between the first unreleased and the last completed.
pub trait ReorderBuffer: Debug + Send + Sync {
    /// All serials below this one have been released; who reads it sees what their completers and releasers wrote.
    fn released(&self) -> u64;

    /// Declares `serial` complete, each below `released() + window` exactly once, and releases what is next in order.
    ///
    /// `deliver(serial)` is called in order, never by two workers at once; returns how many were delivered here.
    fn complete_and_release(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize;
}

/// Makes a buffer for at most `window` (a power of two) serials at a time.
pub type Make = fn(window: usize) -> Box<dyn ReorderBuffer>;

/// The registry, the default first: adding a buffer touches its file and this table.
pub const BUFFERS: &[(&str, Make)] = &[("non_blocking", non_blocking::make), ("lock", lock::make)];

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
