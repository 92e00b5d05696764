//! What a reorder buffer is.
//!
//! Invariant of all buffers: serials are released in the order 0, 1, 2, ..., each once, one release after the other. The
//! releasing worker sees everything that the serial's completer wrote.

use std::fmt::Debug;

/// Serials leave in order, fewer than a window of them between the first unreleased and the last completed.
pub trait ReorderBuffer: Debug + Send + Sync {
    /// All serials below this one are released. A thread that reads it sees what the threads wrote that completed and released
    /// them.
    fn released(&self) -> u64;

    /// Declares `serial` complete, each below `released() + window` exactly once, and releases what is next in order.
    ///
    /// `deliver(serial)` is called in order, never by two workers at once; returns how many were delivered here.
    fn complete_and_release(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize;
}
