//! Cells: see `state/windows/mod.rs`. One thread at a time is at a cell, its owner; who that is, is the executor's to say.

use crate::memory::arena::Arena;
use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::state::windows::OutOfMemory;
use crate::state::windows::by_window::ByWindow;
use crate::state::windows::entry::{BEHIND, Given, Shape};
use crate::state::windows::pane::{Extent, List, Pane};
use crate::state::windows::table::Table;

/// How many entries go for one that is touched.
const AT_ONCE: usize = 8;

/// How many panes at least, and what part of them, are given back at once.
const PANES_AT_ONCE: usize = 8;
const PART_AT_ONCE: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub struct Cell {
    pub(super) panes: ByWindow<Box<Pane>>,
    /// Of the pane that went last.
    pub(super) extent: Extent,
    /// A pane that went, for the next window.
    spare: Option<Box<Pane>>,
    /// Windows of the kind `single`: all entries by key.
    singles: Table,
    /// Of which nobody is told when they expire: longest untouched first.
    pub(super) touched: List,
}

// SAFETY: a cell owns its entries; nothing in it refers to a thread.
unsafe impl Send for Cell {}

/// Entries that have gone, and whose memory is still used.
#[derive(Debug, Default)]
pub struct Gone {
    #[expect(clippy::vec_box, reason = "they are handed over as they are")]
    panes: Vec<Box<Pane>>,
    /// Of single windows, linked by `next`: no list has them any more.
    entries: Entries,
}

/// The first of some entries.
#[derive(Debug)]
struct Entries(*mut EntryHeader);

impl Default for Entries {
    fn default() -> Self {
        Self(std::ptr::null_mut())
    }
}

impl Iterator for Entries {
    type Item = *mut EntryHeader;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: an entry of single windows is there until it is freed, which comes after this.
        let next = unsafe { (*BeforeEntry::of(self.0)).next };
        Some(std::mem::replace(&mut self.0, next))
    }
}

// SAFETY: what has gone is nobody else's.
unsafe impl Send for Gone {}

impl Gone {
    /// Gives memory back. A large window's panes are some of them at a time, so that no batch waits until all are; a part of
    /// those there are, so that there are never more than come in about so many batches.
    #[inline]
    pub fn clear(&mut self) {
        let panes = self.panes.len();
        self.panes.truncate(panes.saturating_sub(PANES_AT_ONCE.max(panes / PART_AT_ONCE)));
        for entry in std::mem::take(&mut self.entries) {
            // SAFETY: as `free_single` says; it is in no table any more.
            unsafe { free_single(entry) };
        }
    }

    /// # Errors
    /// There is no memory to keep it until it is not used any more.
    pub fn add(&mut self, pane: Box<Pane>) -> Result<(), OutOfMemory> {
        if self.panes.try_reserve(1).is_err() {
            // It may still be used: then its memory is never given back.
            std::mem::forget(pane);
            return Err(OutOfMemory);
        }
        self.panes.push(pane);
        Ok(())
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.clear();
    }
}

/// # Safety
/// The entry is one of a single window, made in `Cell::get_or_make_single`, which nobody uses any more.
unsafe fn free_single(entry: *mut EntryHeader) {
    // SAFETY: from `calloc`, with all that lies before an entry; an arena is its own.
    unsafe {
        let before = BeforeEntry::of(entry);
        if !(*before).arena.is_null() {
            drop(Arena::of_header((*before).arena));
        }
        libc::free(before.cast());
    }
}

impl Cell {
    /// The windows in which there is something, and their panes.
    pub fn open(&mut self) -> impl Iterator<Item = (i64, *mut Pane)> {
        self.panes.iter_mut().map(|(number, pane)| (number, &raw mut **pane))
    }

    /// The pane of a window, made if it is not there. It stays where it is until it is taken out.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn pane(&mut self, number: i64) -> Result<*mut Pane, OutOfMemory> {
        let Self { panes, extent, spare, .. } = self;
        let (pane, _) = panes.get_or_make(number, || spare.take().map_or_else(|| Pane::like(*extent), Ok))?;
        Ok(&raw mut **pane)
    }

    /// Takes out the pane of a window; its entries, if windows are single, stay.
    pub fn take(&mut self, number: i64) -> Option<Box<Pane>> {
        let pane = self.panes.take(number);
        if let Some(pane) = &pane {
            self.extent = pane.extent();
        }
        pane
    }

    /// Takes back a pane that it gave, none of whose entries is used any more.
    pub fn keep(&mut self, mut pane: Box<Pane>) {
        pane.clear();
        self.spare = Some(pane);
    }

    /// The entry of a key of single windows.
    #[inline]
    pub fn single(&self, shape: &Shape, hash: u64, key: Given) -> Option<*mut EntryHeader> {
        // SAFETY: entries in the table are of this shape.
        self.singles.find(hash, |entry| shape.equal(unsafe { shape.key_of(entry) }, key))
    }

    /// The entry of a key of single windows, made if there is none; whether there was none. None: there is no memory.
    pub fn get_or_make_single(&mut self, shape: &Shape, hash: u64, key: Given) -> Option<(*mut EntryHeader, bool)> {
        if let Some(entry) = self.single(shape, hash, key) {
            return Some((entry, false));
        }
        // SAFETY: zeroed memory, or null.
        let memory = unsafe { libc::calloc(1, shape.bytes(key) + BEHIND) }.cast::<u8>();
        if memory.is_null() {
            return None;
        }
        // SAFETY: so many bytes, zeroed, nobody else's.
        let entry = unsafe { shape.make(memory, hash, key) };
        if shape.grows() {
            let Some(arena) = Arena::small() else {
                // SAFETY: just made.
                unsafe { free_single(entry) };
                return None;
            };
            // SAFETY: just made; `free_single` has the arena back.
            unsafe { (*BeforeEntry::of(entry)).arena = arena.into_header() };
        }
        if self.singles.add(entry, hash).is_none() {
            // SAFETY: just made.
            unsafe { free_single(entry) };
            return None;
        }
        Some((entry, true))
    }

    /// An entry becomes the one that was touched last; of those whose keys have had no row since `start`, except for itself, some
    /// go: more than one comes, so that all of them do in the end, and few, so that no row has to wait for all of them.
    ///
    /// # Safety
    /// The entry is this cell's, in the list of touched ones if `is_listed`, else in none.
    pub unsafe fn touch(&mut self, entry: *mut EntryHeader, is_listed: bool, start: i64, gone: &mut Gone) {
        // SAFETY: as the caller says.
        unsafe {
            if is_listed {
                self.touched.take_out(entry);
            }
            self.touched.append(entry);
            for _ in 0..AT_ONCE {
                let oldest = self.touched.head();
                if oldest == entry || (*BeforeEntry::of(oldest)).last >= start {
                    return;
                }
                self.touched.take_out(oldest);
                self.remove(oldest, gone);
            }
        }
    }

    /// Takes an entry of single windows out of the list of touched ones.
    ///
    /// # Safety
    /// It is there.
    pub unsafe fn untouch(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says.
        unsafe { self.touched.take_out(entry) };
    }

    /// An entry of single windows goes.
    ///
    /// # Safety
    /// It is this cell's, in no list.
    pub unsafe fn remove(&mut self, entry: *mut EntryHeader, gone: &mut Gone) {
        self.singles.remove(entry);
        // SAFETY: as the caller says.
        unsafe { (*BeforeEntry::of(entry)).next = std::mem::replace(&mut gone.entries.0, entry) };
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        for entry in self.singles.entries() {
            // SAFETY: as `free_single` says.
            unsafe { free_single(entry) };
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::program::{Growing, Key, KeySpec};
    use crate::rows::column::ColumnKind;

    impl Gone {
        fn count(&self) -> usize {
            Entries(self.entries.0).count()
        }
    }

    /// However many panes a window had, few are given back at a time, and all are in the end; of windows that come faster than
    /// that, there are never more than a bound.
    #[test]
    fn panes_are_given_back_some_at_a_time() {
        let mut gone = Gone::default();
        let add = |gone: &mut Gone, n: usize| (0..n).for_each(|_| gone.add(Box::default()).unwrap());
        add(&mut gone, 256);
        for left in (0..32).rev() {
            gone.clear();
            assert_eq!(gone.panes.len(), PANES_AT_ONCE * left);
        }
        for _ in 0..1000 {
            add(&mut gone, 1000);
            gone.clear();
            assert!(gone.panes.len() <= PART_AT_ONCE * 1000);
        }
        while !gone.panes.is_empty() {
            gone.clear();
        }
    }

    /// Of windows of which nobody is told: however many keys have had no row for long, a row has few of them go.
    #[test]
    fn a_row_has_few_entries_go_and_rows_have_all() {
        let fields = vec![Key { kind: ColumnKind::I64, offset: 8 }];
        let growing = [Growing { offset: 0, indexed: false, columns: vec![8] }];
        let shape = Shape::new(&KeySpec { stride: 16, fields }, 32, &growing, true);
        let (mut cell, mut gone) = (Cell::default(), Gone::default());
        let mut touch = |key: i64, ts: i64, start: i64, gone: &mut Gone| {
            let (entry, is_new) =
                cell.get_or_make_single(&shape, shape.hash_of_index(key), Given::index(&key)).unwrap();
            // SAFETY: its own entry, listed when it was made; its arena is there.
            unsafe {
                let arena = (*BeforeEntry::of(entry)).arena;
                assert!(!((*arena).alloc)(arena, 24).is_null());
                (*BeforeEntry::of(entry)).last = ts;
                cell.touch(entry, !is_new, start, gone);
            }
            cell.singles.entries().count()
        };
        for key in 0..1000 {
            assert_eq!(touch(key, 0, 0, &mut gone), key as usize + 1);
        }
        assert_eq!(gone.count(), 0);
        let mut left = 1000;
        while left > 1 {
            assert_eq!(touch(0, 100, 100, &mut gone), left - AT_ONCE.min(left - 1));
            assert_eq!(gone.count(), AT_ONCE.min(left - 1));
            left -= gone.count();
            gone.clear();
        }
        assert_eq!(touch(0, 100, 100, &mut gone), 1);
    }
}
