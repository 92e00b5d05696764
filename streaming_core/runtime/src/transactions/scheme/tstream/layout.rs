//! Rows by name, where they are, and their partitions.

use crate::program::TableSpec;
use crate::program::kernel::Access;
use crate::state::key_group::{OwnerMap, group, hash_i64};

/// Rows per unit of partitioning: neighbours on one cache line are in one partition, or threads would take it from each other.
pub(super) const UNIT: u32 = 16;

/// A row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RowName {
    pub table: u8,
    pub row: u32,
}

impl RowName {
    #[inline(always)]
    pub fn of(access: &Access) -> Self {
        Self { table: access.table, row: access.row }
    }
}

/// The locations of rows: numbers of all rows of all tables, and their addresses.
pub(super) struct Layout {
    strides: Vec<usize>,
    /// Number of the first row of each table.
    starts: Vec<usize>,
    pub rows: usize,
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

    #[inline(always)]
    pub fn number(&self, name: RowName) -> usize {
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
