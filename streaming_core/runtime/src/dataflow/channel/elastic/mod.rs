//! Elastic ScaleGate (ESG): one ordered structure, whose sources and readers come and go (STRETCH, section 6 and Table II).
//!
//! As published: all sources insert into one skip list (`skip_list.rs`), and each reader goes along its lowest level with a
//! handle of its own. A row is ready if it is not after the least of all sources' latest tuples. Six calls:
//!
//! | Table II | here | what it does |
//! |---|---|---|
//! | `addTuple` | `Feed::add` | inserts tuples, and then a watermark |
//! | `getNextReadyTuple` | `Reader::peek`, `Reader::advance` | the next ready tuple |
//! | `addReaders` | `Reader::add_readers` | new readers start with a copy of the caller's handle |
//! | `removeReaders` | `Reader::remove_readers` | readers end |
//! | `addSources` | `Feed::add_sources` | new sources copy the caller's handles, and begin with a *dummy* tuple |
//! | `removeSources` | `Feed::remove_sources` | a *flush* tuple ends a source and makes its tuples ready |
//!
//! Readers pass dummy and flush tuples without returning them. Of concurrent calls of one membership operation, one caller
//! wins. A test-and-set variable for each operation decides. A call returns true only if it has added or removed all
//! members that were left to add or remove. Only members may call. A member is one for a *term*. So a former member that comes
//! late changes nothing, even if others have added it again meanwhile.
//!
//! `vsn_esg` has such a gate in front of each windowed operator (ESG_in) and behind it (ESG_out; section 7, figure 5). The
//! sources of ESG_out are the replicas that own cells. So a reconfiguration adds and removes sources there
//! (`windowed/replica/barrier.rs`). Between two windowed operators, ESG_out of the first one is ESG_in of the second one.
//!
//! Our own: a new reader starts where the caller released last. It also gets the tuples that the caller has taken since. So
//! the row that triggers a reconfiguration reaches the joining readers, as theorem 3 wants it. A source adds a batch and its
//! watermark at once. The watermarks of a source ascend, but a batch without tuples may repeat the one before. Different
//! operations may run at the same time; a lock orders them.
//!
//! *Memory.* The published structure leaves passed nodes to a garbage collector; here their memory is used again. Each batch
//! of a source ends with a *mark*: a watermark, dummy or flush. Readers acknowledge the marks that they have passed, and a
//! source counts the acknowledgements of all present readers (`Feed::acknowledged`). A source with `slots` unacknowledged
//! marks waits (flow control). It fills the nodes of batch `b` again after the acknowledgement of `b + 1`, and after all
//! other sources have announced events behind `b`. Then no thread is at these nodes, and none comes there:
//!
//! * Each present reader is at the mark of `b + 1` or past it. A new reader starts at a node of a present reader.
//! * The last mark of each source is behind `b`, and has all levels. So its handles are past the nodes of `b`. A new source
//!   starts with the handles of another source.
//!
//! A source without flushes and dummies need not look at the clocks. With room for a batch, the mark of `b + 2` is
//! acknowledged too, and it is behind `b`.
//!
//! Writers: a source writes its line and its clock, and a reader its acknowledgements. While they are no members, the caller
//! that adds or removes them writes these, and it holds the lock. `term`, `busy` and the counts of changes belong to the
//! holders of the lock.

use crate::dataflow::channel::gate::key::{Order, SortKey};
use crate::dataflow::channel::skip_list::{self, LEVELS, Tuple};
use crate::threads::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, CachePadded, Mutex, Ordering, UnsafeCell, lock};

pub mod ends;

type Node = skip_list::Node<What>;
type Handles = skip_list::Handles<What>;

/// What the list holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The address of a row, the hash of its key, and the number of the reader whose row it is, where readers share the rows.
    Row { place: *const u8, hash: u64, reader: u32 },
    /// A control tuple (STRETCH, section 7): `epoch` begins with the next event.
    Control { epoch: usize },
    /// After all rows of a batch, and of all events up to its own. `last`: the source is done with the block.
    Watermark { last: bool },
    /// The first tuple of a source that was added.
    Dummy,
    /// The last tuple of a source that was removed.
    Flush,
}

/// The membership operations, which have a test-and-set variable each.
#[derive(Debug, Clone, Copy)]
enum Operation {
    AddReaders,
    RemoveReaders,
    AddSources,
    RemoveSources,
}

/// The clock of a source that is no member: it holds back nothing.
const ABSENT: i64 = i64::MAX;

/// See the module.
#[derive(Debug)]
struct ElasticScaleGate {
    /// The head of the list, before all nodes.
    head: Node,
    sources: Box<[CachePadded<SourceEntry>]>,
    readers: Box<[CachePadded<ReaderEntry>]>,
    /// The number of changes of the sources, and of the readers.
    changes_of_sources: AtomicU64,
    changes_of_readers: AtomicU64,
    /// By operation, whether a caller is at it.
    busy: [AtomicBool; 4],
    members: Mutex<()>,
    slots: u64,
}

#[derive(Debug)]
struct SourceEntry {
    /// The event of its latest watermark. `ABSENT`: it is no source.
    clock: AtomicI64,
    /// Odd while it is a source. Each change counts.
    term: AtomicU64,
    line: UnsafeCell<Line>,
}

/// What a source needs to insert.
#[derive(Debug)]
struct Line {
    handles: Handles,
    /// The nodes of each batch in turn.
    nodes: Box<[Vec<Node>]>,
    marks: Marks,
}

/// The marks of a source.
#[derive(Debug, Clone)]
struct Marks {
    /// The number of marks so far.
    added: u64,
    /// The events of the last ones, in turn.
    events: Box<[i64]>,
}

impl Marks {
    fn note(&mut self, upto: i64) {
        self.events[(self.added % self.events.len() as u64) as usize] = upto;
        self.added += 1;
    }

    /// The event of the last one.
    fn last(&self) -> i64 {
        let turns = self.events.len() as u64;
        self.events[((self.added + turns - 1) % turns) as usize]
    }
}

#[derive(Debug)]
struct ReaderEntry {
    /// Odd while it is a reader. Each change counts.
    term: AtomicU64,
    /// Per source, the number of marks that it has passed and released.
    released: Box<[AtomicU64]>,
    /// Where it starts.
    start: UnsafeCell<Position>,
}

/// A reader's handle.
#[derive(Debug, Clone)]
struct Position {
    /// The last node that it has passed.
    at: *const Node,
    /// Per source, the number of passed marks.
    passed: Vec<u64>,
    /// Whether each source is done with the block, as all are that are absent.
    done: Vec<bool>,
    is_absent: Vec<bool>,
    /// The latest control tuple that it has passed: its event and epoch.
    control: Option<(i64, usize)>,
    /// Whether that one has not triggered yet.
    is_pending: bool,
    /// All tuples of events up to this one are passed.
    upto: i64,
}

// SAFETY: lines and positions are written and read by the protocol above. Addresses in them are those of the list's nodes,
// which are dropped together, and of rows that are read only while they are in use.
unsafe impl Sync for ElasticScaleGate {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for ElasticScaleGate {}

/// A source's end.
#[derive(Debug)]
pub struct Feed {
    gate: Arc<ElasticScaleGate>,
    number: usize,
    /// The term in which it is a source; even: it is none.
    term: u64,
    /// Its marks. While it waits at a barrier, others may write those in its line.
    marks: Marks,
}

/// A reader's end.
#[derive(Debug)]
pub struct Reader {
    gate: Arc<ElasticScaleGate>,
    number: usize,
    /// The term in which it is a reader; even: it is none.
    term: u64,
    /// Where it released last, and where it is now.
    start: Position,
    now: Position,
}

// SAFETY: as for the gate; a position is its reader's own.
unsafe impl Send for Reader {}

/// Makes an elastic ScaleGate for up to as many sources and readers as the lists have entries: whether each is a member from
/// the beginning. At least one reader must be. A source waits when `slots` of its watermarks are not acknowledged.
pub fn elastic_scale_gate(sources: &[bool], readers: &[bool], slots: usize) -> (Vec<Feed>, Vec<Reader>) {
    let mark = What::Watermark { last: false };
    // Of `slots` batches, the one at hand, and the flush and dummy of a source that comes back. It seldom waits for nodes then.
    let turns = slots + 4;
    let marks = || Marks { added: 0, events: vec![i64::MIN; turns].into() };
    let source = |(number, &is_source): (usize, &bool)| SourceEntry {
        clock: AtomicI64::new(if is_source { i64::MIN } else { ABSENT }),
        term: AtomicU64::new(u64::from(is_source)),
        line: UnsafeCell::new(Line {
            handles: Handles::new(std::ptr::null(), number as u64),
            nodes: (0..turns).map(|_| Vec::new()).collect(),
            marks: marks(),
        }),
    };
    let position = |at| Position {
        at,
        passed: vec![0; sources.len()],
        done: sources.iter().map(|is_source| !is_source).collect(),
        is_absent: sources.iter().map(|is_source| !is_source).collect(),
        control: None,
        is_pending: false,
        upto: i64::MIN,
    };
    let reader = |&is_reader: &bool| ReaderEntry {
        term: AtomicU64::new(u64::from(is_reader)),
        released: sources.iter().map(|_| AtomicU64::new(0)).collect(),
        start: UnsafeCell::new(position(std::ptr::null())),
    };
    let gate = Arc::new(ElasticScaleGate {
        head: Node::new(mark),
        sources: sources.iter().enumerate().map(source).map(CachePadded::new).collect(),
        readers: readers.iter().map(reader).map(CachePadded::new).collect(),
        changes_of_sources: AtomicU64::new(0),
        changes_of_readers: AtomicU64::new(0),
        busy: std::array::from_fn(|_| AtomicBool::new(false)),
        members: Mutex::new(()),
        slots: slots as u64,
    });
    let head: *const Node = &raw const gate.head;
    for (number, entry) in gate.sources.iter().enumerate() {
        // SAFETY: no other thread knows it yet.
        entry.line.with_mut(|line| unsafe { (*line).handles = Handles::new(head, number as u64) });
    }
    let feed = |(number, &is_source): (usize, &bool)| Feed {
        gate: gate.clone(),
        number,
        term: u64::from(is_source),
        marks: marks(),
    };
    let feeds = sources.iter().enumerate().map(feed).collect();
    let end = |(number, &is_reader): (usize, &bool)| Reader {
        gate: gate.clone(),
        number,
        term: u64::from(is_reader),
        start: position(head),
        now: position(head),
    };
    let readers = readers.iter().enumerate().map(end).collect();
    (feeds, readers)
}

impl ElasticScaleGate {
    /// The least of all sources' latest watermarks, or of all but one. Tuples that are not after that of all are ready.
    fn least_clock(&self, except: Option<usize>) -> i64 {
        loop {
            // ORDERING: Acquire, as the clocks. A source adds another one, and then a watermark. A thread that sees this
            // watermark also sees the change. So it does not take the new source for absent.
            let before = self.changes_of_sources.load(Ordering::Acquire);
            // ORDERING: Acquire; the thread finds what the sources added before.
            let clock = |source: &CachePadded<SourceEntry>| source.clock.load(Ordering::Acquire);
            let others = self.sources.iter().enumerate().filter(|(number, _)| Some(*number) != except);
            let least = others.map(|(_, source)| clock(source)).min().unwrap_or(ABSENT);
            // ORDERING: Relaxed; the clocks have acquired it.
            if self.changes_of_sources.load(Ordering::Relaxed) == before {
                return least;
            }
        }
    }

    /// The number of marks of a source that all readers have passed and released; `added`, if there are no readers.
    fn acknowledged(&self, source: usize, added: u64) -> u64 {
        loop {
            // ORDERING: Acquire, as the acknowledgements. A reader adds another one, and then releases more. A source that sees
            // this release also sees the change. So it does not take the new reader for absent.
            let before = self.changes_of_readers.load(Ordering::Acquire);
            let released = |reader: &CachePadded<ReaderEntry>| {
                // ORDERING: Acquire, both; the first for what its adder wrote, the second because the reader is done with the
                // nodes and rows before the mark.
                let is_present = is_member(reader.term.load(Ordering::Acquire));
                is_present.then(|| reader.released[source].load(Ordering::Acquire))
            };
            let least = self.readers.iter().filter_map(released).min().unwrap_or(added);
            // ORDERING: Relaxed; the acknowledgements have acquired it.
            if self.changes_of_readers.load(Ordering::Relaxed) == before {
                return least;
            }
        }
    }

    /// Whether the nodes for the next batch of a source are free; see the module.
    fn has_nodes(&self, source: usize, marks: &Marks) -> bool {
        let turns = marks.events.len() as u64;
        let Some(former) = marks.added.checked_sub(turns) else { return true };
        let upto = marks.events[(marks.added % turns) as usize];
        self.acknowledged(source, marks.added) >= former + 2 && upto < self.least_clock(Some(source))
    }

    /// Adds a batch to the line of a source, which ends with `mark` at `upto`.
    ///
    /// # Safety
    /// No other thread is at the line, and it has nodes.
    unsafe fn insert(
        line: &mut Line,
        source: usize,
        started: u64,
        tuples: &[(Order, What)],
        (mark, upto): (What, i64),
    ) {
        let turn = (line.marks.added % line.nodes.len() as u64) as usize;
        let nodes = &mut line.nodes[turn];
        if nodes.len() <= tuples.len() {
            *nodes = (0..(tuples.len() + 1).next_power_of_two()).map(|_| Node::new(mark)).collect();
        }
        for (node, &(order, what)) in nodes.iter().zip(tuples) {
            let height = line.handles.draw();
            // SAFETY: as the caller says, no thread is at the nodes any more.
            unsafe { line.handles.add(node, Tuple { order, source, started, what }, height) };
        }
        let tuple = Tuple { order: Order::behind(upto), source, started, what: mark };
        // SAFETY: as above; there is one node more than tuples.
        unsafe { line.handles.add(&raw const nodes[tuples.len()], tuple, LEVELS) };
        line.marks.note(upto);
    }

    /// Does a membership operation unless another caller is at it. Returns whether `work` has changed something.
    fn change(&self, operation: Operation, work: impl FnOnce() -> bool) -> bool {
        let busy = &self.busy[operation as usize];
        // ORDERING: Acquire takes over from the caller before; the lock orders the operations among each other.
        if busy.swap(true, Ordering::Acquire) {
            return false;
        }
        let has_changed = {
            let _held = lock(&self.members);
            work()
        };
        // ORDERING: Release, for the next caller.
        busy.store(false, Ordering::Release);
        has_changed
    }

    /// The term of a source.
    fn source_term(&self, source: usize) -> u64 {
        // ORDERING: Acquire; a source that was added finds its line.
        self.sources[source].term.load(Ordering::Acquire)
    }

    /// The term of a reader.
    fn term(&self, reader: usize) -> u64 {
        // ORDERING: Acquire; a reader that was added finds its start. A thread that sees a member gone sees what it did.
        self.readers[reader].term.load(Ordering::Acquire)
    }
}

/// Whether a source or reader is a member in a term.
fn is_member(term: u64) -> bool {
    term % 2 == 1
}

impl Feed {
    /// Whether it is a source, and in the term that it knows of.
    pub fn is_present(&self) -> bool {
        is_member(self.term) && self.gate.source_term(self.number) == self.term
    }

    /// Whether number `source` is a source now.
    pub fn has(&self, source: usize) -> bool {
        is_member(self.gate.source_term(source))
    }

    /// Learns of the new term if it was added. Returns the event of the dummy then: its tuples are of later events.
    pub fn join(&mut self) -> Option<i64> {
        let term = self.gate.source_term(self.number);
        if !is_member(term) || term == self.term {
            return None;
        }
        // Nothing removes it before it has joined and left.
        self.term = term;
        // SAFETY: the adder has written it, and no thread writes it before this source is removed.
        self.gate.sources[self.number].line.with(|line| unsafe { self.marks.clone_from(&(*line).marks) });
        Some(self.marks.last())
    }

    /// The number of marks, as far as it knows.
    pub fn added(&self) -> u64 {
        self.marks.added
    }

    /// The number of its watermarks, dummies and flushes that all readers have passed and released.
    pub fn acknowledged(&self) -> u64 {
        self.gate.acknowledged(self.number, self.marks.added)
    }

    /// Whether it may add a batch. Once it may, it may until it does.
    pub fn has_room(&self) -> bool {
        self.marks.added.saturating_sub(self.acknowledged()) < self.gate.slots
            && self.gate.has_nodes(self.number, &self.marks)
    }

    /// The number of times that sources were added or removed.
    #[cfg(all(test, not(shuttle)))]
    pub fn changes(&self) -> u64 {
        // ORDERING: Relaxed; no other thread is at work.
        self.gate.changes_of_sources.load(Ordering::Relaxed)
    }

    /// Adds tuples of events up to `upto`, in their order, and then a watermark.
    ///
    /// # Safety
    /// It is a source and has room. No tuple is of an event that it has announced. The rows are readable until the
    /// watermark is acknowledged.
    pub unsafe fn add(&mut self, tuples: &[(Order, What)], upto: i64, started: u64, last: bool) {
        let entry = &self.gate.sources[self.number];
        // ORDERING: Relaxed; only this source writes it.
        let clock = entry.clock.load(Ordering::Relaxed);
        assert!(upto > clock || (upto == clock && tuples.is_empty()), "the watermarks of a source must ascend");
        let mark = (What::Watermark { last }, upto);
        entry.line.with_mut(|line| {
            // SAFETY: as the caller says; a source alone is at its line.
            unsafe { ElasticScaleGate::insert(&mut *line, self.number, started, tuples, mark) }
        });
        self.marks.note(upto);
        // ORDERING: Release; a reader that sees it finds all of this source's nodes up to there.
        entry.clock.store(upto, Ordering::Release);
    }

    /// Makes sources of those of `numbers` that are none. They may add tuples of events that neither the caller nor they
    /// themselves have announced (lemma 3). Returns whether the call has added some, and all that were missing. It has not if
    /// another caller has won, if the caller is no source, or if the nodes of a source are still in use.
    pub fn add_sources(&self, numbers: &[usize]) -> bool {
        let (gate, own) = (&*self.gate, self.number);
        gate.change(Operation::AddSources, || {
            let missing = || numbers.iter().copied().filter(|&number| !self.has(number));
            let has_nodes = |number: usize| {
                // SAFETY: the line is of an absent source, and the caller holds the lock.
                gate.sources[number].line.with(|line| unsafe { gate.has_nodes(number, &(*line).marks) })
            };
            if !self.is_present() || missing().next().is_none() || !missing().all(has_nodes) {
                return false;
            }
            // ORDERING: Relaxed; only this source writes it.
            let clock = gate.sources[own].clock.load(Ordering::Relaxed);
            for number in missing() {
                let entry = &gate.sources[number];
                let upto = entry.line.with_mut(|line| {
                    // SAFETY: as above. The caller alone is at its own line.
                    gate.sources[own].line.with(|own| unsafe { (*line).handles.copy_from(&(*own).handles) });
                    // SAFETY: as above.
                    unsafe {
                        // The marks of a source ascend, also if it was a source before.
                        let upto = clock.max((*line).marks.last());
                        ElasticScaleGate::insert(&mut *line, number, u64::MAX, &[], (What::Dummy, upto));
                        upto
                    }
                });
                // ORDERING: Release, both; readers find the dummy, and the new source finds its line.
                entry.clock.store(upto, Ordering::Release);
                entry.term.fetch_add(1, Ordering::Release);
            }
            // ORDERING: Release, after the clocks and before the caller's next watermark; see `least_clock`.
            gate.changes_of_sources.fetch_add(1, Ordering::Release);
            true
        })
    }

    /// Ends those of `numbers` that are sources. What they have added becomes ready. Returns whether the call has removed
    /// some, and all that were left. It has not if another caller has won, if the caller is no source, or if the nodes
    /// of a source are still in use.
    ///
    /// # Safety
    /// These sources are in no call, and their calls so far happened before this one.
    pub unsafe fn remove_sources(&self, numbers: &[usize]) -> bool {
        let gate = &*self.gate;
        gate.change(Operation::RemoveSources, || {
            let present = || numbers.iter().copied().filter(|&number| self.has(number));
            let has_nodes = |number: usize| {
                // SAFETY: the source is in no call, as the caller says, and the caller holds the lock.
                gate.sources[number].line.with(|line| unsafe { gate.has_nodes(number, &(*line).marks) })
            };
            if !self.is_present() || present().next().is_none() || !present().all(has_nodes) {
                return false;
            }
            for number in present() {
                let entry = &gate.sources[number];
                // ORDERING: Relaxed; the source's calls happened before.
                let upto = entry.clock.load(Ordering::Relaxed);
                // SAFETY: as above.
                entry.line.with_mut(|line| unsafe {
                    ElasticScaleGate::insert(&mut *line, number, u64::MAX, &[], (What::Flush, upto));
                });
                // ORDERING: Release, both; readers find all nodes of the source, and its next adder finds its line.
                entry.clock.store(ABSENT, Ordering::Release);
                entry.term.fetch_add(1, Ordering::Release);
            }
            // ORDERING: Release, as for `add_sources`.
            gate.changes_of_sources.fetch_add(1, Ordering::Release);
            true
        })
    }
}

impl Reader {
    /// Whether it is a reader, and in the term that it knows of.
    pub fn is_present(&self) -> bool {
        is_member(self.term) && self.gate.term(self.number) == self.term
    }

    /// Whether it was added, and has not joined.
    pub fn is_invited(&self) -> bool {
        let term = self.gate.term(self.number);
        is_member(term) && term != self.term
    }

    /// Whether number `reader` is a reader now.
    pub fn has(&self, reader: usize) -> bool {
        is_member(self.gate.term(reader))
    }

    /// Goes to its start if it was added. Returns whether it was.
    pub fn join(&mut self) -> bool {
        if !self.is_invited() {
            return false;
        }
        // Nothing removes it before it has joined and left.
        self.term = self.gate.term(self.number);
        // SAFETY: the adder has written it, and no thread writes it before this reader is removed.
        self.gate.readers[self.number].start.with(|start| unsafe { self.start.clone_from(&*start) });
        self.now.clone_from(&self.start);
        true
    }

    /// A block begins.
    pub fn begin(&mut self) {
        for position in [&mut self.start, &mut self.now] {
            position.done.clone_from(&position.is_absent);
        }
    }

    /// The event up to which tuples are ready.
    pub fn ready(&self) -> i64 {
        self.gate.least_clock(None)
    }

    /// The next tuple, if it is of an event up to `ready`. Dummies and flushes are passed.
    ///
    /// # Safety
    /// It is present, and `ready` is a result of `ready`.
    pub unsafe fn peek(&mut self, ready: i64) -> Option<Tuple<What>> {
        loop {
            // SAFETY: the node lives until this reader has released what is behind it.
            let next = unsafe { (*self.now.at).next(0) };
            if next.is_null() {
                return None;
            }
            // SAFETY: the node is linked, and is not filled again before its mark is released.
            let tuple = unsafe { (*next).tuple() };
            if tuple.order.seq > ready {
                return None;
            }
            match tuple.what {
                What::Dummy | What::Flush => {
                    let is_absent = tuple.what == What::Flush;
                    self.now.passed[tuple.source] += 1;
                    (self.now.is_absent[tuple.source], self.now.done[tuple.source]) = (is_absent, is_absent);
                    self.now.at = next;
                }
                _ => return Some(tuple),
            }
        }
    }

    /// Whether `peek` would find a tuple, or a dummy or flush.
    ///
    /// # Safety
    /// As for `peek`.
    pub unsafe fn has_next(&self, ready: i64) -> bool {
        // SAFETY: as for `peek`.
        unsafe {
            let next = (*self.now.at).next(0);
            !next.is_null() && (*next).tuple().order.seq <= ready
        }
    }

    /// Passes the tuple that `peek` has returned.
    ///
    /// # Safety
    /// `peek` has returned it since the last call.
    pub unsafe fn advance(&mut self, tuple: &Tuple<What>) {
        // SAFETY: as for `peek`; there is a next one, and only this reader moves on.
        self.now.at = unsafe { (*self.now.at).next(0) };
        if let What::Watermark { last } = tuple.what {
            self.now.passed[tuple.source] += 1;
            self.now.done[tuple.source] = last;
        }
    }

    /// Acknowledges the passed marks, after the use of what was taken. Nothing happens if it is not present.
    pub fn release(&mut self) {
        if !self.is_present() {
            return;
        }
        for (released, &passed) in self.gate.readers[self.number].released.iter().zip(&self.now.passed) {
            // ORDERING: Release; this reader is done with what is before.
            released.store(passed, Ordering::Release);
        }
        self.start.clone_from(&self.now);
    }

    /// Makes readers of those of `numbers` that are none. They start where the caller released last. Returns whether the call
    /// has added some, and all that were missing. It has not if another caller has won, or if the caller is not present.
    pub fn add_readers(&self, numbers: &[usize]) -> bool {
        let gate = &*self.gate;
        gate.change(Operation::AddReaders, || {
            let missing = || numbers.iter().copied().filter(|&number| !self.has(number));
            if !self.is_present() || missing().next().is_none() {
                return false;
            }
            for number in missing() {
                let entry = &gate.readers[number];
                // SAFETY: its reader is absent, and the caller holds the lock.
                entry.start.with_mut(|start| unsafe { (*start).clone_from(&self.start) });
                for (released, &passed) in entry.released.iter().zip(&self.start.passed) {
                    // ORDERING: Relaxed; `term` publishes it.
                    released.store(passed, Ordering::Relaxed);
                }
                // ORDERING: Release, for the start and the acknowledgements.
                entry.term.fetch_add(1, Ordering::Release);
            }
            // ORDERING: Release, after the terms and before the caller's next release; see `acknowledged`.
            gate.changes_of_readers.fetch_add(1, Ordering::Release);
            true
        })
    }

    /// Ends those of `numbers` that are readers. Returns whether the call has removed some, and all that were left. It has
    /// not if another caller has won, or if the caller is not present.
    ///
    /// # Safety
    /// These readers are in no call that reads, and their calls so far happened before this one.
    pub unsafe fn remove_readers(&self, numbers: &[usize]) -> bool {
        let gate = &*self.gate;
        gate.change(Operation::RemoveReaders, || {
            let present = || numbers.iter().copied().filter(|&number| self.has(number));
            if !self.is_present() || present().next().is_none() {
                return false;
            }
            for number in present() {
                // ORDERING: Release; sources that miss it use the nodes that it was at.
                gate.readers[number].term.fetch_add(1, Ordering::Release);
            }
            // ORDERING: Release, as for `add_readers`.
            gate.changes_of_readers.fetch_add(1, Ordering::Release);
            true
        })
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
