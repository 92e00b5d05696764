//! Batches of events.

use crate::rows::block::Block;

/// A run of events within a block; kernels number them from 0.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub block: &'a Block,
    pub begin: usize,
    pub end: usize,
}

impl Batch<'_> {
    pub fn len(&self) -> usize {
        self.end - self.begin
    }

    pub fn rows(&self) -> *const u8 {
        self.block.row(self.begin)
    }

    /// The `index`-th of `count` contiguous, equally long slices, as event numbers of the batch.
    pub fn slice(&self, index: usize, count: usize) -> std::ops::Range<usize> {
        self.len() * index / count..self.len() * (index + 1) / count
    }
}
