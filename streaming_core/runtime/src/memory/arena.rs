//! Memory for growing data: zeroed, 8-aligned, freed only with the arena.
//!
//! The arena prepares memory in steps, ahead of its use. A page fault for every single page costs more than the work on the
//! page, and freshly zeroed memory is still in the cache.

use std::ptr::null_mut;

use crate::memory::chunk::Chunk;
use crate::memory::fallible::{boxed, zeroed_words};

/// The part of an arena that kernels see (16 bytes, see ABI.md); always the first field of an [`Arena`].
#[repr(C)]
#[derive(Debug)]
pub struct ArenaHeader {
    pub alloc: extern "C" fn(*mut ArenaHeader, i64) -> *mut u8,
    /// Kernels' own: the lists of blocks of texts, or null (kernels/owned.py).
    pub texts: *mut u8,
}

const _: () = assert!(std::mem::size_of::<ArenaHeader>() == 16);

/// The size of the first block of `malloc`, in an arena that starts small.
const FIRST_BLOCK: usize = 256;
const FIRST_CHUNK: usize = 16 << 10;
const LARGEST_CHUNK: usize = 16 << 20;
/// The number of bytes to prepare at a time.
const STEP: usize = 64 << 10;

/// A bump allocator of chunks. One thread at a time allocates from it; any thread may use the memory.
#[derive(Debug)]
pub struct Arena {
    inner: Box<ArenaState>,
}

#[repr(C)]
#[derive(Debug)]
struct ArenaState {
    header: ArenaHeader,
    blocks: Vec<Box<[u64]>>,
    /// The size of the next block. From the size of a chunk on, there are no blocks.
    block: usize,
    chunks: Vec<Chunk>,
    next: usize,
    /// The end of the prepared memory in the last chunk, or in the last block if there are no chunks.
    limit: usize,
    chunk: usize,
}

// SAFETY: the arena owns its chunks; nothing in it refers to the thread that made it.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new() -> Self {
        Self::beginning(FIRST_CHUNK).expect("the allocator has memory for an empty arena")
    }

    /// An arena for cases with very many small arenas. It starts with blocks of `malloc`, each twice as large as the one before.
    /// Chunks are aligned, so the first bytes of many chunks would also compete for few places in the caches.
    /// None: there is no memory.
    pub fn small() -> Option<Self> {
        Self::beginning(FIRST_BLOCK)
    }

    fn beginning(block: usize) -> Option<Self> {
        let inner = boxed(ArenaState {
            header: ArenaHeader { alloc: allocate, texts: null_mut() },
            blocks: Vec::new(),
            block,
            chunks: Vec::new(),
            next: 0,
            limit: 0,
            chunk: FIRST_CHUNK,
        })?;
        Some(Self { inner })
    }

    /// The address for a context, valid as long as the arena.
    pub fn header(&mut self) -> *mut ArenaHeader {
        (&raw mut *self.inner).cast()
    }

    /// Turns the arena into the address for a context. It lives until `of_header` takes it back.
    pub fn into_header(self) -> *mut ArenaHeader {
        Box::into_raw(self.inner).cast()
    }

    /// # Safety
    /// The header comes from `into_header`, and `of_header` has not taken it back before.
    pub unsafe fn of_header(header: *mut ArenaHeader) -> Self {
        // SAFETY: as the caller says: the first field of what was a box.
        Self { inner: unsafe { Box::from_raw(header.cast()) } }
    }

    /// Zeroed, 8-aligned memory that lives as long as the arena; null when memory ran out.
    pub fn alloc(&mut self, bytes: usize) -> *mut u8 {
        self.inner.alloc(bytes)
    }

    /// Takes back all memory of a small arena that has one block; false: it has more, and stays as it is.
    pub fn reset(&mut self) -> bool {
        let state = &mut *self.inner;
        let [block] = &mut state.blocks[..] else { return false };
        if !state.chunks.is_empty() {
            return false;
        }
        let start = block.as_mut_ptr() as usize;
        block[..(state.next - start) / 8].fill(0);
        (state.next, state.header.texts) = (start, null_mut());
        true
    }

    /// Bytes taken from the system.
    pub fn bytes(&self) -> usize {
        let blocks = self.inner.blocks.iter().map(|block| 8 * block.len());
        blocks.chain(self.inner.chunks.iter().map(Chunk::bytes)).sum()
    }
}

impl Default for Arena {
    fn default() -> Self {
        Self::new()
    }
}

impl ArenaState {
    fn alloc(&mut self, bytes: usize) -> *mut u8 {
        let Some(bytes) = bytes.max(1).checked_next_multiple_of(8) else { return null_mut() };
        if self.limit - self.next < bytes && !self.more(bytes) {
            return null_mut();
        }
        let address = self.next;
        self.next += bytes;
        address as *mut u8
    }

    #[cold]
    fn more(&mut self, bytes: usize) -> bool {
        let block = self.block.max(bytes);
        if block < FIRST_CHUNK {
            if self.blocks.try_reserve(1).is_err() {
                return false;
            }
            let Some(mut words) = zeroed_words(block / 8) else { return false };
            self.next = words.as_mut_ptr() as usize;
            self.limit = self.next + block;
            self.blocks.push(words);
            self.block = 2 * block;
            return true;
        }
        self.block = FIRST_CHUNK;
        if self.chunks.last().is_none_or(|chunk| chunk.start() + chunk.bytes() - self.next < bytes) {
            let Some(chunk) = Chunk::take(self.chunk.max(bytes)) else { return false };
            (self.next, self.limit) = (chunk.start(), chunk.start());
            self.chunks.push(chunk);
            self.chunk = (self.chunk * 2).min(LARGEST_CHUNK);
        }
        let chunk = self.chunks.last_mut().expect("the arena has just taken a chunk");
        let (ready, wanted) = (self.limit - chunk.start(), self.next + bytes - chunk.start());
        let end = wanted.max(ready + STEP).min(chunk.bytes());
        chunk.make_ready(ready..end);
        self.limit = chunk.start() + end;
        true
    }
}

extern "C" fn allocate(header: *mut ArenaHeader, bytes: i64) -> *mut u8 {
    let Ok(bytes) = usize::try_from(bytes) else { return null_mut() };
    // SAFETY: kernels pass back the header that they got. It is the first field of an `Inner`, and only this thread uses it
    // while the kernel runs.
    unsafe { (*header.cast::<ArenaState>()).alloc(bytes) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_distinct() {
        [Arena::new(), Arena::small().unwrap()].into_iter().for_each(is_zeroed_aligned_and_distinct);
    }

    fn is_zeroed_aligned_and_distinct(mut arena: Arena) {
        let header = arena.header();
        let mut seen = Vec::new();
        for bytes in [1, 8, 24, 300, 1, 9_000, 8, 100_000, 3, 70_000, 8] {
            let block = allocate(header, bytes);
            assert_eq!(block as usize % 8, 0);
            // SAFETY: the arena gave `bytes` bytes at `block`.
            let memory = unsafe { std::slice::from_raw_parts_mut(block, bytes as usize) };
            assert!(memory.iter().all(|&byte| byte == 0));
            memory.fill(0xAA);
            seen.push((block as usize, bytes as usize));
        }
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }

    #[test]
    fn impossible_sizes_give_null() {
        let mut arena = Arena::new();
        assert!(allocate(arena.header(), -1).is_null());
        assert!(allocate(arena.header(), i64::MAX).is_null());
    }
}
