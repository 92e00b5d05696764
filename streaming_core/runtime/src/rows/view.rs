//! Rows on their way: where a batch of them lies.

use std::ops::Range;
use std::ptr::null;

use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;

/// Rows in total order, and their block's text.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// The first one, if they lie `stride` bytes from each other.
    pub start: *const u8,
    /// Otherwise, and then not null: where each of them lies.
    pub places: *const *const u8,
    pub n: usize,
    pub stride: usize,
    pub text: Text,
}

impl Rows {
    /// Adjacent ones.
    pub fn new(start: *const u8, n: usize, stride: usize, text: Text) -> Self {
        Self { start, places: null(), n, stride, text }
    }

    /// The rows of a buffer.
    pub fn of(buffer: &RowBuffer, text: Text) -> Self {
        Self::new(buffer.pointer(), buffer.len(), buffer.stride(), text)
    }

    /// None yet.
    pub fn nothing(stride: usize) -> Self {
        Self::new(null(), 0, stride, Text::empty())
    }

    /// Rows `range` of these.
    pub fn slice(&self, range: Range<usize>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= self.n);
        let n = range.len();
        match self.places.is_null() {
            true => Self { start: self.start.wrapping_add(range.start * self.stride), n, ..*self },
            false => Self { places: self.places.wrapping_add(range.start), n, ..*self },
        }
    }

    /// Row `index < n`.
    ///
    /// # Safety
    /// The places, if there are any, are readable.
    #[inline(always)]
    pub unsafe fn row(&self, index: usize) -> *const u8 {
        debug_assert!(index < self.n);
        match self.places.is_null() {
            true => self.start.wrapping_add(index * self.stride),
            // SAFETY: as the caller says, there is one for each row.
            false => unsafe { *self.places.add(index) },
        }
    }

    /// The seq of row `index < n`.
    ///
    /// # Safety
    /// The rows are readable.
    #[inline(always)]
    pub unsafe fn seq(&self, index: usize) -> i64 {
        // SAFETY: as the caller says; rows start with their seq.
        unsafe { self.row(index).cast::<i64>().read_unaligned() }
    }
}
