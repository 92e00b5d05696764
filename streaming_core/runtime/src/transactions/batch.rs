//! Batches of events.

use crate::rows::block::Block;

/// Bytes of a line of the cache.
const LINE: usize = 64;

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

    /// Begins to bring the row of an event to this core's cache.
    #[inline(always)]
    pub fn prefetch(&self, event: usize) {
        let stride = self.block.stride;
        let row = self.rows().wrapping_add(event * stride);
        #[cfg(target_arch = "x86_64")]
        for at in (0..stride).step_by(LINE) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint, for any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(at).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = row;
    }

    /// The `index`-th of `count` contiguous, equally long slices, as event numbers of the batch.
    pub fn slice(&self, index: usize, count: usize) -> std::ops::Range<usize> {
        self.len() * index / count..self.len() * (index + 1) / count
    }
}
