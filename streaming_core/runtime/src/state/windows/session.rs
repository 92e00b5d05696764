//! Sessions: the order in which those of a cell may end, and which cell is the next.
//!
//! A session ends `size` after the latest row of its key. `Ends` orders sessions by what was the latest row when they were
//! noted, so a later row costs nothing there. A session that comes out too early is noted again. So each one is noted once
//! per `size` at most, whatever the unit of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::planted::{self, Fault};
use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::state::key_group::group;
use crate::state::windows::{CELLS, OutOfMemory};

/// The sessions of a cell.
#[derive(Debug, Default)]
pub struct Ends {
    /// The earliest first: latest row, key group, number in the order of the first touch, entry.
    noted: BinaryHeap<Reverse<(i64, usize, i64, *mut EntryHeader)>>,
    /// Sessions begun so far.
    begun: i64,
}

impl Ends {
    /// Notes a new session, whose first row is at `ts`.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// The entry is a single one, of this cell, in no list.
    pub unsafe fn begin(&mut self, entry: *mut EntryHeader, ts: i64) -> Result<(), OutOfMemory> {
        // SAFETY: as the caller says.
        unsafe {
            let before = BeforeEntry::of(entry);
            ((*before).last, (*before).start, (*before).order) = (ts, ts, self.begun);
            self.note(entry)
        }
    }

    /// Notes a session, which began in this order after all that are noted.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// As for `begin`; what lies before the entry says when the session began.
    pub unsafe fn note(&mut self, entry: *mut EntryHeader) -> Result<(), OutOfMemory> {
        self.noted.try_reserve(1)?;
        // SAFETY: as the caller says.
        unsafe {
            let before = BeforeEntry::of(entry);
            self.begun = self.begun.max((*before).order + 1);
            self.noted.push(Reverse(((*before).last, group((*entry).hash), (*before).order, entry)));
        }
        Ok(())
    }

    /// All sessions, in no order that says anything.
    pub fn entries(&self) -> impl Iterator<Item = *mut EntryHeader> {
        self.noted.iter().map(|&Reverse((.., entry))| entry)
    }

    /// A time before which no session has its latest row; `i64::MAX`: there is none.
    pub fn earliest(&self) -> i64 {
        self.noted.peek().map_or(i64::MAX, |&Reverse((last, ..))| last)
    }

    /// Takes the first session out if its latest row is where it was noted; else notes it again.
    ///
    /// # Safety
    /// The sessions exist; no other thread uses them.
    pub unsafe fn next(&mut self) -> Option<*mut EntryHeader> {
        let mut first = self.noted.peek_mut()?;
        let Reverse((noted, .., entry)) = &mut *first;
        // SAFETY: as the caller says.
        let last = unsafe { (*BeforeEntry::of(*entry)).last };
        if *noted == last || planted::has(Fault::StaleSession) {
            return Some(std::collections::binary_heap::PeekMut::pop(first).0.3);
        }
        *noted = last;
        None
    }
}

/// The cell with the least number. It is a tree of minima, whose leaves are the cells.
#[derive(Debug)]
pub struct Earliest {
    least: Box<[i64; 2 * CELLS]>,
}

impl Default for Earliest {
    fn default() -> Self {
        Self { least: Box::new([i64::MAX; 2 * CELLS]) }
    }
}

impl Earliest {
    /// The least number.
    #[inline(always)]
    pub fn least(&self) -> i64 {
        self.least[1]
    }

    /// The first cell that has it.
    pub fn cell(&self) -> usize {
        let mut at = 1;
        while at < CELLS {
            at = 2 * at + usize::from(self.least[2 * at] != self.least[at]);
        }
        at - CELLS
    }

    /// Changes the number of a cell.
    pub fn set(&mut self, cell: usize, number: i64) {
        let mut at = CELLS + cell;
        if std::mem::replace(&mut self.least[at], number) == number {
            return;
        }
        while at > 1 {
            at /= 2;
            self.least[at] = self.least[2 * at].min(self.least[2 * at + 1]);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_cell_is_the_first_of_those_with_the_least_number(
            steps in proptest::collection::vec((0..CELLS, -3_i64..3), 1..100),
        ) {
            let mut earliest = Earliest::default();
            let mut known = [i64::MAX; CELLS];
            for (cell, number) in steps {
                known[cell] = if number == 2 { i64::MAX } else { number };
                earliest.set(cell, known[cell]);
                let least = known.into_iter().min().unwrap();
                prop_assert_eq!(earliest.least(), least);
                prop_assert_eq!(Some(earliest.cell()), known.iter().position(|&number| number == least));
            }
        }
    }
}
