//! The index of a table whose rows have keys of their own: from keys to the numbers of rows, for all threads.
//!
//! This is open addressing with linear probing, at most half full. A place holds the number of a row, and a part of its key's
//! hash. A key that is in the index stays, and so does its row: nothing ever moves. All memory is reserved at the start, and
//! becomes memory of the process page by page as it is used.
//!
//! - *Look-up* takes no lock. A thread that finds a place also finds the key and the initial row, because the place was
//!   published after both.
//! - *Insertion* holds the lock of the key's shard, so that a key is inserted once. Threads in different shards compete for a
//!   place, and the loser takes the next one.
//! - *Rows* of a shard are neighbours, as long as its region has room. So schemes that cut tables into ranges of rows divide
//!   keys by their hash.
//!
//! Cost of a look-up: the line of the place, and the line of the key.

use std::sync::OnceLock; // not the shim's: it is written before threads start
use std::time::{Duration, Instant};

use crate::error::RunError;
use crate::memory::arena::Arena;
use crate::memory::fallible;
use crate::program::kernel::{Find, IndexHeader, row};
use crate::program::{IndexSpec, KeyKind};
use crate::state::key_group::{SHORT, hash_i64};
use crate::state::keyed::{KeyRef, TextKey};
use crate::state::states::Keys;
use crate::threads::sync::{AtomicU32, AtomicU64, CachePadded, Mutex, Ordering, UnsafeCell, lock};

/// Shards, each with its region of the rows; a power of two.
const SHARDS: usize = if cfg!(loom) { 2 } else { 64 };
/// One of so many look-ups is timed, because the clock costs as much as a look-up. A power of two.
const SAMPLE: u64 = 128;
/// A look-up that takes longer was interrupted.
const LONGEST: Duration = Duration::from_micros(20);

/// See the module.
#[repr(C)]
#[derive(Debug)]
pub struct KeyIndex {
    /// First, so that its address is that of the index.
    header: IndexHeader,
    spec: IndexSpec,
    /// A part of the hash in the upper half, a row's number and 1 in the lower; 0: free.
    places: Box<[AtomicU64]>,
    entries: Entries,
    shards: Box<[CachePadded<Shard>]>,
    /// Where the rows of the table are, and the bytes of each.
    rows: (*mut u8, usize),
    /// What a new row starts with; unset: with zeros.
    initial: OnceLock<Box<[u8]>>,
    /// Nanoseconds in look-ups, estimated from samples, and those that reading the clock takes.
    nanoseconds: AtomicU64,
    clock: Duration,
}

/// The keys, by row. An entry is written before its place is published, and never again.
#[derive(Debug)]
enum Entries {
    Integers(Box<[UnsafeCell<u64>]>),
    /// The length, and the key; or its first eight bytes and the address of a copy.
    Texts(Box<[UnsafeCell<[u64; 3]>]>),
}

#[derive(Debug)]
struct Shard {
    /// Rows of the region that are taken.
    taken: AtomicU32,
    /// Held while a key is inserted. Copies of long keys are in the arena.
    copies: Mutex<Arena>,
}

// SAFETY: a thread writes an entry and an initial row before it publishes the place; others read them only after that. The
// rows of the table are under a scheme's protocol otherwise.
unsafe impl Sync for KeyIndex {}
// SAFETY: nothing refers to the thread that made it.
unsafe impl Send for KeyIndex {}

/// So many words or cells of words, all zero. Models have cells that are no plain memory.
fn zeroed<T>(n: usize, zero: impl Fn() -> T) -> Option<Box<[T]>> {
    if cfg!(any(loom, shuttle)) {
        return Some((0..n).map(|_| zero()).collect());
    }
    // SAFETY: outside of models, `T` is a word, an atomic word, or a transparent cell of words: zero bits are a value.
    unsafe { fallible::zeroed(n) }
}

/// The part of a hash that a place holds, independent of the bits that choose place (low) and shard (high).
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash >> 26 & 0xFFFF_FFFF
}

#[inline(always)]
fn shard(hash: u64) -> usize {
    (hash >> (64 - SHARDS.trailing_zeros())) as usize
}

impl KeyIndex {
    /// An empty index of a table of `size` rows, which begin at `rows` and have `stride` bytes each.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// The rows outlive the index.
    pub unsafe fn new(spec: IndexSpec, size: usize, rows: *mut u8, stride: usize) -> Result<Self, RunError> {
        let (entries, find): (_, Find) = match spec.key {
            KeyKind::Integer => (zeroed(size, || UnsafeCell::new(0)).map(Entries::Integers), find_integer),
            KeyKind::Text => (zeroed(size, || UnsafeCell::new([0; 3])).map(Entries::Texts), find_text),
        };
        let places = zeroed((2 * size).next_power_of_two().max(4), || AtomicU64::new(0));
        let (Some(places), Some(entries)) = (places, entries) else {
            return Err(RunError::Memory("the index of a table".into()));
        };
        let shard = || CachePadded::new(Shard { taken: AtomicU32::new(0), copies: Mutex::new(Arena::new()) });
        Ok(Self {
            header: IndexHeader { find },
            spec,
            places,
            entries,
            shards: (0..SHARDS).map(|_| shard()).collect(),
            rows: (rows, stride),
            initial: OnceLock::new(),
            nanoseconds: AtomicU64::new(0),
            clock: (0..16).map(|_| Instant::now().elapsed()).min().unwrap_or_default(),
        })
    }

    /// An estimate of the time that threads have spent in look-ups and insertions.
    pub fn nanoseconds(&self) -> u64 {
        // ORDERING: Relaxed; a figure of its own.
        self.nanoseconds.load(Ordering::Relaxed)
    }

    /// Calls `find`, and measures it if it is its turn by the caller's counter.
    #[inline(always)]
    fn sampled(&self, lookups: &mut i64, find: impl FnOnce() -> i64) -> i64 {
        *lookups = lookups.wrapping_add(1);
        if (*lookups as u64).is_multiple_of(SAMPLE) { self.timed(find) } else { find() }
    }

    #[cold]
    #[inline(never)]
    fn timed(&self, find: impl FnOnce() -> i64) -> i64 {
        let started = Instant::now();
        let row = find();
        let spent = started.elapsed().saturating_sub(self.clock).min(LONGEST).as_nanos() as u64;
        // ORDERING: Relaxed; a figure of its own.
        self.nanoseconds.fetch_add(spent * SAMPLE, Ordering::Relaxed);
        row
    }

    /// The address for a context, valid as long as the index stays where it is.
    pub fn header(&self) -> *const IndexHeader {
        std::ptr::from_ref(self).cast()
    }

    pub fn inserts(&self) -> bool {
        self.spec.inserts
    }

    /// What a new row starts with; before the first insertion.
    pub fn set_initial(&self, bytes: &[u8]) -> Result<(), RunError> {
        let set = self.initial.set(bytes.into());
        set.map_err(|_| RunError::Invalid("the initial row of a table was set before".into()))
    }

    fn size(&self) -> usize {
        match &self.entries {
            Entries::Integers(entries) => entries.len(),
            Entries::Texts(entries) => entries.len(),
        }
    }

    #[inline(always)]
    fn place(&self, place: usize) -> &AtomicU64 {
        &self.places[place & (self.places.len() - 1)]
    }

    /// The row of a key, or the free place where the search for it ends.
    #[inline(always)]
    fn probe(&self, hash: u64, matches: &impl Fn(usize) -> bool) -> Result<usize, usize> {
        let mut place = hash as usize;
        loop {
            // ORDERING: Acquire pairs with the Release of `publish`: the entry and the initial row came before it.
            let word = self.place(place).load(Ordering::Acquire);
            if word == 0 {
                return Err(place);
            }
            let row = (word as u32 - 1) as usize;
            if word >> 32 == tag(hash) && matches(row) {
                return Ok(row);
            }
            place = place.wrapping_add(1);
        }
    }

    /// The row of a key, which `write` notes in the entry of a new row.
    #[inline(always)]
    fn find(
        &self,
        hash: u64,
        matches: impl Fn(usize) -> bool,
        write: impl FnOnce(usize, &mut Arena) -> Option<()>,
    ) -> i64 {
        match self.probe(hash, &matches) {
            Ok(row) => row as i64,
            Err(_) if self.spec.inserts => self.insert(hash, &matches, write),
            Err(_) => row::ABSENT,
        }
    }

    #[cold]
    #[inline(never)]
    fn insert(
        &self,
        hash: u64,
        matches: &impl Fn(usize) -> bool,
        write: impl FnOnce(usize, &mut Arena) -> Option<()>,
    ) -> i64 {
        let mut copies = lock(&self.shards[shard(hash)].copies);
        // Another thread may have inserted the key. From here on, none can.
        let place = match self.probe(hash, matches) {
            Ok(row) => return row as i64,
            Err(place) => place,
        };
        let Some(row) = self.take_row(shard(hash)) else { return row::FULL };
        if write(row, &mut copies).is_none() {
            return row::NO_MEMORY;
        }
        if let Some(initial) = self.initial.get() {
            let (rows, stride) = self.rows;
            // SAFETY: the row is inside of the table, `stride` bytes long, and no other thread knows it yet.
            unsafe { std::ptr::copy_nonoverlapping(initial.as_ptr(), rows.add(row * stride), stride) };
        }
        self.publish(hash, place, row);
        row as i64
    }

    /// A row that no key has: of the shard's region, or of the next region with room. None: every row has a key.
    fn take_row(&self, shard: usize) -> Option<usize> {
        let begin = |region: usize| self.size() * region / SHARDS;
        (shard..SHARDS).chain(0..shard).find_map(|region| {
            let room = (begin(region + 1) - begin(region)) as u32;
            // ORDERING: Relaxed; the counter only gives numbers away. The place publishes what is at the row.
            let taken = self.shards[region]
                .taken
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < room).then_some(taken + 1));
            taken.ok().map(|taken| begin(region) + taken as usize)
        })
    }

    /// Makes a key visible, at the first free place from `place` on. At most half of the places are taken, so there is one.
    fn publish(&self, hash: u64, mut place: usize, row: usize) {
        let word = tag(hash) << 32 | (row as u64 + 1);
        // ORDERING: Release publishes the entry and the initial row. Relaxed: a place that is taken is passed over.
        while self.place(place).compare_exchange(0, word, Ordering::Release, Ordering::Relaxed).is_err() {
            place = place.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn integer(&self, entries: &[UnsafeCell<u64>], key: i64) -> i64 {
        // SAFETY: the entry of a published place is not written any more.
        let matches = |row: usize| entries[row].with(|entry| unsafe { *entry } == key as u64);
        self.find(hash_i64(key), matches, |row, _| {
            // SAFETY: no other thread knows the row yet.
            entries[row].with_mut(|entry| unsafe { *entry = key as u64 });
            Some(())
        })
    }

    #[inline(always)]
    fn text(&self, entries: &[UnsafeCell<[u64; 3]>], key: &TextKey) -> i64 {
        // SAFETY: the entry of a published place is not written any more, and its copy neither.
        let matches = |row: usize| entries[row].with(|entry| unsafe { key.matches(entry.cast()) });
        self.find(key.hash(), matches, |row, copies| {
            let entry = key.entry(|bytes| copies.alloc(bytes))?;
            // SAFETY: no other thread knows the row yet.
            entries[row].with_mut(|words| unsafe { *words = entry });
            Some(())
        })
    }

    /// Enters keys, and calls `copy` with the number and the row of each. Keys get rows in their order, unless the index
    /// inserts rows. No other thread uses the table.
    ///
    /// # Errors
    /// Keys are of another type, occur twice, or are more than the rows; or there is no memory.
    pub fn enter(&self, keys: &Keys, mut copy: impl FnMut(usize, usize)) -> Result<(), RunError> {
        let invalid = |what: &str| RunError::Invalid(format!("the keys of a table {what}"));
        let mut add =
            |number: usize, hash: u64, matches: &dyn Fn(usize) -> bool, write: &mut dyn FnMut(usize) -> bool| {
                let Err(place) = self.probe(hash, &matches) else { return Err(invalid("occur twice")) };
                let free = if self.spec.inserts { self.take_row(shard(hash)) } else { Some(number) };
                let Some(row) = free.filter(|&row| row < self.size()) else {
                    return Err(invalid("are more than its rows"));
                };
                if !write(row) {
                    return Err(RunError::Memory("the keys of a table".into()));
                }
                copy(number, row);
                self.publish(hash, place, row);
                Ok(())
            };
        match (keys, &self.entries) {
            (Keys::Integers(keys), Entries::Integers(entries)) => {
                for (number, &key) in keys.iter().enumerate() {
                    // SAFETY: no other thread uses the table.
                    let matches = |row: usize| entries[row].with(|entry| unsafe { *entry } == key as u64);
                    add(number, hash_i64(key), &matches, &mut |row| {
                        // SAFETY: as above.
                        entries[row].with_mut(|entry| unsafe { *entry = key as u64 });
                        true
                    })?;
                }
            }
            (Keys::Texts(keys), Entries::Texts(entries)) => {
                for (number, key) in keys.iter().enumerate() {
                    let key = TextKey::of(key);
                    // SAFETY: no other thread uses the table.
                    let matches = |row: usize| entries[row].with(|entry| unsafe { key.matches(entry.cast()) });
                    add(number, key.hash(), &matches, &mut |row| {
                        let mut copies = lock(&self.shards[shard(key.hash())].copies);
                        let Some(entry) = key.entry(|bytes| copies.alloc(bytes)) else { return false };
                        // SAFETY: as above.
                        entries[row].with_mut(|words| unsafe { *words = entry });
                        true
                    })?;
                }
            }
            _ => return Err(invalid("are of another type")),
        }
        Ok(())
    }

    /// The row of a key, which it inserts if it may; None: there is none. No other thread uses the table.
    ///
    /// # Errors
    /// `Memory`: there is none for a new key.
    pub fn row_of(&self, key: KeyRef) -> Result<Option<usize>, RunError> {
        let row = match (key, &self.entries) {
            (KeyRef::Integer(key), Entries::Integers(entries)) => self.integer(entries, key),
            (KeyRef::Text(key), Entries::Texts(entries)) => self.text(entries, &TextKey::of(key)),
            _ => row::ABSENT,
        };
        if row == row::NO_MEMORY {
            Err(RunError::Memory("the keys of a table".into()))
        } else {
            Ok(usize::try_from(row).ok())
        }
    }

    /// All keys, ascending, and the row of each. No other thread uses the table.
    pub fn keys(&self) -> (Keys, Vec<usize>) {
        // ORDERING: Relaxed; the caller has waited for all threads.
        let words = self.places.iter().map(|place| place.load(Ordering::Relaxed));
        let rows = words.filter(|&word| word != 0).map(|word| (word as u32 - 1) as usize);
        match &self.entries {
            Entries::Integers(entries) => {
                // SAFETY: no thread writes the entry of a key that is in.
                let key = |row: usize| entries[row].with(|entry| unsafe { *entry }) as i64;
                let (keys, rows) = sorted(rows.map(|row| (key(row), row)));
                (Keys::Integers(keys), rows)
            }
            Entries::Texts(entries) => {
                // SAFETY: as above.
                let key = |row: usize| unsafe { text_of(entries[row].with(|entry| *entry)) };
                let (keys, rows) = sorted(rows.map(|row| (key(row), row)));
                (Keys::Texts(keys), rows)
            }
        }
    }
}

fn sorted<K: Ord>(pairs: impl Iterator<Item = (K, usize)>) -> (Vec<K>, Vec<usize>) {
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_unstable();
    pairs.into_iter().unzip()
}

/// The text of an entry.
///
/// # Safety
/// The entry is complete, and its index is still there.
unsafe fn text_of([length, low, high]: [u64; 3]) -> Vec<u8> {
    let length = length as usize;
    if length > SHORT {
        // SAFETY: the copy of a long key has so many bytes.
        return unsafe { std::slice::from_raw_parts(high as usize as *const u8, length) }.to_vec();
    }
    [low, high].iter().flat_map(|word| word.to_le_bytes()).take(length).collect()
}

/// # Safety
/// Kernels hand back the header that they got, which is the first field of an index.
unsafe fn index_of<'a>(header: *const IndexHeader) -> &'a KeyIndex {
    // SAFETY: as the caller says; the index outlives every call of a kernel.
    unsafe { &*header.cast::<KeyIndex>() }
}

extern "C" fn find_integer(header: *const IndexHeader, key: i64, _: i64, lookups: *mut i64) -> i64 {
    // SAFETY: only kernels call this, with the counter of a context that is their thread's.
    let (index, lookups) = unsafe { (index_of(header), &mut *lookups) };
    let Entries::Integers(entries) = &index.entries else { return row::ABSENT };
    index.sampled(lookups, || index.integer(entries, key))
}

extern "C" fn find_text(header: *const IndexHeader, address: i64, length: i64, lookups: *mut i64) -> i64 {
    // SAFETY: as above.
    let (index, lookups) = unsafe { (index_of(header), &mut *lookups) };
    let Entries::Texts(entries) = &index.entries else { return row::ABSENT };
    // SAFETY: kernels pass a text of the block, behind which at least 64 bytes can be read.
    let key = unsafe { TextKey::load(address as usize as *const u8, length as usize) };
    index.sampled(lookups, || index.text(entries, &key))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn index(key: KeyKind, inserts: bool, size: usize) -> KeyIndex {
        // SAFETY: without initial rows, none is ever touched.
        unsafe { KeyIndex::new(IndexSpec { key, inserts }, size, std::ptr::null_mut(), 0) }.unwrap()
    }

    fn integer(index: &KeyIndex, key: i64) -> i64 {
        (index.header.find)(index.header(), key, 0, &mut 0)
    }

    fn text(index: &KeyIndex, key: &[u8]) -> i64 {
        let padded = [key, &[0xAA; 64]].concat();
        (index.header.find)(index.header(), padded.as_ptr() as i64, key.len() as i64, &mut 0)
    }

    #[test]
    fn every_integer_gets_one_row_and_the_last_row_is_used() {
        for size in [1, 2, 63, 64, 65, 1000] {
            let index = index(KeyKind::Integer, true, size);
            let keys: Vec<i64> = (0..size as i64).map(|i| (i - 7).wrapping_mul(0x1234_5678_9ABC_DEF1)).collect();
            let mut rows: Vec<i64> = keys.iter().map(|&key| integer(&index, key)).collect();
            assert_eq!(keys.iter().map(|&key| integer(&index, key)).collect::<Vec<_>>(), rows);
            assert_eq!(integer(&index, 1), row::FULL);
            rows.sort_unstable();
            assert_eq!(rows, (0..size as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn look_ups_are_timed_in_samples() {
        let (index, mut lookups) = (index(KeyKind::Integer, true, 10), 0);
        for turn in 1..SAMPLE as i64 {
            (index.header.find)(index.header(), turn % 10, 0, &mut lookups);
        }
        assert_eq!((lookups, index.nanoseconds()), (SAMPLE as i64 - 1, 0));
        for _ in 0..100 * SAMPLE {
            (index.header.find)(index.header(), 3, 0, &mut lookups);
        }
        assert!(index.nanoseconds() <= 100 * SAMPLE * LONGEST.as_nanos() as u64);
        assert!(index.nanoseconds().is_multiple_of(SAMPLE));
    }

    #[test]
    fn listed_keys_have_rows_in_their_order_and_no_other_key_has_one() {
        let index = index(KeyKind::Integer, false, 3);
        index.enter(&Keys::Integers(vec![i64::MAX, i64::MIN, -1]), |_, _| ()).unwrap();
        assert_eq!([i64::MAX, i64::MIN, -1, 0].map(|key| integer(&index, key)), [0, 1, 2, row::ABSENT]);
        assert_eq!(index.keys(), (Keys::Integers(vec![i64::MIN, -1, i64::MAX]), vec![1, 2, 0]));
        let twice = self::index(KeyKind::Integer, false, 3);
        assert!(twice.enter(&Keys::Integers(vec![4, 4]), |_, _| ()).is_err());
        assert!(twice.enter(&Keys::Texts(vec![]), |_, _| ()).is_err());
        assert!(self::index(KeyKind::Text, false, 1).enter(&Keys::Texts(vec![vec![], vec![1]]), |_, _| ()).is_err());
    }

    #[test]
    fn new_rows_start_as_the_initial_one() {
        let mut rows = vec![0_u64; 2];
        let spec = IndexSpec { key: KeyKind::Integer, inserts: true };
        // SAFETY: two rows of a word, which outlive the index.
        let index = unsafe { KeyIndex::new(spec, 2, rows.as_mut_ptr().cast(), 8) }.unwrap();
        index.set_initial(&7_u64.to_le_bytes()).unwrap();
        let row = integer(&index, 5) as usize;
        drop(index);
        assert_eq!((rows[row], rows[1 - row]), (7, 0));
    }

    proptest! {
        #[test]
        fn texts_have_a_row_each(keys in prop::collection::vec(prop::collection::vec(0..3_u8, 0..40), 0..200)) {
            let (index, other) = (index(KeyKind::Text, true, 200), self::index(KeyKind::Text, true, 200));
            let mut rows = BTreeMap::new();
            for key in &keys {
                let row = text(&index, key);
                prop_assert!(row >= 0);
                prop_assert_eq!(*rows.entry(key.clone()).or_insert(row), row);
            }
            let (names, numbers) = index.keys();
            prop_assert_eq!(&names, &Keys::Texts(rows.keys().cloned().collect()));
            prop_assert_eq!(numbers, rows.values().map(|&row| row as usize).collect::<Vec<_>>());
            let mut distinct = rows.values().collect::<Vec<_>>();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), rows.len());
            other.enter(&names, |_, _| ()).unwrap();
            prop_assert_eq!(other.keys().0, names);
        }
    }
}

/// Threads that look for the same keys at once.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;

    fn find(index: &KeyIndex, key: i64) -> i64 {
        let Entries::Integers(entries) = &index.entries else { unreachable!("keys are integers") };
        index.integer(entries, key)
    }

    fn explore(keys: [&'static [i64]; 2], size: usize, preemptions: usize) {
        interleave(preemptions, move || {
            let spec = IndexSpec { key: KeyKind::Integer, inserts: true };
            // SAFETY: without initial rows, none is ever touched.
            let index = Arc::new(unsafe { KeyIndex::new(spec, size, std::ptr::null_mut(), 0) }.unwrap());
            let other = {
                let index = index.clone();
                thread::spawn(move || keys[1].iter().map(|&key| find(&index, key)).collect::<Vec<_>>())
            };
            let mine: Vec<i64> = keys[0].iter().map(|&key| find(&index, key)).collect();
            let theirs = other.join().unwrap();
            // The rows that both were told are those that everyone is told from now on.
            for (keys, rows) in keys.iter().zip([mine, theirs]) {
                assert_eq!(keys.iter().map(|&key| find(&index, key)).collect::<Vec<_>>(), rows);
            }
            let mut distinct: Vec<i64> = keys.concat();
            distinct.sort_unstable();
            distinct.dedup();
            let (Keys::Integers(known), mut rows) = index.keys() else { unreachable!("keys are integers") };
            assert_eq!(known, distinct);
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), distinct.len());
        });
    }

    #[test]
    fn a_key_that_two_threads_insert_has_one_row() {
        explore([&[1], &[1]], 2, 3);
    }

    #[test]
    fn threads_insert_different_keys_and_find_each_others() {
        explore([&[1, 2], &[2, 1]], 2, 2);
    }

    #[test]
    fn the_last_rows_go_to_either_shard() {
        explore([&[1, 2], &[3, 4]], 4, 2);
    }
}
