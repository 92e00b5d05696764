//! Keyed state: a hash table from integer or text keys to fixed-size zeroed states, looked up a batch at a time. A key of several
//! fields is packed into a text.
//!
//! Invariant: a state never moves, and its key is a copy of its own, so that it outlives the block it came from.
//! Cost: a look-up takes two cache lines: an index word of tag and address, then the entry with key and state. Keys up to
//! 16 bytes are loaded and compared as two words. Only new keys need an allocation, and no look-up waits while the whole table
//! grows.

mod packed;
mod rows;

use crate::error::RunError;
use crate::memory::arena::Arena;
use crate::program::Key;
use crate::rows::column::ColumnKind;
use crate::state::index::Index;
use crate::state::key_group::{SHORT, hash_bytes, hash_i64};
use crate::state::key_range::{position_i64, position_text};

pub use packed::{is_text, unpacked};
pub use rows::{KeyedRows, TextKey};

const FIRST_BLOCK: usize = 4 << 10;
const LARGEST_BLOCK: usize = 64 << 10;
/// Bytes before the state: an integer key, or a text key's length and two words.
const INTEGER_HEAD: usize = 8;
const TEXT_HEAD: usize = 24;
/// Beyond this many bytes of index and entries, look-ups fetch ahead.
const CACHED: usize = 1 << 18;
/// How many look-ups ahead the index, and half as many the entry, is fetched.
const AHEAD: usize = 16;

/// States of the keys of one or more key groups. One thread at a time uses it; states may be used by any.
#[derive(Debug)]
pub struct KeyedState {
    key: Vec<Key>,
    /// Bytes of a key and its state.
    entry: usize,
    index: Index,
    len: usize,
    /// Where new entries go: (address, how many fit), and how many are there.
    block: Option<(*mut u8, usize)>,
    used: usize,
    memory: Arena,
    /// Copies of long keys.
    long: Arena,
}

// SAFETY: the table owns its memory; nothing in it refers to the thread that made it.
unsafe impl Send for KeyedState {}

impl KeyedState {
    /// An empty table for keys read as `key` says and states of `state_size` bytes.
    pub fn new(key: &[Key], state_size: usize) -> Self {
        let bytes = head(key) + state_size;
        // No entry lies in more cache lines than it must.
        let entry = if bytes <= 64 { bytes.next_power_of_two() } else { bytes.next_multiple_of(32) };
        Self {
            key: key.into(),
            entry,
            index: Index::new(),
            len: 0,
            block: None,
            used: 0,
            memory: Arena::new(),
            long: Arena::new(),
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of the state of each row's key; a new key gets a zeroed state. `hashes` are those of the rows.
    pub fn locate(&mut self, rows: &KeyedRows, hashes: &[u64], states: &mut [*mut u8]) -> Result<(), RunError> {
        let (hashes, states) = (&hashes[..rows.n()], &mut states[..rows.n()]);
        if self.index.bytes() + self.len * self.entry > CACHED {
            self.locate_with::<true>(rows, hashes, states)
        } else {
            self.locate_with::<false>(rows, hashes, states)
        }
    }

    #[inline(always)]
    fn locate_with<const FETCH: bool>(
        &mut self,
        rows: &KeyedRows,
        hashes: &[u64],
        states: &mut [*mut u8],
    ) -> Result<(), RunError> {
        let &[Key { kind, offset }] = &self.key[..] else {
            let mut packed = Vec::new();
            for (i, (&hash, state)) in hashes.iter().zip(states).enumerate() {
                self.fetch::<FETCH>(hashes, i);
                let key = rows.key(i, &self.key, &mut packed).ok_or_else(|| rows.outside(i))?;
                // SAFETY: this table's entries are text entries.
                *state = match self.index.find(hash, |entry| unsafe { key.matches(entry) }) {
                    Some(entry) => entry.wrapping_add(TEXT_HEAD),
                    None => self.insert_text(hash, rows, i)?,
                };
            }
            return Ok(());
        };
        match kind {
            ColumnKind::Text => {
                for (i, (&hash, state)) in hashes.iter().zip(states).enumerate() {
                    self.fetch::<FETCH>(hashes, i);
                    // The key stays in registers: nothing here borrows it for a call.
                    let Some(key) = rows.text(i, offset) else { return Err(rows.outside(i)) };
                    // SAFETY: this table's entries are text entries.
                    *state = match self.index.find(hash, |entry| unsafe { key.matches(entry) }) {
                        Some(entry) => entry.wrapping_add(TEXT_HEAD),
                        None => self.insert_text(hash, rows, i)?,
                    };
                }
            }
            kind => {
                for (i, (&hash, state)) in hashes.iter().zip(states).enumerate() {
                    self.fetch::<FETCH>(hashes, i);
                    // SAFETY: the key lies inside of the row, as `KeyedRows::new` demands.
                    let key = unsafe { kind.load(rows.field(i, offset)) };
                    // SAFETY: this table's entries start with their integer key.
                    *state = match self.index.find(hash, |entry| unsafe { entry.cast::<u64>().read() == key }) {
                        Some(entry) => entry.wrapping_add(INTEGER_HEAD),
                        None => self.insert_integer(hash, key)?,
                    };
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn fetch<const FETCH: bool>(&self, hashes: &[u64], i: usize) {
        if FETCH {
            if let Some(&hash) = hashes.get(i + AHEAD) {
                self.index.fetch_place(hash);
            }
            if let Some(&hash) = hashes.get(i + AHEAD / 2) {
                self.index.fetch_entry(hash, 1);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_text(&mut self, hash: u64, rows: &KeyedRows, row: usize) -> Result<*mut u8, RunError> {
        let mut packed = Vec::new();
        let key = rows.key(row, &self.key, &mut packed).ok_or_else(|| rows.outside(row))?;
        self.add_text(hash, &key)
    }

    fn add_text(&mut self, hash: u64, key: &TextKey) -> Result<*mut u8, RunError> {
        let head = key.entry(|bytes| self.long.alloc(bytes)).ok_or_else(out_of_memory)?;
        let entry = self.insert()?;
        // SAFETY: a new entry of this table, large enough for its head.
        unsafe { entry.cast::<[u64; 3]>().write(head) };
        self.adopt(hash, entry)?;
        Ok(entry.wrapping_add(TEXT_HEAD))
    }

    #[cold]
    #[inline(never)]
    fn insert_integer(&mut self, hash: u64, key: u64) -> Result<*mut u8, RunError> {
        let entry = self.insert()?;
        // SAFETY: a new entry of this table, large enough for its head.
        unsafe { entry.cast::<u64>().write(key) };
        self.adopt(hash, entry)?;
        Ok(entry.wrapping_add(INTEGER_HEAD))
    }

    /// A new zeroed entry, not yet in the index: that needs its key.
    fn insert(&mut self) -> Result<*mut u8, RunError> {
        let block = match self.block {
            Some((block, fits)) if self.used < fits => block,
            last => {
                let bytes = last.map_or(FIRST_BLOCK, |(_, fits)| (fits * self.entry * 2).min(LARGEST_BLOCK));
                let fits = (bytes / self.entry).max(1);
                // Whole cache lines, so that every block starts one.
                let block = self.memory.alloc((fits * self.entry).next_multiple_of(64));
                if block.is_null() {
                    return Err(out_of_memory());
                }
                self.block = Some((block, fits));
                self.used = 0;
                block
            }
        };
        let entry = block.wrapping_add(self.used * self.entry);
        self.used += 1;
        Ok(entry)
    }

    /// Hands every entry to the table that `owner` chooses for its key's hash and position. States stay where they are: this
    /// table, empty now, must live as long as the others, because its memory holds them.
    pub fn give_away(&mut self, mut owner: impl FnMut(u64, u64) -> *mut KeyedState) -> Result<(), RunError> {
        for entry in self.index.entries() {
            let hash = hash_of(&self.key, entry);
            // SAFETY: the caller gives tables that no other thread uses.
            let table = unsafe { &mut *owner(hash, position_of(&self.key, entry)) };
            assert_eq!(table.entry, self.entry, "both tables must belong to one operator");
            table.adopt(hash, entry)?;
        }
        self.index = Index::new();
        self.len = 0;
        Ok(())
    }

    /// Every entry with the hash of its key.
    pub fn entries(&self) -> impl Iterator<Item = (u64, *mut u8)> {
        self.index.entries().map(|entry| (hash_of(&self.key, entry), entry))
    }

    /// Makes the entry of a key that is not there; returns its zeroed state.
    ///
    /// # Errors
    /// `Memory`: there is none.
    pub fn add(&mut self, key: KeyRef) -> Result<*mut u8, RunError> {
        match key {
            KeyRef::Integer(key) => self.insert_integer(hash_i64(key), key as u64),
            KeyRef::Text(text) => self.add_text(hash_bytes(text), &TextKey::of(text)),
        }
    }

    /// The positions of the first key and of the last one, if there are any.
    pub fn extent(&self) -> Option<(u64, u64)> {
        let positions = self.index.entries().map(|entry| position_of(&self.key, entry));
        positions.fold(None, |extent: Option<(u64, u64)>, position| {
            let (low, high) = extent.unwrap_or((position, position));
            Some((low.min(position), high.max(position)))
        })
    }

    fn adopt(&mut self, hash: u64, entry: *mut u8) -> Result<(), RunError> {
        let key = &self.key;
        self.index.enter(hash, entry, |entry| hash_of(key, entry)).ok_or_else(out_of_memory)?;
        self.len += 1;
        Ok(())
    }

    /// Every key with the address of its state, ascending: text by bytes, integers by value, several fields by the first that differs.
    pub fn sorted(&self) -> Vec<(KeyRef<'_>, *mut u8)> {
        let mut all: Vec<_> = self
            .index
            .entries()
            // SAFETY: an entry of this table.
            .map(|entry| unsafe { split(&self.key, entry) })
            .collect();
        all.sort_unstable_by_key(|&(key, _)| key);
        all
    }
}

/// A key in a table; the order is the canonical one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyRef<'a> {
    Integer(i64),
    Text(&'a [u8]),
}

/// The key and the state of an entry.
///
/// # Safety
/// It is one of a table with such keys; the result must not outlive that.
pub unsafe fn split<'a>(key: &[Key], entry: *mut u8) -> (KeyRef<'a>, *mut u8) {
    // SAFETY: as the caller says.
    let known = unsafe {
        if is_text(key) { KeyRef::Text(bytes_of(entry)) } else { KeyRef::Integer(entry.cast::<i64>().read()) }
    };
    (known, entry.wrapping_add(head(key)))
}

fn head(key: &[Key]) -> usize {
    if is_text(key) { TEXT_HEAD } else { INTEGER_HEAD }
}

impl KeyRef<'_> {
    /// The hash of the key, as `key_group` defines it.
    pub fn hash(&self) -> u64 {
        match self {
            Self::Integer(key) => hash_i64(*key),
            Self::Text(text) => hash_bytes(text),
        }
    }
}

fn hash_of(key: &[Key], entry: *const u8) -> u64 {
    // SAFETY: an entry of a table with such keys.
    unsafe { split(key, entry.cast_mut()) }.0.hash()
}

fn position_of(key: &[Key], entry: *const u8) -> u64 {
    // SAFETY: an entry of a table with such keys.
    unsafe { if is_text(key) { position_text(bytes_of(entry)) } else { position_i64(entry.cast::<i64>().read()) } }
}

/// # Safety
/// `entry` is one of a table whose keys are text; the result must not outlive that.
unsafe fn bytes_of<'a>(entry: *const u8) -> &'a [u8] {
    // SAFETY: short keys stand in the entry, long ones where it says.
    unsafe {
        let len = entry.cast::<u64>().read() as usize;
        let start = if len <= SHORT { entry.add(8) } else { entry.add(16).cast::<*const u8>().read() };
        std::slice::from_raw_parts(start, len)
    }
}

#[cold]
fn out_of_memory() -> RunError {
    RunError::Memory("keyed state".into())
}

#[cfg(all(test, not(loom)))]
mod tests;
