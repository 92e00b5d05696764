//! What keys have in windows, found or made: of a row all that it meets, looked up together.

use crate::dataflow::windowed::operator::Windowed;
use crate::dataflow::windowed::replica::{Open, OwnKey, Replica};
use crate::dataflow::windowed::watermark::NONE;
use crate::error::RunError;
use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::rows::block::Text;
use crate::state::index::prefetch;
use crate::state::windows::cell::Cell;
use crate::state::windows::entry::KeyFields;
use crate::state::windows::pane::Pane;
use crate::state::windows::table::Table;
use crate::state::windows::{CELLS, OutOfMemory};

impl Replica {
    /// Finds what the keys that every row has have in each of these windows: in what has met from `at` on.
    pub(super) unsafe fn find_every(
        &mut self,
        operator: &Windowed,
        windows: std::ops::Range<i64>,
        ts: i64,
        mut at: usize,
    ) -> Result<(), RunError> {
        let every = operator.every.as_deref().unwrap_or_default();
        let stands = operator.single && !operator.session && !operator.reports_expiry();
        // SAFETY: as the caller says.
        debug_assert!(!stands || unsafe { self.has_all_entries(operator) }, "an entry is not in its cell");
        if !operator.single && windows.end - windows.start == 1 {
            if self.every_window == windows.start {
                for (entry, (_, known)) in self.met.entries[at..].iter_mut().zip(&self.every) {
                    *entry = *known;
                }
                return Ok(());
            }
            self.every_window = windows.start;
        } else {
            self.every_window = NONE;
        }
        for number in windows {
            let start = operator.bounds.start(number);
            for own in 0..self.every.len() {
                let (j, mut entry) = self.every[own];
                // SAFETY: an entry that was found stays until this replica finds that it has gone; cells are own ones.
                unsafe {
                    if stands && !entry.is_null() && (*BeforeEntry::of(entry)).last >= start {
                        let last = &raw mut (*BeforeEntry::of(entry)).last;
                        *last = ts.max(*last);
                    } else {
                        let (hash, key) = &every[j as usize];
                        entry = match operator.single {
                            true if operator.session => self.session(operator, *hash, KeyFields::index(key), ts, at)?,
                            true => self.single(operator, number, *hash, KeyFields::index(key), ts)?,
                            false => (*self.pane(operator, operator.shape.cell_of(*hash), number)?).find(
                                &operator.shape,
                                *hash,
                                KeyFields::index(key),
                            )?,
                        };
                        self.every[own].1 = entry;
                    }
                }
                self.met.entries[at] = entry;
                at += 1;
            }
        }
        Ok(())
    }

    /// Whether every noted entry of the keys that every row has is the key's entry in its cell.
    ///
    /// # Safety
    /// The cells are this replica's.
    unsafe fn has_all_entries(&self, operator: &Windowed) -> bool {
        let every = operator.every.as_deref().unwrap_or_default();
        self.every.iter().filter(|(_, entry)| !entry.is_null()).all(|&(j, entry)| {
            let (hash, key) = &every[j as usize];
            let find = |here: &mut Cell| here.single(&operator.shape, *hash, KeyFields::index(key));
            // SAFETY: as the caller says.
            unsafe { operator.cells.with_mut(self.number, operator.shape.cell_of(*hash), find) == Some(entry) }
        })
    }

    /// As `find_every`, of the own keys of the row at hand, which are the first ones.
    pub(super) unsafe fn find_singles(
        &mut self,
        operator: &Windowed,
        number: i64,
        ts: i64,
        text: Text,
        keys: usize,
    ) -> Result<(), RunError> {
        for own in 0..keys {
            let OwnKey { hash, row, at, .. } = self.own[own];
            let key = KeyFields { row, text };
            // SAFETY: the cell is an own one.
            self.met.entries[at] = unsafe {
                match operator.session {
                    true => self.session(operator, hash, key, ts, at),
                    false => self.single(operator, number, hash, key, ts),
                }
            }?;
        }
        Ok(())
    }

    /// As `find_singles`, of windows that are not single ones, and of all own keys that wait. A key is looked up in the first
    /// window; what it has there knows what it has in the next.
    #[inline]
    pub(super) unsafe fn find_own(&mut self, operator: &Windowed, text: Text) -> Result<(), OutOfMemory> {
        let (keys, (first, windows)) = (std::mem::take(&mut self.pending), self.windows);
        if keys == 0 {
            return Ok(());
        }
        // SAFETY: cells are own ones; entries are there while their windows are open, and later windows are open for longer.
        unsafe {
            // What is looked up lies anywhere: all of it is asked for before any is waited for.
            let panes: *const [*mut Pane; CELLS] = &raw const self.window(first)?.panes;
            for look in [Table::near, Table::nearer] {
                for &OwnKey { hash, .. } in &self.own[..keys] {
                    if let Some(pane) = (&(*panes))[operator.shape.cell_of(hash)].as_ref() {
                        look(&pane.table, hash);
                    }
                }
            }
            for own in 0..keys {
                let OwnKey { hash, row, at, .. } = self.own[own];
                let mut pane = (&(*panes))[operator.shape.cell_of(hash)];
                if pane.is_null() {
                    pane = self.pane(operator, operator.shape.cell_of(hash), first)?;
                }
                let entry = (*pane).find(&operator.shape, hash, KeyFields { row, text })?;
                self.met.entries[at] = entry;
                if operator.slices.is_some() && (*entry).beside.is_null() {
                    self.number_entry(operator, entry);
                }
            }
            self.unlinked.clear();
            self.unlinked.try_reserve(keys)?;
            for window in 1..windows {
                let number = first + window as i64;
                self.unlinked.clear();
                for own in 0..keys {
                    let OwnKey { hash, at, of, .. } = self.own[own];
                    let entry = (*self.met.entries[at + (window - 1) * of]).beside;
                    self.met.entries[at + window * of] = entry;
                    if entry.is_null() {
                        let pane = self.pane(operator, operator.shape.cell_of(hash), number)?;
                        (*pane).table.near(hash);
                        self.unlinked.push((own, pane));
                    } else {
                        // The kernel comes to it.
                        prefetch(entry);
                    }
                }
                for &(own, pane) in &self.unlinked {
                    let OwnKey { hash, row, at, of } = self.own[own];
                    let entry = (*pane).find(&operator.shape, hash, KeyFields { row, text })?;
                    (*self.met.entries[at + (window - 1) * of]).beside = entry;
                    self.met.entries[at + window * of] = entry;
                }
            }
        }
        Ok(())
    }

    /// Where the panes of a window are, which stays where it is while the window is open.
    #[inline(always)]
    pub(super) fn window(&mut self, number: i64) -> Result<&mut Open, OutOfMemory> {
        let Self { open, spare, .. } = self;
        Ok(&mut **open.get_or_make(number, || spare.pop().map_or_else(Open::new, Ok))?.0)
    }

    /// The pane of a window in an own cell, made if it is not there.
    #[inline(always)]
    pub(super) unsafe fn pane(
        &mut self,
        operator: &Windowed,
        cell: usize,
        number: i64,
    ) -> Result<*mut Pane, OutOfMemory> {
        let replica = self.number;
        let window = self.window(number)?;
        if window.panes[cell].is_null() {
            // SAFETY: the cell is this replica's, as the caller says.
            let pane = unsafe { operator.cells.with_mut(replica, cell, |here| here.pane(number)) }?;
            window.add(cell, pane)?;
        }
        Ok(window.panes[cell])
    }

    /// The session of a key, which a row joins at `ts`: meeting `at` of the row.
    #[inline]
    unsafe fn session(
        &mut self,
        operator: &Windowed,
        hash: u64,
        key: KeyFields,
        ts: i64,
        at: usize,
    ) -> Result<*mut EntryHeader, RunError> {
        let cell = operator.shape.cell_of(hash);
        let (sessions, gap) = (&mut self.sessions, operator.bounds.size);
        let find = |here: &mut Cell| {
            let (entry, is_new) = here.get_or_make_single(&operator.shape, hash, key).ok_or(OutOfMemory)?;
            // SAFETY: the entry is this cell's; a new one is in no list.
            unsafe {
                if is_new {
                    here.sessions.begin(entry, ts)?;
                    sessions.set(cell, here.sessions.earliest());
                }
                let before = BeforeEntry::of(entry);
                let last = ts.max((*before).last);
                (*before).last = operator.most.map_or(last, |most| last.min((*before).start + most - gap));
                Ok((entry, (*before).last))
            }
        };
        // SAFETY: the cell is this replica's, as the caller says.
        let entry_and_last: Result<_, OutOfMemory> = unsafe { operator.cells.with_mut(self.number, cell, find) };
        let (entry, last) = entry_and_last?;
        self.met.starts[at] = last;
        Ok(entry)
    }

    /// What a key has in single windows.
    #[inline]
    unsafe fn single(
        &mut self,
        operator: &Windowed,
        number: i64,
        hash: u64,
        key: KeyFields,
        ts: i64,
    ) -> Result<*mut EntryHeader, RunError> {
        let (shape, cell) = (&operator.shape, operator.shape.cell_of(hash));
        let (start, reports_expiry) = (operator.bounds.start(number), operator.reports_expiry());
        let gone = &mut self.gone;
        let mut is_new = false;
        let find = |here: &mut Cell| {
            let mut entry;
            (entry, is_new) = here.get_or_make_single(shape, hash, key)?;
            // SAFETY: entries that are found exist, and are listed if no kernel is called.
            unsafe {
                if !reports_expiry && !is_new && (*BeforeEntry::of(entry)).last < start {
                    // No kernel has learned that it has gone.
                    here.untouch(entry);
                    here.remove(entry, gone);
                    (entry, is_new) = here.get_or_make_single(shape, hash, key)?;
                }
                let last = &raw mut (*BeforeEntry::of(entry)).last;
                *last = if is_new { ts } else { ts.max(*last) };
                if !reports_expiry {
                    here.touch(entry, !is_new, start, gone);
                }
                Some(entry)
            }
        };
        // SAFETY: the cell is this replica's, as the caller says.
        let single = unsafe { operator.cells.with_mut(self.number, cell, find) };
        let entry = single.ok_or(OutOfMemory)?;
        if is_new && reports_expiry {
            // SAFETY: as above; it is in no list yet.
            unsafe { (*self.pane(operator, cell, number)?).stand(entry) }?;
        }
        Ok(entry)
    }
}
