//! The ends of an elastic ScaleGate at tasks: jumbo tuples go in, and batches of rows come out.
//!
//! Rows stay in the outlets of their sources. A source releases a slot of its outlet itself when all readers have acknowledged
//! its watermark, because only the gate knows the readers. A source adds a control tuple for each epoch that it comes to,
//! before its first tuple of that epoch (STRETCH, algorithm 5). Readers ignore the second and later ones (algorithm 6).
//!
//! A reader takes batches that end before a control tuple, so a reconfiguration stands at the beginning of a batch. It
//! triggers at the first row or watermark after the control tuple. If several control tuples come before that, the latest
//! counts. Readers see one list, so the same tuple triggers the same epoch for all of them.

use crate::dataflow::channel::elastic::{Feed, Reader, What};
use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::gate::key::{Order, SortKey};
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
    source: Source,
    epochs: Arc<Epochs>,
    /// The first epoch without a control tuple of this source.
    next: usize,
    /// Room for the tuples of a batch.
    tuples: Vec<(Order, What)>,
}

impl Inserter {
    /// Feeds the rows of `source` to an operator with these epochs.
    pub fn new(feed: Feed, source: Source, epochs: Arc<Epochs>) -> Self {
        Self { feed, source, epochs, next: 1, tuples: Vec::new() }
    }

    /// The number of its outlet.
    pub fn outlet(&self) -> usize {
        self.source.outlet
    }

    /// Releases what all readers have acknowledged. For the writer of the outlet.
    pub fn collect(&self, outlets: &[Outlet]) {
        let outlet = &outlets[self.source.outlet];
        (outlet.released(self.source.reader)..self.feed.acknowledged())
            .for_each(|_| outlet.release(self.source.reader));
    }

    /// Adds the rows of a jumbo tuple, control tuples, and a watermark.
    ///
    /// # Safety
    /// The caller is the source. The jumbo tuple was published last in its outlet, which had room for it.
    pub unsafe fn add(&mut self, jumbo: &Jumbo) {
        let Self { feed, source, epochs, next, tuples } = self;
        tuples.clear();
        let mut control = |before: i64, tuples: &mut Vec<_>| {
            while let Some(epoch) = epochs.get(*next).filter(|epoch| epoch.event <= before) {
                tuples.push((Order::behind(epoch.event - 1), What::Control { epoch: *next }));
                *next += 1;
            }
        };
        for i in 0..source.rows_of(jumbo) {
            let order: Order = source.key(jumbo, i);
            control(order.seq, tuples);
            tuples.push((order, What::Row { place: source.place(jumbo, i), stream: source.stream }));
        }
        control(jumbo.upto, tuples);
        // SAFETY: as the caller says.
        unsafe { feed.add(tuples, jumbo.upto, jumbo.started, jumbo.last) };
    }
}

/// The end of a reader: a replica takes its batches here.
#[derive(Debug)]
pub struct Taker {
    pub reader: Reader,
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
    /// Takers of the `readers` of these sources.
    pub fn all(readers: Vec<Reader>, sources: &[Source], ranked: bool) -> Vec<Self> {
        let over = Arc::new(AtomicI64::new(i64::MIN));
        let taker = |reader| Self {
            reader,
            outlets: sources.iter().map(|source| source.outlet).collect(),
            ranked,
            united: sources.iter().any(|source| source.stream > 0),
            over: over.clone(),
            seen: i64::MIN,
        };
        readers.into_iter().map(taker).collect()
    }

    /// The outlets that it reads.
    pub fn outlets(&self) -> Vec<usize> {
        self.outlets.clone()
    }

    /// A block begins.
    pub fn begin(&mut self) {
        self.reader.start.done.fill(false);
        self.reader.now.done.fill(false);
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
    /// `Taken::hashes` gets the streams of the rows, and `Taken::reconfiguration` the epoch that begins with them.
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
        let (mut seq, mut upto) = (self.reader.now.upto, ready);
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
                    if !taken.places.is_empty() || taken.reconfiguration.is_some() {
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
            if let What::Row { place, stream } = tuple.what {
                taken.places.push(place);
                taken.hashes.push(stream);
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
