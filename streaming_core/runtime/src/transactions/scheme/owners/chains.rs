//! Operation chains that wait: per row, the accesses that stand behind one whose event is not decided yet.

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::{Access, ApplyContext, kind};
use crate::threads::sync::{Arc, UnsafeCell};
use crate::transactions::scheme::assignment::Assignment;

/// Rows per unit of ownership: neighbours on one cache line are in one share, or threads would steal it from each other.
pub(super) const UNIT: u32 = 16;
/// Accesses between two looks at the blocked rows.
const LOOK: usize = 64;
/// Accesses scanned ahead for blocked rows before a kernel call.
const RUN: usize = 64;

/// What an owner remembers of a row during a batch.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    /// Number of the row's chain + 1; 0: not blocked.
    chain: u32,
    /// The last batch that writes the row.
    written: u32,
}

/// Marks of all rows of all tables. The thread with a row's share uses its entry.
pub(super) struct Marks {
    marks: Box<[UnsafeCell<Mark>]>,
    /// Number of the first row of each table.
    starts: Vec<usize>,
}

// SAFETY: only the thread with a row's share uses its entry, and shares change hands at barriers.
unsafe impl Sync for Marks {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Marks {}

impl Marks {
    pub fn new(program: &Program) -> Self {
        let mut starts = Vec::new();
        let mut rows = 0;
        for table in &program.tables {
            starts.push(rows);
            // Tables begin at a unit, for the same reason that rows are owned by units.
            rows += table.rows.next_multiple_of(UNIT as usize);
        }
        Self { marks: (0..rows).map(|_| UnsafeCell::new(Mark::default())).collect(), starts }
    }
}

/// An access that waits, and the next one of its row.
#[derive(Debug, Clone, Copy)]
struct Node {
    access: Access,
    next: u32,
}

const END: u32 = u32::MAX;

/// A blocked row: its accesses that wait, in event order. The first waits for its event's decision.
#[derive(Debug, Clone, Copy)]
struct RowChain {
    head: u32,
    tail: u32,
    row: usize,
}

/// The blocked rows of one thread.
pub(super) struct Chains {
    /// `Marks`, of which this thread uses those of its shares' rows. No row is blocked when `chains` is empty.
    marks: Arc<Marks>,
    nodes: Vec<Node>,
    chains: Vec<RowChain>,
    /// Accesses for one kernel call: conditions evaluated ahead, then those that have become ready.
    ready: Vec<Access>,
}

impl Chains {
    pub fn new(marks: Arc<Marks>) -> Self {
        Self { marks, nodes: Vec::new(), chains: Vec::new(), ready: Vec::new() }
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    #[inline(always)]
    fn row(&self, access: &Access) -> usize {
        self.marks.starts[usize::from(access.table)] + access.row as usize
    }

    /// Hands out a row's mark, which only this thread uses: the row is in one of its shares.
    #[inline(always)]
    fn mark<R>(&self, row: usize, work: impl FnOnce(&mut Mark) -> R) -> R {
        debug_assert!(row < self.marks.marks.len());
        // SAFETY: the row's entry is this thread's; the plan kernel has checked that the row lies inside of its table.
        unsafe { self.marks.marks.get_unchecked(row).with_mut(|mark| work(&mut *mark)) }
    }

    #[inline(always)]
    fn number(&self, row: usize) -> u32 {
        self.mark(row, |mark| mark.chain)
    }

    #[inline(always)]
    fn set_number(&self, row: usize, number: u32) {
        self.mark(row, |mark| mark.chain = number);
    }

    /// Before the accesses of a share are sorted.
    pub fn begin(&mut self, later: &mut Vec<Access>) {
        self.ready.clear();
        later.clear();
    }

    /// Keeps, of what a thread has planned for a share, the conditions and captures on rows that the batch has not written
    /// before, to be applied ahead; everything else goes into `later`.
    pub fn sort(&mut self, task: Assignment, accesses: &[Access], later: &mut Vec<Access>) {
        // Numbers come round again after 2^32 batches; a mark that old would merely keep a condition in its place.
        let written = (task.number as u32).wrapping_add(1).max(1);
        // What the loop uses is held apart from what it writes, or all of it would be loaded anew for each access.
        let Marks { marks, starts } = &*self.marks;
        let (cells, starts) = (&marks[..], &starts[..]);
        self.ready.reserve(accesses.len());
        later.reserve(accesses.len());
        let (mut ahead, mut behind) = (self.ready.len(), later.len());
        let (to_ready, to_later) = (self.ready.as_mut_ptr(), later.as_mut_ptr());
        for access in accesses {
            let row = starts[usize::from(access.table)] + access.row as usize;
            debug_assert!(row < cells.len());
            // SAFETY: the row's entry is this thread's, and the plan kernel has checked that the row lies inside of its table.
            // Both have room for all accesses; what is written but not counted is overwritten.
            unsafe {
                cells.get_unchecked(row).with_mut(|mark| {
                    if !access.waits() && (*mark).written != written {
                        to_ready.add(ahead).write(*access);
                        ahead += 1;
                    } else {
                        to_later.add(behind).write(*access);
                        behind += 1;
                        if access.kind == kind::MODIFY {
                            (*mark).written = written;
                        }
                    }
                });
            }
        }
        // SAFETY: that many were written.
        unsafe {
            self.ready.set_len(ahead);
            later.set_len(behind);
        }
    }

    /// Applies what was kept.
    pub fn ahead(&mut self, task: Assignment, context: &mut ApplyContext) -> Result<(), RunError> {
        // Each thread begins elsewhere, so that threads do not write the same events' decisions at once.
        let (second, first) = self.ready.split_at(self.ready.len() * task.thread / task.threads);
        for part in [first, second] {
            // SAFETY: these rows are this thread's, and nothing in the batch writes them before.
            let done = unsafe { task.run.transaction.apply(task.batch, context, part.as_ptr(), part.len())? };
            if done != part.len() {
                return Err(RunError::Engine("a condition was not ready when its event was due".into()));
            }
        }
        Ok(())
    }

    /// Applies accesses of the thread's rows in their order, as far as they need not wait; the rest forms chains.
    pub fn apply(&mut self, task: Assignment, context: &mut ApplyContext, accesses: &[Access]) -> Result<(), RunError> {
        let (mut at, mut since_look) = (0, 0);
        while at < accesses.len() {
            let end = if self.is_empty() {
                accesses.len()
            } else {
                if self.follow(&accesses[at]) {
                    at += 1;
                    continue;
                }
                let limit = accesses.len().min(at + RUN);
                (at + 1..limit).find(|&next| self.is_blocked(&accesses[next])).unwrap_or(limit)
            };
            // SAFETY: these rows are this thread's, and no earlier access of them is put aside.
            let done = unsafe { task.run.transaction.apply(task.batch, context, accesses.as_ptr().add(at), end - at)? };
            at += done;
            since_look += done;
            if at < end {
                self.block(&accesses[at]);
                at += 1;
            }
            if since_look >= LOOK && !self.is_empty() {
                since_look = 0;
                self.look(task, context)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn is_blocked(&self, access: &Access) -> bool {
        self.number(self.row(access)) != 0
    }

    /// Puts the access behind its row's chain, if the row is blocked.
    #[inline(always)]
    fn follow(&mut self, access: &Access) -> bool {
        let number = self.number(self.row(access));
        if number == 0 {
            return false;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { access: *access, next: END });
        let chain = &mut self.chains[number as usize - 1];
        self.nodes[chain.tail as usize].next = node;
        chain.tail = node;
        true
    }

    /// Blocks the access's row, which is not blocked yet.
    fn block(&mut self, access: &Access) {
        let row = self.row(access);
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { access: *access, next: END });
        self.chains.push(RowChain { head: node, tail: node, row });
        self.set_number(row, self.chains.len() as u32);
    }

    /// Applies what has become ready. Returns whether anything had.
    pub fn look(&mut self, task: Assignment, context: &mut ApplyContext) -> Result<bool, RunError> {
        self.ready.clear();
        let mut index = 0;
        while index < self.chains.len() {
            let RowChain { mut head, row, .. } = self.chains[index];
            while head != END {
                let node = self.nodes[head as usize];
                if node.access.waits() && !task.outcome.is_decided(node.access.event) {
                    break;
                }
                self.ready.push(node.access);
                head = node.next;
            }
            if head != END {
                self.chains[index].head = head;
                index += 1;
                continue;
            }
            self.set_number(row, 0);
            self.chains.swap_remove(index);
            if let Some(moved) = self.chains.get(index) {
                let moved = moved.row;
                self.set_number(moved, index as u32 + 1);
            }
        }
        if self.chains.is_empty() {
            self.nodes.clear();
        }
        if self.ready.is_empty() {
            return Ok(false);
        }
        // SAFETY: the rows are this thread's, and what stood before these accesses was applied.
        let done = unsafe { task.run.transaction.apply(task.batch, context, self.ready.as_ptr(), self.ready.len())? };
        if done != self.ready.len() {
            return Err(RunError::Engine("an event lost its decision".into()));
        }
        Ok(true)
    }
}
