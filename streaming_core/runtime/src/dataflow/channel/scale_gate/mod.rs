//! ScaleGate: one ordered structure into which all sources of a reader insert what they put out, so that they share the
//! sorting, and from which the reader takes what is ready (Viper, section 3.3; STRETCH, sections 2.4 and 6; Gulisano et al.,
//! ScaleJoin, 2015).
//!
//! As published: a skip list in the order of rows, here (seq, stream, rank), whose nodes have random heights. Each source
//! inserts from its own handles on, on its own thread, without a lock; what it adds is in order, so that its handles only go
//! on. The reader goes along the lowest level as far as rows are *ready*: not after the least of the latest of all sources
//! (Viper, definition 1). A source says how far it is by a watermark tuple behind what it has added; the reader
//! acknowledges it when it has come there, and a source that has as many unacknowledged as its outlet has slots waits
//! (*flow control*; Viper, section 3.3).
//!
//! What is our own: a source adds all that a jumbo tuple has for the reader, and its watermark, in one go, and its latest
//! tuple is that watermark. With a batch of one event that is a watermark for each tuple; with more, rows of a batch become
//! ready together. The published structure leaves nodes behind the reader to a garbage collector; here their memory is used
//! again. Rows are not in the nodes, they stay in the outlet's slot, of which the acknowledgement is the release.
//!
//! *Memory.* A source has nodes for one jumbo tuple more than its outlet has slots. It fills those of number j again for
//! number j + slots + 1, for which j + 1 has to be acknowledged. By then nobody is at a node of j, nor will be: they are
//! before the watermark of j + 1. The reader is there or behind it. It came there because every source has added its watermark
//! of that event or a later one; a watermark has all levels, so that with it all handles of its source are behind the nodes of
//! j. And who is at a node only goes on. A node that is to be linked is behind its source's handles, so that what it is linked
//! between is not filled anew meanwhile, and a comparison with where a node lies says which one it is.
//!
//! *No circle.* Of the tasks that have more to put out, take those that have got least far, by what they have said last, and
//! of these the most upstream one. It does not wait for room: whoever has not acknowledged its earliest watermark would wait
//! for a source that has got less far, or for room, and then had got less far itself. It does not wait for input: all of its
//! sources have got further, and that is news.

use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::gate::key::{Order, SortKey};
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::rank::Rank;
use crate::dataflow::channel::taken::{MOST, Taken};
use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::rows::block::Text;
use crate::threads::sync::{Arc, AtomicI64, CachePadded, Ordering};

mod list;

use list::{Handles, LEVELS, Node, Tuple, What};

/// What the sources and the reader share; see the module.
#[derive(Debug)]
struct ScaleGate {
    /// Before everything.
    head: Node,
    /// Per source the event of its latest watermark: all of its rows up to there are in the list. Written by the source.
    clocks: Box<[CachePadded<AtomicI64>]>,
}

/// A source's end of a ScaleGate.
#[derive(Debug)]
pub struct Feed {
    gate: Arc<ScaleGate>,
    /// Which of the sources it is, and how it is read off the outlet.
    number: usize,
    source: Source,
    handles: Handles,
    /// Nodes, for one jumbo tuple after the other.
    nodes: Box<[Vec<Node>]>,
    /// Jumbo tuples so far.
    added: usize,
}

// SAFETY: nodes are linked and read by the protocol above, whoever is the source's thread; the addresses in `handles` are of
// nodes of the ScaleGate's sources, which are dropped together, when no thread is at work.
unsafe impl Send for Feed {}

impl Feed {
    /// Number of the outlet of which it adds the rows.
    pub fn outlet(&self) -> usize {
        self.source.outlet
    }

    /// Adds the rows of a jumbo tuple that are the reader's, and a watermark behind them.
    ///
    /// # Safety
    /// The caller is the source. The jumbo tuple was published last in the source's outlet, which had room for it.
    pub unsafe fn add(&mut self, jumbo: &Jumbo) {
        let clock = &self.gate.clocks[self.number];
        // ORDERING: Relaxed; only this source writes it.
        assert!(jumbo.upto > clock.load(Ordering::Relaxed), "watermarks of a source ascend");
        let n = self.source.rows_of(jumbo);
        let turn = self.added % self.nodes.len();
        let nodes = &mut self.nodes[turn];
        if nodes.len() <= n {
            *nodes = (0..(n + 1).next_power_of_two()).map(|_| Node::new()).collect();
        }
        let (nodes, started) = (nodes.as_ptr(), jumbo.started);
        for i in 0..n {
            let (place, hash) = (self.source.place(jumbo, i), self.source.hash(jumbo, i));
            let what = What::Row { place, hash };
            let tuple = Tuple { order: self.source.key(jumbo, i), source: self.number, started, what };
            let height = self.handles.draw();
            // SAFETY: there is a node for each, which nobody is at any more; see the module.
            unsafe { self.handles.add(nodes.add(i), tuple, height) };
        }
        let what = What::Watermark { last: jumbo.last };
        let tuple = Tuple { order: Order::behind(jumbo.upto), source: self.number, started, what };
        // SAFETY: as above.
        unsafe { self.handles.add(nodes.add(n), tuple, LEVELS) };
        self.added += 1;
        // ORDERING: Release; who sees it finds all of this source's nodes up to there.
        clock.store(jumbo.upto, Ordering::Release);
    }
}

/// What the reader knows of a source.
#[derive(Debug)]
struct Progress {
    outlet: usize,
    reader: usize,
    /// Rows taken of the jumbo tuple whose watermark comes next.
    taken: usize,
    /// Watermarks come by since the last acknowledgement.
    passed: usize,
    /// Nothing comes any more in this block.
    done: bool,
    /// When the processing of the earliest event started of which only was said that it has become nothing here.
    heard: u64,
}

/// The reader's end of a ScaleGate.
#[derive(Debug)]
pub struct Reader {
    gate: Arc<ScaleGate>,
    /// The last node that was taken.
    at: *const Node,
    sources: Vec<Progress>,
    /// All events up to this one were taken.
    upto: i64,
    /// Whether whoever takes asks for ranks, and for hashes; whether sources belong to several streams.
    ranked: bool,
    hashed: bool,
    united: bool,
    /// Whether rows come prepared for the sink, as for a gate.
    prepared: bool,
}

// SAFETY: as for `Feed`; `at` is the reader's own.
unsafe impl Send for Reader {}

/// A ScaleGate of these sources, whose outlets have `slots` slots: their ends, and the reader's. `ranked`: whoever takes
/// asks for ranks; `prepared`: rows are for the sink, and come prepared for it.
pub fn scale_gate(sources: Vec<Source>, slots: usize, ranked: bool, prepared: bool) -> (Vec<Feed>, Reader) {
    let clocks = sources.iter().map(|_| CachePadded::new(AtomicI64::new(i64::MIN))).collect();
    let gate = Arc::new(ScaleGate { head: Node::new(), clocks });
    let head: *const Node = &raw const gate.head;
    let progress = |source: &Source| {
        let Source { outlet, reader, .. } = *source;
        Progress { outlet, reader, taken: 0, passed: 0, done: false, heard: u64::MAX }
    };
    let reader = Reader {
        gate: gate.clone(),
        at: head,
        sources: sources.iter().map(progress).collect(),
        upto: i64::MIN,
        ranked,
        hashed: sources.iter().any(|source| source.hashes.is_some()),
        united: sources.iter().any(|source| source.stream > 0),
        prepared,
    };
    let feed = |(number, source): (usize, Source)| Feed {
        gate: gate.clone(),
        number,
        source,
        handles: Handles::new(head, number as u64),
        nodes: (0..=slots).map(|_| Vec::new()).collect(),
        added: 0,
    };
    (sources.into_iter().enumerate().map(feed).collect(), reader)
}

impl Reader {
    /// A block begins.
    pub fn begin(&mut self) {
        self.sources.iter_mut().for_each(|source| source.done = false);
    }

    /// The least of the latest of all sources: what is not after it is ready.
    #[inline]
    fn ready(&self) -> i64 {
        // ORDERING: Acquire; what sources added before is found.
        let clock = |clock: &CachePadded<AtomicI64>| clock.load(Ordering::Acquire);
        self.gate.clocks.iter().map(clock).min().unwrap_or(i64::MIN)
    }

    /// Whether something is ready that was not taken.
    pub fn has_news(&self) -> bool {
        self.ready() > self.upto
    }

    /// Takes what is ready, about so much of it as is worth a turn; false: nothing. What was taken is used until `release`.
    ///
    /// # Safety
    /// The caller is the reader of all sources' outlets, and has released what it took before.
    pub unsafe fn take(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        taken.clear();
        taken.rows.text = text;
        let ready = self.ready();
        if ready <= self.upto {
            return Ok(false);
        }
        // SAFETY: as the caller says.
        unsafe { self.look_for_ranks(outlets, taken) };
        let mut seq = self.upto;
        self.upto = ready;
        loop {
            // SAFETY: it lives until the reader has gone on, and was taken.
            let next = unsafe { (*self.at).next(0) };
            if next.is_null() {
                break;
            }
            // SAFETY: linked; what is ready is not filled again before it was acknowledged.
            let Tuple { order, source, started, what } = unsafe { (*next).tuple() };
            if order.seq > ready {
                break;
            }
            if taken.places.len() >= MOST && order.seq > seq {
                // Events are taken whole, and this is another one.
                self.upto = order.seq - 1;
                break;
            }
            (seq, self.at) = (order.seq, next);
            let of = &mut self.sources[source];
            match what {
                What::Row { place, hash } => {
                    if of.taken == 0 && self.prepared {
                        // SAFETY: as the caller says; it is there, and was not released.
                        taken.summed += unsafe { outlets[of.outlet].ahead(of.reader, of.passed) }.digest();
                    }
                    of.taken += 1;
                    taken.places.push(place);
                    taken.started = taken.started.min(started);
                    if self.hashed {
                        taken.hashes.push(hash);
                    }
                    if self.ranked {
                        taken.ranks.push(order.rank_behind(self.united)?);
                    }
                }
                What::Watermark { last } => {
                    if of.taken == 0 {
                        of.heard = of.heard.min(started);
                    }
                    (of.taken, of.done) = (0, last);
                    of.passed += 1;
                }
            }
        }
        if !self.united && taken.ranks.iter().all(|&rank| rank == Rank::ONLY) {
            // Each is alone with its event.
            taken.ranks.clear();
        }
        for source in &mut self.sources {
            taken.started = taken.started.min(std::mem::replace(&mut source.heard, u64::MAX));
        }
        (taken.rows.places, taken.rows.n) = (taken.places.as_ptr(), taken.places.len());
        if self.prepared && taken.rows.n > 0 {
            // SAFETY: they have just been taken.
            taken.prepared = Some(unsafe { Prepared::alone(taken.rows, taken.summed) });
        }
        taken.upto = self.upto;
        taken.last = self.sources.iter().all(|source| source.done);
        Ok(true)
    }

    /// Once there are ranks, what was summed of batches that have to part is of no use: what is left of these is examined.
    ///
    /// # Safety
    /// As for `take`.
    unsafe fn look_for_ranks(&mut self, outlets: &[Outlet], taken: &mut Taken) {
        // SAFETY: as the caller says; so many are there.
        let jumbo = |source: &Progress, index| unsafe { outlets[source.outlet].ahead(source.reader, index) };
        let waiting = |source: &Progress| outlets[source.outlet].waiting(source.reader);
        let has_ranks = |source: &Progress| (0..waiting(source)).any(|index| !jumbo(source, index).ranks.is_empty());
        if !self.prepared || !self.sources.iter().any(has_ranks) {
            return;
        }
        self.prepared = false;
        for source in self.sources.iter().filter(|source| source.taken > 0) {
            let jumbo = jumbo(source, 0);
            let share = &jumbo.shares[source.reader];
            let place = |index| jumbo.rows.start.wrapping_add(share.position(index) * jumbo.rows.stride);
            taken.left_over.extend((source.taken..share.len(jumbo.rows.n)).map(place));
        }
    }

    /// Acknowledges the watermarks that have come by, when what was taken has been used.
    pub fn release(&mut self, outlets: &[Outlet]) {
        for source in &mut self.sources {
            (0..std::mem::take(&mut source.passed)).for_each(|_| outlets[source.outlet].release(source.reader));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
