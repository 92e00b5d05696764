//! Operation chains (TStream, section IV-C): the operations of each row, in event order.
//!
//! The paper inserts into concurrent skip lists. Here operations are routed to the partitions of their rows first. Then all
//! threads insert at once, each into the chains of its partition, one decomposing thread's operations after the other's. That
//! is event order. The chains are the same, without contention. The operations of a chain lie together in memory, so one call
//! of a kernel walks many short chains.
//!
//! A chain is *plain* if no event depends on its row and its operations depend on nothing but the operations before them. Only
//! other chains keep track of a walk.
//!
//! **Versions.** A chain keeps its row for each condition of another chain's operations, as it is after all earlier events.
//! So the condition finds the version that its event must see, however far the chain has been walked. The next batch drops the
//! versions.

use std::ops::Range;

use crate::program::kernel::Access;
use crate::threads::sync::{AtomicU64, Ordering, UnsafeCell};
use crate::transactions::scheme::tstream::decomposition::{
    Decomposition, IS_DEPENDENT, IS_TRACKED, Link, Operation, Sight,
};
use crate::transactions::scheme::tstream::layout::{Layout, RowName};

/// Per row, the number of its chain in its partition + 1; 0: it has none. Only the thread of the row's partition uses the
/// entry, in compute mode.
pub(super) struct Directory(Box<[UnsafeCell<u32>]>);

// SAFETY: see above.
unsafe impl Sync for Directory {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Directory {}

impl Directory {
    pub fn new(layout: &Layout) -> Self {
        Self((0..layout.rows).map(|_| UnsafeCell::new(0)).collect())
    }

    /// Lends the entry of a row.
    ///
    /// # Safety
    /// It is compute mode, and the row is in the calling thread's partition.
    #[inline(always)]
    unsafe fn with<R>(&self, layout: &Layout, name: RowName, work: impl FnOnce(&mut u32) -> R) -> R {
        // SAFETY: as the caller says.
        self.0[layout.number(name)].with_mut(|entry| work(unsafe { &mut *entry }))
    }
}

/// The progress of a walk through a chain.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// The numbers of evaluated operations and of kept versions.
    pub operations: usize,
    pub versions: usize,
}

/// A version that a chain keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version {
    /// The number of operations before it.
    pub position: usize,
    to: *mut u8,
}

/// The operations of a row in a batch, if the chain is not plain.
#[repr(align(64))]
pub(super) struct Chain {
    name: RowName,
    /// The range of its operations in the partition's.
    range: Range<u32>,
    /// The range of its versions in the partition's, except for those before its first operation.
    versions: Range<u32>,
    /// The mark: whether one of its operations depends on another row.
    pub is_dependent: bool,
    /// For the thread that walks the chain in a round; barriers separate rounds.
    cursor: UnsafeCell<Cursor>,
    /// For even and odd rounds: the number of evaluated operations at the end of a round. The upper bits hold the number of
    /// that round. The thread that walks the chain writes it.
    evaluated: [AtomicU64; 2],
}

/// The relation of an operation to the conditions of its event, and the thread that decomposed the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Origin {
    pub thread: u32,
    pub link: Link,
}

/// The chains of a partition. In compute mode, its thread writes them, except for cursors. In state access mode, all threads
/// read them.
#[derive(Default)]
pub(super) struct Chains {
    operations: Vec<Access>,
    /// Of each operation, if there are chains that are not plain.
    origins: Vec<Origin>,
    /// The chains that are not plain. Their operations lie behind those of all plain ones.
    tracked: Vec<Chain>,
    /// By chain.
    versions: Vec<Version>,
    /// The end of each plain chain in `operations`, if the chains are tasks of a shared pool.
    plain: Vec<u32>,
    /// The end of the plain chains in `operations`.
    plain_end: usize,

    // For insertion.
    len: usize,
    /// In the order of their first entries: the chains. As many as entries, so that those of short chains are left over.
    forming: Vec<Forming>,
    /// The chain of each entry, in the order of their routing.
    inserted: Vec<u32>,
}

/// A chain while it is inserted into.
#[derive(Debug, Clone, Copy, Default)]
struct Forming {
    name: RowName,
    /// The number of its operations, then the place of the next one.
    place: u32,
    /// The number of versions that it keeps behind its first operation, then its number in `tracked`.
    later: u32,
    marks: u8,
}

// SAFETY: cursors are used as their comment says, and versions point into decompositions; nothing belongs to a thread.
unsafe impl Sync for Chains {}
// SAFETY: as above.
unsafe impl Send for Chains {}

/// What the entries of a batch are inserted from and with.
pub(super) struct Insertion<'a> {
    pub partition: usize,
    /// The decompositions of all threads, in the order of their slices.
    pub decomposed: &'a [&'a Decomposition],
    pub layout: &'a Layout,
    pub directory: &'a Directory,
    pub bases: *const *mut u8,
}

impl Chains {
    /// Replaces the chains by those of a batch.
    ///
    /// # Safety
    /// It is compute mode, the partition is the calling thread's, and its rows are in the tables at the bases.
    pub unsafe fn insert(&mut self, from: &Insertion) {
        let &Insertion { partition, decomposed, layout, directory, .. } = from;
        for chain in &mut self.forming[..self.len] {
            // SAFETY: as the caller says.
            unsafe { directory.with(layout, chain.name, |entry| *entry = 0) };
            *chain = Forming::default();
        }
        self.len = 0;
        self.tracked.clear();
        let entries: usize = decomposed.iter().map(|one| one.operations[partition].len()).sum();
        if self.inserted.len() < entries {
            self.forming.resize(entries, Forming::default());
            self.inserted.resize(entries, 0);
        }
        // SAFETY: as the caller says.
        unsafe {
            if decomposed.iter().any(|one| one.has_groups()) {
                self.insert_linked(from);
            } else {
                self.insert_plain(from);
            }
        }
    }

    /// Returns the chain of a row, and makes it if this is its first entry. Without a branch, because half of the rows are new.
    ///
    /// # Safety
    /// As for `insert`.
    #[inline(always)]
    unsafe fn chain_of(&mut self, name: RowName, from: &Insertion) -> (u32, &mut Forming) {
        // SAFETY: as the caller says.
        let number = unsafe {
            from.directory.with(from.layout, name, |entry| {
                let is_new = *entry == 0;
                let number = if is_new { self.len as u32 } else { *entry - 1 };
                *entry = number + 1;
                self.len += usize::from(is_new);
                number
            })
        };
        let chain = &mut self.forming[number as usize];
        chain.name = name;
        (number, chain)
    }

    /// Inserts entries that are all plain.
    ///
    /// # Safety
    /// As for `insert`.
    unsafe fn insert_plain(&mut self, from: &Insertion) {
        let mut at = 0;
        for one in from.decomposed {
            for operation in &one.operations[from.partition] {
                // SAFETY: as the caller says.
                let (number, chain) = unsafe { self.chain_of(RowName::of(&operation.access), from) };
                chain.place += 1;
                self.inserted[at] = number;
                at += 1;
            }
        }
        let mut end = 0;
        for chain in &mut self.forming[..self.len] {
            end += std::mem::replace(&mut chain.place, end);
        }
        self.plain_end = end as usize;
        self.operations.resize(self.plain_end, Access::default());
        let mut inserted = self.inserted.iter();
        for one in from.decomposed {
            for (operation, &number) in one.operations[from.partition].iter().zip(&mut inserted) {
                let chain = &mut self.forming[number as usize];
                self.operations[chain.place as usize] = operation.access;
                chain.place += 1;
            }
        }
    }

    /// Inserts entries. Some have to do with conditions.
    ///
    /// # Safety
    /// As for `insert`.
    unsafe fn insert_linked(&mut self, from: &Insertion) {
        let &Insertion { partition, decomposed, .. } = from;
        let mut at = 0;
        for one in decomposed {
            for operation in &one.operations[partition] {
                // SAFETY: as the caller says.
                let (number, chain) = unsafe { self.chain_of(RowName::of(&operation.access), from) };
                chain.marks |= operation.link.marks();
                let is_version = operation.link.is_version();
                chain.later += u32::from(is_version && chain.place > 0);
                chain.place += u32::from(!is_version);
                self.inserted[at] = number;
                at += 1;
            }
        }
        self.divide();
        let mut at = 0;
        for (thread, one) in decomposed.iter().enumerate() {
            for &Operation { access, link } in &one.operations[partition] {
                let chain = &mut self.forming[self.inserted[at] as usize];
                at += 1;
                if !link.is_version() {
                    self.operations[chain.place as usize] = access;
                    self.origins[chain.place as usize] = Origin { thread: thread as u32, link };
                    chain.place += 1;
                }
                if link.is_condition() {
                    let chain = *chain;
                    // SAFETY: as the caller says.
                    unsafe { self.see(one, access.table, link, chain, from) };
                }
            }
        }
    }

    /// Gives each chain its range of the operations: plain ones first.
    fn divide(&mut self) {
        let mut end = 0;
        for chain in &mut self.forming[..self.len] {
            if chain.marks & IS_TRACKED == 0 {
                end += std::mem::replace(&mut chain.place, end);
            }
        }
        self.plain_end = end as usize;
        let mut versions = 0;
        for chain in &mut self.forming[..self.len] {
            if chain.marks & IS_TRACKED != 0 {
                let begin = end;
                end += std::mem::replace(&mut chain.place, begin);
                let later = std::mem::replace(&mut chain.later, self.tracked.len() as u32);
                self.tracked.push(Chain {
                    name: chain.name,
                    range: begin..end,
                    versions: versions..versions,
                    is_dependent: chain.marks & IS_DEPENDENT != 0,
                    cursor: UnsafeCell::default(),
                    evaluated: [AtomicU64::new(0), AtomicU64::new(0)],
                });
                versions += later;
            }
        }
        self.operations.resize(end as usize, Access::default());
        self.origins.resize(end as usize, Origin::default());
        self.versions.resize(versions as usize, Version { position: 0, to: std::ptr::null_mut() });
    }

    /// Notes where a condition of a group is in its chain: before the next operation. If it is evaluated on a version, that is
    /// the version of its slot.
    ///
    /// # Safety
    /// As for `insert`.
    #[inline(always)]
    unsafe fn see(&mut self, one: &Decomposition, table: u8, link: Link, chain: Forming, from: &Insertion) {
        let (slot, Forming { place, later: number, .. }) = (one.slot(from.partition, link.number()), chain);
        let chain = &mut self.tracked[number as usize];
        let position = place - chain.range.start;
        // SAFETY: the chain is in the thread's partition, and so is the slot.
        unsafe { one.set_sight(slot, Sight { partition: from.partition as u32, chain: number, position }) };
        if !link.is_version() {
            return;
        }
        // SAFETY: the slot is that of a condition on this table.
        let to = unsafe { one.version(table, slot, from.layout) };
        let version = Version { position: position as usize, to };
        if position == 0 {
            // SAFETY: in compute mode no thread writes rows, and only this thread has the slot.
            unsafe { chain.keep(version, from.layout, from.bases) };
        } else {
            self.versions[chain.versions.end as usize] = version;
            chain.versions.end += 1;
        }
    }

    /// Makes plain chains tasks of their own, for a pool that several threads share.
    pub fn separate(&mut self) {
        let chains = self.forming[..self.len].iter();
        self.plain.clear();
        self.plain.extend(chains.filter(|chain| chain.marks & IS_TRACKED == 0).map(|chain| chain.place));
    }

    /// The number of plain chains, if they are tasks of their own.
    pub fn plain_len(&self) -> usize {
        self.plain.len()
    }

    /// The operations of a plain chain, if they are tasks of their own, as a range of `operations`.
    pub fn plain(&self, number: usize) -> Range<usize> {
        let begin = number.checked_sub(1).map_or(0, |before| self.plain[before]);
        begin as usize..self.plain[number] as usize
    }

    /// The operations of all plain chains, chain by chain.
    pub fn all_plain(&self) -> Range<usize> {
        0..self.plain_end
    }

    /// The number of chains.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The operations of all chains, chain by chain.
    pub fn operations(&self) -> &[Access] {
        &self.operations
    }

    /// The origin of each operation, if there are tracked chains.
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// The chains that are not plain.
    pub fn tracked(&self) -> &[Chain] {
        &self.tracked
    }

    /// The versions that a chain keeps behind its first operation, in the order of their positions.
    #[inline(always)]
    pub fn versions(&self, chain: &Chain) -> &[Version] {
        &self.versions[chain.versions.start as usize..chain.versions.end as usize]
    }
}

impl Chain {
    /// Keeps the row as this version.
    ///
    /// # Safety
    /// The calling thread walks the chain, or it is compute mode. No thread has read the version.
    #[inline(always)]
    pub unsafe fn keep(&self, version: Version, layout: &Layout, bases: *const *mut u8) {
        let stride = layout.stride(self.name.table);
        // SAFETY: the row is the thread's, and the slot has as many bytes.
        unsafe {
            let row = layout.address(self.name, bases);
            if stride == size_of::<u64>() {
                // Frequent, and far faster than a copy of unknown length.
                version.to.cast::<u64>().write_unaligned(row.cast::<u64>().read_unaligned());
            } else {
                row.copy_to_nonoverlapping(version.to, stride);
            }
        }
    }

    /// Its operations, as a range of the partition's.
    #[inline(always)]
    pub fn range(&self) -> Range<usize> {
        self.range.start as usize..self.range.end as usize
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
    use crate::program::kernel::kind;
    use crate::transactions::scheme::tstream::decomposition::Partitioning;
    use crate::transactions::scheme::tstream::decomposition::Role;

    fn access(event: u32, row: u32, kind: u8) -> Access {
        Access { event, row, kind, ..Access::default() }
    }

    /// Two threads' slices in a table of four rows of two words, which hold their number.
    struct Inserted {
        layout: Layout,
        rows: Box<[u64; 8]>,
        decomposed: Vec<Decomposition>,
        chains: Chains,
        directory: Directory,
    }

    fn inserted(slices: [&[Access]; 2]) -> Inserted {
        let spec = r#"{"name": "t", "rows": 4, "stride": 16, "read": [0, 16]}"#;
        let layout = Layout::new(&[serde_json::from_str(spec).unwrap()]);
        let decomposed = (0..2).map(|_| Decomposition::new(1, vec![false])).collect();
        let (rows, directory) = (Box::new([0, 0, 1, 1, 2, 2, 3, 3]), Directory::new(&layout));
        let mut inserted_events = Inserted { layout, rows, decomposed, chains: Chains::default(), directory };
        // Something of the batches before, plain and linked.
        inserted_events.insert([&[access(0, 3, kind::MODIFY)], &[access(1, 3, kind::MODIFY)]]);
        inserted_events.insert([&[access(0, 3, kind::CONDITION), access(0, 1, kind::MODIFY)], &[]]);
        inserted_events.insert(slices);
        inserted_events
    }

    impl Inserted {
        fn bases(&mut self) -> [*mut u8; 1] {
            [self.rows.as_mut_ptr().cast::<u8>()]
        }

        fn insert(&mut self, slices: [&[Access]; 2]) {
            let bases = self.bases();
            for (decomposition, accesses) in self.decomposed.iter_mut().zip(slices) {
                decomposition.decompose(accesses, &Partitioning::new(1), &self.layout);
            }
            let from = Insertion {
                partition: 0,
                decomposed: &self.decomposed.iter().collect::<Vec<_>>(),
                layout: &self.layout,
                directory: &self.directory,
                bases: bases.as_ptr(),
            };
            // SAFETY: there is no other thread.
            unsafe { self.chains.insert(&from) };
        }

        /// Row and events of each plain chain.
        fn plain(&mut self) -> Vec<(u32, Vec<u32>)> {
            self.chains.separate();
            (0..self.chains.plain_len()).map(|number| self.events(self.chains.plain(number))).collect()
        }

        fn events(&self, range: Range<usize>) -> (u32, Vec<u32>) {
            let operations = &self.chains.operations()[range];
            assert!(operations.iter().all(|one| one.row == operations[0].row));
            (operations[0].row, operations.iter().map(|one| one.event).collect())
        }

        /// The positions of a group's conditions, of a thread.
        fn positions(&self, thread: usize, group: usize) -> Vec<(u32, u32)> {
            // SAFETY: there is no other thread.
            let sights = unsafe { self.decomposed[thread].sights(group) };
            sights.map(|sight| (sight.chain, sight.position)).collect()
        }

        /// The version that a condition of a thread sees.
        fn seen(&self, thread: usize, group: usize, condition: usize) -> [u64; 2] {
            let decomposition = &self.decomposed[thread];
            let slot = decomposition.conditions(group).0[condition].row as usize;
            // SAFETY: the slot is that of a condition on this table; rows are two words.
            unsafe { decomposition.version(0, slot, &self.layout).cast::<[u64; 2]>().read() }
        }
    }

    #[test]
    fn a_row_has_one_chain_with_its_operations_in_event_order() {
        let first = [access(0, 2, kind::MODIFY), access(1, 0, kind::MODIFY), access(1, 2, kind::READ)];
        let second = [access(4, 0, kind::READ), access(5, 2, kind::MODIFY), access(5, 2, kind::READ)];
        let mut inserted_events = inserted([&first, &second]);
        assert_eq!(inserted_events.plain(), [(2, vec![0, 1, 5, 5]), (0, vec![1, 4])]);
        assert_eq!(
            (inserted_events.chains.len(), inserted_events.chains.all_plain(), inserted_events.chains.tracked().len()),
            (2, 0..6, 0)
        );
        // SAFETY: there is no other thread.
        let entry = |row| unsafe {
            inserted_events.directory.with(&inserted_events.layout, RowName { table: 0, row }, |entry| *entry)
        };
        assert_eq!([0, 1, 2, 3].map(entry), [2, 0, 1, 0], "those of the batch before are gone");
    }

    #[test]
    fn chains_that_events_depend_on_or_that_depend_on_others_lie_behind_plain_ones() {
        let first = [access(0, 1, kind::CONDITION), access(0, 2, kind::MODIFY), access(1, 3, kind::MODIFY)];
        let second = [access(2, 2, kind::READ), access(3, 1, kind::MODIFY), access(4, 3, kind::READ)];
        let mut inserted_events = inserted([&first, &second]);
        assert_eq!((inserted_events.plain(), inserted_events.chains.all_plain()), (vec![(3, vec![1, 4])], 0..2));
        let tracked = inserted_events.chains.tracked();
        let wanted = [((1, vec![3]), false), ((2, vec![0, 2]), true)];
        assert!(tracked.iter().map(|one| (inserted_events.events(one.range()), one.is_dependent)).eq(wanted));
        let origins = &inserted_events.chains.origins()[tracked[1].range()];
        assert_eq!(origins.iter().map(|one| one.link.role()).collect::<Vec<_>>(), [Role::Dependent(0), Role::Plain]);
        assert_eq!((origins[0].thread, origins[1].thread), (0, 1));
    }

    #[test]
    fn a_condition_sees_the_version_after_all_earlier_events() {
        let first = [
            access(0, 0, kind::CONDITION),
            access(0, 1, kind::MODIFY),
            access(2, 0, kind::MODIFY),
            access(2, 0, kind::MODIFY),
            access(3, 0, kind::CONDITION),
            access(3, 2, kind::CONDITION),
            access(3, 0, kind::MODIFY),
        ];
        let second = [access(4, 1, kind::CONDITION), access(4, 0, kind::MODIFY), access(5, 0, kind::CONDITION)];
        let mut inserted_events = inserted([&first, &[&second[..], &[access(5, 3, kind::MODIFY)]].concat()]);
        let chain = |row| {
            let tracked = inserted_events.chains.tracked();
            tracked.iter().position(|one| one.name.row == row).unwrap() as u32
        };
        assert_eq!(inserted_events.positions(0, 0), [(chain(0), 0)]);
        assert_eq!(inserted_events.positions(0, 1), [(chain(0), 2), (chain(2), 0)]);
        assert_eq!(inserted_events.positions(1, 0), [(chain(1), 1)]);
        assert_eq!(inserted_events.positions(1, 1), [(chain(0), 4)]);
        // A version before the first operation is kept at once; the others are kept on the walk.
        assert_eq!((inserted_events.seen(0, 0, 0), inserted_events.seen(0, 1, 1)), ([0, 0], [2, 2]));
        let zero = chain(0) as usize;
        let positions =
            |chain: &Chain| inserted_events.chains.versions(chain).iter().map(|one| one.position).collect::<Vec<_>>();
        assert_eq!(positions(&inserted_events.chains.tracked()[zero]), [2, 4]);
        for (number, value) in [(0, 10), (1, 20)] {
            inserted_events.rows[..2].fill(value);
            let bases = inserted_events.bases();
            let chain = &inserted_events.chains.tracked()[zero];
            // SAFETY: there is no other thread.
            unsafe {
                chain.keep(inserted_events.chains.versions(chain)[number], &inserted_events.layout, bases.as_ptr())
            };
        }
        inserted_events.rows[..2].fill(99);
        assert_eq!(
            [inserted_events.seen(0, 0, 0), inserted_events.seen(0, 1, 0), inserted_events.seen(1, 1, 0)],
            [[0, 0], [10, 10], [20, 20]]
        );
    }

    #[test]
    fn what_was_evaluated_before_a_round_does_not_hang_on_the_round() {
        let inserted_events = inserted([&[access(0, 1, kind::CONDITION), access(0, 2, kind::MODIFY)], &[]]);
        let chain = &inserted_events.chains.tracked()[0];
        assert_eq!(chain.evaluated_before(1), 0);
        for (round, operations) in [(1, 2), (2, 2), (3, 7)] {
            let before = chain.evaluated_before(round);
            chain.set_evaluated(round, operations);
            assert_eq!((chain.evaluated_before(round), chain.evaluated_before(round + 1)), (before, operations));
        }
        assert_eq!(chain.evaluated_before(9), 7, "it was done");
    }
}
