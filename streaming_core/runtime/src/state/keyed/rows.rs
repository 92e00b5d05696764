//! Rows with a key: how it is read from a row, hashed, and compared.
//!
//! Cost: keys up to 16 bytes are loaded and compared as two words.

use crate::error::RunError;
use crate::program::Key;
use crate::rows::column::ColumnKind;
use crate::rows::mix::{first_words, word};
use crate::rows::view::Rows;
use crate::state::key_group::{SHORT, hash_bytes, hash_i64, hash_short};
use crate::state::key_range::{position_i64, position_text};
use crate::state::keyed::packed::{is_text, push_integer, push_text};

/// Rows whose keys are hashed or looked up.
#[derive(Debug, Clone, Copy)]
pub struct KeyedRows(Rows);

impl KeyedRows {
    /// # Safety
    /// The rows are readable, and `TEXT_PADDING` bytes behind the text, while this is used; the key used with it lies
    /// inside of a row.
    pub unsafe fn new(rows: Rows) -> Self {
        Self(rows)
    }

    /// Their number.
    pub fn n(&self) -> usize {
        self.0.n
    }

    #[inline(always)]
    pub fn field(&self, index: usize, offset: usize) -> *const u8 {
        // SAFETY: inside of the row, as `new` demands.
        unsafe { self.0.row(index).add(offset) }
    }

    #[inline(always)]
    pub fn text(&self, index: usize, offset: usize) -> Option<TextKey> {
        // SAFETY: a text field is 8 bytes inside of the row.
        let bytes = unsafe { self.0.text.field(self.field(index, offset)) }?;
        // SAFETY: at least 64 bytes can be read behind the block's text.
        Some(unsafe { TextKey::load(bytes.as_ptr(), bytes.len()) })
    }

    /// The key of a row: the text, or `fields` packed into `packed`.
    #[inline]
    pub fn key(&self, index: usize, fields: &[Key], packed: &mut Vec<u8>) -> Option<TextKey> {
        if let [field] = fields {
            return self.text(index, field.offset);
        }
        packed.clear();
        for field in fields {
            let at = self.field(index, field.offset);
            // SAFETY: the field lies inside of the row, as `new` demands.
            unsafe {
                match field.kind {
                    ColumnKind::Text => push_text(packed, self.0.text.field(at)?),
                    kind => push_integer(packed, kind.load(at) as i64),
                }
            }
        }
        Some(TextKey::of(packed))
    }

    /// The hash of each row's key, as `key_group` defines it.
    pub fn hash(&self, key: &[Key], hashes: &mut [u64]) -> Result<(), RunError> {
        let hashes = &mut hashes[..self.n()];
        let &[key] = key else {
            let mut packed = Vec::new();
            for (i, hash) in hashes.iter_mut().enumerate() {
                *hash = self.key(i, key, &mut packed).ok_or_else(|| self.outside(i))?.hash();
            }
            return Ok(());
        };
        match key.kind {
            ColumnKind::Text => {
                for (i, hash) in hashes.iter_mut().enumerate() {
                    let Some(key) = self.text(i, key.offset) else { return Err(self.outside(i)) };
                    *hash = key.hash();
                }
            }
            ColumnKind::I64 => {
                for (i, hash) in hashes.iter_mut().enumerate() {
                    // SAFETY: the key lies inside of the row, as `new` demands.
                    *hash = hash_i64(unsafe { self.field(i, key.offset).cast::<i64>().read_unaligned() });
                }
            }
            kind => {
                for (i, hash) in hashes.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *hash = hash_i64(unsafe { kind.load(self.field(i, key.offset)) } as i64);
                }
            }
        }
        Ok(())
    }

    /// Where each row's key lies, as `key_range` defines it.
    pub fn positions(&self, key: &[Key], positions: &mut [u64]) -> Result<(), RunError> {
        let mut packed = Vec::new();
        for (i, position) in positions[..self.n()].iter_mut().enumerate() {
            *position = if is_text(key) {
                let text = self.key(i, key, &mut packed).ok_or_else(|| self.outside(i))?;
                // SAFETY: `len` bytes are there.
                position_text(unsafe { std::slice::from_raw_parts(text.bytes, text.len) })
            } else {
                // SAFETY: the key lies inside of the row, as `new` demands.
                position_i64(unsafe { key[0].kind.load(self.field(i, key[0].offset)) } as i64)
            };
        }
        Ok(())
    }

    #[cold]
    pub fn outside(&self, index: usize) -> RunError {
        // SAFETY: every row starts with its seq.
        let seq = unsafe { self.field(index, 0).cast::<i64>().read_unaligned() };
        RunError::Invalid(format!("a key of event {seq} refers to text outside its block"))
    }
}

/// A text key in registers: its length and its first 16 bytes, zero-padded.
#[derive(Debug, Clone, Copy)]
pub struct TextKey {
    pub bytes: *const u8,
    pub len: usize,
    pub low: u64,
    pub high: u64,
}

impl TextKey {
    /// # Safety
    /// `len` and at least 16 bytes at `bytes` are readable while this is used.
    #[inline(always)]
    pub unsafe fn load(bytes: *const u8, len: usize) -> Self {
        // SAFETY: as the caller says.
        let (low, high) = unsafe { first_words(bytes, len) };
        Self { bytes, len, low, high }
    }

    /// Of a slice, behind which nothing needs to be readable.
    pub fn of(bytes: &[u8]) -> Self {
        let (low, rest) = bytes.split_at(bytes.len().min(8));
        let high = &rest[..rest.len().min(8)];
        Self { bytes: bytes.as_ptr(), len: bytes.len(), low: word(low), high: word(high) }
    }

    /// The entry that `matches` compares with. A long key is copied to memory that `alloc` gives; None: it gives none.
    pub fn entry(&self, alloc: impl FnOnce(usize) -> *mut u8) -> Option<[u64; 3]> {
        if self.len <= SHORT {
            return Some([self.len as u64, self.low, self.high]);
        }
        let copy = alloc(self.len);
        if copy.is_null() {
            return None;
        }
        // SAFETY: `len` bytes are at both addresses, and no other thread knows the new ones yet.
        unsafe { std::ptr::copy_nonoverlapping(self.bytes, copy, self.len) };
        Some([self.len as u64, self.low, copy as usize as u64])
    }

    /// `key_group::hash_bytes` of the key.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        if self.len > SHORT {
            // SAFETY: `len` bytes are there.
            return hash_bytes(unsafe { std::slice::from_raw_parts(self.bytes, self.len) });
        }
        hash_short(self.len, (self.low, self.high))
    }

    /// What an entry holds beside the length: the bytes, or the first eight and the address of a copy.
    #[inline(always)]
    pub unsafe fn matches(&self, entry: *const u8) -> bool {
        let head = entry.cast::<u64>();
        // SAFETY: the caller gives a text entry; the copy of a long key has `len` bytes.
        unsafe {
            if head.read() != self.len as u64 || head.add(1).read() != self.low {
                return false;
            }
            let high = head.add(2).read();
            if self.len <= SHORT {
                return high == self.high;
            }
            let bytes = |start: *const u8| std::slice::from_raw_parts(start, self.len);
            bytes(high as usize as *const u8) == bytes(self.bytes)
        }
    }
}
