//! Where a batch lives while it is in flight.

use crate::dataflow::pooled::input::Input;
use crate::output::sink::{Kept, Prepared};
use crate::rows::buffer::RowBuffer;
use crate::threads::sync::{CachePadded, UnsafeCell};

/// Where a batch lives.
#[derive(Debug)]
pub struct Slot {
    /// The worker that runs a step on the batch writes it; the worker that delivers the batch hands its outputs over.
    pub head: CachePadded<UnsafeCell<BatchHead>>,
    /// Per stage.
    pub inputs: Vec<Input>,
}

#[derive(Debug)]
pub struct BatchHead {
    /// Events of the block.
    pub start: usize,
    pub end: usize,
    /// Engine time when processing started.
    pub started: u64,
    /// Per operator room for its rows, if they are kept beyond the step in which they are made.
    pub kept: Vec<RowBuffer>,
    /// Per operator where its rows of this batch are; null while there are none.
    pub rows: Vec<*const RowBuffer>,
    /// Room for the outputs.
    pub out: RowBuffer,
    /// The outputs: `out`, or what the last operator emitted; null: the lanes in front have digested them.
    pub outputs: *const RowBuffer,
    pub prepared: Prepared,
    /// Copies of the outputs, if the sink keeps them.
    pub copies: Kept,
}
