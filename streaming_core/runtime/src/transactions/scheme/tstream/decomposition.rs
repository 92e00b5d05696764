//! Transaction decomposition (TStream, section IV-C1): which operations there are, and which partition each is routed to.
//!
//! An *operation* is a write or a read of one row. What has to hold for it are the conditions of its event: they are
//! evaluated when an operation is come to that needs them, on the versions of their rows that the event is to see, and once
//! an event. Operations on a row other than those of the conditions are *dependent*.
//!
//! Three kinds of conditions are operations of their rows' chains themselves, since walking the chain is evaluating them:
//! those of an event with one row only; those of an event that has nothing but conditions, so that no operation would need
//! them; and those on a row with containers, of which there are no versions to keep.

use crate::program::kernel::{Access, kind};
use crate::state::key_group::{OwnerMap, group, hash_i64};
use crate::transactions::batch::Batch;
use crate::transactions::outcome::Outcome;

/// Rows per unit of partitioning: neighbours on one cache line are in one partition, or threads would take it from each other.
const UNIT: u32 = 16;

/// What has to be known before an operation can be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Needs {
    /// Nothing but what stands before it in its chain.
    Nothing,
    /// Conditions on its own row.
    Own,
    /// Conditions on other rows: its chain depends on theirs.
    Others,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub access: Access,
    pub needs: Needs,
}

/// A row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowName {
    pub table: u8,
    pub row: u32,
}

impl RowName {
    pub fn of(access: &Access) -> Self {
        Self { table: access.table, row: access.row }
    }
}

/// Which partition a row belongs to: hash partitioning, as in section IV-E. A thread has one partition.
pub(super) struct Partitioning(OwnerMap);

impl Partitioning {
    pub fn new(threads: usize) -> Self {
        Self(OwnerMap::even(threads))
    }

    #[inline(always)]
    pub fn of(&self, name: RowName) -> usize {
        let unit = u64::from(name.table) << 32 | u64::from(name.row / UNIT);
        self.0.owner(group(hash_i64(unit as i64)))
    }
}

/// What a thread has decomposed, by the partitions of the rows.
pub(super) struct Decomposition {
    /// In event order.
    pub operations: Vec<Vec<Operation>>,
    /// Rows that operations in other chains depend on.
    pub awaited: Vec<Vec<RowName>>,
    /// Per table: whether its rows have containers.
    containers: Vec<bool>,
}

impl Decomposition {
    pub fn new(partitions: usize, containers: Vec<bool>) -> Self {
        let lists = || (0..partitions).map(|_| Vec::new()).collect();
        Self { operations: lists(), awaited: (0..partitions).map(|_| Vec::new()).collect(), containers }
    }

    /// Whether a condition of an event with several rows is evaluated on a version of its row.
    #[inline]
    pub fn is_on_version(&self, condition: &Access) -> bool {
        condition.kind != kind::CONDITION || !self.containers[usize::from(condition.table)]
    }

    /// Replaces everything by what these accesses are, which are in event order.
    pub fn decompose(&mut self, accesses: &[Access], partitioning: &Partitioning) {
        for (operations, awaited) in self.operations.iter_mut().zip(&mut self.awaited) {
            operations.clear();
            awaited.clear();
        }
        for event in accesses.chunk_by(|a, b| a.event == b.event) {
            let (conditions, others) = event.split_at(event.iter().take_while(|access| !access.waits()).count());
            let first = RowName::of(&event[0]);
            let is_plain =
                conditions.is_empty() || others.is_empty() || event.iter().all(|access| RowName::of(access) == first);
            for condition in conditions {
                let name = RowName::of(condition);
                let partition = partitioning.of(name);
                if is_plain || !self.is_on_version(condition) {
                    self.operations[partition].push(Operation { access: *condition, needs: Needs::Nothing });
                } else {
                    self.awaited[partition].push(name);
                }
            }
            for access in others {
                let name = RowName::of(access);
                let needs = match is_plain {
                    true => Needs::Nothing,
                    false if conditions.iter().all(|condition| RowName::of(condition) == name) => Needs::Own,
                    false => Needs::Others,
                };
                self.operations[partitioning.of(name)].push(Operation { access: *access, needs });
            }
        }
    }
}

/// The conditions of an event, as they were planned by the thread whose slice of the batch it is in; `planned` gives what a
/// thread has planned.
pub(super) fn conditions<'a>(
    batch: &Batch,
    event: u32,
    threads: usize,
    outcome: &Outcome,
    planned: impl FnOnce(usize) -> &'a [Access],
) -> &'a [Access] {
    let accesses = &planned(batch.slice_of(event as usize, threads))[outcome.first(event)..];
    &accesses[..accesses.iter().take_while(|access| access.event == event && !access.waits()).count()]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn access(event: u32, row: u32, table: u8, kind: u8) -> Access {
        Access { event, row, table, kind, ..Access::default() }
    }

    /// Event, row, kind and needs of each operation.
    type Operations = Vec<(u32, u32, u8, Needs)>;

    fn decomposed(accesses: &[Access]) -> (Operations, Vec<u32>) {
        let mut decomposition = Decomposition::new(1, vec![false, true]);
        for _ in 0..2 {
            decomposition.decompose(accesses, &Partitioning::new(1));
        }
        let what = |one: &Operation| (one.access.event, one.access.row, one.access.kind, one.needs);
        (
            decomposition.operations[0].iter().map(what).collect(),
            decomposition.awaited[0].iter().map(|name| name.row).collect(),
        )
    }

    #[test]
    fn an_operation_depends_on_the_rows_of_its_event_s_conditions() {
        let (operations, awaited) = decomposed(&[
            access(3, 1, 0, kind::CONDITION),
            access(3, 1, 0, kind::MODIFY),
            access(3, 2, 0, kind::MODIFY),
            access(4, 5, 0, kind::MODIFY),
            access(4, 6, 0, kind::READ),
        ]);
        let wanted = [
            (3, 1, kind::MODIFY, Needs::Own),
            (3, 2, kind::MODIFY, Needs::Others),
            (4, 5, kind::MODIFY, Needs::Nothing),
            (4, 6, kind::READ, Needs::Nothing),
        ];
        assert_eq!((operations, awaited), (wanted.to_vec(), vec![1]));
    }

    #[test]
    fn conditions_are_operations_where_walking_their_chain_evaluates_them() {
        let one_row = [access(0, 1, 0, kind::CONDITION), access(0, 1, 0, kind::MODIFY)];
        let nothing_else = [access(1, 1, 0, kind::CONDITION), access(1, 2, 0, kind::CONDITION)];
        let containers = [access(2, 1, 1, kind::CONDITION), access(2, 2, 0, kind::MODIFY)];
        let (operations, awaited) = decomposed(&[&one_row[..], &nothing_else, &containers].concat());
        let kinds: Vec<(u8, Needs)> = operations.iter().map(|one| (one.2, one.3)).collect();
        let (condition, modify) = ((kind::CONDITION, Needs::Nothing), (kind::MODIFY, Needs::Nothing));
        assert_eq!(kinds, [condition, modify, condition, condition, condition, (kind::MODIFY, Needs::Others)]);
        assert!(awaited.is_empty());
    }

    #[test]
    fn a_row_always_has_the_same_partition_and_shares_it_with_its_cache_line() {
        let partitioning = Partitioning::new(3);
        let of = |table, row| partitioning.of(RowName { table, row });
        assert!((0..160).all(|row| of(1, row) == of(1, row / UNIT * UNIT) && of(1, row) < 3));
        assert!((0..3).all(|partition| (0..100).any(|unit| of(0, unit * UNIT) == partition)));
    }
}
