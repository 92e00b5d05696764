//! Keyed state: a hash table from integer or text keys to fixed-size zeroed states, looked up a batch at a time.
//!
//! Invariant: a state never moves, and its key is a copy of its own, so that it outlives the block it came from.
//! Cost: two cache lines a look-up (an index word of tag and address, then the entry: key beside state); keys up to
//! 16 bytes are loaded and compared as two words; nothing is allocated but for new keys.

use std::collections::TryReserveError;

use crate::arena::Arena;
use crate::batch::Text;
use crate::digest::{ColumnKind, first_words, select};
use crate::kernel::RunError;
use crate::key_group::{finish, hash_bytes, hash_i64, start, step};
use crate::program::Key;

const FIRST_INDEX: usize = 256;
const FIRST_BLOCK: usize = 4 << 10;
const LARGEST_BLOCK: usize = 1 << 20;
/// Text keys up to this length stand in their entry.
const SHORT: usize = 16;
/// Bytes before the state: an integer key, or a text key's length and two words.
const INTEGER_HEAD: usize = 8;
const TEXT_HEAD: usize = 24;
/// The index holds addresses in this many bits, and tags above.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// Beyond this many bytes of index and entries, look-ups fetch ahead.
const CACHED: usize = 1 << 20;
/// How many look-ups ahead the index, and half as many the entry, is fetched.
const AHEAD: usize = 16;

/// Rows whose keys are hashed or looked up.
#[derive(Debug, Clone, Copy)]
pub struct KeyedRows {
    rows: *const u8,
    n: usize,
    stride: usize,
    text: Text,
}

impl KeyedRows {
    /// # Safety
    /// `n * stride` bytes at `rows` are readable, and `TEXT_PADDING` bytes behind the text, while this is used; the
    /// key used with it lies inside of a row.
    pub unsafe fn new(rows: *const u8, n: usize, stride: usize, text: Text) -> Self {
        Self { rows, n, stride, text }
    }

    #[inline(always)]
    fn field(&self, index: usize, offset: usize) -> *const u8 {
        // SAFETY: inside of the row, as `new` demands.
        unsafe { self.rows.add(index * self.stride + offset) }
    }

    #[inline(always)]
    fn text(&self, index: usize, offset: usize) -> Option<TextKey> {
        // SAFETY: a text field is 8 bytes inside of the row.
        let bytes = unsafe { self.text.field(self.field(index, offset)) }?;
        // SAFETY: at least 64 bytes can be read behind the block's text.
        Some(unsafe { TextKey::load(bytes.as_ptr(), bytes.len()) })
    }

    /// The hash of each row's key, as `key_group` defines it.
    pub fn hash(&self, key: Key, hashes: &mut [u64]) -> Result<(), RunError> {
        let hashes = &mut hashes[..self.n];
        match key.kind {
            ColumnKind::Text => {
                for (i, hash) in hashes.iter_mut().enumerate() {
                    *hash = self.text(i, key.offset).ok_or_else(|| self.outside(i))?.hash();
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

    #[cold]
    fn outside(&self, index: usize) -> RunError {
        // SAFETY: every row starts with its seq.
        let seq = unsafe { self.field(index, 0).cast::<i64>().read_unaligned() };
        RunError::Invalid(format!("a key of event {seq} refers to text outside of its block"))
    }
}

/// A text key in registers: its length and its first 16 bytes, zero-padded.
#[derive(Debug, Clone, Copy)]
struct TextKey {
    bytes: *const u8,
    len: usize,
    low: u64,
    high: u64,
}

impl TextKey {
    /// # Safety
    /// `len` and at least 16 bytes at `bytes` are readable while this is used.
    #[inline(always)]
    unsafe fn load(bytes: *const u8, len: usize) -> Self {
        // SAFETY: as the caller says.
        let (low, high) = unsafe { first_words(bytes, len) };
        Self { bytes, len, low, high }
    }

    /// `key_group::hash_bytes` of the key.
    #[inline(always)]
    fn hash(&self) -> u64 {
        if self.len > SHORT {
            // SAFETY: `len` bytes are there.
            return hash_bytes(unsafe { std::slice::from_raw_parts(self.bytes, self.len) });
        }
        // Both words are always mixed, and the result chosen.
        let empty = start(self.len);
        let one = step(empty, self.low);
        let two = step(one, self.high);
        finish(select(self.len > 8, two, select(self.len == 0, empty, one)))
    }

    /// What an entry holds beside the length: the bytes, or the first eight and the address of a copy.
    #[inline(always)]
    unsafe fn matches(&self, entry: *const u8) -> bool {
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

/// States of the keys of one or more key groups. One thread at a time uses it; states may be used by any.
#[derive(Debug)]
pub struct KeyedState {
    key: Key,
    /// Bytes of a key and its state.
    entry: usize,
    state_size: usize,
    /// Open addressing: 0, or tag and address of an entry. At most half full; a power of two long.
    index: Vec<u64>,
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
    pub fn new(key: Key, state_size: usize) -> Self {
        let bytes = Self::head(key) + state_size;
        // No entry lies in more cache lines than it must.
        let entry = if bytes <= 64 { bytes.next_power_of_two() } else { bytes.next_multiple_of(32) };
        Self {
            key,
            entry,
            state_size,
            index: vec![0; FIRST_INDEX],
            len: 0,
            block: None,
            used: 0,
            memory: Arena::new(),
            long: Arena::new(),
        }
    }

    fn head(key: Key) -> usize {
        if key.kind == ColumnKind::Text { TEXT_HEAD } else { INTEGER_HEAD }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the state of each row's key; a new key gets a zeroed state. `hashes` are those of the rows.
    pub fn locate(&mut self, rows: &KeyedRows, hashes: &[u64], states: &mut [*mut u8]) -> Result<(), RunError> {
        let (hashes, states) = (&hashes[..rows.n], &mut states[..rows.n]);
        if self.index.len() * 8 + self.len * self.entry > CACHED {
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
        let offset = self.key.offset;
        match self.key.kind {
            ColumnKind::Text => {
                for (i, (&hash, state)) in hashes.iter().zip(states).enumerate() {
                    self.fetch::<FETCH>(hashes, i);
                    let key = rows.text(i, offset).ok_or_else(|| rows.outside(i))?;
                    // SAFETY: this table's entries are text entries.
                    *state = match self.find(hash, |entry| unsafe { key.matches(entry) }) {
                        Ok(entry) => entry.wrapping_add(TEXT_HEAD),
                        Err(_) => self.insert_text(hash, &key)?,
                    };
                }
            }
            kind => {
                for (i, (&hash, state)) in hashes.iter().zip(states).enumerate() {
                    self.fetch::<FETCH>(hashes, i);
                    // SAFETY: the key lies inside of the row, as `KeyedRows::new` demands.
                    let key = unsafe { kind.load(rows.field(i, offset)) };
                    // SAFETY: this table's entries start with their integer key.
                    *state = match self.find(hash, |entry| unsafe { entry.cast::<u64>().read() == key }) {
                        Ok(entry) => entry.wrapping_add(INTEGER_HEAD),
                        Err(_) => self.insert_integer(hash, key)?,
                    };
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn fetch<const FETCH: bool>(&self, hashes: &[u64], i: usize) {
        if FETCH {
            let mask = self.index.len() - 1;
            if let Some(&hash) = hashes.get(i + AHEAD) {
                prefetch((&raw const self.index[hash as usize & mask]).cast());
            }
            if let Some(&hash) = hashes.get(i + AHEAD / 2) {
                prefetch((self.index[hash as usize & mask] & ADDRESS) as usize as *const u8);
            }
        }
    }

    /// The entry that `matches`, or the free place of the index where it belongs.
    #[inline(always)]
    fn find(&self, hash: u64, matches: impl Fn(*const u8) -> bool) -> Result<*mut u8, usize> {
        let mask = self.index.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let word = self.index[place & mask];
            if word == 0 {
                return Err(place);
            }
            let entry = (word & ADDRESS) as usize as *mut u8;
            if word >> ADDRESS_BITS == tag(hash) && matches(entry) {
                return Ok(entry);
            }
            place = (place + 1) & mask;
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_text(&mut self, hash: u64, key: &TextKey) -> Result<*mut u8, RunError> {
        let high = if key.len <= SHORT {
            key.high
        } else {
            // SAFETY: the arena gives `len` bytes and more, the key has `len`.
            unsafe {
                let copy = self.long.alloc(key.len);
                if copy.is_null() {
                    return Err(out_of_memory());
                }
                std::ptr::copy_nonoverlapping(key.bytes, copy, key.len);
                copy as usize as u64
            }
        };
        let entry = self.insert()?;
        // SAFETY: a new entry of this table, large enough for its head.
        unsafe { entry.cast::<[u64; 3]>().write([key.len as u64, key.low, high]) };
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
                if block.is_null() || block as usize as u64 > ADDRESS {
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

    /// Doubles the index.
    fn grow(&mut self) -> Result<(), TryReserveError> {
        let wanted = self.index.len() * 2;
        let mut index: Vec<u64> = Vec::new();
        index.try_reserve_exact(wanted)?;
        index.resize(wanted, 0_u64);
        for entry in self.entries() {
            let hash = self.hash_of(entry);
            let mut place = hash as usize & (wanted - 1);
            while index[place] != 0 {
                place = (place + 1) & (wanted - 1);
            }
            index[place] = tag(hash) << ADDRESS_BITS | entry as usize as u64;
        }
        self.index = index;
        Ok(())
    }

    fn entries(&self) -> impl Iterator<Item = *mut u8> {
        self.index.iter().filter(|&&word| word != 0).map(|&word| (word & ADDRESS) as usize as *mut u8)
    }

    /// Hands every entry, with its key's hash, to the table that `owner` chooses. States stay where they are: this
    /// table, empty now, must live as long as the others, because its memory holds them.
    pub fn give_away(&mut self, mut owner: impl FnMut(u64) -> *mut KeyedState) -> Result<(), RunError> {
        for entry in self.entries() {
            let hash = self.hash_of(entry);
            // SAFETY: the caller gives tables that nobody else uses.
            let table = unsafe { &mut *owner(hash) };
            assert_eq!(table.entry, self.entry, "tables of one operator");
            table.adopt(hash, entry)?;
        }
        self.index = Vec::new();
        self.len = 0;
        Ok(())
    }

    fn adopt(&mut self, hash: u64, entry: *mut u8) -> Result<(), RunError> {
        if (self.len + 1) * 2 > self.index.len() {
            self.grow().map_err(|_| out_of_memory())?;
        }
        let place = self.find(hash, |_| false).expect_err("nothing matches");
        self.index[place] = tag(hash) << ADDRESS_BITS | entry as usize as u64;
        self.len += 1;
        Ok(())
    }

    fn hash_of(&self, entry: *const u8) -> u64 {
        // SAFETY: an entry of this table.
        unsafe {
            match self.key.kind {
                ColumnKind::Text => hash_bytes(self.bytes_of(entry)),
                _ => hash_i64(entry.cast::<i64>().read()),
            }
        }
    }

    /// # Safety
    /// `entry` is one of this table, whose keys are text.
    unsafe fn bytes_of(&self, entry: *const u8) -> &[u8] {
        // SAFETY: short keys stand in the entry, long ones where it says.
        unsafe {
            let len = entry.cast::<u64>().read() as usize;
            let start = if len <= SHORT { entry.add(8) } else { entry.add(16).cast::<*const u8>().read() };
            std::slice::from_raw_parts(start, len)
        }
    }

    /// Every key with the address of its state, ascending: text by bytes, integers by value.
    pub fn sorted(&self) -> Vec<(KeyRef<'_>, *mut u8)> {
        let mut all: Vec<_> = self
            .entries()
            .map(|entry| {
                // SAFETY: an entry of this table.
                let key = unsafe {
                    match self.key.kind {
                        ColumnKind::Text => KeyRef::Text(self.bytes_of(entry)),
                        _ => KeyRef::Integer(entry.cast::<i64>().read()),
                    }
                };
                (key, entry.wrapping_add(Self::head(self.key)))
            })
            .collect();
        all.sort_unstable_by_key(|&(key, _)| key);
        all
    }

    pub fn state_size(&self) -> usize {
        self.state_size
    }
}

/// A key in a table; the order is the canonical one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyRef<'a> {
    Integer(i64),
    Text(&'a [u8]),
}

/// Independent of the bits that choose lane (high) and place (low).
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash >> 32 & 0xFFFF
}

#[cold]
fn out_of_memory() -> RunError {
    RunError::Engine("out of memory for keyed state".into())
}

#[inline(always)]
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; any address will do.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(kind: ColumnKind) -> Key {
        Key { kind, offset: 8 }
    }

    /// Rows of seq and one text field, and the text.
    fn text_rows(keys: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>, usize) {
        let (mut rows, mut text) = (Vec::new(), Vec::new());
        for (seq, key) in keys.iter().enumerate() {
            rows.extend((seq as i64).to_le_bytes());
            rows.extend((text.len() as u32).to_le_bytes());
            rows.extend((key.len() as u32).to_le_bytes());
            text.extend(key);
        }
        let bytes = text.len();
        // What stands behind the text must not matter.
        text.extend([0x5A; 64]);
        (rows, text, bytes)
    }

    fn integer_rows(keys: &[i64]) -> Vec<u8> {
        keys.iter()
            .enumerate()
            .flat_map(|(seq, key)| [(seq as i64).to_le_bytes(), key.to_le_bytes()].concat())
            .collect()
    }

    /// Counts each row's key, and checks that states stay where they are.
    fn count(table: &mut KeyedState, rows: &KeyedRows) {
        let mut hashes = vec![0; rows.n];
        rows.hash(table.key, &mut hashes).unwrap();
        let mut states = vec![std::ptr::null_mut(); rows.n];
        table.locate(rows, &hashes, &mut states).unwrap();
        let mut again = states.clone();
        table.locate(rows, &hashes, &mut again).unwrap();
        assert_eq!(states, again);
        for state in states {
            assert_eq!(state as usize % 8, 0);
            // SAFETY: states of 8 bytes.
            unsafe { *state.cast::<u64>() += 1 };
        }
    }

    impl KeyRef<'_> {
        fn bytes(&self) -> Vec<u8> {
            match self {
                KeyRef::Integer(key) => key.to_le_bytes().to_vec(),
                KeyRef::Text(key) => key.to_vec(),
            }
        }
    }

    fn counted<'a>(table: &'a KeyedState) -> Vec<(KeyRef<'a>, u64)> {
        // SAFETY: states of 8 bytes.
        table.sorted().into_iter().map(|(key, state)| (key, unsafe { *state.cast::<u64>() })).collect()
    }

    fn check_text(keys: &[Vec<u8>], batch: usize) {
        let mut table = KeyedState::new(key(ColumnKind::Text), 8);
        for chunk in keys.chunks(batch) {
            let (rows, text, bytes) = text_rows(chunk);
            // SAFETY: rows and text live until the end of the loop's body, with 64 bytes behind the text.
            count(&mut table, &unsafe {
                KeyedRows::new(rows.as_ptr(), chunk.len(), 16, Text::new(text.as_ptr(), bytes))
            });
        }
        let mut expected = BTreeMap::new();
        keys.iter().for_each(|key| *expected.entry(&key[..]).or_insert(0) += 1);
        let expected: Vec<_> = expected.into_iter().map(|(key, n)| (KeyRef::Text(key), n)).collect();
        assert_eq!(counted(&table), expected);
    }

    fn check_integers(keys: &[i64], batch: usize) {
        let mut table = KeyedState::new(key(ColumnKind::I64), 8);
        for chunk in keys.chunks(batch) {
            let rows = integer_rows(chunk);
            // SAFETY: the rows live until the end of the loop's body.
            count(&mut table, &unsafe { KeyedRows::new(rows.as_ptr(), chunk.len(), 16, Text::empty()) });
        }
        let mut expected = BTreeMap::new();
        keys.iter().for_each(|&key| *expected.entry(key).or_insert(0) += 1);
        let expected: Vec<_> = expected.into_iter().map(|(key, n)| (KeyRef::Integer(key), n)).collect();
        assert_eq!(counted(&table), expected);
    }

    proptest! {
        #[test]
        fn counts_text_like_a_map(
            keys in proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..40), 0..300), batch in 1_usize..80,
        ) {
            check_text(&keys, batch);
        }

        #[test]
        fn counts_integers_like_a_map(
            keys in proptest::collection::vec(prop_oneof![-20_i64..20, any::<i64>()], 0..300), batch in 1_usize..80,
        ) {
            check_integers(&keys, batch);
        }

        #[test]
        fn text_hashes_are_those_of_the_partitioner(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let mut padded = bytes.clone();
            padded.extend([0xC3; 64]);
            // SAFETY: 64 bytes behind the key.
            let key = unsafe { TextKey::load(padded.as_ptr(), bytes.len()) };
            prop_assert_eq!(key.hash(), hash_bytes(&bytes));
        }
    }

    #[test]
    fn large_tables_fetch_ahead_and_stay_right() {
        let keys: Vec<i64> = (0..400_000).map(|i| (i * 7919) % 150_000 - 75_000).collect();
        check_integers(&keys, 1000);
        let keys: Vec<Vec<u8>> =
            keys.iter().take(200_000).map(|key| format!("key number {key}").into_bytes()).collect();
        check_text(&keys, 1000);
    }

    #[test]
    fn entries_given_away_keep_their_states_and_addresses() {
        for make in [|key: i64| key.to_string().into_bytes(), |key: i64| format!("a key of some length {key}").into()] {
            let keys: Vec<Vec<u8>> = (0..1000_i64).map(make).collect();
            let (rows, text, bytes) = text_rows(&keys);
            // SAFETY: rows and text live until the end, with 64 bytes behind the text.
            let rows = unsafe { KeyedRows::new(rows.as_ptr(), 1000, 16, Text::new(text.as_ptr(), bytes)) };
            let mut old = KeyedState::new(key(ColumnKind::Text), 8);
            count(&mut old, &rows);
            let before: BTreeMap<Vec<u8>, usize> = old.sorted().iter().map(|(k, s)| (k.bytes(), *s as usize)).collect();
            let mut new: Vec<KeyedState> = (0..3).map(|_| KeyedState::new(key(ColumnKind::Text), 8)).collect();
            old.give_away(|hash| &raw mut new[hash as usize % 3]).unwrap();
            assert!(old.is_empty() && new.iter().all(|table| table.len() > 200));
            let after: BTreeMap<Vec<u8>, usize> =
                new.iter().flat_map(|table| table.sorted()).map(|(k, s)| (k.bytes(), s as usize)).collect();
            assert_eq!(before, after);
        }
    }

    #[test]
    fn narrow_integers_are_extended() {
        for (kind, bytes, value) in [
            (ColumnKind::I8, vec![0xFE], -2),
            (ColumnKind::U8, vec![0xFE], 254),
            (ColumnKind::Boolean, vec![1], 1),
            (ColumnKind::I16, vec![0xFE, 0xFF], -2),
            (ColumnKind::U32, vec![0xFF; 4], u32::MAX.into()),
        ] {
            let mut rows = [0_u8; 16];
            rows[8..8 + bytes.len()].copy_from_slice(&bytes);
            let mut table = KeyedState::new(key(kind), 8);
            // SAFETY: one row of 16 bytes.
            count(&mut table, &unsafe { KeyedRows::new(rows.as_ptr(), 1, 16, Text::empty()) });
            assert_eq!(counted(&table), [(KeyRef::Integer(value), 1)]);
        }
    }

    #[test]
    fn keys_outside_of_the_text_are_refused() {
        let row = [5_i64, 3 | 9 << 32];
        let text = [0_u8; 128];
        // SAFETY: one row of 16 bytes, a text of 8 with more than 64 behind.
        let rows = unsafe { KeyedRows::new(row.as_ptr().cast(), 1, 16, Text::new(text.as_ptr(), 8)) };
        let error = rows.hash(key(ColumnKind::Text), &mut [0]).unwrap_err();
        assert!(error.to_string().contains("event 5"), "{error}");
    }
}
