//! The rows that a transaction locks: each row once, and in the stronger way.

use crate::error::RunError;
use crate::program::TableSpec;
use crate::program::kernel::{Access, kind};

/// The rows of all tables, numbered through.
#[derive(Debug)]
pub(crate) struct RowNumbers {
    /// The number of the first row of each table.
    starts: Vec<usize>,
    rows: usize,
}

impl RowNumbers {
    /// # Errors
    /// There are more rows than a request can name.
    pub fn new(tables: &[TableSpec]) -> Result<Self, RunError> {
        let mut starts = Vec::new();
        let mut rows = 0;
        for table in tables {
            starts.push(rows);
            rows += table.rows;
        }
        if rows > u32::MAX as usize {
            return Err(RunError::Invalid(format!(
                "the tables have {rows} rows, more than the scheme has locks (2^32 - 1)"
            )));
        }
        Ok(Self { starts, rows })
    }

    /// The number of rows of all tables.
    pub fn len(&self) -> usize {
        self.rows
    }

    #[inline]
    pub fn of(&self, access: &Access) -> u32 {
        (self.starts[usize::from(access.table)] + access.row as usize) as u32
    }

    /// The table of a row, and the row's number within it.
    #[inline]
    pub fn locate(&self, row: u32) -> (usize, usize) {
        let table = self.starts.partition_point(|&start| start <= row as usize) - 1;
        (table, row as usize - self.starts[table])
    }
}

/// A lock that a transaction needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub row: u32,
    /// Whether some access of the transaction to the row writes; else all of them read.
    pub writes: bool,
}

/// The requests of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    list: Vec<Request>,
    seen: Seen,
}

impl Requests {
    /// Replaces the requests by those of a transaction with these accesses.
    pub fn collect(&mut self, accesses: &[Access], request: impl Fn(&Access) -> Request) {
        self.list.clear();
        self.seen.begin(accesses.len());
        for access in accesses {
            let wanted = request(access);
            let index = self.seen.index(wanted.row, self.list.len());
            match self.list.get_mut(index) {
                Some(known) => known.writes |= wanted.writes,
                None => self.list.push(wanted),
            }
        }
    }

    #[inline]
    pub fn list(&self) -> &[Request] {
        &self.list
    }
}

/// Whether an access by itself writes.
#[inline]
pub(crate) fn writes(access: &Access) -> bool {
    access.kind == kind::MODIFY
}

/// The rows of one transaction, in a hash table that is emptied by counting on.
#[derive(Debug, Default)]
struct Seen {
    places: Vec<SeenPlace>,
    mask: usize,
    /// Places of other transactions are free.
    transaction: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct SeenPlace {
    transaction: u64,
    row: u32,
    index: u32,
}

impl Seen {
    /// Forgets everything and makes room for `n` rows.
    #[inline]
    fn begin(&mut self, n: usize) {
        self.transaction += 1;
        if self.places.len() < 2 * n {
            let places = (2 * n).next_power_of_two().max(64);
            self.places = vec![SeenPlace::default(); places];
            self.mask = places - 1;
        }
    }

    /// The index of the row: the one from before, else `index`.
    #[inline]
    fn index(&mut self, row: u32, index: usize) -> usize {
        let mut at = (row.wrapping_mul(0x9E37_79B1) >> 8) as usize & self.mask;
        loop {
            let place = &mut self.places[at];
            if place.transaction != self.transaction {
                *place = SeenPlace { transaction: self.transaction, row, index: index as u32 };
                return index;
            }
            if place.row == row {
                return place.index as usize;
            }
            at = (at + 1) & self.mask;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn request(access: &Access) -> Request {
        Request { row: access.row, writes: writes(access) }
    }

    #[test]
    fn a_row_is_locked_once_and_in_the_stronger_way() {
        let access = |row, kind| Access { row, kind, ..Access::default() };
        let accesses = [
            access(7, kind::CONDITION),
            access(9, kind::CAPTURE + 1),
            access(7, kind::MODIFY),
            access(7, kind::READ),
            access(71, kind::MODIFY),
        ];
        let mut requests = Requests::default();
        for _ in 0..2 {
            requests.collect(&accesses, request);
            let wanted = [(7, true), (9, false), (71, true)].map(|(row, writes)| Request { row, writes });
            assert_eq!(requests.list(), wanted);
            requests.collect(&[], request);
            assert_eq!(requests.list(), []);
            requests.collect(&accesses[1..2], request);
            assert_eq!(requests.list(), [Request { row: 9, writes: false }]);
        }
    }

    #[test]
    fn a_transaction_may_access_any_number_of_rows() {
        let accesses: Vec<Access> =
            (0..3000).map(|i| Access { row: i * 64 % 1000, kind: kind::READ, ..Access::default() }).collect();
        let mut requests = Requests::default();
        requests.collect(&accesses, request);
        let mut rows: Vec<u32> = requests.list().iter().map(|request| request.row).collect();
        rows.sort_unstable();
        let mut wanted: Vec<u32> = accesses.iter().map(|access| access.row).collect();
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(rows, wanted);
    }

    #[test]
    fn rows_of_all_tables_are_numbered_through() {
        let table = |rows: usize| -> TableSpec {
            serde_json::from_str(&format!(r#"{{"name": "t", "rows": {rows}, "stride": 8, "read": [0, 8]}}"#)).unwrap()
        };
        let numbers = RowNumbers::new(&[table(3), table(1), table(5)]).unwrap();
        let row = |table, row| numbers.of(&Access { table, row, ..Access::default() });
        assert_eq!((row(0, 2), row(1, 0), row(2, 4), numbers.len()), (2, 3, 8, 9));
        assert_eq!([2, 3, 4, 8].map(|row| numbers.locate(row)), [(0, 2), (1, 0), (2, 0), (2, 4)]);
        assert!(RowNumbers::new(&[table(1 << 32)]).is_err());
    }
}
