//! State of windowed operators (STRETCH, section 4): cells of key groups, in them panes of entries.
//!
//! A *cell* has one owner. It holds the keys of a few neighbouring key groups with their state in all windows. Only the owner
//! looks up and creates entries in it, and nothing moves when it gets another owner. A *pane* is the part of a cell that
//! belongs to one window. A pane of the kind `multi` goes as a whole. Entries of the kind `single` go one by one, and
//! a pane only lists those that stand in a window.
//! Sessions are single windows without panes (`session.rs`).

pub mod by_window;
pub mod cell;
pub mod entry;
pub mod pane;
pub mod parcel;
pub mod session;
pub mod table;

use std::collections::TryReserveError;

use crate::error::RunError;
use crate::program::WindowSpec;
use crate::state::key_group::GROUPS;

/// The most cells of an operator, and the least if its replicas are few.
pub const CELLS: usize = 1024;
const FEW_CELLS: usize = 64;
/// Cells of each replica, at least, as long as there are no more than `CELLS`: so replicas have about as many keys.
const CELLS_OF_REPLICA: usize = 16;
/// Key groups of each of `CELLS` cells, and of each of `FEW_CELLS`.
pub const GROUPS_OF_CELL: usize = GROUPS / CELLS;
pub const MOST_GROUPS: usize = GROUPS / FEW_CELLS;

/// The number of cells, a power of two, that so many replicas share if their owners never change. Each window has a pane in
/// each cell, and a pane of few keys costs more than the keys.
pub fn cells_for(replicas: usize) -> usize {
    (CELLS_OF_REPLICA * replicas).next_power_of_two().clamp(FEW_CELLS, CELLS)
}

/// The bound of `ts` that kernels keep to, as the language does.
const MOST: i64 = 1 << 61;

/// The key group of key `index`, where every row has the keys from 0 on. Consecutive keys lie in consecutive cells. So owners
/// who take turns differ by at most one of `CELLS` keys (STRETCH, operator 15: f_mu(k) = k).
pub fn group_of_index(index: i64) -> usize {
    let index = index as usize;
    index % CELLS * GROUPS_OF_CELL + index / CELLS % GROUPS_OF_CELL
}

/// There is no memory for what windows hold: as much as the data asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

impl From<OutOfMemory> for RunError {
    #[cold]
    fn from(_: OutOfMemory) -> Self {
        Self::Memory("the state of windows".into())
    }
}

/// The windows of an operator: number l is [l * advance, l * advance + size).
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub advance: i64,
    pub size: i64,
    pub delay: i64,
    /// None: the watermark waits for every stream.
    pub idle: Option<i64>,
}

impl Bounds {
    pub fn of(spec: &WindowSpec) -> Self {
        Self { advance: spec.advance, size: spec.size, delay: spec.delay, idle: spec.idle }
    }

    /// Where a window begins: a row at it falls in.
    #[inline(always)]
    pub fn start(&self, number: i64) -> i64 {
        number * self.advance
    }

    /// Whether a time can have windows: nothing overflows then.
    pub fn has_window(&self, ts: i64) -> bool {
        (-MOST..=MOST).contains(&ts)
    }

    /// The last window that begins at `ts` or before.
    #[inline(always)]
    pub fn last_of(&self, ts: i64, recent: &mut Recent) -> i64 {
        recent.divide(ts, self.advance)
    }

    /// The earliest window that ends behind `ts`: that a row falls in, or that a watermark leaves open.
    #[inline(always)]
    pub fn first_beyond(&self, ts: i64, recent: &mut Recent) -> i64 {
        recent.divide(ts - self.size, self.advance) + 1
    }
}

/// The window of the last time that was asked for. Rows mostly follow each other within one, and a division costs more than
/// all else that is done to find it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recent {
    /// Where the window `quotient` begins.
    start: i64,
    quotient: i64,
}

impl Recent {
    /// `time` divided by `advance`, rounded down; `advance` is the same in every call.
    #[inline(always)]
    pub fn divide(&mut self, time: i64, advance: i64) -> i64 {
        if time.wrapping_sub(self.start) as u64 >= advance as u64 {
            self.quotient = time.div_euclid(advance);
            self.start = self.quotient.wrapping_mul(advance);
        }
        self.quotient
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_recent_quotient_is_that_of_a_division() {
        for advance in [1, 3, 7] {
            let mut recent = Recent::default();
            for time in [0, 1, 2, 3, -1, -3, -4, 20, 6, 7, i64::MAX, i64::MIN + 8, 0] {
                assert_eq!(recent.divide(time, advance), time.div_euclid(advance), "{time} {advance}");
            }
        }
    }

    #[test]
    fn a_row_falls_into_the_windows_that_begin_before_it_and_end_behind_it() {
        for (advance, size) in [(1, 1), (2, 5), (5, 5), (3, 7)] {
            let bounds = Bounds { advance, size, delay: 0, idle: None };
            let mut recent = [Recent::default(); 2];
            for ts in -20..20 {
                let of_row: Vec<i64> =
                    (bounds.first_beyond(ts, &mut recent[0])..=bounds.last_of(ts, &mut recent[1])).collect();
                let defined: Vec<i64> =
                    (-40..40).filter(|l| (bounds.start(*l)..bounds.start(*l) + size).contains(&ts)).collect();
                assert_eq!(of_row, defined, "{advance} {size} {ts}");
            }
        }
    }
}
