//! Panes: the entries of a cell in one window.

use crate::memory::arena::{Arena, ArenaHeader};
use crate::program::kernel::EntryHeader;
use crate::state::key_group::group;
use crate::state::windows::GROUPS_OF_CELL;
use crate::state::windows::entry::{BEHIND, Given, Shape};
use crate::state::windows::table::Table;

/// Bytes of the first piece of memory that a pane takes, and of the largest.
const FIRST: usize = 256;
const LARGEST: usize = 64 << 10;

/// Entries in the order in which they came.
#[derive(Debug, Clone, Copy)]
pub struct List {
    head: *mut EntryHeader,
    tail: *mut EntryHeader,
}

impl Default for List {
    fn default() -> Self {
        Self { head: std::ptr::null_mut(), tail: std::ptr::null_mut() }
    }
}

impl List {
    pub fn head(&self) -> *mut EntryHeader {
        self.head
    }

    /// # Safety
    /// The entry is there and in no list; nobody else uses it.
    #[inline]
    pub unsafe fn append(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says; so is the last one.
        unsafe {
            (*entry).beside = self.tail;
            self.append_ahead(entry);
        }
    }

    /// As `append`, but says nothing to the entry of what is before it: nobody takes it out.
    ///
    /// # Safety
    /// As for `append`.
    #[inline]
    pub unsafe fn append_ahead(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says; so is the last one.
        unsafe {
            (*entry).next = std::ptr::null_mut();
            match self.tail.is_null() {
                true => self.head = entry,
                false => (*self.tail).next = entry,
            }
        }
        self.tail = entry;
    }

    /// # Safety
    /// The entry is in this list; nobody else uses the list.
    #[inline]
    pub unsafe fn take_out(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says; so are its neighbours.
        unsafe {
            let (before, behind) = ((*entry).beside, (*entry).next);
            match before.is_null() {
                true => self.head = behind,
                false => (*before).next = behind,
            }
            match behind.is_null() {
                true => self.tail = before,
                false => (*behind).beside = before,
            }
        }
    }

    /// The entries, which may be taken out of the list on the way.
    ///
    /// # Safety
    /// They are there while this is used.
    pub unsafe fn entries(&self) -> impl Iterator<Item = *mut EntryHeader> + use<> {
        let mut next = self.head;
        std::iter::from_fn(move || {
            let entry = next;
            if entry.is_null() {
                return None;
            }
            // SAFETY: as the caller says.
            next = unsafe { (*entry).next };
            Some(entry)
        })
    }
}

/// See the module. What every look-up reads comes first.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Pane {
    pub table: Table,
    /// Of the last piece of memory, what is not used yet: address, and bytes.
    at: usize,
    left: usize,
    /// By key group, in the order in which they were first touched.
    pub lists: [List; GROUPS_OF_CELL],
    memory: Vec<Box<[u64]>>,
    arena: Option<Arena>,
}

// SAFETY: a pane owns its entries; nothing in it refers to a thread.
unsafe impl Send for Pane {}

/// How large a pane was: the next one of its cell may become as large.
#[derive(Debug, Default, Clone, Copy)]
pub struct Extent {
    slots: usize,
    bytes: usize,
}

impl Extent {
    /// As numbers, and of them.
    pub fn words(self) -> [u64; 2] {
        [self.slots as u64, self.bytes as u64]
    }

    pub fn of([slots, bytes]: [u64; 2]) -> Self {
        Self { slots: slots as usize, bytes: bytes as usize }
    }
}

impl Pane {
    /// An empty one, with room for about as much as one had before it.
    pub fn like(before: Extent) -> Self {
        let mut pane = Self { table: Table::like(before.slots), ..Self::default() };
        if before.bytes > 0 {
            pane.take(before.bytes.min(LARGEST));
        }
        pane
    }

    pub fn extent(&self) -> Extent {
        let whole: usize = self.memory.iter().map(|piece| 8 * piece.len() - BEHIND).sum();
        Extent { slots: self.table.slots(), bytes: whole - self.left }
    }

    /// The entry of a key in this pane's window, made if it is not there.
    #[inline]
    pub fn find(&mut self, shape: &Shape, hash: u64, key: Given) -> *mut EntryHeader {
        // SAFETY: entries in the table are of this shape.
        let found = self.table.find(hash, |entry| shape.equal(unsafe { shape.key_of(entry) }, key));
        if !found.is_null() {
            return found;
        }
        let memory = self.memory(shape.bytes(key));
        // SAFETY: the pane's, zeroed, new.
        let entry = unsafe { shape.make(memory, hash, key) };
        self.table.add(entry, hash);
        // SAFETY: just made.
        unsafe {
            if shape.grows() {
                (*entry).arena = self.arena();
            }
            self.lists[group(hash) % GROUPS_OF_CELL].append_ahead(entry);
        }
        entry
    }

    /// Has an entry of single windows stand in this one, behind those that do.
    ///
    /// # Safety
    /// It is this cell's, in no list.
    pub unsafe fn stand(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says.
        unsafe { self.lists[group((*entry).hash) % GROUPS_OF_CELL].append(entry) };
    }

    /// Zeroed memory that goes with the pane; `BEHIND` bytes behind it can be read.
    #[inline]
    fn memory(&mut self, bytes: usize) -> *mut u8 {
        let bytes = bytes.next_multiple_of(8);
        if self.left < bytes {
            let next = self.memory.last().map_or(FIRST, |piece| (16 * piece.len()).min(LARGEST));
            self.take(next.max(bytes));
        }
        let at = self.at as *mut u8;
        self.at += bytes;
        self.left -= bytes;
        at
    }

    #[cold]
    fn take(&mut self, bytes: usize) {
        let bytes = bytes.next_multiple_of(8);
        let mut piece: Box<[u64]> = vec![0; (bytes + BEHIND) / 8].into();
        (self.at, self.left) = (piece.as_mut_ptr() as usize, bytes);
        self.memory.push(piece);
    }

    /// Where containers of its entries grow.
    fn arena(&mut self) -> *mut ArenaHeader {
        self.arena.get_or_insert_default().header()
    }
}
