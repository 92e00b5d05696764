//! Deals the rows of an operator with keys to the shares that need them.

use crate::dataflow::lane::{Scratch, lane_of};
use crate::dataflow::share::shape::check;
use crate::dataflow::share::windows::Dealt;
use crate::error::RunError;
use crate::program::{Key, Program};
use crate::rows::block::Block;
use crate::rows::texts::{self, Texts};
use crate::rows::view::Rows;
use crate::threads::sync::Arc;

/// Says which shares need a row. A row of a partitioned operator goes to the share that owns its key. A row of a windowed one
/// goes to all shares that own one of its keys. If it may let a window expire, all shares need it (`windowed/copies.rs`). A dealer
/// takes rows in ascending order.
#[derive(Debug)]
pub struct Dealer {
    by: By,
    shares: usize,
    texts: Option<Arc<Texts>>,
}

#[derive(Debug)]
enum By {
    Key(Vec<Key>, Scratch),
    Windows(Box<Dealt>),
}

impl Dealer {
    /// Makes a dealer for the first operator of a program that executor `share` runs.
    ///
    /// # Errors
    /// `Invalid`: the operator has no keys, or executor `share` does not run it.
    pub fn new(program: &Program, shares: usize) -> Result<Self, RunError> {
        check(program, (0, shares))?;
        // SAFETY: the creator of the program guarantees its addresses.
        let by = match unsafe { Dealt::bind(program, shares) }? {
            Some(dealt) => By::Windows(Box::new(dealt)),
            None if !program.operators[0].key.is_empty() => {
                By::Key(program.operators[0].key.clone(), Scratch::default())
            }
            None => return Err(RunError::Invalid("a dealer needs an operator with keys".into())),
        };
        Ok(Self { by, shares, texts: program.texts.clone() })
    }

    /// Deals a block: returns pairs of the position of a row and a share that needs it.
    ///
    /// # Errors
    /// `Invalid`: a row names a stream that the operator does not have, or a text outside of its block.
    pub fn deal(&mut self, block: &Block) -> Result<Vec<[u32; 2]>, RunError> {
        let rows = Rows::new(block.row(0), block.n, block.stride, texts::begin(self.texts.as_ref(), block.text)?);
        match &mut self.by {
            By::Key(key, scratch) => {
                // SAFETY: a block's rows are readable, and the key lies in them (`Program::check`).
                unsafe { scratch.hash(rows, key) }?;
                let of = |(position, &hash)| [position, lane_of(hash, self.shares) as u32];
                Ok((0..).zip(&scratch.hashes[..rows.n]).map(of).collect())
            }
            By::Windows(dealt) => {
                // SAFETY: a block's rows are readable.
                unsafe { dealt.deal(rows) }?;
                let of = |share| dealt.copies_of(share).map(move |(position, ..)| [position, share as u32]);
                Ok((0..self.shares).flat_map(of).collect())
            }
        }
    }
}
