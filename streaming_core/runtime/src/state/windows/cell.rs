//! Cells: see `state/windows/mod.rs`. One thread at a time, the owner, uses a cell. The executor decides which thread that is.

use crate::memory::arena::Arena;
use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::state::windows::OutOfMemory;
use crate::state::windows::by_window::ByWindow;
use crate::state::windows::entry::{BEHIND, KeyFields, Shape};
use crate::state::windows::pane::{Extent, List, Pane};
use crate::state::windows::session::Ends;
use crate::state::windows::table::Table;

/// The number of entries that may expire for each touched entry.
const AT_ONCE: usize = 8;

/// The least number of panes to free at once, and their share.
const PANES_AT_ONCE: usize = 8;
const PART_AT_ONCE: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub struct Cell {
    pub(super) panes: ByWindow<Box<Pane>>,
    /// The extent of the last removed pane.
    pub(super) extent: Extent,
    /// A removed pane, for reuse by the next window.
    spare: Option<Box<Pane>>,
    /// Windows of the kind `single`: all entries by key.
    singles: Table,
    /// Entries that expire without a call of a kernel, longest untouched first.
    pub(super) touched: List,
    /// Sessions, which are single entries in no other list.
    pub sessions: Ends,
    /// The number of entries that slices have had.
    pub entries: usize,
}

// SAFETY: a cell owns its entries; nothing in it refers to a thread.
unsafe impl Send for Cell {}

/// Removed entries whose memory is still in use.
#[derive(Debug, Default)]
pub struct Gone {
    #[expect(clippy::vec_box, reason = "the owner passes boxes on")]
    panes: Vec<Box<Pane>>,
    /// Entries of single windows, linked by `next`; they are in no other list.
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

// SAFETY: removed entries belong to this alone.
unsafe impl Send for Gone {}

impl Gone {
    /// Frees memory. It frees the panes of a large window in parts, so that no batch waits for all of them. Each part is a
    /// share of the removed panes, so their number stays bounded.
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
    /// There is no memory to keep it until it is out of use.
    pub fn add(&mut self, pane: Box<Pane>) -> Result<(), OutOfMemory> {
        if self.panes.try_reserve(1).is_err() {
            // It may still be in use, so its memory is never freed.
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
/// `Cell::get_or_make_single` made the entry, and no thread uses it any more.
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
    /// The windows with content, and their panes.
    pub fn open(&mut self) -> impl Iterator<Item = (i64, *mut Pane)> {
        self.panes.iter_mut().map(|(number, pane)| (number, &raw mut **pane))
    }

    /// The pane of a window; a new one if there is none. It stays in place until it is removed.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn pane(&mut self, number: i64) -> Result<*mut Pane, OutOfMemory> {
        let Self { panes, extent, spare, .. } = self;
        let (pane, _) = panes.get_or_make(number, || spare.take().map_or_else(|| Pane::like(*extent), Ok))?;
        Ok(&raw mut **pane)
    }

    /// Whether it has no entry, if windows that stand open have some.
    pub fn is_empty(&self) -> bool {
        self.panes.first().is_none() && self.touched.head().is_null() && self.sessions.entries().next().is_none()
    }

    /// Removes the pane of a window. Entries of single windows stay.
    pub fn take(&mut self, number: i64) -> Option<Box<Pane>> {
        let pane = self.panes.take(number);
        if let Some(pane) = &pane {
            self.extent = pane.extent();
        }
        pane
    }

    /// Takes back a removed pane; none of its entries is in use any more.
    pub fn keep(&mut self, mut pane: Box<Pane>) {
        pane.clear();
        self.spare = Some(pane);
    }

    /// The entry of a key of single windows.
    #[inline]
    pub fn single(&self, shape: &Shape, hash: u64, key: KeyFields) -> Option<*mut EntryHeader> {
        // SAFETY: entries in the table are of this shape.
        self.singles.find(hash, |entry| shape.equal(unsafe { shape.key_of(entry) }, key))
    }

    /// The entry of a key of single windows, a new one if there is none, and whether it is new. None: there is no memory.
    pub fn get_or_make_single(&mut self, shape: &Shape, hash: u64, key: KeyFields) -> Option<(*mut EntryHeader, bool)> {
        if let Some(entry) = self.single(shape, hash, key) {
            return Some((entry, false));
        }
        // SAFETY: zeroed memory, or null.
        let memory = unsafe { libc::calloc(1, shape.bytes(key) + BEHIND) }.cast::<u8>();
        if memory.is_null() {
            return None;
        }
        // SAFETY: the memory has so many bytes, is zeroed, and belongs to this thread.
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

    /// Makes an entry the last touched one. Then it removes some other entries whose keys have had no row since `start`. It
    /// removes more than one, so that all of them go in the end, but few, so that no row waits for all of them.
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

    /// Removes an entry of single windows.
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

    /// However many panes a window had, few are freed at a time, and all in the end. If windows come faster than that, their
    /// number stays bounded.
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

    /// Windows that expire without a call of a kernel: however many keys have had no row for long, a row removes few.
    #[test]
    fn a_row_has_few_entries_go_and_rows_have_all() {
        let fields = vec![Key { kind: ColumnKind::I64, offset: 8 }];
        let growing = [Growing { columns: vec![8], ..Growing::default() }];
        let shape = Shape::new(&KeySpec { stride: 16, fields }, 32, &growing, true);
        let (mut cell, mut gone) = (Cell::default(), Gone::default());
        let mut touch = |key: i64, ts: i64, start: i64, gone: &mut Gone| {
            let (entry, is_new) =
                cell.get_or_make_single(&shape, shape.hash_of_index(key), KeyFields::index(&key)).unwrap();
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
