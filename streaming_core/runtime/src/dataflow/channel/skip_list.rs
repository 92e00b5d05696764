//! The skip list of a ScaleGate: sources link nodes into it, and readers go along its lowest level.
//!
//! Nodes are never removed. A thread at a node only moves to later nodes. So the owner of nodes that all threads have passed
//! may use their memory again (`scale_gate/mod.rs` and `elastic/mod.rs` say when).

use std::ptr::null_mut;

use crate::dataflow::channel::gate::key::Order;
use crate::rows::mix::{finish, step};
use crate::threads::sync::{AtomicPtr, Ordering, UnsafeCell};

/// The largest number of levels of a node. Half as many nodes have one level more, and there are some thousand nodes at a
/// time.
pub const LEVELS: usize = if cfg!(loom) { 2 } else { 9 };

/// An element of the list. `W` is its content: a row, a watermark, and what else a ScaleGate has.
#[derive(Debug, Clone, Copy)]
pub struct Tuple<W> {
    pub order: Order,
    pub source: usize,
    /// Engine time when the processing of its batch started.
    pub started: u64,
    pub what: W,
}

/// A tuple in the list.
#[derive(Debug)]
pub struct Node<W> {
    /// The source that owns the node writes it before it links the node. Afterwards all threads only read it.
    tuple: UnsafeCell<Tuple<W>>,
    /// Per level, the next node with that level; null at the end. The node's source writes it before it links the node. Later,
    /// any source writes it that links a node after this one.
    next: [AtomicPtr<Self>; LEVELS],
}

// SAFETY: one thread writes a tuple before `next` publishes the node; afterwards it is only read. Rows at the addresses in it
// are read only while they are in use.
unsafe impl<W> Sync for Node<W> {}
// SAFETY: nothing in it refers to a thread.
unsafe impl<W> Send for Node<W> {}

impl<W: Copy> Node<W> {
    /// A node that is not linked, with a position before all others and any content.
    pub fn new(what: W) -> Self {
        let tuple = Tuple { order: Order::FIRST, source: 0, started: u64::MAX, what };
        Self { tuple: UnsafeCell::new(tuple), next: std::array::from_fn(|_| AtomicPtr::new(null_mut())) }
    }

    /// # Safety
    /// The node is linked, and not filled again meanwhile.
    #[inline(always)]
    pub unsafe fn tuple(&self) -> Tuple<W> {
        // SAFETY: as the caller says: no thread writes it.
        self.tuple.with(|tuple| unsafe { *tuple })
    }

    /// # Safety
    /// As for `tuple`.
    #[inline(always)]
    unsafe fn order(&self) -> Order {
        // SAFETY: as the caller says.
        self.tuple.with(|tuple| unsafe { (*tuple).order })
    }

    /// The next node with the level.
    #[inline(always)]
    pub fn next(&self, level: usize) -> *mut Self {
        // ORDERING: Acquire takes over the node that is linked here, and its own links.
        self.next[level].load(Ordering::Acquire)
    }
}

/// The positions of a source: per level, the node after which it linked last, or could have. All of them precede its next
/// node, because it adds in order.
#[derive(Debug)]
pub struct Handles<W> {
    at: [*const Node<W>; LEVELS],
    /// The number of nodes so far.
    drawn: u64,
    seed: u64,
}

impl<W: Copy> Handles<W> {
    /// Starts at the list's head. Sources with different seeds give different heights to their nodes.
    pub fn new(head: *const Node<W>, seed: u64) -> Self {
        Self { at: [head; LEVELS], drawn: 0, seed }
    }

    /// Goes to where another source's are.
    pub fn copy_from(&mut self, other: &Self) {
        self.at = other.at;
    }

    /// A random height: a node has one more level with a probability of about one half.
    pub fn draw(&mut self) -> usize {
        self.drawn += 1;
        1 + (finish(step(self.seed, self.drawn)).trailing_zeros() as usize).min(LEVELS - 1)
    }

    /// Links a node with `levels` levels after all nodes that are not after it.
    ///
    /// # Safety
    /// Only the caller knows the node. It lives as long as a thread is before it, and so do all nodes after the handles. It is
    /// not before the node that was added here last.
    pub unsafe fn add(&mut self, node: *const Node<W>, tuple: Tuple<W>, height: usize) {
        // SAFETY: the caller's own.
        let new = unsafe { &*node };
        // SAFETY: no thread reads it yet.
        new.tuple.with_mut(|place| unsafe { *place = tuple });
        let mut at = self.at[LEVELS - 1];
        for level in (0..LEVELS).rev() {
            // SAFETY: as the caller says, handles and what is behind them live.
            at = unsafe { last_before(at, level, tuple.order) }.0;
            self.at[level] = at;
        }
        // Starts at the lowest level, because a node on a higher level must be on all lower ones.
        for (level, at) in self.at[..height].iter_mut().enumerate() {
            loop {
                // SAFETY: as above. Others may have linked something here meanwhile.
                let (before, next) = unsafe { last_before(*at, level, tuple.order) };
                *at = before;
                // ORDERING: Relaxed; published with the node.
                new.next[level].store(next, Ordering::Relaxed);
                // SAFETY: as above.
                let link = unsafe { &(*before).next[level] };
                // ORDERING: Release publishes the node, its tuple and its links. Relaxed on failure, because another look follows.
                if link.compare_exchange(next, node.cast_mut(), Ordering::Release, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
        if height == LEVELS {
            // No later node of this source comes before it, on any level.
            self.at = [node; LEVELS];
        }
    }
}

/// The last node of a level, from `at` on, that is not after `order`, and the next one.
///
/// # Safety
/// `at`, which is not after it, and all nodes behind it live.
#[inline(always)]
unsafe fn last_before<W: Copy>(mut at: *const Node<W>, level: usize, order: Order) -> (*const Node<W>, *mut Node<W>) {
    loop {
        // SAFETY: as the caller says.
        let next = unsafe { (*at).next(level) };
        // SAFETY: linked, and as the caller says.
        if next.is_null() || unsafe { (*next).order() } > order {
            return (at, next);
        }
        at = next;
    }
}
