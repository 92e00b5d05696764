//! ScaleGate: one ordered structure for a reader. All sources of the reader insert their rows, so they share the sorting. The
//! reader takes what is ready (Viper, section 3.3; STRETCH, sections 2.4 and 6; Gulisano et al., ScaleJoin, 2015).
//!
//! As published: the structure is a skip list in the order of rows, here (seq, stream, rank), whose nodes have random
//! heights. Each source inserts from its own handles, on its own thread, without a lock. A source adds rows in order, so its
//! handles only move forward. The reader goes along the lowest level as far as rows are *ready*. A row is ready if it is not
//! after the least of all sources' latest tuples (Viper, definition 1). A source announces its progress by a watermark tuple
//! after its rows. The reader acknowledges the watermark when it comes to it. A source with as many unacknowledged watermarks
//! as its outlet has slots waits (*flow control*; Viper, section 3.3).
//!
//! Our own: a source adds all rows of a jumbo tuple for the reader, and its watermark, at once. That watermark is its latest
//! tuple. With batches of one event, each tuple has a watermark; with larger batches, rows of a batch become ready together.
//! The published structure leaves passed nodes to a garbage collector; here their memory is used again. Nodes hold no rows.
//! Rows stay in the outlet's slot, and the acknowledgement releases the slot.
//!
//! *Memory.* A source has nodes for one jumbo tuple more than its outlet has slots. It fills the nodes of number j again for
//! number j + slots + 1, after the acknowledgement of j + 1. By then no thread is at a node of j, and none will be, because
//! these nodes come before the watermark of j + 1. The reader is at that watermark or past it. It came there because every
//! source has added its watermark of that event or a later one. A watermark has all levels, so all handles of its source are
//! then past the nodes of j. And a thread at a node only moves forward. A new node is linked past its source's handles. So
//! its neighbours are not filled again meanwhile, and comparing positions tells nodes apart.
//!
//! *No deadlock.* Take the tasks that still have rows to emit. Of these, take those with the least progress announced, and of
//! these the most upstream one. It does not wait for room: else some reader has not acknowledged its earliest watermark.
//! That reader waits for a source with less progress, or it waits for room and has less progress itself. Both contradict the
//! choice. It does not wait for input either, because all of its sources have more progress, and that is news.

use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::gate::key::{Order, SortKey};
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::rank::Rank;
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
    /// After all rows of a batch, and of all events up to its own. `last`: the source is done with the block.
    Watermark { last: bool },
}

/// The data that sources and reader share; see the module.
#[derive(Debug)]
struct ScaleGate {
    /// The head of the list, before all nodes.
    head: Node,
    /// Per source, the event of its latest watermark: all of its rows up to there are in the list. The source writes it.
    clocks: Box<[CachePadded<AtomicI64>]>,
}

/// A source's end of a ScaleGate.
#[derive(Debug)]
pub struct Feed {
    gate: Arc<ScaleGate>,
    /// The number of this source, and how to read its outlet.
    number: usize,
    source: Source,
    handles: Handles,
    /// The nodes of each jumbo tuple in turn.
    nodes: Box<[Vec<Node>]>,
    /// The number of jumbo tuples so far.
    added: usize,
}

// SAFETY: nodes are linked and read by the protocol above, on any thread of the source. The addresses in `handles` are those
// of nodes of the ScaleGate's sources, which are dropped together when no thread is at work.
unsafe impl Send for Feed {}

impl Feed {
    /// The number of its outlet.
    pub fn outlet(&self) -> usize {
        self.source.outlet
    }

    /// Adds the reader's rows of a jumbo tuple, and then a watermark.
    ///
    /// # Safety
    /// The caller is the source. The jumbo tuple was published last in the source's outlet, which had room for it.
    pub unsafe fn add(&mut self, jumbo: &Jumbo) {
        let clock = &self.gate.clocks[self.number];
        // ORDERING: Relaxed; only this source writes it.
        assert!(jumbo.upto > clock.load(Ordering::Relaxed), "the watermarks of a source must ascend");
        let n = self.source.rows_of(jumbo);
        let turn = self.added % self.nodes.len();
        let nodes = &mut self.nodes[turn];
        if nodes.len() <= n {
            *nodes = (0..(n + 1).next_power_of_two()).map(|_| Node::new(What::Watermark { last: false })).collect();
        }
        let (nodes, started) = (nodes.as_ptr(), jumbo.started);
        for i in 0..n {
            let (place, hash) = (self.source.place(jumbo, i), self.source.hash(jumbo, i));
            let what = What::Row { place, hash };
            let tuple = Tuple { order: self.source.key(jumbo, i), source: self.number, started, what };
            let height = self.handles.draw();
            // SAFETY: there is a node for each, and no thread is at it any more; see the module.
            unsafe { self.handles.add(nodes.add(i), tuple, height) };
        }
        let what = What::Watermark { last: jumbo.last };
        let tuple = Tuple { order: Order::behind(jumbo.upto), source: self.number, started, what };
        // SAFETY: as above.
        unsafe { self.handles.add(nodes.add(n), tuple, LEVELS) };
        self.added += 1;
        // ORDERING: Release; a reader that sees it finds all of this source's nodes up to there.
        clock.store(jumbo.upto, Ordering::Release);
    }
}

/// The reader's data about a source.
#[derive(Debug)]
struct Progress {
    outlet: usize,
    reader: usize,
    /// The number of rows taken from the jumbo tuple whose watermark comes next.
    taken: usize,
    /// The number of passed watermarks since the last acknowledgement.
    passed: usize,
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

/// Makes a ScaleGate of these sources, whose outlets have `slots` slots. Returns the ends of the sources, and the reader's.
/// `ranked`: the reader needs ranks.
pub fn scale_gate(sources: Vec<Source>, slots: usize, ranked: bool) -> (Vec<Feed>, Reader) {
    let clocks = sources.iter().map(|_| CachePadded::new(AtomicI64::new(i64::MIN))).collect();
    let gate = Arc::new(ScaleGate { head: Node::new(What::Watermark { last: false }), clocks });
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
    /// The outlets of its sources.
    pub fn outlets(&self) -> Vec<usize> {
        self.sources.iter().map(|source| source.outlet).collect()
    }

    /// Resets the end for a new block.
    pub fn begin(&mut self) {
        self.sources.iter_mut().for_each(|source| source.done = false);
    }

    /// The least of all sources' latest watermarks: rows that are not after it are ready.
    #[inline]
    fn ready(&self) -> i64 {
        // ORDERING: Acquire; the reader finds what the sources added before.
        let clock = |clock: &CachePadded<AtomicI64>| clock.load(Ordering::Acquire);
        self.gate.clocks.iter().map(clock).min().unwrap_or(i64::MIN)
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
            // Each row is the only one of its event.
            taken.ranks.clear();
        }
        for source in &mut self.sources {
            taken.started = taken.started.min(std::mem::replace(&mut source.heard, u64::MAX));
        }
        (taken.rows.places, taken.rows.n) = (taken.places.as_ptr(), taken.places.len());
        taken.upto = self.upto;
        taken.last = self.sources.iter().all(|source| source.done);
        Ok(true)
    }

    /// Acknowledges the passed watermarks, after the use of the taken rows.
    pub fn release(&mut self, outlets: &[Outlet]) {
        for source in &mut self.sources {
            (0..std::mem::take(&mut source.passed)).for_each(|_| outlets[source.outlet].release(source.reader));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
