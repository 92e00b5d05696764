//! Gates: the outlets of several sources, read as one stream.
//!
//! In total order a gate delivers the same rows as a ScaleGate (Viper, section 3.3; STRETCH, section 2.4). Rows of all sources
//! come in one order: (seq, stream, rank). A row is *ready* once no source can put out an earlier one. A source shows this by its
//! next row, or, if it has none, by the `upto` of its last jumbo tuple.
//!
//! Sources insert into the skip list of a ScaleGate, tuple by tuple (`channel/scale_gate`). Here, rows stay in the outlets, in
//! batches. The reader merges the few heads, which are in order already. Each thread writes only its own cursor.
//!
//! Some gates take *whole events*: all rows of an event at once. Their sources put out all rows of an event for a reader in one
//! jumbo tuple, and its `upto` is not before the event. So one tuple tells every reader all about its events. With several tuples
//! for an event, an outlet might fill up. The rows in it might then wait for others of their event, and these others might find
//! no room. Events need not be whole where rows cannot wait for such others (`pinned` knows where).
//!
//! In no order, a gate delivers whole batches as they come.
//!
//! Cost: no row is copied. If a batch, or a long run at its start, precedes all others, the gate passes it on in place.
//! It adds the next batches to a small one. If batches interleave, the gate lists their rows, and merges the lists two
//! by two. The merge has no branch that depends on the order, because processors would mispredict it every other row.

use std::ops::Range;

use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::rank::Rank;
use crate::dataflow::channel::taken::{MOST, Taken};
use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::rows::block::Text;

pub mod key;
mod lists;
mod source;

pub use source::{Source, place};

use key::{Numbered, Order, SortKey};
use lists::{Entry, Lists};

/// Rows that are worth a turn of their own.
const IN_PLACE: usize = 64;

/// How rows are taken.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    /// Whether the consumer needs ranks.
    ranked: bool,
    /// Whether sources belong to several streams.
    united: bool,
    /// Whether rows come prepared for the sink. Then each has a rank or is its event's only output, unless there is only
    /// one source. Once there are ranks, the results that a source prepared for a batch are of no use if the batch parts.
    prepared: bool,
    /// Whether events are taken whole.
    whole: bool,
    /// Whether rows are numbered before the sink. Then no row has a rank.
    numbered: bool,
    /// Whether small batches of one source are taken at once, as those of several are.
    joins: bool,
}

impl Manner {
    /// What may be taken before the row that has this key is: all rows before it, or those of earlier events.
    fn before<K: SortKey>(self, key: K) -> K {
        if self.whole { K::behind(key.order().seq - 1) } else { key }
    }
}

/// The gate; see the module.
#[derive(Debug)]
pub struct Gate {
    sources: Vec<Source>,
    ordered: bool,
    manner: Manner,
    /// Whose turn it is, where there is no order.
    turn: usize,
    events: Lists<i64>,
    numbers: Lists<Numbered>,
    orders: Lists<Order>,
}

// SAFETY: lists are made and used up within one `take`; the addresses in them are of rows that outlive it.
unsafe impl Send for Gate {}

impl Gate {
    pub fn new(sources: Vec<Source>, ordered: bool, ranked: bool, prepared: bool) -> Self {
        let united = sources.iter().any(|source| source.stream > 0);
        debug_assert!(!(united && prepared), "a gate over several streams has no prepared outputs");
        let manner = Manner { ranked, united, prepared, whole: false, numbered: false, joins: false };
        Self {
            sources,
            ordered,
            manner,
            turn: 0,
            events: Lists::default(),
            numbers: Lists::default(),
            orders: Lists::default(),
        }
    }

    /// One that takes whole events, if `whole`, from sources that put them out so.
    pub fn that_takes(self, whole: bool) -> Self {
        Self { manner: Manner { whole, ..self.manner }, ..self }
    }

    /// One that takes small batches of one source at once, if `joins`.
    pub fn that_joins(self, joins: bool) -> Self {
        let joins = joins && !self.manner.prepared;
        Self { manner: Manner { joins, ..self.manner }, ..self }
    }

    /// A gate whose rows are numbered before the sink, if `numbered`.
    pub fn of_numbered(self, numbered: bool) -> Self {
        Self { manner: Manner { numbered, ..self.manner }, ..self }
    }

    /// Of each event, those of the last stream come first: what the checkers of order must notice.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn reverse_streams(&mut self) {
        let last = self.sources.iter().map(|source| source.stream).max().unwrap_or(0);
        self.sources.iter_mut().for_each(|source| source.stream = last - source.stream);
    }

    /// The outlets that it reads.
    pub fn outlets(&self) -> Vec<usize> {
        self.sources.iter().map(|source| source.outlet).collect()
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

    /// Takes what is ready; false: nothing, and nothing new is known either. What was taken is used until `release`.
    ///
    /// # Safety
    /// The caller is the reader of every source, and has released what it took before.
    pub unsafe fn take(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        taken.clear();
        // SAFETY: as the caller says.
        unsafe {
            let mut has_ranks = false;
            for source in &mut self.sources {
                has_ranks |= source.look(outlets);
            }
            self.sources.iter_mut().for_each(Source::learn);
            let Self { sources, manner, events, numbers, orders, .. } = self;
            if has_ranks && std::mem::take(&mut manner.prepared) {
                sources.iter_mut().for_each(|source| source.left_over(outlets, &mut taken.left_over));
            }
            if !self.ordered {
                any(sources, &mut self.turn, outlets, taken);
            } else if manner.numbered && has_ranks {
                take(sources, outlets, *manner, numbers, taken)?;
            } else if manner.united || has_ranks {
                take(sources, outlets, *manner, orders, taken)?;
            } else {
                // Rows without ranks are alone with their event, which says everything.
                take(sources, outlets, *manner, events, taken)?;
            }
        }
        if taken.rows.n == 0 {
            (taken.rows.places, taken.rows.n) = (taken.places.as_ptr(), taken.places.len());
        }
        taken.rows.text = text;
        if self.manner.prepared && taken.rows.n > 0 && taken.prepared.is_none() {
            // SAFETY: they have just been taken.
            taken.prepared = Some(unsafe { Prepared::alone(taken.rows, taken.summed) });
        }
        let known = |source: &Source| source.next.map_or(source.watermark, |seq| seq - 1);
        let upto = self.sources.iter().map(known).min().unwrap_or(i64::MAX);
        let last = self.sources.iter().all(|source| source.next.is_none() && source.done);
        if upto > taken.upto {
            for source in &mut self.sources {
                taken.started = taken.started.min(std::mem::replace(&mut source.earliest_start, u64::MAX));
            }
        }
        let new = taken.rows.n > 0 || upto > taken.upto || last != taken.last;
        (taken.upto, taken.last) = (upto, last);
        if !new {
            self.release(outlets);
        }
        Ok(new)
    }

    /// Gives back what was taken, when it has been used.
    pub fn release(&mut self, outlets: &[Outlet]) {
        self.sources.iter_mut().for_each(|source| source.release(outlets));
    }
}

/// Takes the head of any source that has one.
///
/// # Safety
/// The caller is the reader of every source.
unsafe fn any(sources: &mut [Source], turn: &mut usize, outlets: &[Outlet], taken: &mut Taken) {
    for _ in 0..sources.len() {
        *turn = (*turn + 1) % sources.len();
        let source = &mut sources[*turn];
        // SAFETY: as the caller says.
        let Some(head) = (unsafe { source.head(outlets) }) else { continue };
        let range = source.next_row..source.rows_of(head);
        source.next_row = range.end;
        hand_on(head, source, range, taken, 0, false);
        // SAFETY: as above.
        unsafe { source.head(outlets) };
        break;
    }
}

/// Takes rows of all sources, as far as they are ready.
///
/// # Safety
/// The caller is the reader of every source.
unsafe fn take<K: SortKey>(
    sources: &mut [Source],
    outlets: &[Outlet],
    manner: Manner,
    lists: &mut Lists<K>,
    taken: &mut Taken,
) -> Result<(), RunError> {
    let least = if sources.len() > 1 || manner.joins { IN_PLACE } else { 0 };
    // Batches all of whose rows, or events, come before those of every other source.
    while taken.rows.n == 0 && taken.places.len() < MOST {
        // The earliest row there is, or what is known where there is none, whose that is and where; the next one's.
        let mut first: Option<(K, usize, Option<&Jumbo>)> = None;
        let mut second: Option<(K, bool)> = None;
        for (index, source) in sources.iter_mut().enumerate() {
            // SAFETY: as the caller says.
            let head = unsafe { source.head(outlets) };
            let key = head.map_or_else(|| K::behind(source.watermark), |jumbo| source.key(jumbo, source.next_row));
            if first.is_none_or(|(least, _, other)| (key, head.is_none()) < (least, other.is_none())) {
                second = first.map(|(least, _, other)| (least, other.is_none()));
                first = Some((key, index, head));
            } else if second.is_none_or(|least| (key, head.is_none()) < least) {
                second = Some((key, head.is_none()));
            }
        }
        let Some((_, index, Some(jumbo))) = first else { return Ok(()) };
        let source = &mut sources[index];
        let mut range = source.next_row..source.rows_of(jumbo);
        let limit = second.map(|(key, is_known)| if is_known { key } else { manner.before(key) });
        if let Some(limit) = limit.filter(|&limit| source.key::<K>(jumbo, range.end - 1) > limit) {
            // Replicas whose windows expire put out long runs, one for each cell.
            let ready = source.ready(jumbo, range.clone(), limit);
            if manner.whole || manner.prepared || ready < range.start + IN_PLACE {
                // SAFETY: as the caller says.
                return unsafe { interleave(sources, outlets, manner, lists, taken) };
            }
            range.end = ready;
        }
        source.next_row = range.end;
        rank_on(jumbo, source, range.clone(), manner, taken)?;
        let share = &jumbo.shares[source.reader];
        // Only a single source has several rows of an event here. They count as they were prepared, share by share.
        let alone = manner.prepared && least == 0;
        if alone {
            taken.prepared = share.prepared;
        }
        hand_on(jumbo, source, range, taken, least, manner.prepared && !alone);
        // SAFETY: as the caller says.
        unsafe { source.head(outlets) };
        if alone {
            break;
        }
    }
    Ok(())
}

/// Takes rows one by one, as far as they are ready.
///
/// # Safety
/// The caller is the reader of every source, and has looked for their heads.
#[inline(never)]
unsafe fn interleave<K: SortKey>(
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
        // SAFETY: as the caller says.
        let more = lists.add(|list| unsafe { source.list(outlets, ready, list, &mut taken.started) });
        bound = more.map_or(bound, |key| bound.min(if manner.whole { K::behind(key.order().seq) } else { key }));
    }
    let mut n = 0;
    for (source, ready) in sources.iter_mut().zip(lists.cut(bound)) {
        if manner.prepared {
            // SAFETY: as the caller says; so many were listed.
            taken.summed += unsafe { source.begun(outlets, ready) };
        }
        (source.next_row, n) = (source.next_row + ready, n + ready);
    }
    let ranked = manner.ranked && K::RANKED;
    if ranked {
        taken.ranks.resize(taken.places.len(), Rank::ONLY);
    }
    if K::NUMBERED {
        taken.subs.resize(taken.places.len(), 0);
    }
    let hashed = sources.iter().any(|source| source.hashes.is_some());
    let places = more(&mut taken.places, n, std::ptr::null());
    let hashes = more(&mut taken.hashes, if hashed { n } else { 0 }, 0);
    let mut next = 0;
    let mut put = |entry: &Entry<K>| {
        places[next] = entry.row;
        if hashed {
            hashes[next] = entry.hash;
        }
        next += 1;
    };
    let mut failure = None;
    if K::NUMBERED {
        lists.merge(|entry| {
            put(entry);
            taken.subs.push(entry.key.sub());
        });
    } else if ranked {
        lists.merge(|entry| {
            put(entry);
            match entry.key.order().rank_behind(manner.united) {
                Ok(rank) => taken.ranks.push(rank),
                Err(error) => failure = Some(error),
            }
        });
    } else {
        lists.merge(put);
    }
    for source in sources {
        // SAFETY: as the caller says.
        unsafe { source.head(outlets) };
    }
    failure.map_or(Ok(()), Err)
}

/// Room for `n` more.
fn more<T: Copy>(of: &mut Vec<T>, n: usize, value: T) -> &mut [T] {
    let before = of.len();
    of.resize(before + n, value);
    &mut of[before..]
}

/// Adds the ranks or numbers of those rows of a jumbo tuple, if the consumer needs them.
fn rank_on(
    jumbo: &Jumbo,
    source: &Source,
    range: Range<usize>,
    manner: Manner,
    taken: &mut Taken,
) -> Result<(), RunError> {
    if manner.numbered && (!jumbo.subs.is_empty() || !taken.subs.is_empty()) {
        let share = &jumbo.shares[source.reader];
        taken.subs.resize(taken.places.len(), 0);
        match (&jumbo.subs[..], share.whole) {
            ([], _) => taken.subs.resize(taken.places.len() + range.len(), 0),
            (subs, true) => taken.subs.extend_from_slice(&subs[range.clone()]),
            (subs, false) => taken.subs.extend(share.positions[range.clone()].iter().map(|&at| subs[at as usize])),
        }
    }
    if manner.ranked && (manner.united || !jumbo.ranks.is_empty() || !taken.ranks.is_empty()) {
        taken.ranks.resize(taken.places.len(), Rank::ONLY);
        for i in range {
            let order: Order = source.key(jumbo, i);
            taken.ranks.push(order.rank_behind(manner.united)?);
        }
    }
    Ok(())
}

/// Adds the rows `range` of the reader's rows in a jumbo tuple. If they are the only ones and at least `least`, they stay in
/// place; otherwise the gate lists their places. `summed` says whether `taken` has the digests of the jumbo tuples begun.
fn hand_on(jumbo: &Jumbo, source: &Source, range: Range<usize>, taken: &mut Taken, least: usize, summed: bool) {
    taken.started = taken.started.min(jumbo.started);
    let (share, rows) = (&jumbo.shares[source.reader], jumbo.rows);
    if let Some(hashes) = source.hashes {
        let hashes = &jumbo.hashes[hashes];
        match share.whole {
            true => taken.hashes.extend_from_slice(&hashes[range.clone()]),
            false => taken.hashes.extend(share.positions[range.clone()].iter().map(|&at| hashes[at as usize])),
        }
    }
    let adjacent = share.whole && rows.stride == taken.rows.stride;
    if adjacent && taken.places.is_empty() && range.len() >= least {
        taken.prepared = share.prepared.filter(|_| range == (0..share.len(rows.n)));
        taken.rows = rows.slice(range);
    } else {
        if summed && range.start == 0 {
            taken.summed += share.digest();
        }
        match share.whole {
            true => taken.places.extend(range.map(|at| place(jumbo, at))),
            false => taken.places.extend(share.positions[range].iter().map(|&at| place(jumbo, at as usize))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
