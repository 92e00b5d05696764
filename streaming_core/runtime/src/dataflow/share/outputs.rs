//! The outputs of executor `share`, and the ranks of its inputs.

use crate::dataflow::channel::rank::{Path, Rank};

/// Bits of a rank that are the position of the input.
pub(super) const POSITION: u32 = 32;

/// The rank of a row at a position of the block.
pub(super) fn at(position: usize) -> Rank {
    Rank::ONLY.along(Path::default().fixed(position as u64, POSITION)).expect("a rank has room for a position")
}

/// Outputs since the last `take_outputs`.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub rows: Vec<u8>,
    pub ranks: Vec<u128>,
}
