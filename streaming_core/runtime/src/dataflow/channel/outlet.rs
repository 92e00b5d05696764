//! The outputs of a replica, for all readers: a ring of jumbo tuples, with one writer and any number of readers.
//!
//! A jumbo tuple (BriskStream, section 5.2) is a batch of rows under one header. The writer writes it once, and all readers
//! that it concerns read it in place. For each reader, it says which rows are that reader's. `upto` in the header makes it a
//! heartbeat too (Viper, section 3.3; STRETCH, section 2.3), also for readers without a row in it.
//!
//! Invariant: `cursor <= published <= least cursor + slots`. A slot belongs to the writer while it is not published, and again
//! after every reader has released it. In between it belongs to the readers, which only read. So nothing overflows. A writer
//! without room goes on with other work (`has_room`), and so does a reader without news (`head`).
//!
//! Absence (STRETCH, section 6: readers come and go): the writer may declare that a jumbo tuple does not concern a reader
//! (`pass_over`). A run of such tuples blocks no task. For the writer, the reader has released them already. When the reader
//! comes to the first of them, it finds nothing new until another tuple concerns it, and goes on there. Each reader has one
//! run at a time; until it has gone through that run, every tuple concerns it.

use crate::dataflow::channel::rank::Rank;
use crate::output::digest::Digest;
use crate::output::sink::Prepared;
use crate::rows::block::Text;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering, UnsafeCell};

/// The number of jumbo tuples in an outlet of a pinned task.
pub const SLOTS: usize = 8;

/// Rows under one header.
#[derive(Debug)]
pub struct Jumbo {
    /// Room for new rows.
    pub buffer: RowBuffer,
    /// The rows, in total order: those in `buffer`, or rows of the block, which need not be adjacent.
    pub rows: Rows,
    /// The rank of each row. Empty if every row is the only one of its event, or if no reader needs ranks.
    pub ranks: Vec<Rank>,
    /// The `sub` of each row, where rows are numbered before the sink. Empty if every row is the only one of its event.
    pub subs: Vec<u32>,
    /// The rows of each reader.
    pub shares: Vec<Share>,
    /// For each edge routed by key, the hashes of the rows' keys; empty for others.
    pub hashes: Vec<Vec<u64>>,
    /// For a windowed operator, the meetings of the rows (`windowed/keys.rs`).
    pub words: Vec<u64>,
    /// All rows of events up to this one are out. If the writer emits whole events, no row of a later event is.
    pub upto: i64,
    /// Engine time of the start of processing of the first of these rows' events.
    pub started: u64,
    /// Whether this is the last jumbo tuple of the block.
    pub last: bool,
}

/// The rows of a jumbo tuple that belong to a reader.
#[derive(Debug, Default)]
pub struct Share {
    pub whole: bool,
    /// Their positions, ascending, unless all rows belong to the reader.
    pub positions: Vec<u32>,
    /// While the tuple is filled: the number of rows so far.
    pub filled: usize,
    /// The sink's results for these rows, if the reader is a sink and the writer computed them.
    pub prepared: Option<Prepared>,
}

impl Share {
    /// The number of the reader's rows among `n`.
    #[inline]
    pub fn len(&self, n: usize) -> usize {
        if self.whole { n } else { self.positions.len() }
    }

    /// The digest of all of these rows, if they are prepared for a sink.
    pub fn digest(&self) -> Digest {
        self.prepared.map_or_else(Digest::default, |prepared| prepared.digest())
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
            buffer: RowBuffer::new(stride, true),
            rows: Rows::new(std::ptr::null(), 0, stride, Text::empty()),
            ranks: Vec::new(),
            subs: Vec::new(),
            shares: (0..readers).map(|_| Share::default()).collect(),
            hashes: vec![Vec::new(); edges],
            words: Vec::new(),
            upto: i64::MIN,
            started: 0,
            last: false,
        }
    }

    /// Removes the rows and their readers, but keeps the memory.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.rows.n = 0;
        self.ranks.clear();
        self.subs.clear();
        for share in &mut self.shares {
            share.whole = false;
            share.positions.clear();
            share.prepared = None;
        }
        self.last = false;
    }
}

/// The ring; see the module.
#[derive(Debug)]
pub struct Outlet {
    slots: Box<[CachePadded<UnsafeCell<Jumbo>>]>,
    /// The number of published jumbo tuples; number i lies in slot i mod slots. The writer writes it.
    published: CachePadded<AtomicU64>,
    /// Per reader, the number of released jumbo tuples. That reader writes it.
    cursors: Box<[CachePadded<AtomicU64>]>,
    /// Per reader, the run that does not concern it, if readers may be absent. The writer writes it.
    absences: Box<[CachePadded<Absence>]>,
}

/// Jumbo tuples that do not concern a reader: number `from` up to number `to`, exclusively; `OPEN`: and so on.
#[derive(Debug)]
struct Absence {
    from: AtomicU64,
    to: AtomicU64,
}

const OPEN: u64 = u64::MAX;

// SAFETY: `published` passes a slot from the writer to the readers, and `cursors` pass it back: written with Release, read
// with Acquire. The callers of `head`, `fill` and similar functions guarantee that they are the writer or that reader.
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

    /// Allows readers to be absent.
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
        // ORDERING: Acquire; readers are done with a released slot before it is filled again.
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

    /// Lends the slot to publish next.
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

    /// Publishes the filled slot. For the writer.
    #[inline]
    pub fn publish(&self) {
        // ORDERING: Relaxed load of a number that this thread writes; Release passes the slot to readers of the new number.
        let next = self.published.load(Ordering::Relaxed) + 1;
        self.published.store(next, Ordering::Release);
    }

    /// The jumbo tuple that was published last.
    ///
    /// # Safety
    /// The caller is the writer, has published something, and uses the result until it fills the next slot.
    #[inline]
    pub unsafe fn latest<'a>(&self) -> &'a Jumbo {
        // SAFETY: it is published, so all may read it, and only the caller writes.
        self.slot(self.serial() - 1).with(|jumbo| unsafe { &*jumbo })
    }

    /// Declares whether the next jumbo tuple concerns a reader that may be absent. For the writer, before it publishes.
    #[inline]
    pub fn pass_over(&self, reader: usize, concerned: bool) {
        let absence = &self.absences[reader];
        // ORDERING: Relaxed loads of what only the writer writes.
        let (next, to) = (self.published.load(Ordering::Relaxed), absence.to.load(Ordering::Relaxed));
        if concerned {
            if to == OPEN {
                // ORDERING: Release; only this tells the reader to go on from here.
                absence.to.store(next, Ordering::Release);
            }
        // ORDERING: Acquire; the reader has gone through the run before, and will not look at it again.
        } else if to != OPEN && self.cursors[reader].load(Ordering::Acquire) >= to {
            // ORDERING: Release, both; a reader that sees the start of the run, or a later tuple, sees that it is open.
            absence.to.store(OPEN, Ordering::Release);
            absence.from.store(next, Ordering::Release);
        }
    }

    /// The range of jumbo tuples that are new for `reader`. For that reader.
    #[inline]
    fn unread(&self, reader: usize) -> (u64, u64) {
        // ORDERING: Acquire takes over the published slots, and the declarations for the reader before them.
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

    /// The number of jumbo tuples that `reader` has not released. For that reader.
    #[inline]
    pub fn waiting(&self, reader: usize) -> usize {
        let (begin, end) = self.unread(reader);
        (end - begin) as usize
    }

    /// The jumbo tuple at `index` of those that `reader` has not released, the earliest first.
    ///
    /// # Safety
    /// The caller is that reader, has seen that so many are waiting, and uses the result only until it releases it.
    #[inline]
    pub unsafe fn ahead<'a>(&self, reader: usize, index: usize) -> &'a Jumbo {
        // ORDERING: Relaxed; only the reader writes its cursor, and it has acquired what was published.
        let number = self.cursors[reader].load(Ordering::Relaxed) + index as u64;
        // SAFETY: published, and not written before this reader has released it; the outlet outlives its readers.
        self.slot(number).with(|jumbo| unsafe { &*jumbo })
    }

    /// The number of jumbo tuples that `reader` has released. For the writer.
    #[inline]
    pub fn acknowledged(&self, reader: usize) -> u64 {
        // ORDERING: Acquire; the reader is done with what it has released.
        self.cursors[reader].load(Ordering::Acquire)
    }

    /// Releases the earliest jumbo tuple. For `reader`.
    #[inline]
    pub fn release(&self, reader: usize) {
        // ORDERING: Relaxed; only the reader writes its cursor.
        self.release_to(reader, self.cursors[reader].load(Ordering::Relaxed) + 1);
    }

    /// Releases the first `number` jumbo tuples of all. For `reader`.
    #[inline]
    pub fn release_to(&self, reader: usize, number: u64) {
        // ORDERING: Release: what was read has been read.
        self.cursors[reader].store(number, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;

    /// A point at which threads may get ahead of each other; `channel/models.rs` says why loom needs it.
    fn cross(crossings: &AtomicU64) {
        // ORDERING: Relaxed; nothing is published.
        crossings.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads what `reader` finds in a number of looks. Returns the number of jumbo tuples.
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

    /// One slot and four jumbo tuples. Two do not concern the reader; it reads the others, whole and in order.
    #[test]
    fn loom_what_does_not_concern_a_reader_is_passed_over() {
        for concerned in [[true, false, false, true], [false, true, false, true], [false, false, false, true]] {
            interleave(3, move || {
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
                // It may also see a tuple that does not concern it, if it had not gone through the run before.
                let missed = (0..4).filter(|number| !seen.contains(number));
                assert!(seen.is_sorted() && missed.into_iter().all(|number| !concerned[number as usize]), "{seen:?}");
            });
        }
    }

    /// One slot, up to three jumbo tuples, two readers: each reads all of them, whole, in order.
    #[test]
    fn loom_every_reader_gets_every_jumbo_tuple() {
        interleave(3, || {
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
