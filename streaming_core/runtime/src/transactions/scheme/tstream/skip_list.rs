//! The order of an operation chain: a concurrent skip list (TStream, section IV-C1; W. Pugh, the paper's [26]).
//!
//! The paper chooses Java's `ConcurrentSkipList`, because many threads insert at a time and the order still holds, and because a
//! walk needs no random access. As there, the nodes form a list in the order of their events. A quarter of them also have an
//! *index* on a level above. A quarter of these have one on the next level, and so on. A search goes along the highest level
//! first. The list grows a level when a node comes that would have one more. Short chains have none, so a node stays small.
//!
//! A node's levels come from a hash of its event, so they are the same in every run. Nothing is removed: a chain ends with its
//! interval, and the next one uses the memory again.
//!
//! **Order.** A thread links a node between one whose event is not later and one whose event is later, by one
//! compare-exchange. If another thread linked something there meanwhile, it fails, and the search goes on from there. Nodes of
//! an event stay in the order in which its thread inserts them.

use std::ptr::{null, null_mut};

use crate::threads::sync::{AtomicPtr, Ordering, UnsafeCell};
use crate::transactions::scheme::tstream::arena::Arena;
use crate::transactions::scheme::tstream::operation::Operation;

/// The largest number of levels above the nodes.
const LEVELS: usize = if cfg!(loom) { 2 } else { 8 };

/// The number of levels that the nodes of an event have an index on.
#[inline(always)]
pub(super) fn height(event: u32) -> usize {
    // The upper bits of the product are a hash that spreads numbers with any distance.
    (event.wrapping_mul(0x9E37_79B9).leading_zeros() as usize / 2).min(LEVELS)
}

/// An operation in its chain.
#[derive(Default)]
pub(super) struct Node {
    /// Written by the thread that inserts the node, before it is linked. Afterwards all threads only read it.
    operation: UnsafeCell<Operation>,
    next: AtomicPtr<Node>,
}

/// A node on a level; or, without a node, the start of a level.
#[derive(Default)]
pub(super) struct Index {
    /// Written and read like a node's operation.
    place: UnsafeCell<Place>,
    /// The next one of the level.
    right: AtomicPtr<Index>,
}

#[derive(Clone, Copy)]
struct Place {
    node: *const Node,
    /// The same node one level below; null on the lowest level.
    down: *const Index,
    event: u32,
    /// From 1 on.
    level: u32,
}

impl Default for Place {
    fn default() -> Self {
        Self { node: null(), down: null(), event: 0, level: 0 }
    }
}

/// The nodes of a chain, in event order.
#[derive(Default)]
pub(super) struct SkipList {
    first: AtomicPtr<Node>,
    /// The start of the highest level.
    top: AtomicPtr<Index>,
}

// SAFETY: one thread writes operation and place before the node or index is linked; afterwards they are only read. The nodes
// of places belong to the same interval.
unsafe impl Sync for Node {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Node {}
// SAFETY: as for nodes.
unsafe impl Sync for Index {}
// SAFETY: as for nodes.
unsafe impl Send for Index {}

impl Node {
    /// # Safety
    /// Only the caller knows the node.
    #[inline(always)]
    pub unsafe fn fill(&self, operation: Operation) {
        // SAFETY: as the caller says.
        self.operation.with_mut(|place| unsafe { *place = operation });
    }

    /// # Safety
    /// The caller filled the node, or found it in a list.
    #[inline(always)]
    pub unsafe fn operation(&self) -> Operation {
        // SAFETY: no thread writes it any more.
        self.operation.with(|operation| unsafe { *operation })
    }

    #[inline(always)]
    unsafe fn event(&self) -> u32 {
        // SAFETY: as for `operation`.
        self.operation.with(|operation| unsafe { (*operation).access.event })
    }
}

impl Index {
    /// # Safety
    /// Only the caller knows the index.
    unsafe fn fill(&self, place: Place) {
        // SAFETY: as the caller says.
        self.place.with_mut(|to| unsafe { *to = place });
        // ORDERING: Relaxed; published with the index.
        self.right.store(null_mut(), Ordering::Relaxed);
    }

    /// # Safety
    /// The caller filled the index, or found it in a list.
    #[inline(always)]
    unsafe fn place(&self) -> Place {
        // SAFETY: no thread writes it any more.
        self.place.with(|place| unsafe { *place })
    }
}

/// Sets a link from `old` to `new`, if it is still `old`.
#[inline(always)]
pub(super) fn link<T>(at: &AtomicPtr<T>, old: *mut T, new: *const T, is_alone: bool) -> bool {
    if is_alone {
        // ORDERING: Relaxed; there is no other thread.
        at.store(new.cast_mut(), Ordering::Relaxed);
        return true;
    }
    // ORDERING: Release publishes what `new` points to, as its thread wrote it. Relaxed on failure; another look follows.
    at.compare_exchange(old, new.cast_mut(), Ordering::Release, Ordering::Relaxed).is_ok()
}

impl SkipList {
    /// Makes it a list of this node only.
    ///
    /// # Safety
    /// Only the caller knows the list and the node, which is filled.
    #[inline(always)]
    pub unsafe fn start(&self, node: *const Node) {
        // ORDERING: Relaxed; published with the list.
        self.top.store(null_mut(), Ordering::Relaxed);
        // ORDERING: Relaxed; as above.
        self.first.store(node.cast_mut(), Ordering::Relaxed);
        // SAFETY: the caller's own.
        // ORDERING: Relaxed; as above.
        unsafe { (*node).next.store(null_mut(), Ordering::Relaxed) };
    }

    /// Inserts a node behind all nodes with its event or an earlier one. `is_alone`: there is no other thread.
    ///
    /// # Safety
    /// Only the caller knows the node, which is filled. The nodes of the list and what the arena has are of this interval. No
    /// other thread inserts nodes with this event.
    #[inline]
    pub unsafe fn insert(&self, node: *const Node, height: usize, indexes: &mut Arena<Index>, is_alone: bool) {
        // SAFETY: nodes and indexes in a list are filled and live until the interval ends.
        unsafe {
            let event = (*node).event();
            // ORDERING: Acquire takes over the level, and what the thread that made it had linked.
            let top = self.top.load(Ordering::Acquire);
            let mut path = [null::<Index>(); LEVELS];
            let mut at = &self.first;
            let mut index = top.cast_const();
            while !index.is_null() {
                index = last_on_level(index, event).0;
                let place = (*index).place();
                path[place.level as usize - 1] = index;
                if place.down.is_null() && !place.node.is_null() {
                    at = &(*place.node).next;
                }
                index = place.down;
            }
            loop {
                // ORDERING: Acquire takes over the node that is linked here.
                let next = at.load(Ordering::Acquire);
                if !next.is_null() && (*next).event() <= event {
                    at = &(*next).next;
                    continue;
                }
                // ORDERING: Relaxed; published with the node.
                (*node).next.store(next, Ordering::Relaxed);
                if link(at, next, node, is_alone) {
                    break;
                }
            }
            if height > 0 {
                self.raise(node, height, (top, &path), indexes, is_alone);
            }
        }
    }

    /// Puts a node on its levels: the lowest first, because an index must be linked on every level below its highest.
    ///
    /// # Safety
    /// As for `insert`. The path has the last index before the node of each level below the top.
    #[cold]
    unsafe fn raise(
        &self,
        node: *const Node,
        height: usize,
        (top, path): (*mut Index, &[*const Index; LEVELS]),
        indexes: &mut Arena<Index>,
        is_alone: bool,
    ) {
        // SAFETY: as in `insert`; what is drawn only this thread knows until it is linked.
        unsafe {
            let event = (*node).event();
            let levels = if top.is_null() { 0 } else { (*top).place().level as usize };
            let mut down = null();
            for (level, &before) in path[..height.min(levels)].iter().enumerate() {
                let index = indexes.draw();
                (*index).fill(Place { node, down, event, level: level as u32 + 1 });
                let mut at = before;
                loop {
                    let (before, next) = last_on_level(at, event);
                    at = before;
                    // ORDERING: Relaxed; published with the index.
                    (*index).right.store(next, Ordering::Relaxed);
                    if link(&(*at).right, next, index, is_alone) {
                        break;
                    }
                }
                down = index;
            }
            if height > levels {
                let level = levels as u32 + 1;
                let (index, start) = (indexes.draw(), indexes.draw());
                (*index).fill(Place { node, down, event, level });
                (*start).fill(Place { node: null(), down: top, event: 0, level });
                // ORDERING: Relaxed; published with the level.
                (*start).right.store(index.cast_mut(), Ordering::Relaxed);
                // If another thread made this level meanwhile, the node does without.
                link(&self.top, top, start, is_alone);
            }
        }
    }

    /// The node after one, or the first one after none; null at the end.
    ///
    /// # Safety
    /// A barrier separates this from all insertion. The node is in the list.
    #[inline(always)]
    pub unsafe fn after(&self, node: *const Node) -> *const Node {
        // SAFETY: as the caller says.
        let at = unsafe { if node.is_null() { &self.first } else { &(*node).next } };
        // ORDERING: Relaxed; the barrier has published it.
        at.load(Ordering::Relaxed)
    }
}

/// The last index of a level, from one on, whose event is not later, and the next one.
///
/// # Safety
/// The index is in a list or starts a level, and its event is not later.
#[inline(always)]
unsafe fn last_on_level(mut index: *const Index, event: u32) -> (*const Index, *mut Index) {
    loop {
        // SAFETY: as the caller says, and so are those that it leads to.
        // ORDERING: Acquire takes over the index that is linked here.
        let next = unsafe { (*index).right.load(Ordering::Acquire) };
        // SAFETY: as above.
        if next.is_null() || unsafe { (*next).place().event } > event {
            return (index, next);
        }
        index = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::kernel::Access;

    /// Memory of a thread, and its insertion of events into a list.
    pub struct Inserter {
        nodes: Arena<Node>,
        indexes: Arena<Index>,
    }

    impl Inserter {
        pub fn new() -> Self {
            Self { nodes: Arena::new(), indexes: Arena::new() }
        }

        /// A node of an event whose access has this slot.
        pub fn node(&mut self, event: u32, slot: u32) -> *const Node {
            let node = self.nodes.draw();
            let access = Access { event, slot, ..Access::default() };
            // SAFETY: it was just drawn.
            unsafe { (*node).fill(Operation { access, ..Operation::default() }) };
            node
        }

        pub fn insert(&mut self, list: &SkipList, events: &[u32], height: impl Fn(u32) -> usize, is_alone: bool) {
            for (slot, &event) in events.iter().enumerate() {
                let node = self.node(event, slot as u32);
                // SAFETY: the node was just filled, and tests give an event to one thread.
                unsafe { list.insert(node, height(event), &mut self.indexes, is_alone) };
            }
        }
    }

    /// Events and slots in the order of the list.
    pub fn walked(list: &SkipList) -> Vec<(u32, u32)> {
        let mut walked = Vec::new();
        // SAFETY: all insertion is over.
        unsafe {
            let mut node = list.after(null());
            while !node.is_null() {
                let Access { event, slot, .. } = (*node).operation().access;
                walked.push((event, slot));
                node = list.after(node);
            }
        }
        walked
    }

    /// The events on each level, the highest first.
    fn levels(list: &SkipList) -> Vec<Vec<u32>> {
        let mut levels = Vec::new();
        // SAFETY: all insertion is over.
        unsafe {
            let mut start = list.top.load(Ordering::Acquire).cast_const();
            while !start.is_null() {
                let mut level = Vec::new();
                let mut index = (*start).right.load(Ordering::Acquire);
                while !index.is_null() {
                    level.push((*index).place().event);
                    index = (*index).right.load(Ordering::Acquire);
                }
                levels.push(level);
                start = (*start).place().down;
            }
        }
        levels
    }

    /// Every level is in event order, and has nothing that the level below has not.
    pub fn check_levels(list: &SkipList, events: &[u32]) {
        let mut below = levels(list);
        below.push(events.to_vec());
        for pair in below.windows(2) {
            assert!(pair[0].is_sorted() && pair[0].iter().all(|event| pair[1].contains(event)), "{below:?}");
        }
    }

    #[cfg(not(any(loom, shuttle)))]
    mod alone {
        use super::*;
        use proptest::prelude::*;

        #[test]
        fn operations_of_an_event_keep_their_order() {
            let list = SkipList::default();
            let mut inserter = Inserter::new();
            inserter.insert(&list, &[7, 7, 2, 7, 9, 2], |_| 1, true);
            assert_eq!(walked(&list), [(2, 2), (2, 5), (7, 0), (7, 1), (7, 3), (9, 4)]);
        }

        #[test]
        fn a_quarter_of_the_events_have_a_level_and_a_quarter_of_these_another() {
            let count = |least| (0..100_000).filter(|&event| height(event) >= least).count();
            for (least, wanted) in [(1, 25_000), (2, 6_250), (3, 1_562)] {
                assert!(count(least).abs_diff(wanted) < wanted / 20, "{}", count(least));
            }
            assert_eq!(height(0), LEVELS);
        }

        #[test]
        fn a_long_list_has_levels_and_is_found_through_them() {
            let list = SkipList::default();
            let events: Vec<u32> = (0..5000).map(|i| i * 7919 % 5000).collect();
            let mut inserter = Inserter::new();
            inserter.insert(&list, &events, height, true);
            assert!(walked(&list).iter().map(|entry| entry.0).eq(0..5000));
            let levels = levels(&list);
            assert!((4..=LEVELS).contains(&levels.len()) && levels[levels.len() - 1].len() > 1000, "{}", levels.len());
            check_levels(&list, &(0..5000).collect::<Vec<_>>());
        }

        proptest! {
            #![proptest_config(crate::threads::testing::cases(64))]
            #[test]
            fn any_insertion_gives_event_order(events in prop::collection::vec(0_u32..50, 0..200)) {
                let list = SkipList::default();
                let mut inserter = Inserter::new();
                inserter.insert(&list, &events, |event| event as usize % 4, true);
                let mut wanted: Vec<(u32, u32)> = events.iter().copied().zip(0..).collect();
                wanted.sort_unstable();
                prop_assert_eq!(walked(&list), wanted);
            }
        }

        #[test]
        fn four_threads_insert_at_once() {
            let list = SkipList::default();
            let mut inserters = [(); 4].map(|()| Inserter::new());
            std::thread::scope(|scope| {
                for (inserter, thread) in inserters.iter_mut().zip(0..) {
                    let list = &list;
                    scope.spawn(move || {
                        let events: Vec<u32> = (0..2000).map(|i| i * 4 + thread).collect();
                        inserter.insert(list, &events, height, false);
                    });
                }
            });
            assert!(walked(&list).iter().map(|entry| entry.0).eq(0..8000));
            check_levels(&list, &(0..8000).collect::<Vec<_>>());
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::tests::{Inserter, check_levels, walked};
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;

    /// Two threads insert events into a list at once. Fails if one is lost or out of order on any level, or if a thread reads
    /// what is not published.
    fn explore(preemptions: usize, started: bool, events: [&'static [u32]; 2], height: fn(u32) -> usize) {
        interleave(preemptions, move || {
            let list = Arc::new(SkipList::default());
            let mut inserter = Inserter::new();
            if started {
                inserter.insert(&list, &[4], height, false);
            }
            let other = {
                let list = list.clone();
                thread::spawn(move || {
                    let mut inserter = Inserter::new();
                    inserter.insert(&list, events[1], height, false);
                    inserter
                })
            };
            inserter.insert(&list, events[0], height, false);
            let _other = other.join().unwrap();
            let mut wanted: Vec<u32> = events.concat();
            wanted.extend(started.then_some(4));
            wanted.sort_unstable();
            assert!(walked(&list).iter().map(|entry| entry.0).eq(wanted.iter().copied()));
            check_levels(&list, &wanted);
        });
    }

    #[test]
    fn loom_two_threads_insert_between_each_other_s_events() {
        explore(3, false, [&[1, 5], &[3, 6]], |_| 0);
    }

    #[test]
    fn loom_two_threads_insert_on_a_level_that_is_there() {
        explore(2, true, [&[1, 6], &[3]], |_| 1);
    }

    #[test]
    fn loom_two_threads_make_levels_at_once() {
        explore(2, false, [&[1], &[3]], |_| 2);
    }
}
