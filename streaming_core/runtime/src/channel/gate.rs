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
//! Cost: one comparison per source and run of rows, one copy of a row; none where there is one source, whose batches are
//! read in place.

use std::ops::Range;

use crate::batch::{RowBuffer, Text};
use crate::channel::outlet::{Jumbo, Outlet};
use crate::channel::rank::Rank;
use crate::kernel::RunError;
use crate::stage::Rows;

/// Rows taken at once, at least where batches are not read in place.
const MOST: usize = 4096;

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
    /// Rows of the head that were taken.
    at: usize,
    /// The event of its next row, as far as it was looked at; None: there was none.
    next: Option<i64>,
    /// No row of an event up to this one comes any more behind the head.
    upto: i64,
    /// Nothing comes any more in this block.
    done: bool,
}

impl Source {
    pub fn new(outlet: usize, reader: usize, stream: u64, hashes: Option<usize>) -> Self {
        Self { outlet, reader, stream, hashes, at: 0, next: None, upto: i64::MIN, done: false }
    }

    /// The earliest jumbo tuple with rows left for this reader; those without are given back.
    ///
    /// # Safety
    /// The caller is the reader, and uses the result until it is released.
    unsafe fn head<'a>(&mut self, outlets: &[Outlet]) -> Option<&'a Jumbo> {
        let outlet = &outlets[self.outlet];
        // SAFETY: as the caller says.
        while let Some(jumbo) = unsafe { outlet.head(self.reader) } {
            if self.at < jumbo.shares[self.reader].len(jumbo.rows.n) {
                self.next = Some(self.order(jumbo).0);
                return Some(jumbo);
            }
            self.at = 0;
            self.upto = jumbo.upto;
            self.done = jumbo.last;
            outlet.release(self.reader);
        }
        self.next = None;
        None
    }

    /// The position of the next row of `head`.
    fn position(&self, head: &Jumbo) -> usize {
        head.shares[self.reader].position(self.at)
    }

    /// What the next row of `head` is ordered by.
    #[inline(always)]
    fn order(&self, head: &Jumbo) -> Order {
        let position = self.position(head);
        // SAFETY: a row of the head.
        (unsafe { head.rows.seq(position) }, self.stream, rank(head, position))
    }
}

/// What rows are ordered by: event, stream, rank.
type Order = (i64, u64, Rank);

#[inline(always)]
fn rank(jumbo: &Jumbo, position: usize) -> Rank {
    jumbo.ranks.get(position).copied().unwrap_or(Rank::ONLY)
}

/// What was taken from a gate at once.
#[derive(Debug)]
pub struct Taken {
    gathered: RowBuffer,
    /// In total order, if the gate keeps one; in `gathered`, or in the place where they were put out.
    pub rows: Rows,
    /// Per row, if ranks are kept: among the rows of its event, through all streams.
    pub ranks: Vec<Rank>,
    /// Per row, if wanted.
    pub hashes: Vec<u64>,
    /// All rows of events up to this one have been taken.
    pub upto: i64,
    /// Engine time when the processing of the earliest event of these started.
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

/// The gate; see the module.
#[derive(Debug)]
pub struct Gate {
    sources: Vec<Source>,
    ordered: bool,
    /// Whether whoever takes asks for ranks.
    ranked: bool,
    /// Whether whoever takes reads in place what can be.
    in_place: bool,
    /// Whether sources belong to several streams.
    united: bool,
    /// Whose turn it is, where there is no order.
    turn: usize,
}

impl Gate {
    pub fn new(sources: Vec<Source>, ordered: bool, ranked: bool, in_place: bool) -> Self {
        let united = sources.iter().any(|source| source.stream > 0);
        Self { sources, ordered, ranked, in_place, united, turn: 0 }
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
            match self.in_place && self.sources.len() == 1 && self.one(outlets, taken) {
                true => {}
                false if self.ordered => self.merge(outlets, text, taken)?,
                false => self.any(outlets, text, taken)?,
            }
        }
        let known = |source: &Source| source.next.map_or(source.upto, |seq| seq - 1);
        let upto = self.sources.iter().map(known).min().unwrap_or(i64::MAX);
        let last = self.sources.iter().all(|source| source.next.is_none() && source.done);
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
        if !head.shares[source.reader].whole || source.at > 0 {
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

    /// Rows of all sources, as far as they are ready.
    unsafe fn merge(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<(), RunError> {
        let Self { sources, ranked, united, .. } = self;
        // Per source its earliest jumbo tuple, and what the next row of that is ordered by.
        let mut heads: Vec<Option<(&Jumbo, Order)>> = Vec::with_capacity(sources.len());
        // What cannot come any more: no row of a source without rows is earlier than this.
        let mut bound = i64::MAX;
        for source in sources.iter_mut() {
            // SAFETY: as the caller says; a head is used until its source releases it, when it is looked up again.
            heads.push(unsafe { source.head(outlets) }.map(|jumbo| (jumbo, source.order(jumbo))));
            bound = bound.min(if source.next.is_none() { source.upto } else { i64::MAX });
        }
        while taken.gathered.len() < MOST {
            let (mut first, mut second): (Option<(Order, usize)>, Option<Order>) = (None, None);
            for (index, head) in heads.iter().enumerate() {
                let Some((_, order)) = *head else { continue };
                if first.is_none_or(|(least, _)| order < least) {
                    second = first.map(|(least, _)| least);
                    first = Some((order, index));
                } else if second.is_none_or(|least| order < least) {
                    second = Some(order);
                }
            }
            let Some((order, index)) = first.filter(|((seq, ..), _)| *seq <= bound) else { break };
            let (source, (jumbo, _)) = (&mut sources[index], heads[index].expect("it has an order"));
            taken.started = taken.started.min(jumbo.started);
            // Rows that come before those of every other source, as many as there are.
            let n = jumbo.shares[source.reader].len(jumbo.rows.n).min(source.at + MOST);
            let (begin, mut next) = (source.at, order);
            loop {
                source.at += 1;
                if source.at == n {
                    break;
                }
                next = source.order(jumbo);
                if second.is_some_and(|least| least < next) || next.0 > bound {
                    break;
                }
            }
            // SAFETY: the rows are the reader's.
            unsafe { append(jumbo, source, begin..source.at, *ranked, *united, taken) }?;
            heads[index] = if source.at < n {
                source.next = Some(next.0);
                Some((jumbo, next))
            } else {
                // SAFETY: as the caller says; the old head is not used any more.
                let head = unsafe { source.head(outlets) }.map(|jumbo| (jumbo, source.order(jumbo)));
                bound = bound.min(if head.is_none() { source.upto } else { i64::MAX });
                head
            };
        }
        taken.rows = Rows::of(&taken.gathered, text);
        Ok(())
    }

    /// One source's head, whoever has one.
    unsafe fn any(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<(), RunError> {
        for _ in 0..self.sources.len() {
            self.turn = (self.turn + 1) % self.sources.len();
            let source = &mut self.sources[self.turn];
            // SAFETY: as the caller says.
            let Some(head) = (unsafe { source.head(outlets) }) else { continue };
            taken.started = head.started;
            let n = head.shares[source.reader].len(head.rows.n);
            // SAFETY: the rows are the reader's.
            unsafe { append(head, source, source.at..n, false, false, taken) }?;
            source.at = n;
            break;
        }
        taken.rows = Rows::of(&taken.gathered, text);
        Ok(())
    }
}

/// Appends the rows `range` of those of `jumbo` that are the reader's to what was taken.
unsafe fn append(
    jumbo: &Jumbo,
    source: &Source,
    range: Range<usize>,
    ranked: bool,
    united: bool,
    taken: &mut Taken,
) -> Result<(), RunError> {
    let (share, rows) = (&jumbo.shares[source.reader], jumbo.rows);
    if share.whole && range.len() > 4 {
        // SAFETY: rows of the jumbo tuple.
        unsafe { taken.gathered.extend(rows.slice(range.clone()).start, range.len(), |_| 0) }?;
        if let Some(hashes) = source.hashes {
            taken.hashes.extend_from_slice(&jumbo.hashes[hashes][range.clone()]);
        }
    } else {
        for position in range.clone().map(|i| share.position(i)) {
            // SAFETY: a row of the jumbo tuple.
            unsafe { taken.gathered.push(rows.start.add(position * rows.stride), 0) }?;
        }
        if let Some(hashes) = source.hashes {
            let hashes = &jumbo.hashes[hashes];
            taken.hashes.extend(range.clone().map(|i| hashes[share.position(i)]));
        }
    }
    if ranked {
        for i in range {
            let position = share.position(i);
            let rank = rank(jumbo, position);
            let rank = if united { rank.through(source.stream) } else { Some(rank) };
            taken.ranks.push(rank.ok_or_else(|| too_long(jumbo, position))?);
        }
    }
    Ok(())
}

#[cold]
fn too_long(head: &Jumbo, position: usize) -> RunError {
    // SAFETY: a row of the head.
    path_too_long(unsafe { head.rows.seq(position) })
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
