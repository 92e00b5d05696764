//! ScaleGate: one ordered structure for a reader. All sources of the reader insert their rows, so they share the sorting. The
//! reader takes what is ready (Viper, section 3.3; STRETCH, sections 2.4 and 6; Gulisano et al., ScaleJoin, 2015).
//!
//! As published: the structure is a skip list in the order of rows, here (seq, stream, rank), whose nodes have random
//! heights. Each source inserts from its own handles, on its own thread, without a lock. A source adds rows in order, so its
//! handles only move forward. The reader goes along the lowest level as far as rows are *ready*: not after the least of all
//! sources' latest tuples (Viper, definition 1). A row of a source is its latest tuple. It says that all of its source's
//! earlier events are in the list.
//!
//! *Watermarks.* Sources add them periodically, and readers acknowledge them (Viper, section 3.3, end of the first paragraph).
//! So a source adds no watermark for each tuple, but one in a period of events, to each of its readers. A watermark also
//! tells the progress of a source whose rows go to other readers. The period depends on events alone (`pinned/task.rs`). A
//! source that pauses adds a watermark too, so that no reader starves. The reader acknowledges the watermarks that it has
//! passed. A source with as many unacknowledged batches as its outlet has slots waits (*flow control*).
//!
//! Our own: a source adds all rows of a batch for the reader at once. The published structure leaves passed nodes to a
//! garbage collector; here their memory is used again. Nodes hold no rows. Rows stay in the outlet's slot, and the
//! acknowledgement releases the slots of a period.
//!
//! *Memory.* The nodes up to a source's watermark j are filled again under two conditions. The reader has acknowledged
//! watermark j + 1. Every other source has added a watermark of a later event than that of j. By then no thread is at these nodes, and none
//! will be. The reader is at watermark j + 1 or past it. A watermark has all levels, so all handles of its source are past
//! the nodes up to j. And a thread at a node only moves forward. A new node is linked past its source's handles. So its
//! neighbours are not filled again meanwhile, and comparing positions tells nodes apart.
//!
//! *No deadlock.* Suppose that no task can go on. Then all have added watermarks for all that they have put out. Take the
//! tasks that still have rows to emit. Of these, take those with the least progress announced, and of these the most upstream
//! one. It does not wait for room: else some reader has not acknowledged its earliest watermark. That reader waits for a
//! source with less progress, or it waits for room and has less progress itself. For it has not passed that watermark, and a
//! row announces less than the watermark behind it. Both contradict the choice. It does not wait for input either, because all of
//! its sources have more progress, and that is news.

use std::collections::VecDeque;

use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::gate::key::{Order, SortKey};
use crate::dataflow::channel::outlet::Outlet;
use crate::dataflow::channel::skip_list::{self, LEVELS, Tuple};
use crate::dataflow::channel::taken::{MOST, Taken};
use crate::error::RunError;
use crate::rows::block::Text;
use crate::threads::sync::{Arc, AtomicI64, CachePadded, Ordering};

type Node = skip_list::Node<What>;
type Handles = skip_list::Handles<What>;

/// What its list holds.
#[derive(Debug, Clone, Copy)]
enum What {
    /// The address of the row, and the hash of its key if the reader needs it.
    Row { place: *const u8, hash: u64 },
    /// After all rows of the first `batches` batches of its source, and of all events up to its own. `last`: the source is
    /// done with the block.
    Watermark { batches: u64, last: bool },
}

const NOTHING: What = What::Watermark { batches: 0, last: false };

/// The data that sources and reader share; see the module.
#[derive(Debug)]
struct ScaleGate {
    /// The head of the list, before all nodes.
    head: Node,
    /// Of each source, which writes it.
    clocks: Box<[CachePadded<Clock>]>,
}

/// How far a source is.
#[derive(Debug)]
struct Clock {
    /// All of its rows of events up to this one are in the list.
    known: AtomicI64,
    /// The event of its latest watermark.
    watermark: AtomicI64,
}

/// A source's end of a ScaleGate.
#[derive(Debug)]
pub struct Feed {
    gate: Arc<ScaleGate>,
    /// The number of this source, and how to read its outlet.
    number: usize,
    source: Source,
    handles: Handles,
    nodes: Nodes,
    /// The event of the next watermark, the start of processing of what is behind the last one, and whether the block ends.
    next: (i64, u64, bool),
    /// The number of tuples and of watermarks so far.
    #[cfg(test)]
    pub added: (u64, u64),
}

// SAFETY: nodes are linked and read by the protocol above, on any thread of the source. The addresses in `handles` are those
// of nodes of the ScaleGate's sources, which are dropped together when no thread is at work.
unsafe impl Send for Feed {}

impl Feed {
    /// The number of its outlet.
    pub fn outlet(&self) -> usize {
        self.source.outlet
    }

    /// Adds the reader's rows of the batch that was published last in the outlet.
    ///
    /// # Safety
    /// The caller is the source, and has not added that batch. The outlet had room for it.
    pub unsafe fn add(&mut self, outlet: &Outlet) {
        // SAFETY: as the caller says.
        let jumbo = unsafe { outlet.latest() };
        let (upto, started, _) = self.next;
        assert!(jumbo.upto > upto, "the progress of a source must ascend");
        self.next = (jumbo.upto, started.min(jumbo.started), jumbo.last);
        let n = self.source.rows_of(jumbo);
        if n == 0 {
            return;
        }
        for i in 0..n {
            let (place, hash) = (self.source.place(jumbo, i), self.source.hash(jumbo, i));
            let what = What::Row { place, hash };
            let order: Order = self.source.key(jumbo, i);
            let tuple = Tuple { order, source: self.number, started: jumbo.started, what };
            let height = self.handles.draw();
            let node = self.node(outlet);
            // SAFETY: no thread is at the node any more; see the module.
            unsafe { self.handles.add(node, tuple, height) };
        }
        // An event may have more rows in this batch, so the last row speaks for the events before its own.
        let known = self.source.key::<i64>(jumbo, n - 1) - 1;
        // ORDERING: Release; a reader that sees it finds all of this source's nodes up to there.
        self.gate.clocks[self.number].known.store(known, Ordering::Release);
        #[cfg(test)]
        (self.added.0 += n as u64);
    }

    /// Adds a watermark behind all batches that were added.
    ///
    /// # Safety
    /// The caller is the source, has added all that is in the outlet, and a batch since the last watermark.
    pub unsafe fn add_watermark(&mut self, outlet: &Outlet) {
        let (upto, started, last) = self.next;
        self.next.1 = u64::MAX;
        let batches = outlet.serial();
        let what = What::Watermark { batches, last };
        let tuple = Tuple { order: Order::behind(upto), source: self.number, started, what };
        let node = self.node(outlet);
        self.nodes.end(batches, upto);
        // SAFETY: no thread is at the node any more; see the module.
        unsafe { self.handles.add(node, tuple, LEVELS) };
        let clock = &self.gate.clocks[self.number];
        // ORDERING: Release, both; as above, and no handle of this source is before the watermark.
        clock.watermark.store(upto, Ordering::Release);
        clock.known.store(upto, Ordering::Release);
        #[cfg(test)]
        (self.added.1 += 1);
    }

    /// A node that no thread is at.
    #[inline]
    fn node(&mut self, outlet: &Outlet) -> *const Node {
        let Self { gate, number, source, nodes, .. } = self;
        nodes.next(|batches, upto| {
            let others = gate.clocks.iter().enumerate().filter(|&(other, _)| other != *number);
            // ORDERING: Acquire; the handles of that source have moved on.
            let is_behind = |clock: &Clock| upto < clock.watermark.load(Ordering::Acquire);
            // More than the watermark is acknowledged, so the next one is.
            batches < outlet.acknowledged(source.reader) && others.map(|(_, clock)| &**clock).all(is_behind)
        })
    }
}

/// Nodes; and once there is one, the number of batches and the event of the watermark that is not before any of them.
type Chunk = (Vec<Node>, Option<(u64, i64)>);

/// The nodes of a source, which are used in turn.
#[derive(Debug, Default)]
struct Nodes {
    /// The one at hand is the last.
    chunks: VecDeque<Chunk>,
    /// The number of used nodes of the last chunk.
    used: usize,
}

const CHUNK: usize = if cfg!(loom) { 2 } else { 32 };

impl Nodes {
    /// The next node. `is_free`: whether no thread is at the nodes up to a watermark.
    fn next(&mut self, is_free: impl FnOnce(u64, i64) -> bool) -> *const Node {
        if self.used == CHUNK || self.chunks.is_empty() {
            let ends = self.chunks.front().and_then(|(_, ends)| *ends);
            let chunk =
                if ends.is_some_and(|(batches, upto)| is_free(batches, upto)) { self.chunks.pop_front() } else { None };
            let nodes = match chunk {
                Some((nodes, _)) => nodes,
                None => (0..CHUNK).map(|_| Node::new(NOTHING)).collect(),
            };
            self.chunks.push_back((nodes, None));
            self.used = 0;
        }
        self.used += 1;
        &raw const self.chunks[self.chunks.len() - 1].0[self.used - 1]
    }

    /// The last node is that of a watermark.
    fn end(&mut self, batches: u64, upto: i64) {
        let open = self.chunks.iter_mut().rev().skip(usize::from(self.used < CHUNK));
        open.take_while(|(_, ends)| ends.is_none()).for_each(|(_, ends)| *ends = Some((batches, upto)));
    }
}

/// The reader's data about a source.
#[derive(Debug)]
struct Progress {
    outlet: usize,
    reader: usize,
    /// The number of rows taken since the last watermark.
    taken: usize,
    /// The number of batches up to the last passed watermark, if it is not acknowledged.
    passed: Option<u64>,
    /// Whether the source is done with this block.
    done: bool,
    /// The start of processing of the earliest event that has no rows here, so far.
    heard: u64,
}

/// The reader's end of a ScaleGate.
#[derive(Debug)]
pub struct Reader {
    gate: Arc<ScaleGate>,
    /// The last taken node.
    at: *const Node,
    sources: Vec<Progress>,
    /// The reader has taken all events up to this one.
    upto: i64,
    /// Whether the reader needs ranks, and hashes; whether sources belong to several streams.
    ranked: bool,
    hashed: bool,
    united: bool,
}

// SAFETY: as for `Feed`; `at` is the reader's own.
unsafe impl Send for Reader {}

/// Makes a ScaleGate of these sources. Returns the ends of the sources, and the reader's. `ranked`: the reader needs ranks.
pub fn scale_gate(sources: Vec<Source>, ranked: bool) -> (Vec<Feed>, Reader) {
    let clock = |_| Clock { known: AtomicI64::new(i64::MIN), watermark: AtomicI64::new(i64::MIN) };
    let clocks = sources.iter().map(clock).map(CachePadded::new).collect();
    let gate = Arc::new(ScaleGate { head: Node::new(NOTHING), clocks });
    let head: *const Node = &raw const gate.head;
    let progress = |source: &Source| {
        let Source { outlet, reader, .. } = *source;
        Progress { outlet, reader, taken: 0, passed: None, done: false, heard: u64::MAX }
    };
    let reader = Reader {
        gate: gate.clone(),
        at: head,
        sources: sources.iter().map(progress).collect(),
        upto: i64::MIN,
        ranked,
        hashed: sources.iter().any(|source| source.hashes.is_some()),
        united: sources.iter().any(|source| source.stream > 0),
    };
    let feed = |(number, source): (usize, Source)| Feed {
        gate: gate.clone(),
        number,
        source,
        handles: Handles::new(head, number as u64),
        nodes: Nodes::default(),
        next: (i64::MIN, u64::MAX, false),
        #[cfg(test)]
        added: (0, 0),
    };
    (sources.into_iter().enumerate().map(feed).collect(), reader)
}

impl Reader {
    /// The outlets of its sources.
    pub fn outlets(&self) -> Vec<usize> {
        self.sources.iter().map(|source| source.outlet).collect()
    }

    /// Resets the end for a new block.
    pub fn begin(&mut self) {
        self.sources.iter_mut().for_each(|source| source.done = false);
    }

    /// The least of what all sources' latest tuples say: rows that are not after it are ready.
    #[inline]
    fn ready(&self) -> i64 {
        // ORDERING: Acquire; the reader finds what the sources added before.
        let known = |clock: &CachePadded<Clock>| clock.known.load(Ordering::Acquire);
        self.gate.clocks.iter().map(known).min().unwrap_or(i64::MIN)
    }

    /// Whether there are ready rows that are not taken.
    pub fn has_news(&self) -> bool {
        self.ready() > self.upto
    }

    /// Takes ready rows, about as many as are worth a turn. Returns false if there are none. They are valid until `release`.
    ///
    /// # Safety
    /// The caller has released what it took before.
    pub unsafe fn take(&mut self, text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        taken.clear();
        taken.rows.text = text;
        let ready = self.ready();
        if ready <= self.upto {
            return Ok(false);
        }
        let mut seq = self.upto;
        self.upto = ready;
        loop {
            // SAFETY: the node lives until the reader moves on.
            let next = unsafe { (*self.at).next(0) };
            if next.is_null() {
                break;
            }
            // SAFETY: the node is linked; ready nodes are filled again only after their acknowledgement.
            let Tuple { order, source, started, what } = unsafe { (*next).tuple() };
            if order.seq > ready {
                break;
            }
            if taken.places.len() >= MOST && order.seq > seq {
                // This is another event, and events are taken whole.
                self.upto = order.seq - 1;
                break;
            }
            (seq, self.at) = (order.seq, next);
            let of = &mut self.sources[source];
            match what {
                What::Row { place, hash } => {
                    of.taken += 1;
                    let rank = if self.ranked { Some(order.rank_behind(self.united)?) } else { None };
                    taken.add(place, started, self.hashed.then_some(hash), rank);
                }
                What::Watermark { batches, last } => {
                    if of.taken == 0 {
                        of.heard = of.heard.min(started);
                    }
                    (of.taken, of.done, of.passed) = (0, last, Some(batches));
                }
            }
        }
        for source in &mut self.sources {
            taken.started = taken.started.min(std::mem::replace(&mut source.heard, u64::MAX));
        }
        taken.end(self.united);
        taken.upto = self.upto;
        taken.last = self.sources.iter().all(|source| source.done);
        Ok(true)
    }

    /// Acknowledges the passed watermarks, after the use of the taken rows.
    pub fn release(&mut self, outlets: &[Outlet]) {
        for source in &mut self.sources {
            if let Some(batches) = source.passed.take() {
                outlets[source.outlet].release_to(source.reader, batches);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
