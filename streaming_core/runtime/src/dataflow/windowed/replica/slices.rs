//! Windows that consist of slices: a row meets one slice, and a window that expires merges the states of its slices.
//!
//! Slice `s` is `[s * advance, (s + 1) * advance)`, and window `l` has the slices from `l` on. Panes and what is open have the
//! numbers of slices. The states are integers whose parts merge in any order (`Merge`), so results are those of windows that
//! take every row. The keys of a window are in the order in which they first appeared in it. In place of a link, an entry has a
//! number within its cell.

use crate::dataflow::windowed::operator::{Out, Windowed};
use crate::dataflow::windowed::replica::expiry::{AT_ONCE, Cause};
use crate::dataflow::windowed::replica::{Replica, rank_more};
use crate::error::RunError;
use crate::program::Merge;
use crate::program::kernel::{EntryHeader, WindowContext};
use crate::rows::block::Text;
use crate::state::key_group::group;
use crate::state::windows::OutOfMemory;
use crate::state::windows::entry::Shape;

impl Replica {
    /// The earliest window that has rows and has not expired, if the windows before it have.
    #[inline(always)]
    pub(super) fn first_open(&self, operator: &Windowed) -> Option<i64> {
        let first = self.open.first()?;
        Some(match &operator.slices {
            None => first,
            Some((slices, _)) => (first - slices + 1).max(self.watermark.open()).max(self.merged.number),
        })
    }

    /// Numbers a new entry of a slice.
    ///
    /// # Safety
    /// The entry is there, of an own cell.
    pub(super) unsafe fn number_entry(&self, operator: &Windowed, entry: *mut EntryHeader) {
        // SAFETY: as the caller says.
        unsafe {
            operator.cells.with_mut(self.number, operator.shape.cell_of((*entry).hash), |cell| {
                cell.entries += 1;
                (*entry).beside = std::ptr::without_provenance_mut(cell.entries);
            });
        }
    }

    /// As `expire`, of windows that consist of slices.
    pub(super) unsafe fn expire_slices(
        &mut self,
        operator: &Windowed,
        (slices, merge): (i64, &[Merge]),
        before: i64,
        at: (i64, usize),
        text: Text,
        out: &mut Out,
    ) -> Result<bool, RunError> {
        while let Some(number) = self.first_open(operator)
            && number < before
        {
            if !self.merged.began || self.merged.number != number {
                self.list_cells(number, slices)?;
            }
            let cause = Cause { seq: at.0, index: at.1, path: self.path_of(number, before) };
            let mut n = 0;
            while n < AT_ONCE
                && let Some(cell) = self.merged.cells.pop()
            {
                // SAFETY: an own cell, as the callers say; the entries are the replica's.
                unsafe {
                    n += self.merge(operator, usize::from(cell), (number, slices), merge)?;
                    let outcome = self.report(operator, number, cause, text, out);
                    self.merged.pane.clear();
                    outcome?;
                }
            }
            if self.merged.cells.is_empty() {
                if self.open.first() == Some(number) {
                    self.spare.extend(self.open.take(number));
                }
                (self.merged.number, self.merged.began) = (number + 1, false);
            }
            if n >= AT_ONCE {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lists the cells that window `number` has.
    fn list_cells(&mut self, number: i64, slices: i64) -> Result<(), OutOfMemory> {
        let Self { open, merged, .. } = self;
        merged.cells.clear();
        for (slice, panes) in open.iter_mut() {
            if slice < number + slices {
                merged.cells.try_reserve(panes.cells.len())?;
                merged.cells.extend(&panes.cells);
            }
        }
        merged.cells.sort_unstable_by(|left, right| right.cmp(left));
        merged.cells.dedup();
        (merged.number, merged.began) = (number, true);
        Ok(())
    }

    /// Merges what a cell has in a window, and removes its pane of the first slice, which no later window has. Returns how many
    /// entries there were in all slices.
    unsafe fn merge(
        &mut self,
        operator: &Windowed,
        cell: usize,
        (number, slices): (i64, i64),
        merge: &[Merge],
    ) -> Result<usize, RunError> {
        let Self { open, merged, .. } = self;
        let mut n = 0;
        for slice in number..number + slices {
            let Some(panes) = open.get_mut(slice) else { continue };
            // SAFETY: a pane that is noted is there.
            let Some(pane) = (unsafe { panes.panes[cell].as_ref() }) else { continue };
            let mut outcome = Ok(());
            pane.each(&operator.shape, |entry| {
                n += 1;
                // SAFETY: entries of this shape, which are there.
                unsafe {
                    match merged.pane.find(&operator.shape, (*entry).hash, operator.shape.key_of(entry)) {
                        Ok(whole) => add(&operator.shape, whole, entry, merge),
                        Err(error) => outcome = Err(error),
                    }
                }
            });
            outcome?;
        }
        if let Some(first) = self.open.get_mut(number)
            && !first.panes[cell].is_null()
        {
            first.panes[cell] = std::ptr::null_mut();
            // SAFETY: an own cell, as the caller says.
            unsafe {
                operator.cells.with_mut(self.number, cell, |cell| {
                    if let Some(pane) = cell.take(number) {
                        cell.keep(pane);
                    }
                });
            }
        }
        Ok(n)
    }

    /// Calls the kernel for the merged entries of a window, which are those of a cell.
    unsafe fn report(
        &mut self,
        operator: &Windowed,
        number: i64,
        cause: Cause,
        text: Text,
        out: &mut Out,
    ) -> Result<(), RunError> {
        let Some(result) = operator.result else { return Ok(()) };
        let Self { expired, starts, merged, .. } = self;
        expired.clear();
        merged.pane.entries(&operator.shape, expired)?;
        // SAFETY: they are there. Without rows out of order they are sorted already.
        let key = |&entry: &*mut EntryHeader| unsafe { (group((*entry).hash), (*entry).beside.addr()) };
        if !expired.is_sorted_by_key(key) {
            expired.sort_unstable_by_key(key);
        }
        let start = operator.bounds.start(number);
        starts.clear();
        starts.try_reserve(expired.len()).map_err(OutOfMemory::from)?;
        starts.resize(expired.len(), start);
        let mut context = WindowContext {
            n: expired.len() as i64,
            entries: expired.as_ptr().cast(),
            starts: starts.as_ptr(),
            span: operator.bounds.size,
            text: text.pointer(),
            emitter: out.rows.emitter(),
            seq: cause.seq,
            ..WindowContext::default()
        };
        let rows = out.rows.len();
        // SAFETY: the entries are this replica's.
        let called = unsafe { result.call(&mut context) };
        let failed = called.map_err(|raised| {
            let order = out.order(cause.of(expired[usize::try_from(raised.at).unwrap_or(0)]));
            operator.failed((cause.seq, Some((start, start + operator.bounds.size))), order, raised.exception, out)
        });
        rank_more(out, rows, |origin| cause.of(expired[origin as usize])).and(failed)
    }
}

/// Merges the states of an entry into those of another one of its key, which has none if it is new.
///
/// # Safety
/// Both are of this shape, and nothing else uses them. The states are as many words as `merge` has.
unsafe fn add(shape: &Shape, whole: *mut EntryHeader, part: *mut EntryHeader, merge: &[Merge]) {
    // SAFETY: as the caller says.
    unsafe {
        let states = |entry: *mut EntryHeader| entry.byte_add(shape.states().start).cast::<i64>();
        let (to, from) = (states(whole), states(part));
        if (*whole).beside.is_null() {
            (*whole).beside = (*part).beside;
            std::ptr::copy_nonoverlapping(from, to, merge.len());
            return;
        }
        (*whole).beside = (*whole).beside.min((*part).beside);
        for (i, merge) in merge.iter().enumerate() {
            let (left, right) = (to.add(i).read(), from.add(i).read());
            to.add(i).write(match merge {
                Merge::Add => left.wrapping_add(right),
                Merge::Min => left.min(right),
                Merge::Max => left.max(right),
            });
        }
    }
}
