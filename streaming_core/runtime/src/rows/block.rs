//! Blocks: contiguous fixed-width event rows and the text beside them.

/// Every row starts with the `seq` of the event that caused it.
pub const SEQ_BYTES: usize = 8;
/// Readable bytes behind a block's text.
pub const TEXT_PADDING: usize = 64;

/// A block's text: rows refer to it as `(offset: u32, length: u32)`.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    start: *const u8,
    bytes: usize,
}

// SAFETY: no thread writes a block's text while a `Text` of it exists.
unsafe impl Send for Text {}
// SAFETY: as above.
unsafe impl Sync for Text {}

impl Text {
    /// # Safety
    /// `bytes` bytes at `start` stay readable and unchanged as long as this and its copies are used, and
    /// `TEXT_PADDING` bytes behind them readable.
    pub unsafe fn new(start: *const u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub const fn empty() -> Self {
        static NOTHING: [u8; TEXT_PADDING] = [0; TEXT_PADDING];
        Self { start: NOTHING.as_ptr(), bytes: 0 }
    }

    pub fn pointer(&self) -> *const u8 {
        self.start
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of the text field at `field` of a row, or None if they lie outside of the block's text.
    ///
    /// # Safety
    /// `field` has 8 readable bytes; the result must not outlive the block.
    #[inline(always)]
    pub unsafe fn field<'a>(&self, field: *const u8) -> Option<&'a [u8]> {
        // SAFETY: the caller says that 8 bytes are there.
        let (offset, length) = unsafe {
            (field.cast::<u32>().read_unaligned() as usize, field.add(4).cast::<u32>().read_unaligned() as usize)
        };
        if offset + length > self.bytes {
            return None;
        }
        // SAFETY: offset and length lie inside of the text, which the maker of this Text keeps readable.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(offset), length) })
    }
}

/// A block of event rows, borrowed from the caller for one `process`.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub rows: *const u8,
    pub n: usize,
    pub stride: usize,
    pub text: Text,
}

// SAFETY: the caller keeps rows and text unchanged while a block is processed; all threads only read them.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// # Safety
    /// `n * stride` bytes at `rows`, and the text, stay readable and unchanged while this block is used.
    pub unsafe fn new(rows: *const u8, n: usize, stride: usize, text: Text) -> Self {
        Self { rows, n, stride, text }
    }

    #[inline(always)]
    pub fn row(&self, index: usize) -> *const u8 {
        debug_assert!(index <= self.n);
        // SAFETY: at most one past the last row.
        unsafe { self.rows.add(index * self.stride) }
    }

    /// The seq of row `index < n`.
    #[inline(always)]
    pub fn seq(&self, index: usize) -> i64 {
        debug_assert!(index < self.n);
        // SAFETY: inside of the block, whose rows start with their seq.
        unsafe { self.row(index).cast::<i64>().read_unaligned() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn text_outside_of_the_block_is_refused() {
        let bytes = b"hello";
        // SAFETY: the array outlives the text.
        let text = unsafe { Text::new(bytes.as_ptr(), 5) };
        // SAFETY: 8 bytes each.
        unsafe {
            assert_eq!(text.field([1_u32, 3].as_ptr().cast()), Some(&b"ell"[..]));
            assert_eq!(text.field([5_u32, 0].as_ptr().cast()), Some(&b""[..]));
            assert_eq!(text.field([3_u32, 3].as_ptr().cast()), None);
            assert_eq!(text.field([u32::MAX, u32::MAX].as_ptr().cast()), None);
        }
    }
}
