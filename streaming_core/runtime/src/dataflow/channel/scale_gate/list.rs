//! The skip list of a ScaleGate: sources link nodes into it, one reader goes along its lowest level.
//!
//! Nothing is ever taken out. Who stands at a node only goes on to nodes behind it, so that those before everybody are
//! nobody's any more, and whoever made them may use their memory again (`scale_gate/mod.rs` says when).

use std::ptr::null_mut;

use crate::dataflow::channel::gate::key::Order;
use crate::rows::mix::{finish, step};
use crate::threads::sync::{AtomicPtr, Ordering, UnsafeCell};

/// Of a node that has all; half as many nodes have one level more, and there are some thousands at a time.
pub const LEVELS: usize = if cfg!(loom) { 2 } else { 9 };

/// What a source adds: a row, or a watermark.
#[derive(Debug, Clone, Copy)]
pub struct Tuple {
    pub order: Order,
    pub source: usize,
    /// Engine time when the processing of its batch started.
    pub started: u64,
    pub what: What,
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    /// Where it lies, and its key's hash if that is wanted.
    Row { place: *const u8, hash: u64 },
    /// Behind all rows of a batch, and of all events up to its own; `last`: nothing comes any more in this block.
    Watermark { last: bool },
}

/// A tuple in the list.
#[derive(Debug)]
pub struct Node {
    /// Written by the source whose node it is, before it links the node; afterwards everybody only reads.
    tuple: UnsafeCell<Tuple>,
    /// Per level the next node that has it, null at the end. Written by the node's source before it is linked there, and
    /// then by whichever source links one behind it.
    next: [AtomicPtr<Node>; LEVELS],
}

// SAFETY: a tuple is written by one thread before `next` publishes the node, and only read then; the places it names are of
// rows that are read only while they are in use.
unsafe impl Sync for Node {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for Node {}

impl Node {
    /// One that is linked nowhere, and says what stands before everything.
    pub fn new() -> Self {
        let order = Order::FIRST;
        let tuple = Tuple { order, source: 0, started: u64::MAX, what: What::Watermark { last: false } };
        Self { tuple: UnsafeCell::new(tuple), next: std::array::from_fn(|_| AtomicPtr::new(null_mut())) }
    }

    /// # Safety
    /// The node is linked, and nobody's to use again.
    #[inline(always)]
    pub unsafe fn tuple(&self) -> Tuple {
        // SAFETY: as the caller says: nobody writes it.
        self.tuple.with(|tuple| unsafe { *tuple })
    }

    /// # Safety
    /// As for `tuple`.
    #[inline(always)]
    unsafe fn order(&self) -> Order {
        // SAFETY: as the caller says.
        self.tuple.with(|tuple| unsafe { (*tuple).order })
    }

    /// The next one that has the level.
    #[inline(always)]
    pub fn next(&self, level: usize) -> *mut Self {
        // ORDERING: Acquire takes over the node that was linked here, and its own links.
        self.next[level].load(Ordering::Acquire)
    }
}

/// Where a source goes on: per level the node behind which it linked last, or found that it could. All are before what it
/// adds next, for it adds in order.
#[derive(Debug)]
pub struct Handles {
    at: [*const Node; LEVELS],
    /// Nodes so far.
    drawn: u64,
    seed: u64,
}

impl Handles {
    /// At the list's head; of sources with different seeds nodes have different heights.
    pub fn new(head: *const Node, seed: u64) -> Self {
        Self { at: [head; LEVELS], drawn: 0, seed }
    }

    /// A height: of any number of nodes about half have a level more than the other half.
    pub fn draw(&mut self) -> usize {
        self.drawn += 1;
        1 + (finish(step(self.seed, self.drawn)).trailing_zeros() as usize).min(LEVELS - 1)
    }

    /// Links a node of so many levels behind all that are not after it.
    ///
    /// # Safety
    /// Nobody but the caller knows the node. It lives while anybody is before it, as do all nodes behind the handles; and it
    /// is not before what was added here last.
    pub unsafe fn add(&mut self, node: *const Node, tuple: Tuple, height: usize) {
        // SAFETY: the caller's own.
        let new = unsafe { &*node };
        // SAFETY: nobody reads it yet.
        new.tuple.with_mut(|place| unsafe { *place = tuple });
        let mut at = self.at[LEVELS - 1];
        for level in (0..LEVELS).rev() {
            // SAFETY: as the caller says, handles and what is behind them live.
            at = unsafe { last_before(at, level, tuple.order) }.0;
            self.at[level] = at;
        }
        // From the lowest level on: what is found on a higher one is there on those below.
        for (level, at) in self.at[..height].iter_mut().enumerate() {
            loop {
                // SAFETY: as above. Others may have linked something here meanwhile.
                let (before, next) = unsafe { last_before(*at, level, tuple.order) };
                *at = before;
                // ORDERING: Relaxed; published with the node.
                new.next[level].store(next, Ordering::Relaxed);
                // SAFETY: as above.
                let link = unsafe { &(*before).next[level] };
                // ORDERING: Release publishes the node, its tuple and its links; Relaxed, for another look follows a failure.
                if link.compare_exchange(next, node.cast_mut(), Ordering::Release, Ordering::Relaxed).is_ok() {
                    break;
                }
            }
        }
        if height == LEVELS {
            // Nothing that is added here comes before it, on any level.
            self.at = [node; LEVELS];
        }
    }
}

/// The last node of a level, from `at` on, that is not after `order`, and the next one.
///
/// # Safety
/// `at`, which is not after it, and all nodes behind it live.
#[inline(always)]
unsafe fn last_before(mut at: *const Node, level: usize, order: Order) -> (*const Node, *mut Node) {
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
