//! The ends of an elastic ScaleGate at tasks: jumbo tuples go in, and batches of rows come out.
//!
//! Rows stay in the outlets of their sources. A source releases a slot of its outlet itself when all readers have acknowledged
//! its watermark, because only the gate knows the readers. In front of a windowed operator, a source adds a control tuple for
//! each epoch, before its first tuple of that epoch (STRETCH, algorithm 5). Readers ignore the second and later ones
//! (algorithm 6).
//!
//! The replicas of a windowed operator take all rows. Replicas of other operators, and sinks, pass the rows of others.
//!
//! A reader takes batches that end before a control tuple, so a reconfiguration stands at the beginning of a batch. It
//! triggers at the first row or watermark after the control tuple. If several control tuples come before that, the latest
//! counts. Readers see one list, so the same tuple triggers the same epoch for all of them. By then each has announced the last
//! event before the epoch, and none of them holds back what the others have put out.

use std::collections::VecDeque;

use crate::dataflow::channel::elastic::{Feed, Reader, What};
use crate::dataflow::channel::gate::key::{Order, SortKey};
use crate::dataflow::channel::gate::{Source, place};
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::rank::Rank;
use crate::dataflow::channel::taken::{MOST, Taken};
use crate::dataflow::windowed::epochs::Epochs;
use crate::error::RunError;
use crate::rows::block::Text;
use crate::threads::sync::{Arc, AtomicI64, Ordering};

/// The end of a source: a task's outlet feeds it.
#[derive(Debug)]
pub struct Inserter {
    feed: Feed,
    /// The number of the source that its operator's first replica is.
    first: usize,
    source: Source,
    /// Readers of the outlet from `source.reader` on, for which it stands.
    readers: usize,
    /// Those of the windowed operator that reads it.
    epochs: Option<Arc<Epochs>>,
    /// The first epoch without a control tuple of this source.
    next: usize,
    /// The number of marks up to the end of each jumbo tuple that is not released.
    ends: VecDeque<u64>,
    /// Room for the tuples of a batch, and by row the reader whose row it is.
    tuples: Vec<(Order, What)>,
    owners: Vec<u32>,
    /// The number of rows so far.
    #[cfg(test)]
    pub rows: usize,
}

impl Inserter {
    /// Feeds the rows that `source`, and the readers behind it, find in an outlet. `first`: the number of the source that its
    /// operator's first replica is. `readers`: their number. `epochs`: those of the windowed operator that reads them.
    pub fn new(feed: Feed, first: usize, source: Source, readers: usize, epochs: Option<Arc<Epochs>>) -> Self {
        Self {
            feed,
            first,
            source,
            readers,
            epochs,
            next: 1,
            ends: VecDeque::new(),
            tuples: Vec::new(),
            owners: Vec::new(),
            #[cfg(test)]
            rows: 0,
        }
    }

    /// The number of its outlet.
    pub fn outlet(&self) -> usize {
        self.source.outlet
    }

    /// Joins the sources if it was added.
    pub fn join(&mut self) {
        let (Some(upto), epochs) = (self.feed.join(), &self.epochs) else { return };
        let Some(epochs) = epochs else { return };
        // The source that added it has added the control tuples of the epochs that have begun.
        self.next = self.next.max(epochs.first());
        while epochs.get(self.next).is_some_and(|epoch| epoch.event <= upto) {
            self.next += 1;
        }
    }

    /// Whether a replica of its operator is a source.
    pub fn has(&self, replica: usize) -> bool {
        self.feed.has(self.first + replica)
    }

    /// Whether it is a source, and in the term that it knows of.
    pub fn is_present(&self) -> bool {
        self.feed.is_present()
    }

    /// Makes sources of replicas of its operator (`Feed::add_sources`).
    pub fn add_sources(&self, replicas: &[usize]) -> bool {
        self.feed.add_sources(&self.numbers(replicas))
    }

    /// Ends sources of its operator (`Feed::remove_sources`).
    ///
    /// # Safety
    /// As for `Feed::remove_sources`.
    pub unsafe fn remove_sources(&self, replicas: &[usize]) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.feed.remove_sources(&self.numbers(replicas)) }
    }

    fn numbers(&self, replicas: &[usize]) -> Vec<usize> {
        replicas.iter().map(|replica| self.first + replica).collect()
    }

    /// Whether the gate has room for a jumbo tuple.
    pub fn has_room(&self) -> bool {
        self.feed.has_room()
    }

    /// The number of times that sources were added or removed.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn changes(&self) -> u64 {
        self.feed.changes()
    }

    /// Releases what all readers have acknowledged. For the writer of the outlet.
    pub fn collect(&mut self, outlets: &[Outlet]) {
        let (outlet, first) = (&outlets[self.source.outlet], self.source.reader);
        let acknowledged = self.feed.acknowledged();
        while self.ends.pop_front_if(|end| *end <= acknowledged).is_some() {
            (first..first + self.readers).for_each(|reader| outlet.release(reader));
        }
    }

    /// Adds the rows of a jumbo tuple, control tuples, and a watermark.
    ///
    /// # Safety
    /// The caller is the source. The jumbo tuple was published last in its outlet. The outlet and the feed had room for it.
    pub unsafe fn add(&mut self, jumbo: &Jumbo) {
        let Self { feed, source, epochs, next, tuples, owners, .. } = self;
        owners.clear();
        owners.resize(jumbo.rows.n, u32::MAX);
        for (reader, share) in (0..).zip(&jumbo.shares[source.reader..source.reader + self.readers]) {
            (0..share.len(jumbo.rows.n)).for_each(|i| owners[share.position(i)] = reader);
        }
        tuples.clear();
        let mut control = |before: i64, tuples: &mut Vec<_>| {
            let Some(epochs) = epochs else { return };
            while let Some(epoch) = epochs.get(*next).filter(|epoch| epoch.event <= before) {
                tuples.push((Order::behind(epoch.event - 1), What::Control { epoch: *next }));
                *next += 1;
            }
        };
        for (position, &reader) in owners.iter().enumerate().filter(|&(_, &reader)| reader != u32::MAX) {
            let order = Order::of(jumbo, position, source.stream);
            control(order.seq, tuples);
            let hash = source.hashes.map_or(source.stream, |hashes| jumbo.hashes[hashes][position]);
            tuples.push((order, What::Row { place: place(jumbo, position), hash, reader }));
        }
        control(jumbo.upto, tuples);
        #[cfg(test)]
        (self.rows += tuples.iter().filter(|(_, what)| matches!(what, What::Row { .. })).count());
        // SAFETY: as the caller says.
        unsafe { feed.add(tuples, jumbo.upto, jumbo.started, jumbo.last) };
        self.ends.push_back(feed.added());
    }
}

/// The end of a reader: a replica takes its batches here.
#[derive(Debug)]
pub struct Taker {
    pub reader: Reader,
    /// The number of the reader, if readers share the rows.
    share: Option<u32>,
    /// The outlets of the sources.
    outlets: Vec<usize>,
    /// Whether the reader needs ranks; whether sources belong to several streams.
    ranked: bool,
    united: bool,
    /// The last event of the last block that a reader has taken to its end. Readers write it.
    over: Arc<AtomicI64>,
    /// As far as this one knows.
    seen: i64,
}

impl Taker {
    /// Takers of the `readers` of these sources. `is_shared`: readers share the rows.
    pub fn all(readers: Vec<Reader>, sources: &[Source], ranked: bool, is_shared: bool) -> Vec<Self> {
        let over = Arc::new(AtomicI64::new(i64::MIN));
        let taker = |(number, reader)| Self {
            reader,
            share: is_shared.then_some(number),
            outlets: sources.iter().map(|source| source.outlet).collect(),
            ranked,
            united: sources.iter().any(|source| source.stream > 0),
            over: over.clone(),
            seen: i64::MIN,
        };
        (0..).zip(readers).map(taker).collect()
    }

    /// The outlets that it reads.
    pub fn outlets(&self) -> Vec<usize> {
        self.outlets.clone()
    }

    /// A block begins.
    pub fn begin(&mut self) {
        self.reader.begin();
    }

    /// The last event of the block, for an absent reader, if a reader has taken all of it. No reader is added any more then.
    fn end(&self) -> Option<i64> {
        // ORDERING: Acquire; whatever was added in this block is seen.
        let over = self.over.load(Ordering::Acquire);
        (over > self.seen && !self.reader.is_invited()).then_some(over)
    }

    /// Whether `take` finds something.
    pub fn has_news(&self) -> bool {
        if self.reader.is_present() {
            // SAFETY: it is present.
            return unsafe { self.reader.has_next(self.reader.ready()) };
        }
        self.reader.is_invited() || self.end().is_some()
    }

    /// Takes ready rows, about as many as are worth a turn. Returns false if there are none. They are valid until `release`.
    /// `Taken::hashes` gets the hashes of their keys, or their streams if the reader takes all rows. `Taken::reconfiguration`
    /// gets the epoch that begins with them.
    ///
    /// # Errors
    /// A rank is too long.
    ///
    /// # Safety
    /// The caller has released what it took before.
    pub unsafe fn take(&mut self, text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        taken.clear();
        taken.rows.text = text;
        if !self.reader.is_present() && !self.reader.join() {
            let Some(over) = self.end() else { return Ok(false) };
            (taken.upto, taken.last, self.seen) = (over, true, over);
            return Ok(true);
        }
        let ready = self.reader.ready();
        // SAFETY: it is present. A mark may repeat an event, and say that the block is over.
        if ready <= self.reader.now.upto && unsafe { !self.reader.has_next(ready) } {
            return Ok(false);
        }
        let begin = self.reader.now.upto;
        let (mut seq, mut upto) = (begin, ready);
        // SAFETY: it is present.
        while let Some(tuple) = unsafe { self.reader.peek(ready) } {
            let order = tuple.order;
            if taken.places.len() >= MOST && order.seq > seq {
                // This is another event, and events are taken whole.
                upto = order.seq - 1;
                break;
            }
            let now = &mut self.reader.now;
            if let What::Control { epoch } = tuple.what {
                if now.control.is_none_or(|(_, latest)| epoch > latest) {
                    if order.seq > begin || taken.reconfiguration.is_some() {
                        upto = order.seq;
                        break;
                    }
                    (now.control, now.is_pending) = (Some((order.seq, epoch)), true);
                }
            } else if let Some((event, epoch)) = now.control.filter(|_| now.is_pending)
                && order.seq > event
            {
                (taken.reconfiguration, now.is_pending) = (Some(epoch), false);
            }
            if let What::Row { place, hash, reader } = tuple.what
                && self.share.is_none_or(|share| share == reader)
            {
                taken.places.push(place);
                taken.hashes.push(hash);
                if self.ranked {
                    taken.ranks.push(order.rank_behind(self.united)?);
                }
            }
            if !matches!(tuple.what, What::Watermark { .. }) || taken.places.is_empty() {
                taken.started = taken.started.min(tuple.started);
            }
            seq = order.seq;
            // SAFETY: as above.
            unsafe { self.reader.advance(&tuple) };
        }
        self.reader.now.upto = upto;
        if !self.united && taken.ranks.iter().all(|&rank| rank == Rank::ONLY) {
            // Each row is the only one of its event.
            taken.ranks.clear();
        }
        (taken.rows.places, taken.rows.n) = (taken.places.as_ptr(), taken.places.len());
        taken.upto = upto;
        taken.last = self.reader.now.done.iter().all(|&done| done);
        Ok(true)
    }

    /// Acknowledges what was taken, after its use.
    pub fn release(&mut self) {
        if !self.reader.is_present() {
            return;
        }
        self.reader.release();
        let now = &self.reader.now;
        if now.done.iter().all(|&done| done) && now.upto > self.seen {
            self.seen = now.upto;
            // ORDERING: Release, for the readers that this one has added or removed. All store the same.
            self.over.store(now.upto, Ordering::Release);
        }
    }
}
