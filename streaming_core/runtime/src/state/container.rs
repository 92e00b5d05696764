//! Growing containers as kernels keep them (README.md, section Containers): taken out of memory, and put back.
//!
//! What is taken out is the entries in their order. Capacity stands in the head, and the index follows from both, so
//! that a container put back is the one that was there: no later operation can tell, nor what memory it takes.

use crate::error::RunError;
use crate::memory::arena::Arena;

/// Bytes of an entry: key and value.
pub const ENTRY: usize = 16;

/// The head of a container inside of its row.
#[derive(Debug, Clone, Copy)]
pub struct ContainerHead {
    pub block: u64,
    pub length: usize,
    pub capacity: usize,
}

impl ContainerHead {
    /// From the first bytes of a head.
    pub fn read(bytes: &[u8]) -> Self {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
        let block = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        Self { block, length: half(8), capacity: half(12) }
    }

    /// Whether kernels could have written it.
    pub fn is_sound(&self, indexed: bool) -> bool {
        self.length <= self.capacity && (!indexed || self.capacity == 0 || self.capacity.is_power_of_two())
    }

    /// The entries, in order.
    ///
    /// # Safety
    /// Kernels keep the container, and none of them runs while the result is used.
    pub unsafe fn entries(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: as the caller says; so many entries are at the block's start.
        unsafe { std::slice::from_raw_parts(self.block as usize as *const u8, self.length * ENTRY) }
    }

    /// A block of this capacity with these entries; 0 for none.
    pub fn put_back(&self, entries: &[u8], indexed: bool, arena: &mut Arena) -> Result<u64, RunError> {
        debug_assert!(self.is_sound(indexed) && entries.len() == self.length * ENTRY);
        if self.capacity == 0 {
            return Ok(0);
        }
        let words = self.capacity * ENTRY;
        let bytes = words + if indexed { self.capacity * 8 } else { 0 };
        let block = arena.alloc(bytes);
        if block.is_null() {
            return Err(RunError::Engine("no room for state".into()));
        }
        // SAFETY: the arena gave that many bytes, zeroed and aligned, which nobody else knows yet.
        let memory = unsafe { std::slice::from_raw_parts_mut(block, bytes) };
        memory[..entries.len()].copy_from_slice(entries);
        if indexed {
            let index = &mut memory[words..];
            for (number, entry) in entries.chunks_exact(ENTRY).enumerate() {
                let key = u64::from_le_bytes(entry[..8].try_into().expect("8 bytes"));
                enter(index, 2 * self.capacity - 1, number as u32, key);
            }
        }
        Ok(block as usize as u64)
    }
}

/// Notes an entry in the index, as the kernels do: at the first free place from its key's, with the key's tag.
fn enter(index: &mut [u8], mask: usize, number: u32, key: u64) {
    let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let spread = mixed ^ (mixed >> 32);
    let tag = (spread >> 32) as u32 & !(mask as u32);
    let mut place = spread as usize & mask;
    while index[place * 4..place * 4 + 4] != [0; 4] {
        place = (place + 1) & mask;
    }
    index[place * 4..place * 4 + 4].copy_from_slice(&(tag | (number + 1)).to_le_bytes());
}
