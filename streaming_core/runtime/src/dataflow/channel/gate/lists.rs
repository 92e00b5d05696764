//! Lists of rows, merged two by two without a branch that hangs on their order.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::dataflow::channel::gate::key::SortKey;

/// A row in a list.
#[derive(Debug, Clone, Copy)]
pub struct Entry<K> {
    pub key: K,
    pub row: *const u8,
    pub hash: u64,
}

/// Lists, one behind the other, and room to merge them into.
#[derive(Debug)]
pub struct Lists<K> {
    entries: Vec<Entry<K>>,
    merged: Vec<Entry<K>>,
    /// Where lists lie.
    ranges: Vec<Range<usize>>,
}

impl<K> Default for Lists<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), merged: Vec::new(), ranges: Vec::new() }
    }
}

impl<K: SortKey> Lists<K> {
    /// Forgets all lists.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.ranges.clear();
    }

    /// One more, which `fill` appends in order.
    pub fn add<R>(&mut self, fill: impl FnOnce(&mut Vec<Entry<K>>) -> R) -> R {
        let start = self.entries.len();
        let outcome = fill(&mut self.entries);
        self.ranges.push(start..self.entries.len());
        outcome
    }

    /// Shortens each list to what is not behind `bound`; how many that are, list by list.
    pub fn cut(&mut self, bound: K) -> impl Iterator<Item = usize> {
        let entries = &self.entries;
        self.ranges.iter_mut().map(move |range| {
            let n = entries[range.clone()].partition_point(|entry| entry.key <= bound);
            range.end = range.start + n;
            n
        })
    }

    /// Makes one list of all, handed to `out` entry by entry.
    pub fn merge(&mut self, out: impl FnMut(&Entry<K>)) {
        while self.ranges.len() > 2 {
            self.merged.clear();
            self.merged.reserve(self.entries.len());
            let lists = self.ranges.len();
            for pair in 0..lists.div_ceil(2) {
                let start = self.merged.len();
                let [a, b] = lists_of(&self.entries, &self.ranges, pair);
                merge(a, b, |entry| self.merged.push(*entry));
                self.ranges[pair] = start..self.merged.len();
            }
            self.ranges.truncate(lists.div_ceil(2));
            std::mem::swap(&mut self.entries, &mut self.merged);
        }
        let [a, b] = lists_of(&self.entries, &self.ranges, 0);
        merge(a, b, out);
    }
}

/// The lists of a pair; none is an empty one.
fn lists_of<'a, K>(entries: &'a [Entry<K>], ranges: &[Range<usize>], pair: usize) -> [&'a [Entry<K>]; 2] {
    [2 * pair, 2 * pair + 1].map(|list| ranges.get(list).map_or(&[][..], |range| &entries[range.clone()]))
}

/// Hands two lists to `out`, as one in order.
#[inline(always)]
fn merge<K: SortKey>(a: &[Entry<K>], b: &[Entry<K>], mut out: impl FnMut(&Entry<K>)) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let second = b[j].key.is_before(&a[i].key);
        out(select_unpredictable(second, &b[j], &a[i]));
        i += usize::from(!second);
        j += usize::from(second);
    }
    a[i..].iter().for_each(&mut out);
    b[j..].iter().for_each(&mut out);
}
