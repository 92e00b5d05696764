//! Texts that are made while a block is processed: copies of texts from elsewhere, where rows can name them.
//!
//! A row names a text by its offset in the block's text. An operator may emit a text from elsewhere, such as the key
//! of a window, a literal, or a text that it has built. So a copy of it goes behind the block's text. The memory is reserved for all offsets of 32 bits; only the used part becomes real
//! memory. When the next block starts, the texts of the last one are dropped, because all of its rows are delivered.

use crate::error::RunError;
use crate::rows::block::Text;
use crate::threads::sync::{Arc, AtomicU64, AtomicUsize, Ordering};

/// The number of bytes that a writer takes at a time.
const ROOM: usize = 64 << 10;

/// The memory, and how much of it is used. The creator keeps the memory.
#[derive(Debug)]
pub struct Texts {
    start: *mut u8,
    bytes: usize,
    /// The start of the next room. A writer that takes a room writes it, and the thread that starts a block.
    next: AtomicUsize,
    /// Counts blocks: rooms of earlier blocks are invalid. Written between blocks.
    block: AtomicU64,
}

// SAFETY: rooms do not overlap, and each belongs to its writer. Texts are passed on with the rows that name them.
unsafe impl Send for Texts {}
// SAFETY: as above.
unsafe impl Sync for Texts {}

impl Texts {
    /// # Safety
    /// `bytes` bytes at `start` are readable and writable as long as this is in use. No other thread writes them while an
    /// engine is at work. `TEXT_PADDING` bytes after them are readable.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes, next: AtomicUsize::new(0), block: AtomicU64::new(0) }
    }

    /// Starts a block with text `text`, which is at the start of this memory. Returns all text that its rows can name.
    ///
    /// No other thread is at it.
    pub fn begin(&self, text: Text) -> Option<Text> {
        if text.bytes() > 0 && text.pointer() != self.start.cast_const() {
            return None;
        }
        // ORDERING: Relaxed; a stronger operation tells threads of a block.
        self.next.store(text.bytes(), Ordering::Relaxed);
        self.block.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the maker of this says.
        Some(unsafe { Text::new(self.start, self.bytes) })
    }
}

/// The text of a block's rows, and of rows made from them: that of the block, if operators make no texts.
///
/// # Errors
/// `Invalid`: the block's text is not at the start of the memory for texts.
pub fn begin(texts: Option<&Arc<Texts>>, text: Text) -> Result<Text, RunError> {
    let Some(texts) = texts else { return Ok(text) };
    texts.begin(text).ok_or_else(|| RunError::Invalid("the block's text is not where texts are made".into()))
}

/// The room of a writer.
#[derive(Debug, Clone)]
pub struct Room {
    texts: Arc<Texts>,
    at: usize,
    end: usize,
    block: u64,
}

impl Room {
    pub fn new(texts: Arc<Texts>) -> Self {
        Self { texts, at: 0, end: 0, block: 0 }
    }

    /// Copies some bytes and returns their offset; None: there is no room left.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Option<usize> {
        // ORDERING: Relaxed; see `begin`.
        if self.end - self.at < bytes.len() || self.block != self.texts.block.load(Ordering::Relaxed) {
            self.take(bytes.len())?;
        }
        // SAFETY: this writer's own room, which is inside of the memory and long enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.texts.start.add(self.at), bytes.len()) };
        self.at += bytes.len();
        Some(self.at - bytes.len())
    }

    #[cold]
    fn take(&mut self, least: usize) -> Option<()> {
        let bytes = least.max(ROOM);
        // ORDERING: Relaxed; it only decides which writer gets which part.
        let at = self.texts.next.fetch_add(bytes, Ordering::Relaxed);
        let end = at.checked_add(bytes).filter(|&end| end <= self.texts.bytes)?;
        // ORDERING: as in `put`.
        (self.at, self.end, self.block) = (at, end, self.texts.block.load(Ordering::Relaxed));
        Some(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn texts_lie_behind_the_block_s_and_are_forgotten_with_it() {
        let mut memory = vec![0_u8; 3 * ROOM];
        // SAFETY: the memory outlives it.
        let texts = Arc::new(unsafe { Texts::new(memory.as_mut_ptr(), 3 * ROOM) });
        let mut rooms = [Room::new(texts.clone()), Room::new(texts.clone())];
        for block in 0..3 {
            // SAFETY: as above.
            let text = unsafe { Text::new(memory.as_ptr(), 100) };
            let whole = texts.begin(text).unwrap();
            assert_eq!(whole.bytes(), 3 * ROOM);
            for (number, room) in rooms.iter_mut().enumerate() {
                let places = [room.put(&[number as u8; 7]).unwrap(), room.put(&[block; 5]).unwrap()];
                assert_eq!(places, [100 + number * ROOM, 107 + number * ROOM]);
                // SAFETY: both were just written.
                let read = unsafe { whole.field([places[0] as u32, 7].as_ptr().cast()) };
                assert_eq!(read, Some(&[number as u8; 7][..]));
            }
        }
        assert_eq!(rooms[0].put(&vec![0; ROOM]), None);
        // SAFETY: as above.
        assert!(texts.begin(unsafe { Text::new(memory.as_ptr().wrapping_add(1), 8) }).is_none());
    }
}
