//! Where a batch lives while it is in flight.

use crate::batch::RowBuffer;
use crate::executor::pooled::input::Input;
use crate::sink::Prepared;
use crate::sync::{CachePadded, UnsafeCell};

/// Where a batch lives.
#[derive(Debug)]
pub struct Slot {
    /// Written by whoever runs a step on the batch, read by whoever delivers it.
    pub head: CachePadded<UnsafeCell<Head>>,
    /// Per stage.
    pub inputs: Vec<Input>,
}

#[derive(Debug)]
pub struct Head {
    /// Events of the block.
    pub start: usize,
    pub end: usize,
    /// Engine time when processing started.
    pub started: u64,
    /// Room for the outputs.
    pub out: RowBuffer,
    /// The outputs: `out`, or what the last stage emitted.
    pub outputs: *const RowBuffer,
    pub prepared: Prepared,
}
