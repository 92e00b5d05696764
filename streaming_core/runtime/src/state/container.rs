//! Growing containers as kernels keep them (ABI.md, section Containers): packed from memory, and put back.
//!
//! Packing takes the entries in their order, or the rows of a queue column by column. The head has the capacity, and the
//! index follows from both. Gaps of removed entries close. So a container that is put back equals the former one. No later operation can see a difference,
//! and it takes the same memory.

use std::borrow::Cow;
use std::collections::TryReserveError;

use crate::error::RunError;
use crate::program::Growing;

/// Bytes of an entry: key and value.
pub const ENTRY: usize = 16;

/// The head of a container inside its row.
#[derive(Debug, Clone, Copy)]
pub struct ContainerHead {
    pub block: u64,
    pub length: usize,
    pub capacity: usize,
    gaps: usize,
    tree: u64,
}

impl ContainerHead {
    /// Reads the first bytes of a head.
    pub fn read(bytes: &[u8]) -> Self {
        let half =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has 4 bytes")) as usize;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has 8 bytes"));
        Self { block: word(0), length: half(8), capacity: half(12), gaps: half(16), tree: word(24) }
    }

    /// Whether it could be that of a container that was packed.
    pub fn is_sound(&self, indexed: bool) -> bool {
        let is_packed = self.gaps == 0 && self.tree == 0;
        is_packed && self.length <= self.capacity && (!indexed || self.capacity == 0 || self.capacity.is_power_of_two())
    }

    /// The entries, in order.
    ///
    /// # Errors
    /// There is no memory for them.
    ///
    /// # Safety
    /// Kernels keep the container, which is no queue, and none of them runs while the result is used.
    pub unsafe fn entries(&self) -> Result<Cow<'_, [u8]>, TryReserveError> {
        if self.length == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let places = (self.length + self.gaps) * ENTRY;
        // SAFETY: as the caller says; so many places are at the block's start.
        let places = unsafe { std::slice::from_raw_parts(self.block as usize as *const u8, places) };
        if self.gaps == 0 {
            return Ok(Cow::Borrowed(places));
        }
        // SAFETY: as the caller says; a container with gaps has a tree.
        let tree = unsafe { std::slice::from_raw_parts(self.tree as usize as *const u32, self.capacity) };
        let mut entries = Vec::new();
        entries.try_reserve_exact(self.length * ENTRY)?;
        let mut gaps_before = 0;
        for (place, entry) in places.chunks_exact(ENTRY).enumerate() {
            let gaps = gaps_up_to(tree, place + 1);
            if gaps == gaps_before {
                entries.extend_from_slice(entry);
            }
            gaps_before = gaps;
        }
        Ok(Cow::Owned(entries))
    }

    /// A block of this capacity with these entries, in memory that `alloc` gives, zeroed and aligned; 0 for none. `indexed_by`
    /// says by which number the index finds a key.
    pub fn put_back(
        &self,
        entries: &[u8],
        indexed: bool,
        indexed_by: impl Fn(u64) -> u64,
        alloc: impl FnOnce(usize) -> *mut u8,
    ) -> Result<u64, RunError> {
        debug_assert!(self.is_sound(indexed) && entries.len() == self.length * ENTRY);
        if self.capacity == 0 {
            return Ok(0);
        }
        let words = self.capacity * ENTRY;
        let bytes = words + if indexed { self.capacity * 8 } else { 0 };
        let block = room(bytes, alloc)?;
        // SAFETY: the memory has so many bytes, and no other thread knows it yet.
        let memory = unsafe { std::slice::from_raw_parts_mut(block, bytes) };
        memory[..entries.len()].copy_from_slice(entries);
        if indexed {
            let index = &mut memory[words..];
            for (number, entry) in entries.chunks_exact(ENTRY).enumerate() {
                let key = u64::from_le_bytes(entry[..8].try_into().expect("the slice has 8 bytes"));
                enter(index, 2 * self.capacity - 1, number as u32, indexed_by(key));
            }
        }
        Ok(block as usize as u64)
    }
}

/// The number of gaps among the first `places`.
fn gaps_up_to(tree: &[u32], mut places: usize) -> u32 {
    let mut gaps = 0;
    while places > 0 {
        gaps += tree[places - 1];
        places &= places - 1;
    }
    gaps
}

/// Removes from a copy of a head what depends on where its memory lies, where a queue begins in it, and the gaps. Packing
/// closes gaps.
pub fn forget_places(head: &mut [u8], growing: &Growing) {
    head[..8].fill(0);
    if !growing.plain {
        head[16..32].fill(0);
    }
}

fn room(bytes: usize, alloc: impl FnOnce(usize) -> *mut u8) -> Result<*mut u8, RunError> {
    let block = alloc(bytes);
    if block.is_null() { Err(RunError::Memory("the containers of a state".into())) } else { Ok(block) }
}

/// The offset, in the head of a queue, of the place of its first row.
const FIRST: usize = 16;

/// A word that is a text, as kernels keep it (kernels/owned.py): the address of its block, or 0 if the text is empty.
/// The first word of a block is the length and, above it, the hash. The bytes follow. The size follows from the length.
mod text {
    use super::{RunError, TryReserveError, room};

    const SMALLEST: usize = 32;
    /// Bytes of a block that are not the text's: the first word, and those that can be read behind the text.
    const AROUND: usize = 24;

    /// The first word of a block; 0 for an empty text.
    ///
    /// # Safety
    /// The word is a text, and no kernel changes it meanwhile.
    pub unsafe fn head(word: u64) -> u64 {
        // SAFETY: as the caller says.
        if word == 0 { 0 } else { unsafe { *(word as usize as *const u64) } }
    }

    /// Words of a block with this first word that a packed text has.
    fn words(head: u64) -> usize {
        1 + (head as u32 as usize).div_ceil(8)
    }

    /// Appends a text, and leaves 0 in its place.
    ///
    /// # Safety
    /// As for `head`.
    pub unsafe fn pack(word: u64, out: &mut Vec<u64>) -> Result<(), TryReserveError> {
        // SAFETY: as the caller says.
        let head = unsafe { head(word) };
        let block = match head {
            0 => &[0][..],
            // SAFETY: a block is aligned, and has more bytes than its text's whole words.
            _ => unsafe { std::slice::from_raw_parts(word as usize as *const u64, words(head)) },
        };
        out.try_reserve(block.len())?;
        out.extend_from_slice(block);
        Ok(())
    }

    /// The word of the text that comes first in `items`, and the number of its words there.
    pub fn unpack(items: &[u64], alloc: impl FnOnce(usize) -> *mut u8) -> Result<(u64, usize), RunError> {
        if items[0] == 0 {
            return Ok((0, 1));
        }
        let packed = &items[..words(items[0])];
        let bytes = (items[0] as u32 as usize + AROUND).next_power_of_two().max(SMALLEST);
        let block = room(bytes, alloc)?.cast::<u64>();
        // SAFETY: the block has these words, and no other thread knows it.
        unsafe { std::ptr::copy_nonoverlapping(packed.as_ptr(), block, packed.len()) };
        Ok((block as usize as u64, packed.len()))
    }
}

/// Appends the content of a container, in words: its entries, or the rows of a queue. Each column starts at a word. The texts
/// of the entries follow, or those of the column; in their places are zeros. A text has its own content only.
///
/// # Errors
/// There is no memory for them.
///
/// # Safety
/// `head` is that of a kernels' container, laid out as `growing` says, and no kernel is at it.
pub unsafe fn pack(head: *const u8, growing: &Growing, out: &mut Vec<u64>) -> Result<(), TryReserveError> {
    if growing.plain {
        // SAFETY: as the caller says.
        return unsafe { text::pack(head.cast::<u64>().read(), out) };
    }
    // SAFETY: as the caller says.
    let bytes = unsafe { std::slice::from_raw_parts(head, Growing::HEAD) };
    let container = ContainerHead::read(bytes);
    let mut append = |from: *const u8, bytes: usize, texts: &[usize], step: usize| {
        let before = out.len();
        out.try_reserve(bytes.div_ceil(8))?;
        out.resize(before + bytes.div_ceil(8), 0);
        // SAFETY: there are so many bytes in the block, and room for them behind `before`.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(before).cast(), bytes) };
        if texts.is_empty() {
            return Ok(());
        }
        for at in (before..out.len()).step_by(step) {
            for of in texts {
                let word = std::mem::take(&mut out[at + of]);
                // SAFETY: as the caller says.
                unsafe { text::pack(word, out) }?;
            }
        }
        Ok(())
    };
    if growing.columns.is_empty() {
        // SAFETY: as the caller says.
        let entries = unsafe { container.entries() }?;
        return append(entries.as_ptr(), entries.len(), &growing.texts, ENTRY / 8);
    }
    let first = u64::from_le_bytes(bytes[FIRST..FIRST + 8].try_into().expect("the slice has 8 bytes")) as usize;
    let mut column = container.block as usize as *const u8;
    for (number, width) in growing.columns.iter().enumerate().filter(|_| container.length > 0) {
        let texts: &[usize] = if growing.texts.contains(&number) { &[0] } else { &[] };
        append(column.wrapping_add(first * width), container.length * width, texts, 1)?;
        column = column.wrapping_add(container.capacity * width);
    }
    Ok(())
}

/// Puts the first of `items` back into a container, whose head is complete except for addresses. Returns their number of
/// words. The rows of a queue start at its first place.
///
/// # Safety
/// `head` is a copy of the head that was packed with these items, and no other thread uses it.
pub unsafe fn unpack(
    head: *mut u8,
    growing: &Growing,
    items: &[u64],
    mut alloc: impl FnMut(usize) -> *mut u8,
) -> Result<usize, RunError> {
    if growing.plain {
        let (word, used) = text::unpack(items, alloc)?;
        // SAFETY: as the caller says.
        unsafe { head.cast::<u64>().write(word) };
        return Ok(used);
    }
    // SAFETY: as the caller says.
    let bytes = unsafe { std::slice::from_raw_parts_mut(head, Growing::HEAD) };
    let container = ContainerHead::read(bytes);
    // Words, with the texts of every `step` of them put back; and how many items that were.
    let mut put_back = |count: usize, items: &[u64], texts: &[usize], step: usize| -> Result<_, RunError> {
        let (mut words, mut used) = (items[..count].to_vec(), count);
        for at in (0..count).step_by(step).filter(|_| !texts.is_empty()) {
            for of in texts {
                let (word, more) = text::unpack(&items[used..], &mut alloc)?;
                (words[at + of], used) = (word, used + more);
            }
        }
        Ok((words, used))
    };
    if growing.columns.is_empty() {
        let (words, used) = put_back(container.length * ENTRY / 8, items, &growing.texts, ENTRY / 8)?;
        // SAFETY: words are bytes.
        let entries = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 8 * words.len()) };
        let has_text_keys = growing.texts.contains(&0);
        let indexed_by = |key: u64| match has_text_keys {
            // SAFETY: the key has just been made.
            true => (unsafe { text::head(key) }) >> 32,
            false => key,
        };
        let block = container.put_back(entries, growing.indexed, indexed_by, alloc)?;
        bytes[..8].copy_from_slice(&block.to_le_bytes());
        return Ok(used);
    }
    let mut used = 0;
    if container.capacity > 0 {
        let mut columns = Vec::new();
        for (number, width) in growing.columns.iter().enumerate() {
            let texts: &[usize] = if growing.texts.contains(&number) { &[0] } else { &[] };
            let (words, more) = put_back((container.length * width).div_ceil(8), &items[used..], texts, 1)?;
            used += more;
            columns.push(words);
        }
        let block = room(container.capacity * growing.columns.iter().sum::<usize>(), alloc)?;
        let mut column = block;
        for (words, width) in columns.iter().zip(&growing.columns) {
            // SAFETY: a column has room for `capacity` rows, at least as many as there are.
            unsafe { std::ptr::copy_nonoverlapping(words.as_ptr().cast(), column, container.length * width) };
            column = column.wrapping_add(container.capacity * width);
        }
        bytes[..8].copy_from_slice(&(block as usize as u64).to_le_bytes());
    }
    Ok(used)
}

/// Enters an entry in the index as kernels do: at the first free place from that of its key, with the key's tag.
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The places of a container with gaps, as kernels leave them, are packed without the gaps.
        #[test]
        fn entries_of_a_container_have_no_gaps(live in proptest::collection::vec(any::<bool>(), 1..64)) {
            let capacity = live.len().next_power_of_two();
            let block: Vec<[u64; 2]> = (0..live.len() as u64).map(|place| [place, !place]).collect();
            let mut tree = vec![0_u32; capacity];
            for (place, _) in live.iter().enumerate().filter(|&(_, &is_live)| !is_live) {
                let mut node = place + 1;
                while node <= capacity {
                    tree[node - 1] += 1;
                    node += node & node.wrapping_neg();
                }
            }
            let length = live.iter().filter(|&&is_live| is_live).count();
            let head = ContainerHead {
                block: block.as_ptr() as u64,
                length,
                capacity,
                gaps: live.len() - length,
                tree: tree.as_ptr() as u64,
            };
            let wanted: Vec<u8> = block.iter().zip(&live).filter(|&(_, &is_live)| is_live)
                .flat_map(|(entry, _)| entry.iter().flat_map(|word| word.to_le_bytes())).collect();
            // SAFETY: block and tree are there.
            prop_assert_eq!(&*unsafe { head.entries() }.unwrap(), &wanted[..]);
        }
    }
}
