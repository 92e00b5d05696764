//! Where a replica takes its input: the outlets of all who put something out for it, as one stream.
//!
//! In total order a gate delivers what a ScaleGate does (Viper, section 4; STRETCH, section 2.3): rows of all sources in
//! one order, (seq, stream, rank), each once it is *ready*, that is once no source can come up with an earlier one. A
//! source says so by its next row, or, when it has none, by the `upto` of what it published last. The papers' ScaleGate
//! keeps a skip list that the sources insert into, tuple by tuple; here the rows stay where they were put out, in batches,
//! and the reader merges the few heads, which are in order already. Nobody writes anything but his own cursor.
//!
//! In no order a gate delivers whole batches as they come.
//!
//! Cost: one copy of a row, none where there is one source, whose batches are read in place. Batches that follow each other
//! are taken whole, at two comparisons each; of those that interleave, rows are listed and the lists merged two by two,
//! without a branch that hangs on the order: that would be guessed wrong every other row.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::batch::{RowBuffer, Text};
use crate::channel::outlet::{Jumbo, Outlet};
use crate::channel::rank::Rank;
use crate::kernel::RunError;
use crate::stage::Rows;

/// Rows taken at once of one source, at least where batches are not read in place.
const MOST: usize = 1024;

/// One of those who put out something for a gate.
#[derive(Debug)]
pub struct Source {
    /// Number of the outlet, and as which of its readers.
    pub outlet: usize,
    pub reader: usize,
    /// Which of the streams that the replica takes it belongs to: of each event, those of the first come first.
    pub stream: u64,
    /// Where in the outlet's jumbo tuples the hashes of the rows' keys are, if they are wanted.
    pub hashes: Option<usize>,
    /// Jumbo tuples waiting, as far as `look` has seen: what comes meanwhile is for the next time.
    waiting: usize,
    /// Rows of the head that were taken.
    at: usize,
    /// The event of its next row, as far as it was looked at; None: there was none.
    next: Option<i64>,
    /// No row of an event up to this one comes any more behind the head.
    upto: i64,
    /// Nothing comes any more in this block.
    done: bool,
    /// When the processing of the earliest event started of which only was said that it has become nothing here.
    heard: u64,
}

impl Source {
    pub fn new(outlet: usize, reader: usize, stream: u64, hashes: Option<usize>) -> Self {
        Self {
            outlet,
            reader,
            stream,
            hashes,
            waiting: 0,
            at: 0,
            next: None,
            upto: i64::MIN,
            done: false,
            heard: u64::MAX,
        }
    }

    /// Looks for jumbo tuples; whether any has ranks.
    ///
    /// # Safety
    /// The caller is the reader.
    unsafe fn look(&mut self, outlets: &[Outlet]) -> bool {
        let outlet = &outlets[self.outlet];
        self.waiting = outlet.waiting(self.reader);
        // SAFETY: as the caller says; so many are waiting.
        (0..self.waiting).any(|index| !unsafe { outlet.ahead(self.reader, index) }.ranks.is_empty())
    }

    /// The earliest jumbo tuple with rows left for this reader; those without are given back.
    ///
    /// # Safety
    /// The caller is the reader, and uses the result until it is released.
    unsafe fn head<'a>(&mut self, outlets: &[Outlet]) -> Option<&'a Jumbo> {
        let outlet = &outlets[self.outlet];
        while self.waiting > 0 {
            // SAFETY: as the caller says; there is one.
            let jumbo = unsafe { outlet.ahead(self.reader, 0) };
            let n = self.rows_of(jumbo);
            if self.at < n {
                self.next = Some(self.key::<i64>(jumbo, self.at));
                return Some(jumbo);
            }
            self.at -= n;
            (self.upto, self.done) = (jumbo.upto, jumbo.last);
            if n == 0 {
                self.heard = self.heard.min(jumbo.started);
            }
            self.waiting -= 1;
            outlet.release(self.reader);
        }
        self.next = None;
        None
    }

    /// How many of a jumbo tuple's rows are for this reader.
    fn rows_of(&self, jumbo: &Jumbo) -> usize {
        jumbo.shares[self.reader].len(jumbo.rows.n)
    }

    /// What the `index`-th of these is ordered by.
    #[inline(always)]
    fn key<K: Key>(&self, jumbo: &Jumbo, index: usize) -> K {
        K::of(jumbo, jumbo.shares[self.reader].position(index), self.stream)
    }

    /// The last thing known of it: that no row comes any more which is earlier than this, except for those waiting.
    ///
    /// # Safety
    /// The caller is the reader.
    unsafe fn bound<K: Key>(&self, outlets: &[Outlet]) -> K {
        let outlet = &outlets[self.outlet];
        let mut upto = None;
        for index in (0..self.waiting).rev() {
            // SAFETY: as the caller says; so many are waiting.
            let jumbo = unsafe { outlet.ahead(self.reader, index) };
            upto = upto.or(Some(jumbo.upto));
            let n = self.rows_of(jumbo);
            if n > if index == 0 { self.at } else { 0 } {
                // Rows of one event may fill many jumbo tuples, none of which can say that it was the last one.
                return self.key::<K>(jumbo, n - 1).max(K::behind(upto.unwrap_or(self.upto)));
            }
        }
        K::behind(upto.unwrap_or(self.upto))
    }

    /// Lists the rows waiting, up to `bound` and not too many of them; the last one's key if there are more.
    ///
    /// # Safety
    /// The caller is the reader, and releases nothing while the list is used.
    unsafe fn list<K: Key>(
        &self,
        outlets: &[Outlet],
        bound: K,
        list: &mut Vec<Entry<K>>,
        started: &mut u64,
    ) -> Option<K> {
        let outlet = &outlets[self.outlet];
        let (start, mut begin) = (list.len(), self.at);
        for index in 0..self.waiting {
            // SAFETY: as the caller says; so many are waiting.
            let jumbo = unsafe { outlet.ahead(self.reader, index) };
            let hashes = self.hashes.map_or(&[][..], |hashes| &jumbo.hashes[hashes]);
            let (share, rows) = (&jumbo.shares[self.reader], jumbo.rows);
            for i in begin..share.len(rows.n) {
                let position = share.position(i);
                let key = K::of(jumbo, position, self.stream);
                if key > bound {
                    return None;
                }
                *started = jumbo.started.min(*started);
                let hash = hashes.get(position).copied().unwrap_or(0);
                list.push(Entry { key, row: rows.start.wrapping_add(position * rows.stride), hash });
            }
            begin = 0;
            if list.len() - start >= MOST {
                return list.last().map(|entry| entry.key);
            }
        }
        None
    }
}

/// What rows are ordered by.
trait Key: Copy + Ord {
    /// Of a row of `jumbo`, which came through `stream`.
    fn of(jumbo: &Jumbo, position: usize, stream: u64) -> Self;

    /// Not before any row of events up to `upto`, before any row of a later one.
    fn behind(upto: i64) -> Self;

    /// Whether it tells rows of one event apart.
    const RANKED: bool;

    /// Event, stream and rank.
    fn parts(&self) -> (i64, u64, Rank);

    /// `self < other`, without a branch.
    fn is_before(&self, other: &Self) -> bool;
}

/// By event alone.
impl Key for i64 {
    #[inline(always)]
    fn of(jumbo: &Jumbo, position: usize, _: u64) -> Self {
        // SAFETY: a row of the jumbo tuple.
        unsafe { jumbo.rows.seq(position) }
    }

    fn behind(upto: i64) -> Self {
        upto
    }

    const RANKED: bool = false;

    fn parts(&self) -> (i64, u64, Rank) {
        (*self, 0, Rank::ONLY)
    }

    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        self < other
    }
}

/// By event, stream and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    seq: i64,
    stream: u64,
    rank: Rank,
}

impl Key for Order {
    #[inline(always)]
    fn of(jumbo: &Jumbo, position: usize, stream: u64) -> Self {
        Self { seq: i64::of(jumbo, position, stream), stream, rank: rank(jumbo, position) }
    }

    fn behind(upto: i64) -> Self {
        Self { seq: upto, stream: u64::MAX, rank: Rank::LAST }
    }

    const RANKED: bool = true;

    fn parts(&self) -> (i64, u64, Rank) {
        (self.seq, self.stream, self.rank)
    }

    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        let ranked = (self.stream < other.stream) | ((self.stream == other.stream) & (self.rank < other.rank));
        (self.seq < other.seq) | ((self.seq == other.seq) & ranked)
    }
}

#[inline(always)]
fn rank(jumbo: &Jumbo, position: usize) -> Rank {
    jumbo.ranks.get(position).copied().unwrap_or(Rank::ONLY)
}

/// A row in a list that is merged with others.
#[derive(Debug, Clone, Copy)]
struct Entry<K> {
    key: K,
    row: *const u8,
    hash: u64,
}

/// Lists of rows, one behind the other, and room to merge them into.
#[derive(Debug)]
struct Lists<K> {
    entries: Vec<Entry<K>>,
    merged: Vec<Entry<K>>,
    /// Where lists end.
    ends: Vec<usize>,
}

impl<K> Default for Lists<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), merged: Vec::new(), ends: Vec::new() }
    }
}

impl<K: Key> Lists<K> {
    fn clear(&mut self) {
        self.entries.clear();
        self.ends.clear();
    }

    /// Makes one list of all.
    fn merge(&mut self) {
        while self.ends.len() > 1 {
            self.merged.clear();
            self.merged.reserve(self.entries.len());
            let (mut start, lists) = (0, self.ends.len());
            for pair in 0..lists.div_ceil(2) {
                let (middle, end) = (self.ends[2 * pair], self.ends[lists.min(2 * pair + 2) - 1]);
                merge(&self.entries[start..middle], &self.entries[middle..end], &mut self.merged);
                self.ends[pair] = end;
                start = end;
            }
            self.ends.truncate(lists.div_ceil(2));
            std::mem::swap(&mut self.entries, &mut self.merged);
        }
    }
}

/// Appends two lists to `out`, as one in order.
fn merge<K: Key>(a: &[Entry<K>], b: &[Entry<K>], out: &mut Vec<Entry<K>>) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let second = b[j].key.is_before(&a[i].key);
        out.push(*select_unpredictable(second, &b[j], &a[i]));
        i += usize::from(!second);
        j += usize::from(second);
    }
    out.extend_from_slice(&a[i..]);
    out.extend_from_slice(&b[j..]);
}

/// What was taken from a gate at once.
#[derive(Debug)]
pub struct Taken {
    gathered: RowBuffer,
    /// In total order, if the gate keeps one; in `gathered`, or in the place where they were put out.
    pub rows: Rows,
    /// Per row, if ranks are asked for, its rank among the rows of its event, through all streams; none: each is alone.
    pub ranks: Vec<Rank>,
    /// Per row, if wanted.
    pub hashes: Vec<u64>,
    /// All rows of events up to this one have been taken.
    pub upto: i64,
    /// Engine time when the processing of the earliest event started that these are of, or that has become nothing.
    pub started: u64,
    /// Nothing comes any more in this block.
    pub last: bool,
    /// The source whose head is read in place.
    held: Option<usize>,
}

impl Taken {
    /// Room for rows of `stride` bytes.
    pub fn new(stride: usize) -> Self {
        Self {
            gathered: RowBuffer::new(stride, false),
            rows: Rows { start: std::ptr::null(), n: 0, stride, text: Text::empty() },
            ranks: Vec::new(),
            hashes: Vec::new(),
            upto: i64::MIN,
            started: u64::MAX,
            last: false,
            held: None,
        }
    }

    /// The rows, unless they are read in place.
    pub fn gathered(&self) -> &RowBuffer {
        debug_assert!(self.held.is_none());
        &self.gathered
    }

    fn clear(&mut self) {
        self.gathered.clear();
        self.ranks.clear();
        self.hashes.clear();
        self.rows.n = 0;
        self.started = u64::MAX;
    }
}

/// How rows are taken.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    /// Whether whoever takes asks for ranks.
    ranked: bool,
    /// Whether sources belong to several streams.
    united: bool,
}

impl Manner {
    /// The rank of a row behind the gate.
    fn rank(self, seq: i64, stream: u64, rank: Rank) -> Result<Rank, RunError> {
        if self.united { rank.through(stream).ok_or_else(|| path_too_long(seq)) } else { Ok(rank) }
    }
}

/// The gate; see the module.
#[derive(Debug)]
pub struct Gate {
    sources: Vec<Source>,
    ordered: bool,
    manner: Manner,
    /// Whether whoever takes reads in place what can be.
    in_place: bool,
    /// Whose turn it is, where there is no order.
    turn: usize,
    events: Lists<i64>,
    orders: Lists<Order>,
}

// SAFETY: lists are made and used up within one `take`; the addresses in them are of rows that outlive it.
unsafe impl Send for Gate {}

impl Gate {
    pub fn new(sources: Vec<Source>, ordered: bool, ranked: bool, in_place: bool) -> Self {
        let united = sources.iter().any(|source| source.stream > 0);
        let manner = Manner { ranked, united };
        Self { sources, ordered, manner, in_place, turn: 0, events: Lists::default(), orders: Lists::default() }
    }

    /// Of each event, those of the last stream come first: what the checkers of order must notice.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn reverse_streams(&mut self) {
        let last = self.sources.iter().map(|source| source.stream).max().unwrap_or(0);
        self.sources.iter_mut().for_each(|source| source.stream = last - source.stream);
    }

    /// A block begins.
    pub fn begin(&mut self) {
        for source in &mut self.sources {
            source.done = false;
        }
    }

    /// Whether there is something new for a gate that had nothing to take.
    pub fn has_news(&self, outlets: &[Outlet]) -> bool {
        // A source that had rows left is not what was waited for.
        let news = |source: &Source| source.next.is_none() && outlets[source.outlet].has_news(source.reader);
        self.sources.iter().any(news)
    }

    /// Takes what is ready; false: nothing, and nothing new is known either.
    ///
    /// # Safety
    /// The caller is the reader of every source; what was taken before is not used any more.
    pub unsafe fn take(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        taken.clear();
        // SAFETY: as the caller says.
        unsafe {
            let mut has_ranks = false;
            for source in &mut self.sources {
                has_ranks |= source.look(outlets);
            }
            match self.in_place && self.sources.len() == 1 && self.one(outlets, taken) {
                true => {}
                false if !self.ordered => self.any(outlets, taken)?,
                false => {
                    let Self { sources, manner, events, orders, .. } = self;
                    // Rows without ranks are alone with their event, and event and stream say everything.
                    match manner.united || has_ranks {
                        false => take(sources, outlets, *manner, events, taken)?,
                        true => take(sources, outlets, *manner, orders, taken)?,
                    }
                }
            }
        }
        if taken.held.is_none() {
            taken.rows = Rows::of(&taken.gathered, text);
        }
        let known = |source: &Source| source.next.map_or(source.upto, |seq| seq - 1);
        let upto = self.sources.iter().map(known).min().unwrap_or(i64::MAX);
        let last = self.sources.iter().all(|source| source.next.is_none() && source.done);
        if upto > taken.upto {
            for source in &mut self.sources {
                taken.started = taken.started.min(std::mem::replace(&mut source.heard, u64::MAX));
            }
        }
        let new = taken.rows.n > 0 || upto > taken.upto || last != taken.last;
        (taken.upto, taken.last) = (upto, last);
        Ok(new)
    }

    /// Gives back what was read in place.
    pub fn release(&mut self, outlets: &[Outlet], taken: &mut Taken) {
        if let Some(index) = taken.held.take() {
            let source = &self.sources[index];
            outlets[source.outlet].release(source.reader);
        }
    }

    /// The only source's head, in place; false: it has none, or only some of its rows are this reader's.
    unsafe fn one(&mut self, outlets: &[Outlet], taken: &mut Taken) -> bool {
        let source = &mut self.sources[0];
        // SAFETY: as the caller says.
        let Some(head) = (unsafe { source.head(outlets) }) else { return false };
        let adjacent = head.rows.stride == taken.gathered.stride();
        if !(head.shares[source.reader].whole && adjacent) || source.at > 0 {
            return false;
        }
        taken.rows = head.rows;
        taken.ranks.extend_from_slice(&head.ranks);
        if let Some(hashes) = source.hashes {
            taken.hashes.extend_from_slice(&head.hashes[hashes]);
        }
        taken.started = head.started;
        taken.held = Some(0);
        // It is given back when the rows have been used; what it says holds already.
        (source.upto, source.done, source.next) = (head.upto, head.last, None);
        true
    }

    /// One source's head, whoever has one.
    unsafe fn any(&mut self, outlets: &[Outlet], taken: &mut Taken) -> Result<(), RunError> {
        for _ in 0..self.sources.len() {
            self.turn = (self.turn + 1) % self.sources.len();
            let source = &mut self.sources[self.turn];
            // SAFETY: as the caller says.
            let Some(head) = (unsafe { source.head(outlets) }) else { continue };
            taken.started = head.started;
            let n = head.shares[source.reader].len(head.rows.n);
            // SAFETY: the rows are the reader's.
            unsafe { append(head, source, source.at..n, Manner::default(), taken) }?;
            source.at = n;
            break;
        }
        Ok(())
    }
}

/// Takes rows of all sources, as far as they are ready.
///
/// # Safety
/// The caller is the reader of every source.
unsafe fn take<K: Key>(
    sources: &mut [Source],
    outlets: &[Outlet],
    manner: Manner,
    lists: &mut Lists<K>,
    taken: &mut Taken,
) -> Result<(), RunError> {
    // Batches all of whose rows come before those of every other source, whole.
    while taken.gathered.len() < MOST {
        // The earliest row there is or may come, whose that is and where; what comes next of another source.
        let mut first: Option<(K, usize, Option<&Jumbo>)> = None;
        let mut second: Option<K> = None;
        for (index, source) in sources.iter_mut().enumerate() {
            // SAFETY: as the caller says; a head is used until its source looks for the next one.
            let head = unsafe { source.head(outlets) };
            let key = head.map_or_else(|| K::behind(source.upto), |jumbo| source.key(jumbo, source.at));
            if first.is_none_or(|(least, _, other)| (key, head.is_none()) < (least, other.is_none())) {
                second = first.map(|(least, ..)| least);
                first = Some((key, index, head));
            } else if second.is_none_or(|least| key < least) {
                second = Some(key);
            }
        }
        let Some((_, index, Some(jumbo))) = first else { return Ok(()) };
        let source = &mut sources[index];
        let n = source.rows_of(jumbo);
        if second.is_some_and(|key| source.key::<K>(jumbo, n - 1) > key) {
            // SAFETY: as the caller says.
            return unsafe { interleave(sources, outlets, manner, lists, taken) };
        }
        taken.started = taken.started.min(jumbo.started);
        // SAFETY: the rows are the reader's.
        unsafe { append(jumbo, source, source.at..n, manner, taken) }?;
        source.at = n;
    }
    Ok(())
}

/// Takes rows one by one, as far as they are ready.
///
/// # Safety
/// The caller is the reader of every source, and has looked for their heads.
unsafe fn interleave<K: Key>(
    sources: &mut [Source],
    outlets: &[Outlet],
    manner: Manner,
    lists: &mut Lists<K>,
    taken: &mut Taken,
) -> Result<(), RunError> {
    lists.clear();
    // SAFETY: as the caller says.
    let Some(ready) = sources.iter().map(|source| unsafe { source.bound::<K>(outlets) }).min() else { return Ok(()) };
    let mut bound = ready;
    for source in &*sources {
        // SAFETY: as the caller says; nothing is released while the list is used.
        let more = unsafe { source.list(outlets, ready, &mut lists.entries, &mut taken.started) };
        bound = more.map_or(bound, |key| bound.min(key));
        lists.ends.push(lists.entries.len());
    }
    let mut start = 0;
    let mut n = 0;
    for (source, &end) in sources.iter_mut().zip(&lists.ends) {
        let taken = lists.entries[start..end].partition_point(|entry| entry.key <= bound);
        (source.at, start, n) = (source.at + taken, end, n + taken);
    }
    lists.merge();
    let rows = &lists.entries[..n];
    let before = taken.gathered.len();
    // SAFETY: as the caller says.
    unsafe { taken.gathered.gather(n, |i| rows[i].row) }?;
    if sources.iter().any(|source| source.hashes.is_some()) {
        taken.hashes.extend(rows.iter().map(|entry| entry.hash));
    }
    if manner.ranked && K::RANKED {
        taken.ranks.resize(before, Rank::ONLY);
        for entry in rows {
            let (seq, stream, rank) = entry.key.parts();
            taken.ranks.push(manner.rank(seq, stream, rank)?);
        }
    }
    for source in sources {
        // SAFETY: as the caller says; what was taken is given back.
        unsafe { source.head(outlets) };
    }
    Ok(())
}

/// Appends the rows `range` of those of `jumbo` that are the reader's to what was taken.
unsafe fn append(
    jumbo: &Jumbo,
    source: &Source,
    range: Range<usize>,
    manner: Manner,
    taken: &mut Taken,
) -> Result<(), RunError> {
    let (share, rows, before) = (&jumbo.shares[source.reader], jumbo.rows, taken.gathered.len());
    if share.whole {
        let rows = rows.slice(range.clone());
        if rows.stride == taken.gathered.stride() {
            // SAFETY: rows of the jumbo tuple.
            unsafe { taken.gathered.extend(rows.start, rows.n, |_| 0) }?;
        } else {
            // SAFETY: as above.
            unsafe { taken.gathered.gather(rows.n, |i| rows.start.add(i * rows.stride)) }?;
        }
        if let Some(hashes) = source.hashes {
            taken.hashes.extend_from_slice(&jumbo.hashes[hashes][range.clone()]);
        }
    } else {
        let positions = &share.positions[range.clone()];
        // SAFETY: rows of the jumbo tuple.
        unsafe { taken.gathered.gather(range.len(), |i| rows.start.add(positions[i] as usize * rows.stride)) }?;
        if let Some(hashes) = source.hashes {
            let hashes = &jumbo.hashes[hashes];
            taken.hashes.extend(range.clone().map(|i| hashes[share.position(i)]));
        }
    }
    if manner.ranked && (manner.united || !jumbo.ranks.is_empty() || !taken.ranks.is_empty()) {
        taken.ranks.resize(before, Rank::ONLY);
        for i in range {
            let Order { seq, stream, rank } = source.key(jumbo, i);
            taken.ranks.push(manner.rank(seq, stream, rank)?);
        }
    }
    Ok(())
}

/// The failure of an event whose rows cannot be ranked any more.
#[cold]
pub fn path_too_long(seq: i64) -> RunError {
    RunError::Invalid(format!("event {seq} has too many rows behind too many operators to rank them; run it on pooled"))
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Publishes rows of these events for one reader.
    fn put_out(outlet: &Outlet, seqs: &[i64], upto: i64, last: bool) {
        assert!(outlet.has_room());
        // SAFETY: there is no other thread, and room.
        unsafe {
            outlet.fill(|jumbo| {
                jumbo.clear();
                seqs.iter().for_each(|seq| jumbo.made.push([*seq, 0].as_ptr().cast(), 0).unwrap());
                jumbo.rows = Rows::of(&jumbo.made, Text::empty());
                jumbo.shares[0].whole = true;
                (jumbo.upto, jumbo.last) = (upto, last);
            });
        }
        outlet.publish();
    }

    #[test]
    fn rows_wait_until_no_earlier_one_can_come() {
        let outlets: Vec<Outlet> = (0..3).map(|_| Outlet::new(4, 1, || Jumbo::new(16, 1, 0))).collect();
        let sources = (0..3).map(|outlet| Source::new(outlet, 0, 0, None)).collect();
        let mut gate = Gate::new(sources, true, false, true);
        let mut taken = Taken::new(16);
        let mut take = || {
            // SAFETY: there is no other thread.
            let new = unsafe { gate.take(&outlets, Text::empty(), &mut taken) }.unwrap();
            let seqs: Vec<i64> = (0..taken.rows.n).map(|i| taken.gathered().seq(i)).collect();
            (new, seqs, taken.upto, taken.last)
        };
        assert_eq!(take(), (false, vec![], i64::MIN, false));
        put_out(&outlets[0], &[0, 3, 6], 6, false);
        put_out(&outlets[1], &[1, 4], 5, false);
        // The third has said nothing: nothing is ready.
        assert_eq!(take(), (false, vec![], i64::MIN, false));
        // A heartbeat: it has nothing up to event 3.
        put_out(&outlets[2], &[], 3, false);
        assert_eq!(take(), (true, vec![0, 1, 3], 3, false));
        put_out(&outlets[2], &[5], 5, true);
        assert_eq!(take(), (true, vec![4, 5], 5, false));
        put_out(&outlets[1], &[], 9, true);
        // The second has ended with event 9, the third with event 5: both are silent for good.
        assert_eq!(take(), (false, vec![], 5, false));
        put_out(&outlets[2], &[], 9, true);
        assert_eq!(take(), (true, vec![6], 6, false));
        put_out(&outlets[0], &[9], 9, true);
        assert_eq!(take(), (true, vec![9], 9, true));
        assert_eq!(take(), (false, vec![], 9, true));
    }
}
