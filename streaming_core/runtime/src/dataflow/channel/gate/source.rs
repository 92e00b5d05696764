//! One of the outlets that a gate reads.

use std::ops::Range;

use crate::dataflow::channel::gate::key::SortKey;
use crate::dataflow::channel::gate::lists::Entry;
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::taken::MOST;
use crate::dataflow::windowed::epochs::Epochs;
use crate::output::digest::Digest;
use crate::threads::sync::Arc;

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
    /// Jumbo tuples that the gate still holds, as far as `look` has seen: later ones are for the next time.
    waiting: usize,
    /// How many of these the gate took whole: the task reads rows in place, so the gate gives them back after that.
    used: usize,
    /// Rows of the head that were taken.
    pub at: usize,
    /// The event of its next row, as far as it was looked at; None: there was none.
    pub next: Option<i64>,
    /// No row of an event up to this one comes any more behind the head.
    pub upto: i64,
    /// Nothing comes any more in this block.
    pub done: bool,
    /// If it is a replica whose epochs say when it puts out nothing: these, and its number.
    silences: Option<(Arc<Epochs>, usize)>,
    /// Engine time when the processing of the earliest event began that has become nothing here.
    pub heard: u64,
}

impl Source {
    pub fn new(outlet: usize, reader: usize, stream: u64, hashes: Option<usize>) -> Self {
        Self {
            outlet,
            reader,
            stream,
            hashes,
            waiting: 0,
            used: 0,
            at: 0,
            next: None,
            upto: i64::MIN,
            done: false,
            silences: None,
            heard: u64::MAX,
        }
    }

    /// It is replica `number` of a windowed operator.
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
        // SAFETY: as the caller says; so many are waiting.
        let jumbo = |index| unsafe { outlet.ahead(self.reader, index) };
        (0..self.waiting).map(jumbo).any(|jumbo| !jumbo.ranks.is_empty() || !jumbo.subs.is_empty())
    }

    /// Takes in up to where it is silent, if it is, as far as events have been dealt. Asked after all of a gate's sources
    /// were looked at: of what was found there, it is known then that nothing comes from here.
    pub fn learn(&mut self) {
        if let Some((epochs, number)) = &self.silences {
            self.upto = epochs.silent(*number, self.upto);
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
            if self.at < n {
                self.next = Some(self.key::<i64>(jumbo, self.at));
                return Some(jumbo);
            }
            self.at -= n;
            (self.upto, self.done) = (jumbo.upto, jumbo.last);
            self.learn();
            if n == 0 {
                self.heard = self.heard.min(jumbo.started);
            }
            self.used += 1;
        }
        self.next = None;
        None
    }

    /// Gives back what was taken whole.
    pub fn release(&mut self, outlets: &[Outlet]) {
        (0..std::mem::take(&mut self.used)).for_each(|_| outlets[self.outlet].release(self.reader));
    }

    /// How many of a jumbo tuple's rows are for this reader.
    pub fn rows_of(&self, jumbo: &Jumbo) -> usize {
        jumbo.shares[self.reader].len(jumbo.rows.n)
    }

    /// Where the `index`-th of these lies.
    #[inline(always)]
    pub fn place(&self, jumbo: &Jumbo, index: usize) -> *const u8 {
        place(jumbo, jumbo.shares[self.reader].position(index))
    }

    /// The hash of its key, if that is wanted.
    #[inline(always)]
    pub fn hash(&self, jumbo: &Jumbo, index: usize) -> u64 {
        self.hashes.map_or(0, |hashes| jumbo.hashes[hashes][jumbo.shares[self.reader].position(index)])
    }

    /// What the `index`-th of these is ordered by.
    #[inline(always)]
    pub fn key<K: SortKey>(&self, jumbo: &Jumbo, index: usize) -> K {
        K::of(jumbo, jumbo.shares[self.reader].position(index), self.stream)
    }

    /// The last thing known of it: that no row comes any more which is earlier than this, except for those waiting.
    ///
    /// # Safety
    /// The caller is the reader.
    pub unsafe fn bound<K: SortKey>(&self, outlets: &[Outlet]) -> K {
        let outlet = &outlets[self.outlet];
        let mut upto = None;
        for index in (self.used..self.waiting).rev() {
            // SAFETY: as the caller says; so many are waiting.
            let jumbo = unsafe { outlet.ahead(self.reader, index) };
            upto = upto.or(Some(jumbo.upto));
            let n = self.rows_of(jumbo);
            if n > if index == self.used { self.at } else { 0 } {
                // Rows of one event may fill many jumbo tuples, and none of them can announce that it is the last one.
                return self.key::<K>(jumbo, n - 1).max(K::behind(upto.unwrap_or(self.upto)));
            }
        }
        K::behind(upto.unwrap_or(self.upto))
    }

    /// Lists the rows waiting, up to `bound` and not too many of them; the last one's key if there are more.
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
        let (start, mut begin) = (list.len(), self.at);
        for index in self.used..self.waiting {
            // SAFETY: as the caller says; so many are waiting.
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

    /// Up to where the rows `range` are not behind `bound`; the last one is.
    fn ready<K: SortKey>(&self, jumbo: &Jumbo, range: Range<usize>, bound: K) -> usize {
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
    /// The caller is the reader; so many are waiting, prepared for the sink.
    pub unsafe fn begun(&self, outlets: &[Outlet], n: usize) -> Digest {
        let outlet = &outlets[self.outlet];
        let (mut sum, mut at, mut left) = (Digest::default(), self.at, n);
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

    /// Adds the places of the other rows of a jumbo tuple that is taken in part. Its digest was added with its first rows.
    ///
    /// # Safety
    /// The caller is the reader, and releases nothing while the places are used.
    pub unsafe fn left_over(&mut self, outlets: &[Outlet], places: &mut Vec<*const u8>) {
        // SAFETY: as the caller says.
        if let Some(jumbo) = unsafe { self.head(outlets) }
            && self.at > 0
        {
            places.extend((self.at..self.rows_of(jumbo)).map(|index| self.place(jumbo, index)));
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
pub(super) fn place(jumbo: &Jumbo, position: usize) -> *const u8 {
    jumbo.rows.start.wrapping_add(position * jumbo.rows.stride)
}
