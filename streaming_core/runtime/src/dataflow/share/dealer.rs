//! Deals the rows of a windowed operator to the shares that need them.

use crate::dataflow::direct::Direct;
use crate::dataflow::operator::Chain;
use crate::dataflow::share::check;
use crate::dataflow::share::windows::Dealt;
use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::rows::block::Block;
use crate::rows::view::Rows;

/// Says which shares need a row of a windowed operator: those that own one of its keys, and all shares if the row may let a
/// window expire (`windowed/copies.rs`). It takes rows in ascending order.
#[derive(Debug)]
pub struct Dealer {
    chain: Chain,
    direct: Direct,
    dealt: Dealt,
}

impl Dealer {
    /// Makes a dealer for the windowed operator of a program that executor `share` runs.
    ///
    /// # Errors
    /// `Invalid`: the program has no windowed operator, or executor `share` does not run it.
    pub fn new(program: &Program, shares: usize) -> Result<Self, RunError> {
        check(program, (0, shares))?;
        // SAFETY: the creator of the program guarantees its addresses.
        let (chain, dealt) = unsafe { (Chain::bind(program)?, Dealt::bind(program, shares)?) };
        let dealt = dealt.ok_or_else(|| RunError::Invalid("a dealer needs an operator with windows".into()))?;
        Ok(Self { direct: Direct::new(&chain), chain, dealt })
    }

    /// Deals rows whose `seq` is their position in the block: returns pairs of a position and a share.
    ///
    /// # Errors
    /// A kernel's failure in an operator before the windows.
    pub fn deal(&mut self, block: &Block) -> Result<Vec<[u32; 2]>, RunError> {
        let rows = Rows::new(block.row(0), block.n, block.stride, block.text);
        let Self { chain, direct, dealt } = self;
        // SAFETY: a block's rows are readable.
        unsafe { dealt.deal(chain, direct, rows, &mut Counters::default()) }?;
        let mut pairs = Vec::new();
        for copies in &dealt.copies {
            for (share, copied) in copies.of.iter().enumerate() {
                pairs.extend((0..copied.rows.len()).map(|at| [copied.rows.seq(at) as u32, share as u32]));
            }
        }
        Ok(pairs)
    }
}
