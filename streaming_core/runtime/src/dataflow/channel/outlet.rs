//! What a replica puts out, for all who read it: a ring of jumbo tuples, one writer, any number of readers.
//!
//! A jumbo tuple (BriskStream, section 5.2) is a batch of rows under one header. It is written once and read in place by
//! everybody whom it concerns; what is said for each reader is which of its rows are his. `upto` in the header makes it a
//! heartbeat as well (Viper, section 3.3; STRETCH, section 2.3): it reaches also those for whom there is no row in it.
//!
//! Invariant: `cursor <= published <= least cursor + slots`. A slot belongs to the writer while it is not published or
//! after every reader has released it, and to the readers in between, who only read. So nothing overflows; a writer that
//! finds no room goes on with other work (`has_room`), as a reader does that finds nothing new (`head`).
//!
//! Absence (STRETCH, section 6: readers come and go): the writer may say of a jumbo tuple that it does not concern a reader
//! (`pass_over`). A run of such holds nobody up: for the writer the reader has released them already, and the reader, when it
//! comes to the first of them, finds nothing new until there is one again that concerns it, and goes on there. There is one
//! run at a time for each reader; before it has gone through that, everything concerns it.

use crate::dataflow::channel::rank::Rank;
use crate::output::digest::Digest;
use crate::output::sink::Prepared;
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering, UnsafeCell};

/// Rows under one header.
#[derive(Debug)]
pub struct Jumbo {
    /// Room for rows that are made here.
    pub made: RowBuffer,
    /// The rows: those in `made`, or rows of the block, with others between them if the stride says so. In total order.
    pub rows: Rows,
    /// Per row its rank; none at all: every row is alone with its event, or nobody asks.
    pub ranks: Vec<Rank>,
    /// Per reader which of the rows are his.
    pub shares: Vec<Share>,
    /// Per edge that is routed by key the hashes of the rows' keys, else nothing.
    pub hashes: Vec<Vec<u64>>,
    /// Of rows for a windowed operator, their meetings (`windowed/keys.rs`).
    pub words: Vec<u64>,
    /// Every row of events up to this one has been put out, and, by who puts out whole events, none of a later one.
    pub upto: i64,
    /// Engine time when the processing of the first of these rows' events started.
    pub started: u64,
    /// Nothing comes any more in this block.
    pub last: bool,
    /// What the sink would find out about all of these rows, if they are for it and whoever made them has done that.
    pub prepared: Option<Prepared>,
}

/// Which rows of a jumbo tuple are a reader's.
#[derive(Debug, Default)]
pub struct Share {
    pub whole: bool,
    /// Their positions, ascending, unless all are.
    pub positions: Vec<u32>,
    /// While it is filled: how many there are.
    pub filled: usize,
}

impl Share {
    /// How many of `n` rows.
    #[inline]
    pub fn len(&self, n: usize) -> usize {
        if self.whole { n } else { self.positions.len() }
    }

    /// The position of the i-th.
    #[inline(always)]
    pub fn position(&self, i: usize) -> usize {
        if self.whole { i } else { self.positions[i] as usize }
    }
}

impl Jumbo {
    /// An empty one for rows of `stride` bytes, `readers` readers and `edges` edges.
    pub fn new(stride: usize, readers: usize, edges: usize) -> Self {
        Self {
            made: RowBuffer::new(stride, true),
            rows: Rows::new(std::ptr::null(), 0, stride, Text::empty()),
            ranks: Vec::new(),
            shares: (0..readers).map(|_| Share::default()).collect(),
            hashes: vec![Vec::new(); edges],
            words: Vec::new(),
            upto: i64::MIN,
            started: 0,
            last: false,
            prepared: None,
        }
    }

    /// Of all of its rows, if it is prepared for the sink.
    pub fn digest(&self) -> Digest {
        self.prepared.map_or_else(Digest::default, |prepared| prepared.digest())
    }

    /// Forgets the rows and whose they were, keeps the memory.
    pub fn clear(&mut self) {
        self.made.clear();
        self.rows.n = 0;
        self.ranks.clear();
        for share in &mut self.shares {
            share.whole = false;
            share.positions.clear();
        }
        self.last = false;
        self.prepared = None;
    }
}

/// The ring; see the module.
#[derive(Debug)]
pub struct Outlet {
    slots: Box<[CachePadded<UnsafeCell<Jumbo>>]>,
    /// Jumbo tuples published so far; number i lies in slot i mod slots. Written by the writer.
    published: CachePadded<AtomicU64>,
    /// Per reader, how many it has released. Written by that reader.
    cursors: Box<[CachePadded<AtomicU64>]>,
    /// Per reader the run that does not concern it, if readers may be absent. Written by the writer.
    absences: Box<[CachePadded<Absence>]>,
}

/// Jumbo tuples that do not concern a reader: number `from` up to number `to`, exclusively; `OPEN`: and so on.
#[derive(Debug)]
struct Absence {
    from: AtomicU64,
    to: AtomicU64,
}

const OPEN: u64 = u64::MAX;

// SAFETY: a slot is handed from the writer to the readers by `published`, and back by `cursors`: written with Release,
// read with Acquire. `head`, `fill` and their kind make their callers answer for being the one they say they are.
unsafe impl Sync for Outlet {}
// SAFETY: nothing in it refers to a thread; the rows of a block stay readable while it is processed.
unsafe impl Send for Outlet {}

impl Outlet {
    /// `slots` jumbo tuples as `make` makes them, for `readers` readers.
    pub fn new(slots: usize, readers: usize, make: impl Fn() -> Jumbo) -> Self {
        Self {
            slots: (0..slots).map(|_| CachePadded::new(UnsafeCell::new(make()))).collect(),
            published: CachePadded::new(AtomicU64::new(0)),
            cursors: (0..readers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            absences: Box::default(),
        }
    }

    /// Its readers may be absent now and then.
    pub fn with_absence(self) -> Self {
        let none = |_| CachePadded::new(Absence { from: AtomicU64::new(0), to: AtomicU64::new(0) });
        Self { absences: (0..self.cursors.len()).map(none).collect(), ..self }
    }

    fn slot(&self, number: u64) -> &UnsafeCell<Jumbo> {
        &self.slots[number as usize % self.slots.len()]
    }

    /// Whether the writer may fill a slot. For the writer.
    #[inline]
    pub fn has_room(&self) -> bool {
        // ORDERING: Relaxed; only the writer writes it.
        let published = self.published.load(Ordering::Relaxed);
        // ORDERING: Acquire; what readers did with a slot they released comes before it is filled again.
        let released = |(reader, cursor): (usize, &CachePadded<AtomicU64>)| {
            let cursor = cursor.load(Ordering::Acquire);
            let Some(absence) = self.absences.get(reader) else { return cursor };
            // ORDERING: Relaxed; only the writer writes it.
            let (from, to) = (absence.from.load(Ordering::Relaxed), absence.to.load(Ordering::Relaxed));
            if (from..to).contains(&cursor) { to.min(published) } else { cursor }
        };
        let least = self.cursors.iter().enumerate().map(released).min();
        published - least.unwrap_or(published) < self.slots.len() as u64
    }

    /// Hands out the slot that is published next.
    ///
    /// # Safety
    /// The caller is the writer and has seen that there is room.
    #[inline]
    pub unsafe fn fill<R>(&self, work: impl FnOnce(&mut Jumbo) -> R) -> R {
        // ORDERING: Relaxed; only the writer writes it.
        let next = self.published.load(Ordering::Relaxed);
        // SAFETY: not published, and no reader is at what it held before.
        self.slot(next).with_mut(|jumbo| work(unsafe { &mut *jumbo }))
    }

    /// Gives the slot that was filled to the readers. For the writer.
    #[inline]
    pub fn publish(&self) {
        // ORDERING: Relaxed load, written by this thread; Release hands the slot to whoever sees the new number.
        let next = self.published.load(Ordering::Relaxed) + 1;
        self.published.store(next, Ordering::Release);
    }

    /// What was published last.
    ///
    /// # Safety
    /// The caller is the writer, has published something, and uses the result until it fills the next slot.
    #[inline]
    pub unsafe fn latest<'a>(&self) -> &'a Jumbo {
        // SAFETY: published, so that all may read it, and written by nobody but the caller.
        self.slot(self.serial() - 1).with(|jumbo| unsafe { &*jumbo })
    }

    /// What is published next concerns a reader, which may be absent, or it does not. For the writer, before it publishes.
    #[inline]
    pub fn pass_over(&self, reader: usize, concerned: bool) {
        let absence = &self.absences[reader];
        // ORDERING: Relaxed loads of what only the writer writes.
        let (next, to) = (self.published.load(Ordering::Relaxed), absence.to.load(Ordering::Relaxed));
        if concerned {
            if to == OPEN {
                // ORDERING: Release; the reader goes on from here by this alone.
                absence.to.store(next, Ordering::Release);
            }
        // ORDERING: Acquire; the reader has gone through the run before, and will not look at it again.
        } else if to != OPEN && self.cursors[reader].load(Ordering::Acquire) >= to {
            // ORDERING: Release, both; who sees where the run begins, or what is published after it, sees that it is open.
            absence.to.store(OPEN, Ordering::Release);
            absence.from.store(next, Ordering::Release);
        }
    }

    /// From which jumbo tuple on, up to which exclusively, there are such for `reader`. For that reader.
    #[inline]
    fn unread(&self, reader: usize) -> (u64, u64) {
        // ORDERING: Acquire takes over the slots published, and what was said of them to the reader before.
        let published = self.published.load(Ordering::Acquire);
        // ORDERING: Relaxed; only the reader writes its cursor.
        let cursor = self.cursors[reader].load(Ordering::Relaxed);
        let Some(absence) = self.absences.get(reader) else { return (cursor, published) };
        // ORDERING: Acquire; see `pass_over`.
        let from = absence.from.load(Ordering::Acquire);
        if cursor != from {
            return (cursor, if cursor < from { published.min(from) } else { published });
        }
        // ORDERING: Acquire, as above.
        match absence.to.load(Ordering::Acquire) {
            OPEN => (cursor, cursor),
            to => {
                // ORDERING: Release, as in `release`.
                self.cursors[reader].store(to.max(cursor), Ordering::Release);
                (to.max(cursor), published.max(to))
            }
        }
    }

    /// Number of jumbo tuples filled so far. For the writer.
    #[inline]
    pub fn serial(&self) -> u64 {
        // ORDERING: Relaxed; only the writer writes it.
        self.published.load(Ordering::Relaxed)
    }

    /// Whether there is a jumbo tuple that `reader` has not released. For that reader.
    #[inline]
    pub fn has_news(&self, reader: usize) -> bool {
        let (begin, end) = self.unread(reader);
        begin < end
    }

    /// How many jumbo tuples there are that `reader` has not released. For that reader.
    #[inline]
    pub fn waiting(&self, reader: usize) -> usize {
        let (begin, end) = self.unread(reader);
        (end - begin) as usize
    }

    /// Number `index` of the jumbo tuples that `reader` has not released, from the earliest on.
    ///
    /// # Safety
    /// The caller is that reader, has seen that so many are waiting, and uses the result until it releases it only.
    #[inline]
    pub unsafe fn ahead<'a>(&self, reader: usize, index: usize) -> &'a Jumbo {
        // ORDERING: Relaxed; only the reader writes its cursor, and it has acquired what was published.
        let number = self.cursors[reader].load(Ordering::Relaxed) + index as u64;
        // SAFETY: published, and not written before this reader has released it; the outlet outlives its readers.
        self.slot(number).with(|jumbo| unsafe { &*jumbo })
    }

    /// Gives back the earliest jumbo tuple. For `reader`.
    #[inline]
    pub fn release(&self, reader: usize) {
        // ORDERING: Relaxed load, written by this thread; Release: what was read has been read.
        let next = self.cursors[reader].load(Ordering::Relaxed) + 1;
        self.cursors[reader].store(next, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};

    /// Where threads may get ahead of each other; `channel/models.rs` says why loom has to be told.
    fn cross(crossings: &AtomicU64) {
        // ORDERING: Relaxed; nothing is published.
        crossings.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads whatever `reader` finds in so many looks; how many jumbo tuples it has seen then.
    fn look((outlet, crossings): &(Outlet, AtomicU64), reader: usize, mut seen: i64, looks: usize) -> i64 {
        for _ in 0..looks {
            cross(crossings);
            let waiting = outlet.waiting(reader);
            for index in 0..waiting {
                // SAFETY: one thread after the other is this reader.
                let jumbo = unsafe { outlet.ahead(reader, index) };
                assert_eq!((jumbo.upto, jumbo.ranks.len()), (seen, seen as usize + 1));
                seen += 1;
            }
            cross(crossings);
            (0..waiting).for_each(|_| outlet.release(reader));
        }
        seen
    }

    /// One slot, four jumbo tuples of which two do not concern the reader: it reads the others, whole, in order.
    #[test]
    fn loom_what_does_not_concern_a_reader_is_passed_over() {
        for concerned in [[true, false, false, true], [false, true, false, true], [false, false, false, true]] {
            loom::model(move || {
                let outlet = Arc::new(Outlet::new(1, 1, || Jumbo::new(16, 1, 0)).with_absence());
                let reader = {
                    let outlet = outlet.clone();
                    thread::spawn(move || {
                        let mut seen = Vec::new();
                        while seen.last() != Some(&3) {
                            if outlet.waiting(0) == 0 {
                                thread::yield_now();
                                continue;
                            }
                            // SAFETY: this thread is the reader; there is one.
                            let jumbo = unsafe { outlet.ahead(0, 0) };
                            assert_eq!(jumbo.ranks.len() as i64, jumbo.upto + 1);
                            seen.push(jumbo.upto);
                            outlet.release(0);
                        }
                        seen
                    })
                };
                for (number, concerned) in concerned.into_iter().enumerate() {
                    while !outlet.has_room() {
                        thread::yield_now();
                    }
                    // SAFETY: this thread is the writer, and there is room.
                    unsafe {
                        outlet.fill(|jumbo| {
                            jumbo.clear();
                            jumbo.ranks.resize(number + 1, Rank::ONLY);
                            jumbo.upto = number as i64;
                        });
                    }
                    outlet.pass_over(0, concerned);
                    outlet.publish();
                }
                let seen = reader.join().unwrap();
                // What did not concern it may have come to it, if it had not gone through the run before.
                let missed = (0..4).filter(|number| !seen.contains(number));
                assert!(seen.is_sorted() && missed.into_iter().all(|number| !concerned[number as usize]), "{seen:?}");
            });
        }
    }

    /// One slot, up to three jumbo tuples, two readers: each reads all of them, whole, in order.
    #[test]
    fn loom_every_reader_gets_every_jumbo_tuple() {
        loom::model(|| {
            let shared = Arc::new((Outlet::new(1, 2, || Jumbo::new(16, 2, 0)), AtomicU64::new(0)));
            let (outlet, crossings) = &*shared;
            let readers: Vec<_> = (0..2)
                .map(|reader| {
                    let shared = shared.clone();
                    thread::spawn(move || look(&shared, reader, 0, 2))
                })
                .collect();
            let mut published = 0;
            for _ in 0..3 {
                cross(crossings);
                if outlet.has_room() {
                    // SAFETY: this thread is the writer, and there is room.
                    unsafe {
                        outlet.fill(|jumbo| {
                            jumbo.clear();
                            jumbo.ranks.resize(published as usize + 1, Rank::ONLY);
                            jumbo.upto = published;
                        });
                    }
                    cross(crossings);
                    outlet.publish();
                    published += 1;
                }
            }
            for (reader, thread) in readers.into_iter().enumerate() {
                let seen = thread.join().unwrap();
                assert_eq!(look(&shared, reader, seen, 2), published);
            }
        });
    }
}
