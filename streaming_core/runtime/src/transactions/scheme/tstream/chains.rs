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
use crate::transactions::scheme::ahead::requests::prefetch;
use crate::transactions::scheme::tstream::arena::Arena;
use crate::transactions::scheme::tstream::costs::Costs;
use crate::transactions::scheme::tstream::decomposition::{IS_DEPENDENT, Operation, Partitioning};
use crate::transactions::scheme::tstream::layout::{Layout, RowName};
use crate::transactions::scheme::tstream::skip_list::{Index, Node, SkipList, height, link};
use crate::transactions::scheme::tstream::tasks::{Task, Tasks};

/// Per row, its chain; null if it has none. The thread that first inserts sets the entry. The thread that ends the chain's
/// walk clears it.
pub(super) struct Directory(Box<[AtomicPtr<Chain>]>);

impl Directory {
    pub fn new(layout: &Layout) -> Self {
        Self((0..layout.rows).map(|_| AtomicPtr::new(null_mut())).collect())
    }

    /// Fetches the entry of a row that an operation is inserted for soon.
    #[inline(always)]
    pub fn prefetch(&self, layout: &Layout, name: RowName) {
        prefetch(&raw const self.0[layout.number(name)]);
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
struct Target {
    name: RowName,
    partition: u32,
}

/// The operations on a row in an interval.
#[repr(align(64))]
pub(super) struct Chain {
    /// Written by the thread that makes the chain, before the directory has it.
    target: UnsafeCell<Target>,
    operations: SkipList,
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

/// What all threads insert with.
#[derive(Clone, Copy)]
pub(super) struct Insertion<'a> {
    pub thread: usize,
    /// Whether there is no other thread.
    pub is_alone: bool,
    pub partitioning: &'a Partitioning,
    pub layout: &'a Layout,
    pub directory: &'a Directory,
    pub tasks: &'a Tasks,
}

/// The chains that a thread has made in an interval, and what it has inserted into any chain.
pub(super) struct Chains {
    chains: Arena<Chain>,
    nodes: Arena<Node>,
    indexes: Arena<Index>,
}

impl Chains {
    pub fn new() -> Self {
        Self { chains: Arena::new(), nodes: Arena::new(), indexes: Arena::new() }
    }

    /// Forgets everything, and keeps the memory. No thread uses it any more.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.nodes.clear();
        self.indexes.clear();
    }

    /// Inserts an operation into the chain of its row, and returns the chain.
    ///
    /// # Safety
    /// It is compute mode. Only this thread inserts operations of the event, which lasts as long as the interval.
    #[inline(always)]
    pub unsafe fn insert(&mut self, operation: Operation, into: Insertion, costs: &mut Costs) -> *const Chain {
        let name = RowName::of(&operation.access);
        let (marks, event) = (operation.link.marks(), operation.access.event);
        let entry = &into.directory.0[into.layout.number(name)];
        let node = self.nodes.draw();
        // ORDERING: Acquire takes over the chain from the thread that made it.
        let mut chain = entry.load(Ordering::Acquire).cast_const();
        // SAFETY: what was drawn only this thread knows; a chain in the directory is of this interval, and filled.
        unsafe {
            (*node).fill(operation);
            if chain.is_null() {
                chain = self.chains.draw();
                let partition = into.partitioning.of(name);
                (*chain).start(Target { name, partition: partition as u32 }, node, marks);
                if link(entry, null_mut(), chain, into.is_alone) {
                    into.tasks.add(into.thread, partition, Task(chain));
                    costs.chains += 1;
                    costs.dependent_chains += u64::from(marks & IS_DEPENDENT != 0);
                    return chain;
                }
                self.chains.take_back();
                // ORDERING: Acquire, as above.
                chain = entry.load(Ordering::Acquire);
            }
            costs.dependent_chains += u64::from((*chain).mark(marks) & IS_DEPENDENT != 0);
            (*chain).operations.insert(node, height(event), &mut self.indexes, into.is_alone);
        }
        chain
    }
}

impl Chain {
    /// Makes it the chain of a row with this node only.
    ///
    /// # Safety
    /// Only the caller knows the chain and the node, which is filled.
    #[inline(always)]
    unsafe fn start(&self, target: Target, node: *const Node, marks: u32) {
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
    fn mark(&self, marks: u32) -> u32 {
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

    fn target(&self) -> Target {
        // SAFETY: no thread writes it once others know the chain.
        self.target.with(|target| unsafe { *target })
    }

    pub fn name(&self) -> RowName {
        self.target().name
    }

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

#[cfg(all(test, not(loom)))]
pub(super) mod testing {
    use super::*;
    use crate::program::kernel::Access;
    use crate::program::options::Options;
    use crate::transactions::scheme::tstream::decomposition::{Decomposition, Role};

    /// Threads that decompose events on a table, and on one with containers.
    pub struct Decomposed {
        pub layout: Layout,
        pub partitioning: Partitioning,
        pub threads: Vec<Decomposition>,
        directory: Directory,
        tasks: Tasks,
        pub costs: Costs,
    }

    impl Decomposed {
        pub fn new(threads: usize) -> Self {
            let tables = r#"[{"name": "t", "rows": 4000, "stride": 16, "read": [0, 16]},
                {"name": "c", "rows": 9, "stride": 24, "read": [0, 24], "containers": true}]"#;
            let layout = Layout::new(&serde_json::from_str::<Vec<crate::program::TableSpec>>(tables).unwrap());
            Self {
                partitioning: Partitioning::new(threads),
                threads: (0..threads).map(|_| Decomposition::new(threads, vec![false, true])).collect(),
                directory: Directory::new(&layout),
                tasks: Tasks::new(&Options { threads, ..Options::default() }).unwrap(),
                costs: Costs::default(),
                layout,
            }
        }

        /// A thread decomposes events of the interval.
        pub fn decompose(&mut self, thread: usize, accesses: &[Access]) {
            let into = Insertion {
                thread,
                is_alone: self.threads.len() == 1,
                partitioning: &self.partitioning,
                layout: &self.layout,
                directory: &self.directory,
                tasks: &self.tasks,
            };
            // SAFETY: there is no other thread.
            unsafe { self.threads[thread].decompose(accesses, into, &mut self.costs) };
            self.threads[thread].finish(&self.layout);
        }

        /// Ends the interval.
        pub fn end(&mut self) {
            for chain in self.chains() {
                // SAFETY: chains in the directory are of this interval.
                self.directory.clear(&self.layout, unsafe { (*chain).name() });
            }
            self.threads.iter_mut().for_each(Decomposition::clear);
            // SAFETY: there is no other thread.
            (0..self.threads.len()).for_each(|thread| unsafe { self.tasks.clear(thread, 0) });
        }

        pub fn chain(&self, table: u8, row: u32) -> *const Chain {
            self.directory.chain(&self.layout, RowName { table, row })
        }

        /// All chains, by rows.
        pub fn chains(&self) -> Vec<*const Chain> {
            let chains = [(0, 4000), (1, 9)].map(|(table, rows)| (0..rows).map(move |row| self.chain(table, row)));
            chains.into_iter().flatten().filter(|chain| !chain.is_null()).collect()
        }

        /// The chains in the pool of each thread.
        pub fn pools(&self) -> Vec<Vec<*const Chain>> {
            // SAFETY: there is no other thread.
            let pool = |thread| unsafe { self.tasks.take(thread, 0, 0).map(|task| task.0).collect() };
            (0..self.threads.len()).map(pool).collect()
        }
    }

    /// The entries of a chain, in their order.
    pub fn entries(chain: *const Chain) -> Vec<(Access, Role)> {
        let mut entries = Vec::new();
        // SAFETY: a test's chain, which no thread inserts into.
        unsafe {
            let mut node = (*chain).after(null());
            while !node.is_null() {
                let Operation { access, link, .. } = (*node).operation();
                entries.push((access, link.role()));
                node = (*chain).after(node);
            }
        }
        entries
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::testing::{Decomposed, entries};
    use super::*;
    use crate::program::kernel::{Access, kind};

    fn access(event: u32, row: u32, kind: u8) -> Access {
        Access { event, row, kind, ..Access::default() }
    }

    fn events(decomposed: &Decomposed, row: u32) -> Vec<u32> {
        entries(decomposed.chain(0, row)).iter().map(|one| one.0.event).collect()
    }

    #[test]
    fn a_row_has_one_chain_in_event_order_whoever_inserts_first() {
        let (first, second) = (
            [access(0, 2, kind::MODIFY), access(1, 0, kind::MODIFY), access(1, 2, kind::READ)],
            [access(4, 0, kind::READ), access(5, 2, kind::MODIFY), access(5, 2, kind::READ)],
        );
        let mut decomposed = Decomposed::new(2);
        for interval in 0..3 {
            decomposed.costs = Costs::default();
            decomposed.decompose(interval % 2, &second);
            assert_eq!(events(&decomposed, 2), [5, 5], "before the first thread has come");
            decomposed.decompose((interval + 1) % 2, &first);
            assert_eq!((events(&decomposed, 2), events(&decomposed, 0)), (vec![0, 1, 5, 5], vec![1, 4]));
            let Costs { operations, chains, dependent_chains, .. } = decomposed.costs;
            assert_eq!((operations, chains, dependent_chains), (6, 2, 0));
            decomposed.end();
            assert!(decomposed.chains().is_empty());
        }
    }

    #[test]
    fn a_chain_is_in_the_pool_of_its_row_s_partition_whoever_makes_it() {
        let mut decomposed = Decomposed::new(2);
        let rows: Vec<u32> = (0..100).map(|row| row * 40).collect();
        let accesses: Vec<Access> = rows.iter().map(|&row| access(row, row, kind::READ)).collect();
        decomposed.decompose(1, &accesses[50..]);
        decomposed.decompose(0, &accesses[..50]);
        for (thread, pool) in decomposed.pools().into_iter().enumerate() {
            let mut pool: Vec<u32> = pool.into_iter().map(|chain| entries(chain)[0].0.row).collect();
            pool.sort_unstable();
            let of = |row| decomposed.partitioning.of(RowName { table: 0, row });
            assert_eq!(pool, rows.iter().copied().filter(|&row| of(row) == thread).collect::<Vec<_>>());
            assert!(pool.len() > 20);
        }
    }

    #[test]
    fn chains_that_events_depend_on_or_that_depend_on_others_are_marked() {
        let mut decomposed = Decomposed::new(1);
        let first = [access(0, 1, kind::CONDITION), access(0, 2, kind::MODIFY), access(1, 3, kind::MODIFY)];
        decomposed.decompose(0, &first);
        decomposed.decompose(0, &[access(2, 2, kind::READ), access(3, 1, kind::MODIFY), access(4, 3, kind::READ)]);
        // SAFETY: there is no other thread.
        let is_plain = |row| unsafe { (*decomposed.chain(0, row)).is_plain() };
        assert_eq!([1, 2, 3].map(is_plain), [false, false, true]);
        assert_eq!((decomposed.costs.chains, decomposed.costs.dependent_chains), (3, 1));
    }

    #[test]
    fn what_was_passed_before_a_round_does_not_hang_on_the_round() {
        let chain = Chain::default();
        let passed = |round| (0..9).filter(|&event| chain.has_passed(event, round)).count();
        assert_eq!((passed(0), passed(1)), (0, 0));
        for (round, stopped) in [(0, 2), (1, 2), (2, 6)] {
            let before = passed(round);
            chain.stop(round, Some(stopped));
            assert_eq!((passed(round), passed(round + 1)), (before, stopped as usize + 1));
        }
        chain.stop(3, None);
        assert_eq!((passed(3), passed(4), passed(9)), (7, 9, 9), "it is done");
    }
}
