//! Memory for what grows: zeroed, 8-aligned, freed only with the arena.
//!
//! It is made ready in steps ahead of its use, because a fault for every single page costs more than what is put into it,
//! and because what was zeroed just now is still in the cache.

use std::ptr::null_mut;

use crate::memory::chunk::Chunk;
use crate::memory::fallible::{boxed, zeroed_words};

/// What a kernel sees of an arena (16 bytes, see README.md); always the first field of an [`Arena`].
#[repr(C)]
#[derive(Debug)]
pub struct ArenaHeader {
    pub alloc: extern "C" fn(*mut ArenaHeader, i64) -> *mut u8,
    pub owner: *mut u8,
}

const _: () = assert!(std::mem::size_of::<ArenaHeader>() == 16);

/// The first block of `malloc` of an arena that begins small.
const FIRST_BLOCK: usize = 256;
const FIRST_CHUNK: usize = 16 << 10;
const LARGEST_CHUNK: usize = 16 << 20;
/// Bytes that are made ready at a time.
const STEP: usize = 64 << 10;

/// A bump allocator of chunks. One thread at a time allocates from it; the memory itself may be used by any.
#[derive(Debug)]
pub struct Arena {
    inner: Box<ArenaState>,
}

#[repr(C)]
#[derive(Debug)]
struct ArenaState {
    header: ArenaHeader,
    blocks: Vec<Box<[u64]>>,
    /// How large the next block is; from the size of a chunk on there are none.
    block: usize,
    chunks: Vec<Chunk>,
    next: usize,
    /// End of what is ready, in the last chunk, or block if there are no chunks.
    limit: usize,
    chunk: usize,
}

// SAFETY: the arena owns its chunks; nothing in it refers to the thread that made it.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new() -> Self {
        Self::beginning(FIRST_CHUNK).expect("the allocator has memory for an empty arena")
    }

    /// One of very many, most of which stay small: it begins with blocks of `malloc`, each twice as large as the one before.
    /// What is first in their chunks would also compete for few places of the caches, as chunks are aligned.
    /// None: there is no memory.
    pub fn small() -> Option<Self> {
        Self::beginning(FIRST_BLOCK)
    }

    fn beginning(block: usize) -> Option<Self> {
        let inner = boxed(ArenaState {
            header: ArenaHeader { alloc: allocate, owner: null_mut() },
            blocks: Vec::new(),
            block,
            chunks: Vec::new(),
            next: 0,
            limit: 0,
            chunk: FIRST_CHUNK,
        })?;
        Some(Self { inner })
    }

    /// What to put into a context: valid as long as the arena is.
    pub fn header(&mut self) -> *mut ArenaHeader {
        (&raw mut *self.inner).cast()
    }

    /// What to put into a context, which is all that is left of the arena: it lives until `of_header` has it back.
    pub fn into_header(self) -> *mut ArenaHeader {
        Box::into_raw(self.inner).cast()
    }

    /// # Safety
    /// `into_header` gave it, and nobody has had the arena back.
    pub unsafe fn of_header(header: *mut ArenaHeader) -> Self {
        // SAFETY: as the caller says: the first field of what was a box.
        Self { inner: unsafe { Box::from_raw(header.cast()) } }
    }

    /// Zeroed, 8-aligned memory that lives as long as the arena; null when memory ran out.
    pub fn alloc(&mut self, bytes: usize) -> *mut u8 {
        self.inner.alloc(bytes)
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
    // SAFETY: kernels hand back the header they were given, which is the first field of an `Inner` that only this
    // thread uses while the kernel runs.
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
