//! Operation chains (TStream, section IV-C): the operations of each row, in event order.
//!
//! The paper inserts into concurrent skip lists. Here operations are routed to the partitions of their rows first. The thread
//! of a partition then inserts them, one decomposing thread's after the other's, which is event order. The chains are the
//! same, without contention.
//!
//! **Versions.** If other chains depend on a row, all its versions are kept to the end of the batch. These are the one before
//! the batch, and the one after each event that writes it. So the evaluation of a condition finds the version that its event must see,
//! however far the chain has been walked. The next batch drops the versions.

use std::cell;
use std::ops::Range;

use crate::program::TableSpec;
use crate::program::kernel::{Access, kind};
use crate::threads::sync::{AtomicU64, Ordering, UnsafeCell};
use crate::transactions::scheme::tstream::decomposition::{Decomposition, Needs, RowName};

const WORD: usize = size_of::<u64>();

/// The locations of rows: numbers of all rows of all tables, and their addresses.
pub(super) struct Layout {
    strides: Vec<usize>,
    /// Number of the first row of each table.
    starts: Vec<usize>,
    rows: usize,
}

impl Layout {
    pub fn new(tables: &[TableSpec]) -> Self {
        let mut starts = Vec::new();
        let mut rows = 0;
        for table in tables {
            starts.push(rows);
            rows += table.rows;
        }
        Self { strides: tables.iter().map(|table| table.stride).collect(), starts, rows }
    }

    #[inline(always)]
    pub fn stride(&self, table: u8) -> usize {
        self.strides[usize::from(table)]
    }

    pub fn tables(&self) -> usize {
        self.strides.len()
    }

    #[inline(always)]
    fn number(&self, name: RowName) -> usize {
        self.starts[usize::from(name.table)] + name.row as usize
    }

    /// # Safety
    /// `bases` are those of the tables, and the row lies inside of its table.
    #[inline(always)]
    pub unsafe fn address(&self, name: RowName, bases: *const *mut u8) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { (*bases.add(usize::from(name.table))).add(name.row as usize * self.stride(name.table)) }
    }
}

/// Per row, the number of its chain in its partition + 1; 0: it has none. In compute mode, the thread of the row's partition
/// writes the entry. In state access mode, after a barrier, all threads read it.
pub(super) struct Directory(Box<[UnsafeCell<u32>]>);

// SAFETY: see above.
unsafe impl Sync for Directory {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Directory {}

impl Directory {
    pub fn new(layout: &Layout) -> Self {
        Self((0..layout.rows).map(|_| UnsafeCell::new(0)).collect())
    }

    /// # Safety
    /// It is state access mode, or the row is in the calling thread's partition.
    #[inline(always)]
    pub unsafe fn chain(&self, layout: &Layout, name: RowName) -> Option<usize> {
        // SAFETY: as the caller says.
        let entry = self.0[layout.number(name)].with(|entry| unsafe { *entry });
        entry.checked_sub(1).map(|chain| chain as usize)
    }

    /// # Safety
    /// It is compute mode, and the row is in the calling thread's partition.
    unsafe fn set(&self, layout: &Layout, name: RowName, entry: u32) {
        // SAFETY: as the caller says.
        self.0[layout.number(name)].with_mut(|chain| unsafe { *chain = entry });
    }
}

/// The progress of a walk through a chain.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// The numbers of evaluated operations, and of writing events whose version is kept.
    pub operations: usize,
    pub versions: usize,
}

/// The operations of a row in a batch.
pub(super) struct Chain {
    pub name: RowName,
    /// The range of its operations in the partition's.
    range: Range<usize>,
    /// The mark: whether one of its operations depends on another row.
    pub is_dependent: bool,
    is_awaited: bool,
    /// The range, in the partition's `writers`, of the events that write the row; empty unless versions are kept.
    writers: Range<usize>,
    /// The position, in words, of the first version in the partition's.
    versions: usize,
    /// For the thread that walks the chain in a round; barriers separate rounds.
    cursor: UnsafeCell<Cursor>,
    /// For even and odd rounds: the number of evaluated operations at the end of a round. The upper bits hold the number of
    /// that round. The thread that walks the chain writes it.
    evaluated: [AtomicU64; 2],
}

/// The chains of a partition. In compute mode, its thread writes them, except for cursors and versions. In state access
/// mode, after a barrier, all threads read them.
#[derive(Default)]
pub(super) struct Chains {
    list: Vec<Chain>,
    operations: Vec<Access>,
    /// Of each operation.
    needs: Vec<Needs>,
    /// Events, ascending within a chain.
    writers: Vec<u32>,
    /// The thread that walks a chain writes a version before the end of a round; later rounds read it. These are cells of std,
    /// not of the shim, because no model sees what kernels write into rows.
    versions: Vec<cell::UnsafeCell<u64>>,
    /// The chain of each operation, in the order of their routing.
    inserted: Vec<u32>,
}

// SAFETY: cursors and versions are used as their comments say; chains do not refer to threads.
unsafe impl Sync for Chains {}

impl Chains {
    /// Replaces the chains by those of a batch. `decomposed`: the decompositions of all threads, in the order of their slices.
    ///
    /// # Safety
    /// It is compute mode, the partition is the calling thread's, and its rows are in the tables at `bases`.
    pub unsafe fn insert<'a>(
        &mut self,
        partition: usize,
        decomposed: impl Iterator<Item = &'a Decomposition> + Clone,
        layout: &Layout,
        directory: &Directory,
        bases: *const *mut u8,
    ) {
        for chain in self.list.drain(..) {
            // SAFETY: as the caller says.
            unsafe { directory.set(layout, chain.name, 0) };
        }
        self.inserted.clear();
        for operation in decomposed.clone().flat_map(|one| &one.operations[partition]) {
            let name = RowName::of(&operation.access);
            // SAFETY: as the caller says.
            let known = unsafe { directory.chain(layout, name) };
            let number = known.unwrap_or_else(|| {
                self.list.push(Chain::new(name));
                // SAFETY: as above.
                unsafe { directory.set(layout, name, self.list.len() as u32) };
                self.list.len() - 1
            });
            let chain = &mut self.list[number];
            chain.range.end += 1;
            chain.is_dependent |= operation.needs == Needs::Others;
            self.inserted.push(number as u32);
        }
        let mut begin = 0;
        for chain in &mut self.list {
            let operations = chain.range.end;
            chain.range = begin..begin;
            begin += operations;
        }
        self.operations.resize(begin, Access::default());
        self.needs.resize(begin, Needs::Nothing);
        let operations = decomposed.clone().flat_map(|one| &one.operations[partition]);
        for (operation, &number) in operations.zip(&self.inserted) {
            let end = &mut self.list[number as usize].range.end;
            self.operations[*end] = operation.access;
            self.needs[*end] = operation.needs;
            *end += 1;
        }
        for name in decomposed.flat_map(|one| &one.awaited[partition]) {
            // SAFETY: as above.
            if let Some(number) = unsafe { directory.chain(layout, *name) } {
                self.list[number].is_awaited = true;
            }
        }
        self.make_room(layout, bases);
    }

    /// Makes room for the versions of rows that others depend on, and keeps the present row as the first version.
    fn make_room(&mut self, layout: &Layout, bases: *const *mut u8) {
        self.writers.clear();
        let mut words = 0;
        for chain in self.list.iter_mut().filter(|chain| chain.is_awaited) {
            let begin = self.writers.len();
            let writes = self.operations[chain.range.clone()].iter().filter(|one| one.kind == kind::MODIFY);
            for write in writes {
                if self.writers.len() == begin || self.writers.last() != Some(&write.event) {
                    self.writers.push(write.event);
                }
            }
            chain.writers = begin..self.writers.len();
            if !chain.writers.is_empty() {
                chain.versions = words;
                words += (chain.writers.len() + 1) * layout.stride(chain.name.table).div_ceil(WORD);
            }
        }
        if self.versions.len() < words {
            self.versions.resize_with(words, cell::UnsafeCell::default);
        }
        for chain in self.list.iter().filter(|chain| !chain.writers.is_empty()) {
            // SAFETY: in compute mode no thread writes rows, and what is in no chain yet is this thread's.
            unsafe { self.keep(chain, 0, layout, bases) };
        }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    #[inline(always)]
    pub fn chain(&self, number: usize) -> &Chain {
        &self.list[number]
    }

    #[inline(always)]
    pub fn operations(&self, chain: &Chain) -> (&[Access], &[Needs]) {
        (&self.operations[chain.range.clone()], &self.needs[chain.range.clone()])
    }

    #[inline(always)]
    fn version(&self, chain: &Chain, version: usize, layout: &Layout) -> *mut u8 {
        let words = layout.stride(chain.name.table).div_ceil(WORD);
        cell::UnsafeCell::raw_get(&raw const self.versions[chain.versions + version * words]).cast()
    }

    /// Whether to keep a version after the event is applied, if `kept` versions are kept already.
    #[inline(always)]
    pub fn writes(&self, chain: &Chain, kept: usize, event: u32) -> bool {
        self.writers[chain.writers.clone()].get(kept) == Some(&event)
    }

    /// Keeps the row as its version of this number.
    ///
    /// # Safety
    /// The calling thread walks the chain, whose versions are kept, or it is compute mode. No thread has read that version.
    pub unsafe fn keep(&self, chain: &Chain, version: usize, layout: &Layout, bases: *const *mut u8) {
        // SAFETY: the row is the thread's, and has so many bytes; `make_room` has made room for the version.
        unsafe {
            let row = layout.address(chain.name, bases);
            row.copy_to_nonoverlapping(self.version(chain, version, layout), layout.stride(chain.name.table));
        }
    }

    /// The address of the version that `event` must see, for a thread that does not walk the chain.
    ///
    /// # Safety
    /// Earlier rounds evaluated all operations of the chain before the event.
    #[inline]
    pub unsafe fn seen(&self, chain: &Chain, event: u32, layout: &Layout, bases: *const *mut u8) -> *const u8 {
        if chain.writers.is_empty() {
            // SAFETY: a row of a chain lies inside its table. No thread writes it in this batch.
            return unsafe { layout.address(chain.name, bases) };
        }
        let before = self.writers[chain.writers.clone()].partition_point(|&writer| writer < event);
        self.version(chain, before, layout)
    }
}

impl Chain {
    fn new(name: RowName) -> Self {
        Self {
            name,
            range: 0..0,
            is_dependent: false,
            is_awaited: false,
            writers: 0..0,
            versions: 0,
            cursor: UnsafeCell::default(),
            evaluated: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Lends the cursor of the chain.
    ///
    /// # Safety
    /// The calling thread walks the chain in this round.
    #[inline]
    pub unsafe fn walk<R>(&self, work: impl FnOnce(&mut Cursor) -> R) -> R {
        // SAFETY: as the caller says.
        self.cursor.with_mut(|cursor| work(unsafe { &mut *cursor }))
    }

    /// Ends the walk of the calling thread in a round.
    #[inline]
    pub fn set_evaluated(&self, round: u32, operations: usize) {
        let word = u64::from(round) << 32 | operations as u64;
        // ORDERING: Relaxed; the barrier at the end of the round publishes it, and no thread uses it before.
        self.evaluated[round as usize % 2].store(word, Ordering::Relaxed);
    }

    /// The number of operations that rounds before this one evaluated. It is the same for every thread, at any time of the
    /// round.
    ///
    /// A chain is walked in every round from its first one until it is done. So one of the two words holds the last round
    /// before this one that walked it.
    #[inline]
    pub fn evaluated_before(&self, round: u32) -> usize {
        // ORDERING: Relaxed, as above.
        let words = self.evaluated.each_ref().map(|word| word.load(Ordering::Relaxed));
        let earlier = words.into_iter().filter(|word| word >> 32 < u64::from(round));
        earlier.map(|word| word as u32 as usize).max().unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::transactions::scheme::tstream::decomposition::Partitioning;

    fn access(event: u32, row: u32, kind: u8) -> Access {
        Access { event, row, kind, ..Access::default() }
    }

    /// Two threads' slices in a table of four rows of two words, which hold their number.
    fn inserted(slices: [&[Access]; 2], work: impl FnOnce(&Chains, &Layout, &Directory, *const *mut u8)) {
        let spec = r#"{"name": "t", "rows": 4, "stride": 16, "read": [0, 16]}"#;
        let layout = Layout::new(&[serde_json::from_str(spec).unwrap()]);
        let directory = Directory::new(&layout);
        let mut rows = [0_u64, 0, 1, 1, 2, 2, 3, 3];
        let bases = [rows.as_mut_ptr().cast::<u8>()];
        let mut chains = Chains::default();
        for slices in [[&[access(0, 3, kind::MODIFY)][..], &[]], slices] {
            let decomposed = slices.map(|accesses| {
                let mut decomposition = Decomposition::new(1, vec![false]);
                decomposition.decompose(accesses, &Partitioning::new(1));
                decomposition
            });
            // SAFETY: there is no other thread.
            unsafe { chains.insert(0, decomposed.iter(), &layout, &directory, bases.as_ptr()) };
        }
        work(&chains, &layout, &directory, bases.as_ptr());
    }

    #[test]
    fn a_row_has_one_chain_with_its_operations_in_event_order() {
        let first = [access(0, 2, kind::MODIFY), access(1, 0, kind::MODIFY), access(1, 2, kind::READ)];
        let second = [access(4, 0, kind::READ), access(5, 2, kind::MODIFY), access(5, 2, kind::READ)];
        inserted([&first, &second], |chains, layout, directory, _| {
            let found: Vec<(u32, Vec<u32>)> = (0..chains.len())
                .map(|number| {
                    let chain = chains.chain(number);
                    (chain.name.row, chains.operations(chain).0.iter().map(|one| one.event).collect())
                })
                .collect();
            assert_eq!(found, [(2, vec![0, 1, 5, 5]), (0, vec![1, 4])]);
            // SAFETY: there is no other thread.
            let chain = |row| unsafe { directory.chain(layout, RowName { table: 0, row }) };
            assert_eq!([0, 1, 2, 3].map(chain), [Some(1), None, Some(0), None], "those of the batch before are gone");
            assert!((0..2).all(|number| !chains.chain(number).is_dependent && chains.chain(number).writers.is_empty()));
        });
    }

    #[test]
    fn versions_are_kept_of_what_is_written_and_awaited() {
        let accesses = [
            access(0, 0, kind::CONDITION),
            access(0, 1, kind::MODIFY),
            access(2, 0, kind::MODIFY),
            access(2, 0, kind::MODIFY),
            access(3, 0, kind::MODIFY),
            access(4, 1, kind::CONDITION),
            access(4, 0, kind::MODIFY),
        ];
        inserted([&accesses, &[]], |chains, layout, _, bases| {
            let (one, zero) = (chains.chain(0), chains.chain(1));
            assert_eq!((one.name.row, one.is_dependent, !one.writers.is_empty()), (1, true, true));
            assert_eq!((zero.name.row, zero.is_dependent, !zero.writers.is_empty()), (0, true, true));
            // SAFETY: there is no other thread; rows are two words.
            unsafe {
                for version in 1..4 {
                    layout.address(zero.name, bases).cast::<u64>().write(10 * version as u64);
                    chains.keep(zero, version, layout, bases);
                }
                layout.address(zero.name, bases).cast::<u64>().write(99);
                let seen = |event| chains.seen(zero, event, layout, bases).cast::<[u64; 2]>().read();
                assert_eq!([0, 2, 3, 4, 5].map(seen), [[0, 0], [0, 0], [10, 0], [20, 0], [30, 0]]);
            }
        });
    }

    #[test]
    fn what_was_evaluated_before_a_round_does_not_hang_on_the_round() {
        let chain = Chain::new(RowName { table: 0, row: 0 });
        assert_eq!(chain.evaluated_before(1), 0);
        for (round, operations) in [(1, 2), (2, 2), (3, 7)] {
            let before = chain.evaluated_before(round);
            chain.set_evaluated(round, operations);
            assert_eq!((chain.evaluated_before(round), chain.evaluated_before(round + 1)), (before, operations));
        }
        assert_eq!(chain.evaluated_before(9), 7, "it was done");
    }
}
