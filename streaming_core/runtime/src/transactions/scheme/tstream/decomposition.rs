//! Transaction decomposition (TStream, section IV-C1): an event's operations, and what each depends on.
//!
//! An *operation* is a write or a read of one row. The conditions of its event must hold for it. Conditions are evaluated
//! once per event, when a chain reaches the first operation that needs them. They are evaluated on *versions* of their rows:
//! the rows as the event must see them. An operation on another row than those of the conditions is *dependent*.
//!
//! The chain of a condition's row keeps the version. So a condition enters that chain too, between the operations of earlier
//! and later events. There it is no operation: it marks the position at which the row is the version. The version has a *slot*
//! in the memory of the thread that decomposed the event. So the conditions of an event can be evaluated in place.
//!
//! Three kinds of conditions are themselves operations of their rows' chains, since walking the chain evaluates them:
//!
//! * conditions of an event with one row only;
//! * conditions of an event without operations, because no operation needs them;
//! * conditions on a row with containers, which has no versions.

use crate::program::kernel::{Access, kind};
use crate::state::key_group::{OwnerMap, group, hash_i64};
use crate::transactions::scheme::tstream::chains::{Chain, Chains, Insertion};
use crate::transactions::scheme::tstream::costs::Costs;
use crate::transactions::scheme::tstream::layout::{Layout, RowName};

/// So many accesses before they are inserted, the entries of their rows are fetched.
const AHEAD: usize = 16;
/// Rows per unit of partitioning: neighbours on one cache line are in one partition, or threads would take it from each other.
const UNIT: u32 = 16;

/// The relation of a chain's entry to the conditions of its event. One word, because every operation has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Link(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// An operation that needs nothing but the operations before it in its chain.
    Plain,
    /// An operation that needs the conditions of this group, all on its own row.
    Own(usize),
    /// An operation that needs the conditions of this group, some on other rows: its chain depends on theirs.
    Dependent(usize),
    /// No operation: a condition, with the slot of its version.
    Version(usize),
    /// An operation that is a condition on a row with containers.
    Watched,
}

/// Marks of a chain: a condition of a group is in it, or an operation that needs one.
pub(super) const IS_TRACKED: u32 = 1;
/// One of its operations depends on another row.
pub(super) const IS_DEPENDENT: u32 = 2;

impl Link {
    // Roles are told apart by comparisons: a jump by a table is guessed wrong too often.
    const ROLE_BITS: u32 = 3;
    const PLAIN: u32 = 0;
    const OWN: u32 = 1;
    const DEPENDENT: u32 = 2;
    const VERSION: u32 = 3;
    const WATCHED: u32 = 4;

    fn new(role: Role) -> Self {
        let (tag, number) = match role {
            Role::Plain => (Self::PLAIN, 0),
            Role::Own(group) => (Self::OWN, group),
            Role::Dependent(group) => (Self::DEPENDENT, group),
            Role::Version(number) => (Self::VERSION, number),
            Role::Watched => (Self::WATCHED, 0),
        };
        let number = u32::try_from(number).ok().filter(|&number| number < 1 << (u32::BITS - Self::ROLE_BITS));
        Self(number.expect("an interval has fewer conditions") << Self::ROLE_BITS | tag)
    }

    #[cfg(all(test, not(loom)))]
    pub fn role(self) -> Role {
        let number = self.number();
        match self.tag() {
            Self::PLAIN => Role::Plain,
            Self::OWN => Role::Own(number),
            Self::DEPENDENT => Role::Dependent(number),
            Self::VERSION => Role::Version(number),
            _ => Role::Watched,
        }
    }

    #[inline(always)]
    fn tag(self) -> u32 {
        self.0 & ((1 << Self::ROLE_BITS) - 1)
    }

    /// The number of its group, or the slot of its version.
    #[inline(always)]
    pub fn number(self) -> usize {
        (self.0 >> Self::ROLE_BITS) as usize
    }

    /// Whether it is an operation that needs the conditions of its group.
    #[inline(always)]
    pub fn is_conditional(self) -> bool {
        self.tag() == Self::OWN || self.tag() == Self::DEPENDENT
    }

    #[inline(always)]
    pub fn is_dependent(self) -> bool {
        self.tag() == Self::DEPENDENT
    }

    #[inline(always)]
    pub fn is_version(self) -> bool {
        self.tag() == Self::VERSION
    }

    /// The marks of its chain.
    #[inline(always)]
    pub fn marks(self) -> u32 {
        (u32::from(self.tag() != Self::PLAIN) * IS_TRACKED) | (u32::from(self.is_dependent()) * IS_DEPENDENT)
    }
}

/// An entry of a chain, and the thread that decomposed its event.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Operation {
    pub access: Access,
    pub link: Link,
    pub thread: u32,
}

/// Which partition a row belongs to: hash partitioning, as in section IV-E. A thread has one partition.
pub(super) struct Partitioning {
    owners: OwnerMap,
    is_single: bool,
}

impl Partitioning {
    pub fn new(threads: usize) -> Self {
        Self { owners: OwnerMap::even(threads), is_single: threads == 1 }
    }

    #[inline(always)]
    pub fn of(&self, name: RowName) -> usize {
        if self.is_single {
            return 0;
        }
        let unit = u64::from(name.table) << 32 | u64::from(name.row / UNIT);
        self.owners.owner(group(hash_i64(unit as i64)))
    }
}

/// The conditions of an event that needs versions or containers.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// The first of its conditions on versions, and the end.
    conditions: (u32, u32),
    /// The first of the chains of all its conditions, and the end.
    chains: (u32, u32),
}

/// The decomposed events of a thread in an interval. In compute mode, their thread writes it. In state access mode, all threads
/// read it.
pub(super) struct Decomposition {
    pub chains: Chains,
    groups: Vec<Group>,
    /// Conditions on versions. Instead of its row, a condition names the slot of the version.
    conditions: Vec<Access>,
    /// The chain of each condition in a group.
    seen: Vec<*const Chain>,
    /// How many slots there are, and per partition its next one and the end of those that it has. Partitions get `UNIT` at a
    /// time, because the threads of different ones should not write to a cache line.
    slots: u32,
    free: Vec<(u32, u32)>,
    /// Per table: the versions, by slot. Their chains' walkers write them, and later rounds read them.
    versions: Vec<Vec<u64>>,
    bases: Vec<*mut u8>,
    /// Per table: whether its rows have containers.
    containers: Vec<bool>,
    /// Whether operations of several chains decide an event, so that threads must decide it by atomic operations.
    pub is_shared: bool,
}

// SAFETY: `bases` points into `versions`, and chains are shared; nothing belongs to a thread.
unsafe impl Send for Decomposition {}

impl Decomposition {
    pub fn new(partitions: usize, containers: Vec<bool>) -> Self {
        Self {
            chains: Chains::new(),
            groups: Vec::new(),
            conditions: Vec::new(),
            seen: Vec::new(),
            slots: 0,
            free: vec![(0, 0); partitions],
            versions: vec![Vec::new(); containers.len()],
            bases: vec![std::ptr::null_mut(); containers.len()],
            containers,
            is_shared: false,
        }
    }

    /// Whether a condition of an event with several rows is evaluated on a version of its row.
    #[inline]
    fn is_on_version(&self, condition: &Access) -> bool {
        condition.kind != kind::CONDITION || !self.containers[usize::from(condition.table)]
    }

    /// Begins an interval: forgets everything, and keeps the memory. No thread uses it any more.
    pub fn clear(&mut self) {
        self.chains.clear();
        self.groups.clear();
        self.conditions.clear();
        self.seen.clear();
        self.slots = 0;
        self.free.fill((0, 0));
        self.is_shared = false;
    }

    /// Inserts the operations of some events into their chains. The accesses are in event order.
    ///
    /// # Safety
    /// It is compute mode, and no other thread decomposes these events.
    pub unsafe fn decompose(&mut self, accesses: &[Access], into: Insertion, costs: &mut Costs) {
        let mut at = 0;
        for event in accesses.chunk_by(|a, b| a.event == b.event) {
            at += event.len();
            for access in accesses.iter().skip(at + AHEAD).take(event.len()) {
                into.directory.prefetch(into.layout, RowName::of(access));
            }
            // SAFETY: as the caller says.
            unsafe {
                if event[0].waits() {
                    self.insert_plain(event, into, costs);
                } else {
                    self.decompose_conditional(event, into, costs);
                }
            }
        }
    }

    /// # Safety
    /// As for `decompose`.
    #[inline(always)]
    unsafe fn insert_plain(&mut self, event: &[Access], into: Insertion, costs: &mut Costs) {
        costs.operations += event.len() as u64;
        for access in event {
            // SAFETY: as the caller says.
            unsafe { self.insert(access, Role::Plain, into, costs) };
        }
    }

    /// # Safety
    /// As for `decompose`.
    #[inline(always)]
    unsafe fn insert(&mut self, access: &Access, role: Role, into: Insertion, costs: &mut Costs) -> *const Chain {
        let operation = Operation { access: *access, link: Link::new(role), thread: into.thread as u32 };
        // SAFETY: as the caller says.
        unsafe { self.chains.insert(operation, into, costs) }
    }

    /// Decomposes an event with conditions.
    ///
    /// # Safety
    /// As for `decompose`.
    unsafe fn decompose_conditional(&mut self, event: &[Access], into: Insertion, costs: &mut Costs) {
        let (conditions, others) = event.split_at(event.iter().take_while(|access| !access.waits()).count());
        let first = RowName::of(&event[0]);
        let has_one_row = event.iter().all(|access| RowName::of(access) == first);
        if has_one_row || others.is_empty() {
            self.is_shared |= !has_one_row;
            // SAFETY: as the caller says.
            return unsafe { self.insert_plain(event, into, costs) };
        }
        costs.operations += others.len() as u64;
        let starts = (self.conditions.len() as u32, self.seen.len() as u32);
        for condition in conditions {
            let role = if self.is_on_version(condition) {
                let slot = self.slot(into.partitioning.of(RowName::of(condition)));
                self.conditions.push(Access { row: slot, ..*condition });
                Role::Version(slot as usize)
            } else {
                self.is_shared = true;
                costs.operations += 1;
                Role::Watched
            };
            // SAFETY: as the caller says.
            let chain = unsafe { self.insert(condition, role, into, costs) };
            self.seen.push(chain);
        }
        let group = self.groups.len();
        self.groups.push(Group {
            conditions: (starts.0, self.conditions.len() as u32),
            chains: (starts.1, self.seen.len() as u32),
        });
        for access in others {
            let name = RowName::of(access);
            let is_own = conditions.iter().all(|condition| RowName::of(condition) == name);
            let role = if is_own { Role::Own(group) } else { Role::Dependent(group) };
            // SAFETY: as the caller says.
            unsafe { self.insert(access, role, into, costs) };
        }
    }

    /// A slot for a version of a row in this partition.
    fn slot(&mut self, partition: usize) -> u32 {
        let (next, end) = &mut self.free[partition];
        if next == end {
            *next = self.slots;
            self.slots += UNIT;
            *end = self.slots;
        }
        *next += 1;
        *next - 1
    }

    /// Ends compute mode: makes room for the versions.
    pub fn finish(&mut self, layout: &Layout) {
        for (table, versions) in self.versions.iter_mut().enumerate() {
            let words = (self.slots as usize * layout.stride(table as u8)).div_ceil(size_of::<u64>());
            if versions.len() < words {
                versions.resize(words.next_power_of_two(), 0);
            }
            self.bases[table] = versions.as_mut_ptr().cast();
        }
    }

    /// Whether an event needs versions or containers.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The address of a version.
    ///
    /// # Safety
    /// It is state access mode, and the slot is that of a condition on a row of this table.
    #[inline(always)]
    pub unsafe fn version(&self, table: u8, slot: usize, layout: &Layout) -> *mut u8 {
        // SAFETY: `finish` has made room for it.
        unsafe { self.bases[usize::from(table)].add(slot * layout.stride(table)) }
    }

    /// The base addresses of versions, like `Tables::bases`.
    #[inline(always)]
    pub fn bases(&self) -> *const *mut u8 {
        self.bases.as_ptr()
    }

    /// The chains of the rows of a group's conditions.
    #[inline(always)]
    pub fn seen(&self, group: usize) -> &[*const Chain] {
        let (begin, end) = self.groups[group].chains;
        &self.seen[begin as usize..end as usize]
    }

    /// The conditions of a group that are evaluated on versions, for the tables at `bases`; and whether the group has others.
    #[inline(always)]
    pub fn conditions(&self, group: usize) -> (&[Access], bool) {
        let Group { conditions: (begin, end), chains } = self.groups[group];
        (&self.conditions[begin as usize..end as usize], end - begin < chains.1 - chains.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::transactions::scheme::tstream::chains::testing::{self, Decomposed};

    fn access(event: u32, row: u32, table: u8, kind: u8) -> Access {
        Access { event, row, table, kind, ..Access::default() }
    }

    fn decomposed(accesses: &[Access]) -> Decomposed {
        let mut decomposed = Decomposed::new(1);
        for _ in 0..2 {
            decomposed.end();
            decomposed.decompose(0, accesses);
        }
        decomposed
    }

    /// Event, row, kind and role of each entry, by chains.
    fn entries(decomposed: &Decomposed) -> Vec<(u32, u32, u8, Role)> {
        let entries = decomposed.chains().into_iter().flat_map(testing::entries);
        entries.map(|(access, role)| (access.event, access.row, access.kind, role)).collect()
    }

    #[test]
    fn a_link_keeps_role_and_number() {
        for role in [Role::Plain, Role::Own(0), Role::Dependent(7), Role::Version((1 << 29) - 1), Role::Watched] {
            assert_eq!(Link::new(role).role(), role);
        }
    }

    #[test]
    fn an_operation_depends_on_the_rows_of_its_event_s_conditions() {
        let decomposed = decomposed(&[
            access(3, 1, 0, kind::CONDITION),
            access(3, 1, 0, kind::MODIFY),
            access(3, 2, 0, kind::MODIFY),
            access(4, 5, 0, kind::MODIFY),
            access(4, 6, 0, kind::READ),
            access(5, 6, 0, kind::CONDITION),
            access(5, 7, 0, kind::CONDITION),
            access(5, 7, 0, kind::READ),
        ]);
        let wanted = [
            (3, 1, kind::CONDITION, Role::Version(0)),
            (3, 1, kind::MODIFY, Role::Own(0)),
            (3, 2, kind::MODIFY, Role::Dependent(0)),
            (4, 5, kind::MODIFY, Role::Plain),
            (4, 6, kind::READ, Role::Plain),
            (5, 6, kind::CONDITION, Role::Version(1)),
            (5, 7, kind::CONDITION, Role::Version(2)),
            (5, 7, kind::READ, Role::Dependent(1)),
        ];
        assert_eq!((entries(&decomposed), decomposed.costs.operations), (wanted.to_vec(), 2 * 5));
        let one = &decomposed.threads[0];
        // Conditions name the slots of their versions.
        let rows = |group| one.conditions(group).0.iter().map(|one| one.row).collect::<Vec<_>>();
        assert_eq!((rows(0), rows(1)), (vec![0], vec![1, 2]));
        assert_eq!(one.seen(1), [decomposed.chain(0, 6), decomposed.chain(0, 7)]);
        assert!(one.has_groups() && !one.is_shared);
        // SAFETY: the slots are those of conditions on rows of table 0.
        let address = |slot| unsafe { one.version(0, slot, &decomposed.layout) as usize };
        assert_eq!((address(1) - address(0), address(2) - address(0)), (16, 32));
    }

    #[test]
    fn conditions_are_operations_where_walking_their_chain_evaluates_them() {
        let one_row = [access(0, 1, 0, kind::CONDITION), access(0, 1, 0, kind::MODIFY)];
        let alone = decomposed(&one_row);
        assert_eq!(entries(&alone), [(0, 1, kind::CONDITION, Role::Plain), (0, 1, kind::MODIFY, Role::Plain)]);
        assert!(!alone.threads[0].has_groups() && !alone.threads[0].is_shared, "one chain decides the event");

        let nothing_else = decomposed(&[access(1, 1, 0, kind::CONDITION), access(1, 2, 0, kind::CONDITION)]);
        assert!(entries(&nothing_else).iter().all(|entry| entry.3 == Role::Plain));
        let one = &nothing_else.threads[0];
        assert!(!one.has_groups() && one.is_shared, "two chains decide the event");

        let containers = decomposed(&[access(2, 1, 1, kind::CONDITION), access(2, 2, 0, kind::MODIFY)]);
        let wanted = [(2, 2, kind::MODIFY, Role::Dependent(0)), (2, 1, kind::CONDITION, Role::Watched)];
        assert_eq!(entries(&containers), wanted);
        let (conditions, has_others) = containers.threads[0].conditions(0);
        assert!(conditions.is_empty() && has_others && containers.threads[0].is_shared);
    }

    #[test]
    fn slots_next_to_each_other_are_of_one_partition() {
        let mut decomposed = Decomposed::new(2);
        let rows: Vec<u32> = (0..120).map(|number| number % 60 * 64).collect();
        let event =
            |(&row, event): (&u32, u32)| [access(event, row, 0, kind::CONDITION), access(event, 3, 0, kind::MODIFY)];
        decomposed.decompose(0, &rows.iter().zip(0..).flat_map(event).collect::<Vec<_>>());
        let mut slots: Vec<(u32, usize)> = (0..rows.len())
            .map(|group| {
                let partition = decomposed.partitioning.of(RowName { table: 0, row: rows[group] });
                (decomposed.threads[0].conditions(group).0[0].row, partition)
            })
            .collect();
        slots.sort_unstable();
        assert!(slots.windows(2).all(|pair| pair[0].0 < pair[1].0), "each has its own");
        assert!(slots.chunk_by(|a, b| a.0 / UNIT == b.0 / UNIT).all(|unit| unit.iter().all(|one| one.1 == unit[0].1)));
        assert!(slots.last().unwrap().0 < 120 + 2 * UNIT);
    }

    #[test]
    fn a_row_always_has_the_same_partition_and_shares_it_with_its_cache_line() {
        let partitioning = Partitioning::new(3);
        let of = |table, row| partitioning.of(RowName { table, row });
        assert!((0..160).all(|row| of(1, row) == of(1, row / UNIT * UNIT) && of(1, row) < 3));
        assert!((0..3).all(|partition| (0..100).any(|unit| of(0, unit * UNIT) == partition)));
    }
}
