//! Operation chains (TStream, section IV-C1): the operations of each row in an interval, in event order.
//!
//! A thread that decomposes a transaction inserts its operations at once, while the interval is open. All threads insert into
//! all chains. A directory finds the chain of a row. The first operation on a row makes its chain, and adds it to the pool of
//! the row's partition (section IV-E). So when the threads meet at the end of compute mode, all chains are there.
//!
//! A chain is *plain* if no event depends on its row and its operations depend on nothing but the operations before them. The
//! thread that inserts another entry marks the chain (section IV-C2). Only marked chains keep track of a walk.

use std::ptr::{null, null_mut};

use crate::state::index;
use crate::threads::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crate::transactions::scheme::tstream::layout::{Layout, RowName};
use crate::transactions::scheme::tstream::skip_list::{Node, SkipList};

/// Per row, its chain; null if it has none. The thread that first inserts sets the entry. The thread that ends the chain's
/// walk clears it.
pub(super) struct Directory(Box<[AtomicPtr<Chain>]>);

impl Directory {
    pub fn new(layout: &Layout) -> Self {
        Self((0..layout.rows).map(|_| AtomicPtr::new(null_mut())).collect())
    }

    /// The entry of a row, for insertion.
    #[inline(always)]
    pub fn entry(&self, layout: &Layout, name: RowName) -> &AtomicPtr<Chain> {
        &self.0[layout.number(name)]
    }

    /// Fetches the entry of a row that an operation is inserted for soon.
    #[inline(always)]
    pub fn prefetch(&self, layout: &Layout, name: RowName) {
        index::prefetch_to_write(self.entry(layout, name));
    }

    /// Ends the chain of a row. No thread inserts, and only the caller walks the chain.
    #[inline(always)]
    pub fn clear(&self, layout: &Layout, name: RowName) {
        // ORDERING: Relaxed; the barrier at the end of the round publishes it.
        self.0[layout.number(name)].store(null_mut(), Ordering::Relaxed);
    }

    /// The chain of a row.
    #[cfg(all(test, not(loom)))]
    pub fn chain(&self, layout: &Layout, name: RowName) -> *const Chain {
        // ORDERING: Acquire takes over the chain.
        self.0[layout.number(name)].load(Ordering::Acquire)
    }
}

/// The row of a chain, and its partition.
#[derive(Clone, Copy, Default)]
pub(super) struct Target {
    pub name: RowName,
    pub partition: u32,
}

/// The operations on a row in an interval.
#[repr(align(64))]
pub(super) struct Chain {
    /// Written by the thread that makes the chain, before the directory has it.
    target: UnsafeCell<Target>,
    pub operations: SkipList,
    marks: AtomicU32,
    /// The last node that was evaluated. For the thread that walks the chain in a round; barriers separate rounds.
    last: UnsafeCell<*const Node>,
    /// For even and odd rounds: one more than the event at which the walk of a round stopped. The upper bits hold the number
    /// of that round. The thread that walks the chain writes it.
    passed: [AtomicU64; 2],
}

// SAFETY: cells are used as their comments say, and nodes are shared.
unsafe impl Sync for Chain {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Chain {}

impl Default for Chain {
    fn default() -> Self {
        Self {
            target: UnsafeCell::default(),
            operations: SkipList::default(),
            marks: AtomicU32::new(0),
            last: UnsafeCell::new(null()),
            passed: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }
}

impl Chain {
    /// Makes it the chain of a row with this node only.
    ///
    /// # Safety
    /// Only the caller knows the chain and the node, which is filled.
    #[inline(always)]
    pub unsafe fn start(&self, target: Target, node: *const Node, marks: u32) {
        // SAFETY: as the caller says.
        unsafe {
            self.target.with_mut(|to| *to = target);
            self.operations.start(node);
            self.last.with_mut(|last| *last = null());
        }
        // ORDERING: Relaxed; published with the chain.
        self.marks.store(marks, Ordering::Relaxed);
        for passed in &self.passed {
            // ORDERING: Relaxed; as above.
            passed.store(0, Ordering::Relaxed);
        }
    }

    /// Adds marks, and returns those that are new.
    #[inline(always)]
    pub fn mark(&self, marks: u32) -> u32 {
        // ORDERING: Relaxed; the barrier at the end of compute mode publishes it.
        if marks & !self.marks.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        // ORDERING: Relaxed; as above.
        marks & !self.marks.fetch_or(marks, Ordering::Relaxed)
    }

    /// Whether nothing in it depends on another row, and no event on its row. Not in compute mode.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        // ORDERING: Relaxed; the barrier has published it.
        self.marks.load(Ordering::Relaxed) == 0
    }

    #[inline(always)]
    fn target(&self) -> Target {
        // SAFETY: no thread writes it once others know the chain.
        self.target.with(|target| unsafe { *target })
    }

    #[inline(always)]
    pub fn name(&self) -> RowName {
        self.target().name
    }

    #[inline(always)]
    pub fn partition(&self) -> usize {
        self.target().partition as usize
    }

    /// The node after one, or the first one after none; null at the end.
    ///
    /// # Safety
    /// It is state access mode, and the node is in the chain.
    #[inline(always)]
    pub unsafe fn after(&self, node: *const Node) -> *const Node {
        // SAFETY: as the caller says.
        unsafe { self.operations.after(node) }
    }

    /// Fetches the first node, which a thread walks from soon.
    ///
    /// # Safety
    /// It is state access mode.
    #[inline(always)]
    pub unsafe fn prefetch(&self) {
        // SAFETY: as the caller says.
        index::prefetch(unsafe { self.operations.after(null()) });
    }

    /// Lends the last node that was evaluated; null at the start.
    ///
    /// # Safety
    /// The calling thread walks the chain in this round.
    #[inline(always)]
    pub unsafe fn walk<R>(&self, work: impl FnOnce(&mut *const Node) -> R) -> R {
        // SAFETY: as the caller says.
        self.last.with_mut(|last| work(unsafe { &mut *last }))
    }

    /// Ends the walk of the calling thread in a round: at an operation of an event, or at the end.
    #[inline(always)]
    pub fn stop(&self, round: u32, at: Option<u32>) {
        let word = u64::from(round) << 32 | at.map_or(u64::from(u32::MAX), |event| u64::from(event) + 1);
        // ORDERING: Relaxed; the barrier at the end of the round publishes it, and no thread uses it before.
        self.passed[round as usize % 2].store(word, Ordering::Relaxed);
    }

    /// Whether rounds before this one passed the conditions of an event in this chain. It is the same for every thread, at any
    /// time of the round. A walk that stopped at an operation of the event passed its conditions, which come first.
    ///
    /// A chain is walked in every round until it is done. So one of the two words holds the last round before this one that
    /// walked it.
    #[inline(always)]
    pub fn has_passed(&self, event: u32, round: u32) -> bool {
        self.passed.iter().any(|word| {
            // ORDERING: Relaxed, as above.
            let word = word.load(Ordering::Relaxed);
            word >> 32 < u64::from(round) && word as u32 > event
        })
    }
}
