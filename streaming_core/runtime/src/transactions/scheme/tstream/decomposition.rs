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
use crate::transactions::scheme::tstream::chains::Chain;
use crate::transactions::scheme::tstream::costs::Costs;
use crate::transactions::scheme::tstream::insertion::{Chains, Insertion};
use crate::transactions::scheme::tstream::layout::{Layout, RowName, UNIT};
use crate::transactions::scheme::tstream::operation::{Link, Operation, Role};

/// So many accesses before they are inserted, the entries of their rows are fetched.
const AHEAD: usize = 16;

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
