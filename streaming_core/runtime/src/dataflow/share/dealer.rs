//! Deals the rows of a windowed operator to the shares that need them.

use crate::dataflow::share::shape::check;
use crate::dataflow::share::windows::Dealt;
use crate::error::RunError;
use crate::program::Program;
use crate::rows::block::Block;
use crate::rows::texts::{self, Texts};
use crate::rows::view::Rows;
use crate::threads::sync::Arc;

/// Says which shares need a row of a windowed operator. These are the shares that own one of its keys. If the row may let a
/// window expire, all shares need it (`windowed/copies.rs`). A dealer takes rows in ascending order.
#[derive(Debug)]
pub struct Dealer {
    dealt: Dealt,
    shares: usize,
    texts: Option<Arc<Texts>>,
}

impl Dealer {
    /// Makes a dealer for the windowed operator of a program that executor `share` runs.
    ///
    /// # Errors
    /// `Invalid`: the program has no windowed operator, or executor `share` does not run it.
    pub fn new(program: &Program, shares: usize) -> Result<Self, RunError> {
        check(program, (0, shares))?;
        // SAFETY: the creator of the program guarantees its addresses.
        let dealt = unsafe { Dealt::bind(program, shares) }?;
        let dealt = dealt.ok_or_else(|| RunError::Invalid("a dealer needs an operator with windows".into()))?;
        Ok(Self { dealt, shares, texts: program.texts.clone() })
    }

    /// Deals a block: returns pairs of the position of a row and a share that needs it.
    ///
    /// # Errors
    /// `Invalid`: a row names a stream that the operator does not have.
    pub fn deal(&mut self, block: &Block) -> Result<Vec<[u32; 2]>, RunError> {
        let rows = Rows::new(block.row(0), block.n, block.stride, texts::begin(self.texts.as_ref(), block.text)?);
        // SAFETY: a block's rows are readable.
        unsafe { self.dealt.deal(rows) }?;
        let of = |share| self.dealt.copies_of(share).map(move |(position, ..)| [position, share as u32]);
        Ok((0..self.shares).flat_map(of).collect())
    }
}
