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

    /// Which of `count` slices an event of the batch is in.
    #[inline]
    pub fn slice_of(&self, event: usize, count: usize) -> usize {
        ((event + 1) * count).div_ceil(self.len()) - 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rows::block::Text;

    #[test]
    fn every_event_is_in_the_slice_that_has_it() {
        // SAFETY: no thread reads a row or a text.
        let block = unsafe { Block::new(std::ptr::dangling(), 100, 8, Text::new(std::ptr::dangling(), 0)) };
        for (begin, end, count) in [(0, 100, 3), (7, 12, 8), (3, 4, 1), (0, 64, 64)] {
            let batch = Batch { block: &block, begin, end };
            for slice in 0..count {
                assert!(batch.slice(slice, count).all(|event| batch.slice_of(event, count) == slice));
            }
        }
    }
}
