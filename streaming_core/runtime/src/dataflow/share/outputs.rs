//! The outputs of executor `share`, and the ranks of the inputs of a windowed operator.

use crate::dataflow::channel::rank::{Path, Rank};

/// Rows that the executor takes at once.
pub(super) const SECTION: usize = 1 << POSITION;

/// Bits that name a row of a section.
const POSITION: u32 = 16;

/// The rank of a row at a position of its section. A windowed operator returns it with the path to the output behind it.
pub(super) fn at(position: usize) -> Rank {
    Rank::ONLY.along(Path::default().fixed(position as u64, POSITION)).expect("a rank has room for a position")
}

/// Outputs since the last `take_outputs`.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub rows: Vec<u8>,
    /// Per row, the position of its input in the block, or the number of the key that was flushed.
    pub positions: Vec<u32>,
    /// Per row, its order among the outputs of the same input, in all tasks.
    pub ranks: Vec<Rank>,
}

impl Outputs {
    /// Adds the position and the rank that an output's rank consists of. Its section begins at `first`.
    pub fn split(&mut self, rank: Rank, first: usize) {
        let (position, rank) = rank.split(POSITION);
        self.positions.push((first + position as usize) as u32);
        self.ranks.push(rank);
    }
}
