//! Transaction decomposition (TStream, section IV-C1): an event's operations, and the partition that each is routed to.
//!
//! An *operation* is a write or a read of one row. The conditions of its event must hold for it. Conditions are evaluated
//! once per event, when a chain reaches the first operation that needs them. They are evaluated on *versions* of their rows:
//! the rows as the event must see them. An operation on another row than those of the conditions is *dependent*.
//!
//! The chain of a condition's row keeps the version. So a condition is routed to that chain too, between the operations of
//! earlier and later events. There it is no operation: it marks the position at which the row is the version. The version has
//! a *slot* in the memory of the thread that decomposed the event. So the conditions of an event can be evaluated in place.
//!
//! Three kinds of conditions are themselves operations of their rows' chains, since walking the chain evaluates them:
//!
//! * conditions of an event with one row only;
//! * conditions of an event without operations, because no operation needs them;
//! * conditions on a row with containers, which has no versions.

use crate::program::kernel::{Access, kind};
use crate::state::key_group::{OwnerMap, group, hash_i64};
use crate::threads::sync::UnsafeCell;
use crate::transactions::scheme::tstream::layout::{Layout, RowName};

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
    /// No operation: a condition, with the number of its version among those that the partition keeps for the thread.
    Version(usize),
    /// An operation that is a condition on a row with containers, with such a number.
    Watched(usize),
}

/// Marks of a chain: a condition of a group is in it, or an operation that needs one.
pub(super) const IS_TRACKED: u8 = 1;
/// One of its operations depends on another row.
pub(super) const IS_DEPENDENT: u8 = 2;

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
            Role::Watched(number) => (Self::WATCHED, number),
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
            _ => Role::Watched(number),
        }
    }

    #[inline(always)]
    fn tag(self) -> u32 {
        self.0 & ((1 << Self::ROLE_BITS) - 1)
    }

    /// The number of its group or condition.
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

    /// Whether it is a condition of a group.
    #[inline(always)]
    pub fn is_condition(self) -> bool {
        self.tag() >= Self::VERSION
    }

    #[inline(always)]
    pub fn is_version(self) -> bool {
        self.tag() == Self::VERSION
    }

    /// The marks of its chain.
    #[inline(always)]
    pub fn marks(self) -> u8 {
        (u8::from(self.tag() != Self::PLAIN) * IS_TRACKED) | (u8::from(self.is_dependent()) * IS_DEPENDENT)
    }
}

/// An entry of a chain, on its way there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub access: Access,
    pub link: Link,
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

/// The position of a condition in the chain of its row: the number of operations before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sight {
    pub partition: u32,
    pub chain: u32,
    pub position: u32,
}

/// The conditions of an event that needs versions or containers.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// The first of its conditions on versions, and the end.
    conditions: (u32, u32),
    /// The first slot of its conditions in `slots`, and the end.
    slots: (u32, u32),
}

/// The decomposed events of a thread.
pub(super) struct Decomposition {
    /// Per partition: entries of its chains, in event order.
    pub operations: Vec<Vec<Operation>>,
    groups: Vec<Group>,
    /// Conditions on versions. Instead of its row, a condition names the slot of the version.
    conditions: Vec<Access>,
    /// The slot of each condition in a group; first its partition and its number there.
    slots: Vec<u32>,
    numbers: Vec<(u32, u32)>,
    /// Per partition: its first slot. The slots of a partition lie together, because its thread writes them.
    starts: Vec<u32>,
    /// Per slot. In compute mode, the thread of the partition writes it; all threads read it in rounds after the first.
    sights: Vec<UnsafeCell<Sight>>,
    /// Per table: the versions, by slot. Their chains' walkers write them, and later rounds read them.
    versions: Vec<Vec<u64>>,
    bases: Vec<*mut u8>,
    /// Per table: whether its rows have containers.
    containers: Vec<bool>,
    /// Whether operations of several chains decide an event, so that threads must decide it by atomic operations.
    pub is_shared: bool,
}

// SAFETY: `bases` points into `versions`, and cells are used as their comments say; nothing belongs to a thread.
unsafe impl Send for Decomposition {}

impl Decomposition {
    pub fn new(partitions: usize, containers: Vec<bool>) -> Self {
        Self {
            operations: (0..partitions).map(|_| Vec::new()).collect(),
            groups: Vec::new(),
            conditions: Vec::new(),
            slots: Vec::new(),
            numbers: Vec::new(),
            starts: vec![0; partitions],
            sights: Vec::new(),
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

    #[inline(always)]
    fn push(&mut self, partition: usize, access: Access, role: Role) {
        self.operations[partition].push(Operation { access, link: Link::new(role) });
    }

    /// Replaces everything by the entries of these accesses, which are in event order.
    pub fn decompose(&mut self, accesses: &[Access], partitioning: &Partitioning, layout: &Layout) {
        self.operations.iter_mut().for_each(Vec::clear);
        self.groups.clear();
        self.conditions.clear();
        self.numbers.clear();
        self.starts.fill(0);
        self.is_shared = false;
        for event in accesses.chunk_by(|a, b| a.event == b.event) {
            if event[0].waits() {
                for access in event {
                    self.push(partitioning.of(RowName::of(access)), *access, Role::Plain);
                }
            } else {
                self.decompose_conditional(event, partitioning);
            }
        }
        if !self.groups.is_empty() {
            self.assign_slots(layout);
        }
    }

    /// Decomposes an event with conditions.
    fn decompose_conditional(&mut self, event: &[Access], partitioning: &Partitioning) {
        let (conditions, others) = event.split_at(event.iter().take_while(|access| !access.waits()).count());
        let first = RowName::of(&event[0]);
        let has_one_row = event.iter().all(|access| RowName::of(access) == first);
        if has_one_row || others.is_empty() {
            for access in event {
                self.push(partitioning.of(RowName::of(access)), *access, Role::Plain);
            }
            self.is_shared |= !has_one_row;
            return;
        }
        let starts = (self.conditions.len() as u32, self.numbers.len() as u32);
        for condition in conditions {
            let partition = partitioning.of(RowName::of(condition));
            // Until `assign_slots`, `starts` counts the slots of each partition.
            let number = self.starts[partition];
            self.starts[partition] += 1;
            let role = if self.is_on_version(condition) {
                self.conditions.push(Access { row: self.numbers.len() as u32, ..*condition });
                Role::Version(number as usize)
            } else {
                self.is_shared = true;
                Role::Watched(number as usize)
            };
            self.numbers.push((partition as u32, number));
            self.push(partition, *condition, role);
        }
        let group = self.groups.len();
        self.groups.push(Group {
            conditions: (starts.0, self.conditions.len() as u32),
            slots: (starts.1, self.numbers.len() as u32),
        });
        for access in others {
            let name = RowName::of(access);
            let is_own = conditions.iter().all(|condition| RowName::of(condition) == name);
            let role = if is_own { Role::Own(group) } else { Role::Dependent(group) };
            self.push(partitioning.of(name), *access, role);
        }
    }

    /// Gives every condition its slot, and makes room for the versions.
    fn assign_slots(&mut self, layout: &Layout) {
        let mut slots = 0;
        for start in &mut self.starts {
            slots += std::mem::replace(start, slots);
        }
        self.slots.clear();
        self.slots.extend(self.numbers.iter().map(|&(partition, number)| self.starts[partition as usize] + number));
        for condition in &mut self.conditions {
            condition.row = self.slots[condition.row as usize];
        }
        let slots = slots as usize;
        if self.sights.len() < slots {
            self.sights.resize_with(slots, UnsafeCell::default);
        }
        for (table, versions) in self.versions.iter_mut().enumerate() {
            let words = (slots * layout.stride(table as u8)).div_ceil(size_of::<u64>());
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

    /// The slot of a version or a watched operation.
    #[inline(always)]
    pub fn slot(&self, partition: usize, number: usize) -> usize {
        self.starts[partition] as usize + number
    }

    /// The address of a version.
    ///
    /// # Safety
    /// The slot is that of a condition on a row of this table.
    #[inline(always)]
    pub unsafe fn version(&self, table: u8, slot: usize, layout: &Layout) -> *mut u8 {
        // SAFETY: `assign_slots` has made room for it.
        unsafe { self.bases[usize::from(table)].add(slot * layout.stride(table)) }
    }

    /// The base addresses of versions, like `Tables::bases`.
    #[inline(always)]
    pub fn bases(&self) -> *const *mut u8 {
        self.bases.as_ptr()
    }

    /// # Safety
    /// It is compute mode, and the slot is in the calling thread's partition.
    #[inline(always)]
    pub unsafe fn set_sight(&self, slot: usize, sight: Sight) {
        // SAFETY: as the caller says.
        self.sights[slot].with_mut(|to| unsafe { *to = sight });
    }

    /// The positions of a group's conditions in the chains of their rows.
    ///
    /// # Safety
    /// It is a round after the first.
    #[inline(always)]
    pub unsafe fn sights(&self, group: usize) -> impl Iterator<Item = Sight> {
        let (begin, end) = self.groups[group].slots;
        let slots = &self.slots[begin as usize..end as usize];
        // SAFETY: as the caller says.
        slots.iter().map(|&slot| self.sights[slot as usize].with(|sight| unsafe { *sight }))
    }

    /// The conditions of a group that are evaluated on versions, for the tables at `bases`; and whether the group has others.
    #[inline(always)]
    pub fn conditions(&self, group: usize) -> (&[Access], bool) {
        let Group { conditions: (begin, end), slots } = self.groups[group];
        (&self.conditions[begin as usize..end as usize], end - begin < slots.1 - slots.0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn access(event: u32, row: u32, table: u8, kind: u8) -> Access {
        Access { event, row, table, kind, ..Access::default() }
    }

    const LAYOUT: &str = r#"[{"name": "t", "rows": 9, "stride": 16, "read": [0, 16]},
        {"name": "c", "rows": 9, "stride": 24, "read": [0, 24], "containers": true}]"#;

    fn layout() -> Layout {
        Layout::new(&serde_json::from_str::<Vec<crate::program::TableSpec>>(LAYOUT).unwrap())
    }

    fn decomposed(accesses: &[Access], partitions: usize) -> Decomposition {
        let mut decomposition = Decomposition::new(partitions, vec![false, true]);
        for _ in 0..2 {
            decomposition.decompose(accesses, &Partitioning::new(partitions), &layout());
        }
        decomposition
    }

    /// Event, row, kind and role of each entry of a partition.
    fn entries(decomposition: &Decomposition, partition: usize) -> Vec<(u32, u32, u8, Role)> {
        let what = |one: &Operation| (one.access.event, one.access.row, one.access.kind, one.link.role());
        decomposition.operations[partition].iter().map(what).collect()
    }

    #[test]
    fn a_link_keeps_role_and_number() {
        for role in [Role::Plain, Role::Own(0), Role::Dependent(7), Role::Version((1 << 29) - 1), Role::Watched(3)] {
            assert_eq!(Link::new(role).role(), role);
        }
    }

    #[test]
    fn an_operation_depends_on_the_rows_of_its_event_s_conditions() {
        let decomposition = decomposed(
            &[
                access(3, 1, 0, kind::CONDITION),
                access(3, 1, 0, kind::MODIFY),
                access(3, 2, 0, kind::MODIFY),
                access(4, 5, 0, kind::MODIFY),
                access(4, 6, 0, kind::READ),
                access(5, 6, 0, kind::CONDITION),
                access(5, 7, 0, kind::CONDITION),
                access(5, 7, 0, kind::READ),
            ],
            1,
        );
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
        assert_eq!(entries(&decomposition, 0), wanted);
        // Conditions name the slots of their versions.
        let rows = |group| decomposition.conditions(group).0.iter().map(|one| one.row).collect::<Vec<_>>();
        assert_eq!((rows(0), rows(1)), (vec![0], vec![1, 2]));
        assert!(decomposition.has_groups() && !decomposition.is_shared);
        // SAFETY: the slots are those of conditions on rows of table 0.
        let address = |slot| unsafe { decomposition.version(0, slot, &layout()) as usize };
        assert_eq!((address(1) - address(0), address(2) - address(0)), (16, 32));
    }

    #[test]
    fn conditions_are_operations_where_walking_their_chain_evaluates_them() {
        let one_row = [access(0, 1, 0, kind::CONDITION), access(0, 1, 0, kind::MODIFY)];
        let alone = decomposed(&one_row, 1);
        assert_eq!(entries(&alone, 0), [(0, 1, kind::CONDITION, Role::Plain), (0, 1, kind::MODIFY, Role::Plain)]);
        assert!(!alone.has_groups() && !alone.is_shared, "one chain decides the event");

        let nothing_else = decomposed(&[access(1, 1, 0, kind::CONDITION), access(1, 2, 0, kind::CONDITION)], 1);
        assert!(entries(&nothing_else, 0).iter().all(|entry| entry.3 == Role::Plain));
        assert!(!nothing_else.has_groups() && nothing_else.is_shared, "two chains decide the event");

        let containers = decomposed(&[access(2, 1, 1, kind::CONDITION), access(2, 2, 0, kind::MODIFY)], 1);
        let wanted = [(2, 1, kind::CONDITION, Role::Watched(0)), (2, 2, kind::MODIFY, Role::Dependent(0))];
        assert_eq!(entries(&containers, 0), wanted);
        let (conditions, has_others) = containers.conditions(0);
        assert!(conditions.is_empty() && has_others && containers.is_shared);
    }

    #[test]
    fn the_slots_of_a_partition_lie_together() {
        let partitioning = Partitioning::new(2);
        let of = |table| partitioning.of(RowName { table, row: 0 });
        let other = (1..200).find(|&unit| partitioning.of(RowName { table: 0, row: unit * UNIT }) != of(0)).unwrap();
        let rows = [0, other * UNIT, 1, other * UNIT + 1];
        let event = |row: u32, event| [access(event, row, 0, kind::CONDITION), access(event, 3, 0, kind::MODIFY)];
        let accesses: Vec<Access> = rows.iter().zip(0..).flat_map(|(&row, number)| event(row, number)).collect();
        let decomposition = decomposed(&accesses, 2);
        let slot = |group: usize| decomposition.conditions(group).0[0].row;
        let (first, second) = ([slot(0), slot(2)], [slot(1), slot(3)]);
        let wanted = if of(0) == 0 { ([0, 1], [2, 3]) } else { ([2, 3], [0, 1]) };
        assert_eq!((first, second), wanted);
        assert_eq!(decomposition.slot(of(0), 1), first[1] as usize);
    }

    #[test]
    fn a_row_always_has_the_same_partition_and_shares_it_with_its_cache_line() {
        let partitioning = Partitioning::new(3);
        let of = |table, row| partitioning.of(RowName { table, row });
        assert!((0..160).all(|row| of(1, row) == of(1, row / UNIT * UNIT) && of(1, row) < 3));
        assert!((0..3).all(|partition| (0..100).any(|unit| of(0, unit * UNIT) == partition)));
    }
}
