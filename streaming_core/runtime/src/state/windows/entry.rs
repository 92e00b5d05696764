//! Entries: what a key has in a window, as kernels see it.
//!
//! An entry has a header, the fields of the key, its states, and the bytes of the key's texts. The fields name a text by its
//! place in the entry. Some entries have more parts, which lie in front: the growth of containers, the links of single
//! windows.

use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::program::{Growing, KeySpec};
use crate::rows::block::{SEQ_BYTES, Text};
use crate::rows::column::ColumnKind;
use crate::rows::mix::{finish, first_words, step};
use crate::state::key_group::{GROUPS, SEED, SHORT, group, hash_text, with_group};
use crate::state::windows::{GROUPS_OF_CELL, group_of_index};

/// Bytes that can be read behind an entry, which may end with a text: those are searched sixteen bytes at a time.
pub const BEHIND: usize = 16;

const _: () = assert!(SHORT <= BEHIND);

/// What entries of an operator look like.
#[derive(Debug, Clone)]
pub struct Shape {
    key: KeySpec,
    states: usize,
    /// Of single windows.
    single: bool,
    /// Entries have a number in place of a link (`replica/slices.rs`).
    numbered: bool,
    /// The growing containers of the states.
    growing: Vec<Growing>,
    has_texts: bool,
    /// The logarithm of the key groups of a cell.
    groups: u32,
}

/// The fields of a key, where its row would have them; its texts are those of the block.
#[derive(Debug, Clone, Copy)]
pub struct KeyFields {
    /// Where the row would begin: its seq, which is not there, cannot be read.
    pub row: *const u8,
    pub text: Text,
}

impl KeyFields {
    /// A key that is an index.
    pub fn index(index: &i64) -> Self {
        Self { row: std::ptr::from_ref(index).cast::<u8>().wrapping_sub(SEQ_BYTES), text: Text::empty() }
    }

    #[inline(always)]
    fn text(&self, offset: usize) -> &[u8] {
        // SAFETY: a text field of the key; `hash` has refused those that lie outside.
        unsafe { self.text.field(self.row.add(offset)) }.unwrap_or(&ZEROS[..0])
    }
}

/// An empty text is at its start: it has bytes behind it as all texts have.
static ZEROS: [u8; BEHIND] = [0; BEHIND];

/// Whether two texts of keys are the same. Most are short: calls to compare or copy memory take longer than comparing or
/// copying their words.
///
/// # Safety
/// `BEHIND` bytes behind the texts can be read.
#[inline(always)]
unsafe fn same(left: &[u8], right: &[u8]) -> bool {
    // SAFETY: as the caller says.
    let words = |text: &[u8]| unsafe { first_words(text.as_ptr(), text.len()) };
    left.len() == right.len() && words(left) == words(right) && (left.len() <= SHORT || left[SHORT..] == right[SHORT..])
}

/// Where a key's row would begin in an entry.
const KEY_ROW: usize = size_of::<EntryHeader>() - SEQ_BYTES;

impl Shape {
    /// `states`: bytes of all states of a key, which have the containers `growing`.
    pub fn new(key: &KeySpec, states: usize, growing: &[Growing], single: bool) -> Self {
        let has_texts = key.fields.iter().any(|field| field.kind == ColumnKind::Text);
        Self {
            key: key.clone(),
            states,
            single,
            numbered: false,
            growing: growing.to_vec(),
            has_texts,
            groups: GROUPS_OF_CELL.ilog2(),
        }
    }

    /// Has the operator so many cells, a power of two up to `CELLS`.
    pub fn set_cells(&mut self, cells: usize) {
        self.groups = (GROUPS / cells).ilog2();
    }

    /// Have entries a number.
    pub fn set_numbered(&mut self) {
        self.numbered = true;
    }

    pub fn is_numbered(&self) -> bool {
        self.numbered
    }

    /// The cell of a key.
    #[inline(always)]
    pub fn cell_of(&self, hash: u64) -> usize {
        group(hash) >> self.groups
    }

    /// The first key group of a cell.
    pub fn first_group(&self, cell: usize) -> usize {
        cell << self.groups
    }

    /// The key group of a key within its cell, and the key groups of a cell.
    #[inline(always)]
    pub fn group_in_cell(&self, hash: u64) -> usize {
        group(hash) & ((1 << self.groups) - 1)
    }

    pub fn groups_of_cell(&self) -> usize {
        1 << self.groups
    }

    /// Whether entries need an arena.
    #[inline(always)]
    pub fn grows(&self) -> bool {
        !self.growing.is_empty()
    }

    pub fn growing(&self) -> &[Growing] {
        &self.growing
    }

    pub fn is_single(&self) -> bool {
        self.single
    }

    /// Bytes before an entry that are its own.
    #[inline(always)]
    pub fn before(&self) -> usize {
        match (self.single, self.grows()) {
            (true, _) => size_of::<BeforeEntry>(),
            (false, true) => size_of::<*mut u8>(),
            (false, false) => 0,
        }
    }

    /// Where in an entry the states are.
    pub fn states(&self) -> std::ops::Range<usize> {
        self.head() - self.states..self.head()
    }

    /// Words of a key's fields.
    pub fn key_words(&self) -> usize {
        (self.key.stride - SEQ_BYTES) / 8
    }

    fn head(&self) -> usize {
        KEY_ROW + self.key.stride + self.states
    }

    /// The hash of a key, as `key_group` defines it for one field; of several, of their words or their hashes. None: a text
    /// lies outside of its block.
    #[inline]
    pub fn hash(&self, key: KeyFields) -> Option<u64> {
        // SAFETY: a text field of the key, with as many bytes behind it.
        let text = |offset: usize| unsafe { key.text.field(key.row.add(offset)).map(|text| hash_text(text)) };
        if let [field] = self.key.fields[..]
            && field.kind == ColumnKind::Text
        {
            return text(field.offset);
        }
        let mut h = SEED;
        for field in &self.key.fields {
            h = match field.kind {
                ColumnKind::Text => step(h, text(field.offset)?),
                // SAFETY: a field of the key.
                kind => step(h, unsafe { kind.load(key.row.add(field.offset)) }),
            };
        }
        Some(finish(h))
    }

    /// The hash of a key that is an index, in the key group that `group_of_index` gives it.
    pub fn hash_of_index(&self, index: i64) -> u64 {
        let hash = self.hash(KeyFields::index(&index)).expect("an index refers to no text");
        with_group(hash, group_of_index(index))
    }

    /// Whether two keys are the same.
    #[inline]
    pub fn equal(&self, left: KeyFields, right: KeyFields) -> bool {
        self.key.fields.iter().all(|field| match field.kind {
            // SAFETY: texts of blocks and of entries have as many bytes behind them.
            ColumnKind::Text => unsafe { same(left.text(field.offset), right.text(field.offset)) },
            kind => {
                // SAFETY: a field of both keys.
                unsafe { kind.load(left.row.add(field.offset)) == kind.load(right.row.add(field.offset)) }
            }
        })
    }

    /// The key of an entry.
    ///
    /// # Safety
    /// The entry is of this shape.
    #[inline(always)]
    pub unsafe fn key_of(&self, entry: *const EntryHeader) -> KeyFields {
        let start = entry.cast::<u8>();
        // SAFETY: an entry's texts lie inside of it, at less than 2^32.
        KeyFields { row: start.wrapping_add(KEY_ROW), text: unsafe { Text::new(start, u32::MAX as usize) } }
    }

    /// Bytes of the entry of a key, with those before it, without those behind it.
    #[inline(always)]
    pub fn bytes(&self, key: KeyFields) -> usize {
        let texts = || self.texts().map(|offset| key.text(offset).len()).sum::<usize>();
        (self.before() + self.head() + if self.has_texts { texts() } else { 0 }).next_multiple_of(8)
    }

    fn texts(&self) -> impl Iterator<Item = usize> {
        self.key.fields.iter().filter(|field| field.kind == ColumnKind::Text).map(|field| field.offset)
    }

    /// Makes an entry for a key.
    ///
    /// # Safety
    /// `memory` has as many bytes as `bytes` says and `BEHIND` more, all zero. No other thread uses them.
    pub unsafe fn make(&self, memory: *mut u8, hash: u64, key: KeyFields) -> *mut EntryHeader {
        // SAFETY: as the caller says; the parts of an entry are apart from each other.
        unsafe {
            let memory = memory.add(self.before());
            let entry = memory.cast::<EntryHeader>();
            (*entry).hash = hash;
            let from = key.row.add(SEQ_BYTES);
            let to = memory.add(KEY_ROW + SEQ_BYTES);
            match self.key.stride - SEQ_BYTES {
                8 => std::ptr::copy_nonoverlapping(from, to, 8),
                16 => std::ptr::copy_nonoverlapping(from, to, 16),
                bytes => std::ptr::copy_nonoverlapping(from, to, bytes),
            }
            let mut at = self.head();
            for offset in self.texts() {
                let text = key.text(offset);
                // What is behind the entry is zero, and stays so.
                let (low, high) = first_words(text.as_ptr(), text.len());
                memory.add(at).cast::<[u64; 2]>().write_unaligned([low.to_le(), high.to_le()]);
                if let Some(rest @ [_, ..]) = text.get(SHORT..) {
                    std::ptr::copy_nonoverlapping(rest.as_ptr(), memory.add(at + SHORT), rest.len());
                }
                memory.add(KEY_ROW + offset).cast::<u32>().write_unaligned(at as u32);
                at += text.len();
            }
            entry
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::program::Key;
    use crate::state::key_group::{hash_bytes, hash_i64};

    fn shape(kinds: &[ColumnKind]) -> Shape {
        let fields: Vec<Key> =
            kinds.iter().enumerate().map(|(at, &kind)| Key { kind, offset: SEQ_BYTES + 8 * at }).collect();
        Shape::new(&KeySpec { stride: SEQ_BYTES + 8 * kinds.len(), fields }, 16, &[], false)
    }

    #[test]
    fn one_field_is_hashed_as_keys_are() {
        let bytes = b"abcdefgh and more                                                       ";
        // SAFETY: the array outlives the text.
        let text = unsafe { Text::new(bytes.as_ptr(), 17) };
        let row = [0_u64, 42];
        assert_eq!(shape(&[ColumnKind::I64]).hash(KeyFields { row: row.as_ptr().cast(), text }), Some(hash_i64(42)));
        let row = [0_u64, 17 << 32];
        assert_eq!(
            shape(&[ColumnKind::Text]).hash(KeyFields { row: row.as_ptr().cast(), text }),
            Some(hash_bytes(&bytes[..17]))
        );
        let row = [0_u64, 18 << 32];
        assert_eq!(shape(&[ColumnKind::Text]).hash(KeyFields { row: row.as_ptr().cast(), text }), None);
    }

    #[test]
    fn an_entry_keeps_its_key() {
        let bytes = b"one and two                                                                   ";
        // SAFETY: the array outlives the text.
        let text = unsafe { Text::new(bytes.as_ptr(), 11) };
        let shape = shape(&[ColumnKind::Text, ColumnKind::I64, ColumnKind::Text]);
        let row = [0_u64, 3 << 32, 7, 3 << 32 | 8];
        let key = KeyFields { row: row.as_ptr().cast(), text };
        let mut memory = vec![0_u64; (shape.bytes(key) + BEHIND) / 8];
        // SAFETY: so many bytes are there.
        let kept = unsafe {
            let entry = shape.make(memory.as_mut_ptr().cast(), 1, key);
            shape.key_of(entry)
        };
        assert!(shape.equal(kept, key));
        assert_eq!((kept.text(8), kept.text(24)), (&b"one"[..], &b"two"[..]));
        assert_eq!(shape.hash(kept), shape.hash(key));
    }
}
