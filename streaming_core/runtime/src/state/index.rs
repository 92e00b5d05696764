//! The index of a table: from hashes to the addresses of entries, in segments that grow and split one by one.
//!
//! This is extendible hashing. The low bits of a hash give the place in a segment, and the bits above give the segment. A
//! segment that is half full becomes twice as long; from `SEGMENT` places on, it splits into two. No other segment is touched,
//! so no thread ever waits until a whole index is rebuilt. Hashes that agree in `MOST_BITS` bits share a segment, which then
//! keeps growing.
//!
//! Cost of a look-up: one line of the segment and, with several segments, its line in the directory. The directory has eight
//! bytes for some thousand keys, so it is in the cache. Cost of growth: a look at each entry of the segment, fetched ahead,
//! about 10 us.
//! Memory: 16 to 32 bytes per key, and one spare segment.

use crate::memory::arena::Arena;

/// Places of the first segment, of an index that is one of very many, and of one that splits instead of growing; their
/// logarithms.
const FIRST: u32 = 8;
const SMALL: u32 = 3;
const SEGMENT: u32 = 12;
/// The directory has at most so many bits.
const MOST_BITS: u32 = 20;
/// Words before a segment's places: how many of them are taken, and how many bits of the directory all its hashes share.
const HEAD: usize = 8;
/// A place holds an address in this many bits, and a tag above.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
/// How many entries ahead are fetched while a segment is made anew.
const AHEAD: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Index {
    /// The segment, as long as there is one.
    only: Segment,
    /// Of several, by the directory's bits. A segment stands wherever the bits that all its hashes share do.
    directory: Vec<Segment>,
    /// Places of the first one.
    first: u32,
    /// Spare segments of `SEGMENT` places.
    spare: Vec<Segment>,
    memory: Arena,
}

/// The address of a segment, which is whole cache lines, and in the low bits the logarithm of its places.
#[derive(Debug, Clone, Copy)]
struct Segment(u64);

/// What an index without entries has for a segment: one place, which stays free.
#[repr(align(64))]
struct Nothing([u64; HEAD + 1]);
static NOTHING: Nothing = Nothing([0; HEAD + 1]);

impl Segment {
    fn nothing() -> Self {
        Self(NOTHING.0.as_ptr() as usize as u64)
    }

    #[inline(always)]
    fn start(self) -> *mut u64 {
        (self.0 & !63) as usize as *mut u64
    }

    #[inline(always)]
    fn places(self) -> u32 {
        (self.0 & 63) as u32
    }

    #[inline(always)]
    fn mask(self) -> usize {
        (1 << self.places()) - 1
    }

    /// The word of a place, which is taken modulo their number.
    #[inline(always)]
    fn word(self, place: usize) -> *mut u64 {
        self.start().wrapping_add(HEAD + (place & self.mask()))
    }

    fn taken(self) -> usize {
        // SAFETY: the first word of a segment.
        unsafe { self.start().read() as usize }
    }

    fn shared(self) -> u32 {
        // SAFETY: the second word of a segment.
        unsafe { self.start().add(1).read() as u32 }
    }

    fn is_full(self) -> bool {
        2 * (self.taken() + 1) > self.mask() + 1
    }

    /// Frees all places.
    fn clear(self) {
        if self.places() > 0 {
            // SAFETY: words of this segment, which the caller has alone.
            unsafe {
                self.start().write(0);
                self.word(0).write_bytes(0, self.mask() + 1);
            }
        }
    }

    /// Takes out an entry that is noted; those behind it move up, so that none is behind a gap.
    fn remove(self, hash: u64, entry: *mut u8, hash_of: impl Fn(*const u8) -> u64) {
        let address = |place: usize| {
            // SAFETY: a place of this segment, which the caller has alone.
            (unsafe { *self.word(place) } & ADDRESS) as usize as *mut u8
        };
        let mut gap = hash as usize;
        while address(gap) != entry {
            gap = gap.wrapping_add(1);
        }
        let mut at = gap;
        loop {
            at = at.wrapping_add(1);
            let other = address(at);
            if other.is_null() {
                break;
            }
            // It may move unless the place its hash asks for lies behind the gap.
            let home = hash_of(other) as usize;
            if at.wrapping_sub(home) & self.mask() >= at.wrapping_sub(gap) & self.mask() {
                // SAFETY: as above.
                unsafe { *self.word(gap) = *self.word(at) };
                gap = at;
            }
        }
        // SAFETY: as above.
        unsafe {
            *self.word(gap) = 0;
            *self.start() -= 1;
        }
    }

    /// Notes an entry; there is a free place.
    fn enter(self, hash: u64, entry: *mut u8) {
        let mut place = hash as usize;
        // SAFETY: words of this segment, which the caller has alone.
        unsafe {
            while *self.word(place) != 0 {
                place = place.wrapping_add(1);
            }
            *self.word(place) = tag(hash) << ADDRESS_BITS | entry as usize as u64;
            *self.start() += 1;
        }
    }

    /// All places.
    fn words<'a>(self) -> &'a [u64] {
        // SAFETY: the places of this segment, which no thread changes while the index is borrowed.
        unsafe { std::slice::from_raw_parts(self.word(0), self.mask() + 1) }
    }
}

impl Index {
    /// Empty; without memory until something is entered.
    pub fn new() -> Self {
        Self::beginning(FIRST, Arena::new())
    }

    /// An index for cases with very many small indexes. None: there is no memory.
    pub fn small() -> Option<Self> {
        Some(Self::beginning(SMALL, Arena::small()?))
    }

    fn beginning(first: u32, memory: Arena) -> Self {
        Self { only: Segment::nothing(), directory: Vec::new(), first, spare: Vec::new(), memory }
    }

    /// Has a small one without entries begin with so many places, a power of two, if a segment may have as many.
    pub fn reserve(&mut self, places: usize) {
        self.first = places.ilog2().clamp(SMALL, SEGMENT);
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.memory.bytes() + self.directory.capacity() * 8
    }

    /// Places, and entries that are noted.
    pub fn extent(&self) -> (usize, usize) {
        let of = |segment: Segment| (if segment.places() > 0 { segment.mask() + 1 } else { 0 }, segment.taken());
        self.segments().map(of).fold((0, 0), |(places, taken), (more, others)| (places + more, taken + others))
    }

    /// Forgets all entries, and keeps the places.
    pub fn clear(&mut self) {
        self.segments().for_each(Segment::clear);
    }

    #[inline(always)]
    fn number(&self, hash: u64) -> usize {
        (hash >> SEGMENT) as usize & self.directory.len().wrapping_sub(1)
    }

    /// Where this hash is noted.
    #[inline(always)]
    fn segment(&self, hash: u64) -> Segment {
        if self.directory.is_empty() { self.only } else { self.directory[self.number(hash)] }
    }

    /// Each once.
    fn segments(&self) -> impl Iterator<Item = Segment> {
        let all = if self.directory.is_empty() { std::slice::from_ref(&self.only) } else { &self.directory };
        // Of the numbers where a segment stands, one has no bits but those that its hashes share.
        all.iter().enumerate().filter(|(number, segment)| number >> segment.shared() == 0).map(|(_, &segment)| segment)
    }

    /// The entry that `matches` among those noted under this hash.
    #[inline(always)]
    pub fn find(&self, hash: u64, matches: impl Fn(*const u8) -> bool) -> Option<*mut u8> {
        let segment = self.segment(hash);
        let mut place = hash as usize;
        loop {
            // SAFETY: a place of a segment; at most half of them are taken, so there is a free one to stop at.
            let word = unsafe { *segment.word(place) };
            if word == 0 {
                return None;
            }
            let entry = (word & ADDRESS) as usize as *mut u8;
            if word >> ADDRESS_BITS == tag(hash) && matches(entry) {
                return Some(entry);
            }
            place = place.wrapping_add(1);
        }
    }

    /// Fetches the place where `hash` is looked for first.
    #[inline(always)]
    pub fn fetch_place(&self, hash: u64) {
        prefetch(self.segment(hash).word(hash as usize));
    }

    /// Fetches the first `lines` cache lines of the entry that is noted there.
    #[inline(always)]
    pub fn fetch_entry(&self, hash: u64, lines: usize) {
        // SAFETY: a place of a segment.
        let entry = (unsafe { *self.segment(hash).word(hash as usize) } & ADDRESS) as usize as *const u8;
        for line in 0..lines {
            prefetch(entry.wrapping_add(64 * line));
        }
    }

    /// Notes an entry that is not noted yet, under its hash, which `hash_of` finds again. None: memory ran out, or the
    /// address has more bits than there is room for.
    pub fn enter(&mut self, hash: u64, entry: *mut u8, hash_of: impl Fn(*const u8) -> u64) -> Option<()> {
        if entry as usize as u64 > ADDRESS {
            return None;
        }
        while self.segment(hash).is_full() {
            self.make_room(hash, &hash_of)?;
        }
        self.segment(hash).enter(hash, entry);
        Some(())
    }

    /// Takes out an entry that is noted under this hash.
    pub fn remove(&mut self, hash: u64, entry: *mut u8, hash_of: impl Fn(*const u8) -> u64) {
        self.segment(hash).remove(hash, entry, hash_of);
    }

    /// Makes one or two segments of the one of a hash.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, hash: u64, hash_of: &impl Fn(*const u8) -> u64) -> Option<()> {
        let old = self.segment(hash);
        let shared = old.shared();
        let new = if old.places() < SEGMENT || shared == MOST_BITS {
            [self.take((old.places() + 1).max(self.first), shared)?; 2]
        } else {
            self.spare.try_reserve(1).ok()?;
            if self.directory.is_empty() {
                self.directory.try_reserve(1).ok()?;
                self.directory.push(old);
            }
            if 1 << shared == self.directory.len() {
                self.directory.try_reserve(self.directory.len()).ok()?;
                self.directory.extend_from_within(..);
            }
            [self.take(SEGMENT, shared + 1)?, self.take(SEGMENT, shared + 1)?]
        };
        let words = old.words();
        for (i, &word) in words.iter().enumerate() {
            if let Some(ahead) = words.get(i + AHEAD) {
                prefetch((ahead & ADDRESS) as usize as *const u8);
            }
            if word != 0 {
                let entry = (word & ADDRESS) as usize as *mut u8;
                let hash = hash_of(entry);
                new[(hash >> SEGMENT >> shared) as usize & 1].enter(hash, entry);
            }
        }
        let apart = 1 << shared;
        for number in (self.number(hash) & (apart - 1)..self.directory.len()).step_by(apart) {
            self.directory[number] = new[number >> shared & 1];
        }
        self.only = new[0];
        if old.places() == SEGMENT {
            self.spare.push(old);
        }
        Some(())
    }

    /// An empty segment, all of whose hashes share that many bits of the directory.
    fn take(&mut self, places: u32, shared: u32) -> Option<Segment> {
        let words = HEAD + (1 << places);
        let spare = if places == SEGMENT { self.spare.pop() } else { None };
        let segment = match spare {
            Some(segment) => {
                // SAFETY: so many words belong to this segment, and they are not in use yet.
                unsafe { segment.start().write_bytes(0, words) };
                segment
            }
            None => {
                // Whole cache lines, wherever the arena begins.
                let start = self.memory.alloc(words * 8 + 56) as usize as u64;
                Segment(if start == 0 { return None } else { start.next_multiple_of(64) | u64::from(places) })
            }
        };
        // SAFETY: the second word of this segment.
        unsafe { segment.start().add(1).write(u64::from(shared)) };
        Some(segment)
    }

    /// Every entry, in no order that means anything.
    pub fn entries(&self) -> impl Iterator<Item = *mut u8> {
        let words = self.segments().flat_map(Segment::words);
        words.filter(|&&word| word != 0).map(|&word| (word & ADDRESS) as usize as *mut u8)
    }
}

/// Independent of the bits that choose lane (high), segment and place (low).
#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash >> 32 & 0xFFFF
}

/// Has what is there come near.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; any address will do.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Requests a cache line for writing before it is needed. Cores write lock words in turn. Without this, a core would request
/// each line twice, first to read and then to write. Meanwhile, all other cores would wait for the counter.
#[inline(always)]
pub fn prefetch_to_write<T>(what: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint for any address; it changes nothing, and processors without it do nothing. (The intrinsic becomes a hint
    // to read, unless the compiler targets a newer processor.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) what, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = what;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::state::key_group::hash_i64;
    use crate::threads::testing::cases;
    use proptest::prelude::*;

    /// An index of words: entries are their addresses. A third of them is taken out, and entered again.
    fn check(mut index: Index, words: &[u64], hash: fn(u64) -> u64) -> Index {
        let of = |entry: *const u8| {
            // SAFETY: entries are words of the slice.
            hash(unsafe { entry.cast::<u64>().read() })
        };
        let finds = |index: &Index, word: &u64| {
            let wanted = std::ptr::from_ref(word).cast::<u8>();
            index.find(hash(*word), |entry| entry == wanted).is_some()
        };
        for (n, word) in words.iter().enumerate() {
            assert!(!finds(&index, word));
            index.enter(hash(*word), std::ptr::from_ref(word).cast_mut().cast(), of).unwrap();
            // The one just entered, and one from before.
            assert!(finds(&index, word) && finds(&index, &words[n / 2]));
        }
        let third = || words.iter().step_by(3);
        for word in third() {
            index.remove(hash(*word), std::ptr::from_ref(word).cast_mut().cast(), of);
        }
        assert!(words.iter().enumerate().all(|(n, word)| finds(&index, word) == (n % 3 > 0)));
        assert_eq!(index.extent().1, words.len() - third().count());
        for word in third() {
            index.enter(hash(*word), std::ptr::from_ref(word).cast_mut().cast(), of).unwrap();
        }
        assert!(words.iter().all(|word| finds(&index, word)));
        let mut entries: Vec<_> = index.entries().map(|entry| entry as usize).collect();
        entries.sort_unstable();
        assert_eq!(entries, words.iter().map(|word| std::ptr::from_ref(word) as usize).collect::<Vec<_>>());
        index
    }

    type Case = (usize, fn(u64) -> u64);

    /// Functions that hash a number, and how many numbers to try. In this order, hashes differ:
    ///
    /// 1. everywhere
    /// 2. only in high bits
    /// 3. only in the bits of the place
    /// 4. everywhere, though many share a segment for long
    /// 5. only in the bits of the segment
    ///
    /// Look-ups go through equal places one by one.
    const HASHES: [Case; 5] = [
        (20_000, |word| hash_i64(word as i64)),
        (2_500, |word| word << 40),
        (4_000, |word| word & 0xFFF),
        (20_000, |word| hash_i64(word as i64) | if word % 16 > 0 { 0xFF_F000 } else { 0 }),
        (4_500, |word| word << SEGMENT),
    ];

    proptest! {
        #![proptest_config(cases(24))]
        #[test]
        fn whatever_bits_hashes_differ_in_all_are_found(share in 0.0..1.0, which in 0..HASHES.len()) {
            let (most, hash) = HASHES[which];
            let words: Vec<u64> = (0..(share * most as f64) as u64).collect();
            let mut index = check(Index::new(), &words, hash);
            let places = index.extent().0;
            index.clear();
            assert_eq!(index.extent(), (places, 0));
            // What is forgotten leaves nothing behind.
            check(index, &words, hash);
            check(Index::small().unwrap(), &words, hash);
        }
    }

    #[test]
    fn memory_is_in_proportion_to_keys() {
        for (n, most) in [(0, 0), (100, 17 << 10), (1_000, 50 << 10), (300_000, 300_000 * 64)] {
            let words: Vec<u64> = (0..n).collect();
            let bytes = check(Index::new(), &words, HASHES[0].1).bytes();
            assert!(bytes <= most, "{n} keys: {bytes} bytes");
        }
    }

    #[test]
    fn hashes_that_are_all_the_same_do_not_split_for_ever() {
        let words: Vec<u64> = (0..5_000).collect();
        let index = check(Index::new(), &words, |_| 0x1234_5678_9ABC_DEF0);
        assert_eq!(index.directory.len(), 1 << MOST_BITS);
        assert_eq!(index.directory.iter().map(|segment| segment.places()).max(), Some(SEGMENT + 2));
    }
}
