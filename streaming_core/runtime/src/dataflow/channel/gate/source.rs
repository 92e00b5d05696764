//! Sources: each is an outlet that a gate reads.

use std::ops::Range;

use crate::dataflow::channel::gate::key::SortKey;
use crate::dataflow::channel::gate::lists::Entry;
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::taken::MOST;
use crate::dataflow::windowed::epochs::Epochs;
use crate::output::digest::Digest;
use crate::planted::{self, Fault};
use crate::threads::sync::Arc;

/// An outlet as one gate sees it, with the reader's place in it.
#[derive(Debug)]
pub struct Source {
    /// Number of the outlet, and number of this reader among its readers.
    pub outlet: usize,
    pub reader: usize,
    /// Number of the stream that the outlet belongs to. Of each event, the replica takes rows of the first stream first.
    pub stream: u64,
    /// The list of the outlet's jumbo tuples that holds the hashes of the rows' keys, if the reader wants hashes.
    pub hashes: Option<usize>,
    /// Jumbo tuples that `look` saw and the reader still holds. Later ones wait for the next `look`.
    waiting: usize,
    /// Number of these that the reader took whole. It reads rows in place, so it gives them back only afterwards.
    used: usize,
    /// The next row of the head for the reader: the number of rows that it took from there.
    pub next_row: usize,
    /// The event of the next row; None if `head` saw no row.
    pub next: Option<i64>,
    /// Behind the head, all rows belong to later events than this one.
    pub watermark: i64,
    /// Whether the outlet has published everything of this block.
    pub done: bool,
    /// For a replica whose epochs tell when it puts out nothing: the epochs, and its number.
    silences: Option<(Arc<Epochs>, usize)>,
    /// Engine time at which processing began of the earliest event without a row here.
    pub earliest_start: u64,
}

impl Source {
    pub fn new(outlet: usize, reader: usize, stream: u64, hashes: Option<usize>) -> Self {
        let stream = if planted::has(Fault::StreamTie) { u64::from(stream == 0) } else { stream };
        Self {
            outlet,
            reader,
            stream,
            hashes,
            waiting: 0,
            used: 0,
            next_row: 0,
            next: None,
            watermark: i64::MIN,
            done: false,
            silences: None,
            earliest_start: u64::MAX,
        }
    }

    /// Marks the source as replica `number` of a windowed operator.
    pub fn silent(self, epochs: &Arc<Epochs>, number: usize) -> Self {
        Self { silences: Some((epochs.clone(), number)), ..self }
    }

    /// Looks for jumbo tuples. Returns whether any has ranks or numbers, so that rows of one event may come from several sources.
    ///
    /// # Safety
    /// The caller is the reader, and has given back what it had taken.
    pub unsafe fn look(&mut self, outlets: &[Outlet]) -> bool {
        let outlet = &outlets[self.outlet];
        self.waiting = outlet.waiting(self.reader);
        // SAFETY: the caller is the reader, and `waiting` jumbo tuples wait.
        let jumbo = |index| unsafe { outlet.ahead(self.reader, index) };
        (0..self.waiting).map(jumbo).any(|jumbo| !jumbo.ranks.is_empty() || !jumbo.subs.is_empty())
    }

    /// Raises `watermark` to the last event for which the replica puts out nothing. The gate calls this after it has looked at all
    /// sources, so the answer covers every row that it saw there.
    pub fn learn(&mut self) {
        if let Some((epochs, number)) = &self.silences {
            self.watermark = epochs.silent(*number, self.watermark);
        }
    }

    /// The earliest jumbo tuple with rows left for this reader.
    ///
    /// # Safety
    /// The caller is the reader, and uses the result until it gives it back.
    pub unsafe fn head<'a>(&mut self, outlets: &[Outlet]) -> Option<&'a Jumbo> {
        let outlet = &outlets[self.outlet];
        while self.used < self.waiting {
            // SAFETY: as the caller says; there is one.
            let jumbo = unsafe { outlet.ahead(self.reader, self.used) };
            let n = self.rows_of(jumbo);
            if self.next_row < n {
                self.next = Some(self.key::<i64>(jumbo, self.next_row));
                return Some(jumbo);
            }
            self.next_row -= n;
            (self.watermark, self.done) = (jumbo.upto, jumbo.last);
            self.learn();
            if n == 0 {
                self.earliest_start = self.earliest_start.min(jumbo.started);
            }
            self.used += 1;
        }
        self.next = None;
        None
    }

    /// Gives back the jumbo tuples that the reader took whole.
    pub fn release(&mut self, outlets: &[Outlet]) {
        (0..std::mem::take(&mut self.used)).for_each(|_| outlets[self.outlet].release(self.reader));
    }

    /// Number of a jumbo tuple's rows for this reader.
    pub fn rows_of(&self, jumbo: &Jumbo) -> usize {
        jumbo.shares[self.reader].len(jumbo.rows.n)
    }

    /// The address of the `index`-th row for this reader.
    #[inline(always)]
    pub fn place(&self, jumbo: &Jumbo, index: usize) -> *const u8 {
        place(jumbo, jumbo.shares[self.reader].position(index))
    }

    /// The hash of the key of the `index`-th row for this reader; 0 if the reader wants no hashes.
    #[inline(always)]
    pub fn hash(&self, jumbo: &Jumbo, index: usize) -> u64 {
        self.hashes.map_or(0, |hashes| jumbo.hashes[hashes][jumbo.shares[self.reader].position(index)])
    }

    /// The sort key of the `index`-th row for this reader.
    #[inline(always)]
    pub fn key<K: SortKey>(&self, jumbo: &Jumbo, index: usize) -> K {
        K::of(jumbo, jumbo.shares[self.reader].position(index), self.stream)
    }

    /// The least sort key of rows that `look` has not seen.
    ///
    /// # Safety
    /// The caller is the reader.
    pub unsafe fn bound<K: SortKey>(&self, outlets: &[Outlet]) -> K {
        let outlet = &outlets[self.outlet];
        let mut upto = None;
        for index in (self.used..self.waiting).rev() {
            // SAFETY: the caller is the reader, and `waiting` jumbo tuples wait.
            let jumbo = unsafe { outlet.ahead(self.reader, index) };
            upto = upto.or(Some(jumbo.upto));
            let n = self.rows_of(jumbo);
            if n > if index == self.used { self.next_row } else { 0 } {
                // Rows of one event may fill many jumbo tuples, and no jumbo tuple can announce that it is the last one.
                return self.key::<K>(jumbo, n - 1).max(K::behind(upto.unwrap_or(self.watermark)));
            }
        }
        K::behind(upto.unwrap_or(self.watermark))
    }

    /// Lists the rows that wait, up to `bound` and about `MOST` of them. Returns the last listed key if more rows may follow.
    ///
    /// # Safety
    /// The caller is the reader, and releases nothing while the list is used.
    pub unsafe fn list<K: SortKey>(
        &self,
        outlets: &[Outlet],
        bound: K,
        list: &mut Vec<Entry<K>>,
        started: &mut u64,
    ) -> Option<K> {
        let outlet = &outlets[self.outlet];
        let (start, mut begin) = (list.len(), self.next_row);
        for index in self.used..self.waiting {
            // SAFETY: the caller is the reader, and `waiting` jumbo tuples wait.
            let jumbo = unsafe { outlet.ahead(self.reader, index) };
            let end = self.rows_of(jumbo);
            if end > begin && self.key::<K>(jumbo, begin) <= bound {
                *started = jumbo.started.min(*started);
            }
            let whole = end == begin || self.key::<K>(jumbo, end - 1) <= bound;
            let ready = if whole { end } else { self.ready(jumbo, begin..end, bound) };
            let share = &jumbo.shares[self.reader];
            match share.whole {
                true => self.append(jumbo, begin..ready, list),
                false => self.append(jumbo, share.positions[begin..ready].iter().map(|&at| at as usize), list),
            }
            if !whole {
                return None;
            }
            begin = 0;
            if list.len() - start >= MOST {
                return list.last().map(|entry| entry.key);
            }
        }
        None
    }

    /// The end of the rows of `range` that are not behind `bound`. The last row is behind it.
    pub fn ready<K: SortKey>(&self, jumbo: &Jumbo, range: Range<usize>, bound: K) -> usize {
        let (mut from, mut to) = (range.start, range.end - 1);
        while from < to {
            let middle = from.midpoint(to);
            match self.key::<K>(jumbo, middle) <= bound {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        to
    }

    /// The digest of the jumbo tuples that begin within the next `n` rows.
    ///
    /// # Safety
    /// The caller is the reader, and `n` rows wait, prepared for the sink.
    pub unsafe fn begun(&self, outlets: &[Outlet], n: usize) -> Digest {
        let outlet = &outlets[self.outlet];
        let (mut sum, mut at, mut left) = (Digest::default(), self.next_row, n);
        for index in self.used..self.waiting {
            // SAFETY: as the caller says.
            let jumbo = unsafe { outlet.ahead(self.reader, index) };
            let here = left.min(self.rows_of(jumbo) - at);
            if here > 0 && at == 0 {
                sum += jumbo.shares[self.reader].digest();
            }
            (at, left) = (0, left - here);
        }
        sum
    }

    /// Adds the addresses of the remaining rows of a jumbo tuple that the reader took in part. Its digest went with its
    /// first rows.
    ///
    /// # Safety
    /// The caller is the reader, and releases nothing while the places are used.
    pub unsafe fn left_over(&mut self, outlets: &[Outlet], places: &mut Vec<*const u8>) {
        // SAFETY: as the caller says.
        if let Some(jumbo) = unsafe { self.head(outlets) }
            && self.next_row > 0
        {
            places.extend((self.next_row..self.rows_of(jumbo)).map(|index| self.place(jumbo, index)));
        }
    }

    /// Appends the rows at `positions` to a list.
    #[inline(always)]
    fn append<K: SortKey>(&self, jumbo: &Jumbo, positions: impl Iterator<Item = usize>, list: &mut Vec<Entry<K>>) {
        let entry = |position: usize, hash: u64| Entry {
            key: K::of(jumbo, position, self.stream),
            row: place(jumbo, position),
            hash,
        };
        match self.hashes {
            None => list.extend(positions.map(|position| entry(position, 0))),
            Some(hashes) => {
                let hashes = &jumbo.hashes[hashes][..jumbo.rows.n];
                list.extend(positions.map(|position| entry(position, hashes[position])));
            }
        }
    }
}

/// Where a row of a jumbo tuple lies.
#[inline(always)]
pub fn place(jumbo: &Jumbo, position: usize) -> *const u8 {
    jumbo.rows.start.wrapping_add(position * jumbo.rows.stride)
}
