//! Panes: the entries of a cell in one window.

use crate::memory::arena::{Arena, ArenaHeader};
use crate::memory::fallible::{boxed, zeroed_words};
use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::state::key_group::group;
use crate::state::windows::entry::{BEHIND, KeyFields, Shape};
use crate::state::windows::table::Table;
use crate::state::windows::{GROUPS_OF_CELL, MOST_GROUPS, OutOfMemory};

/// Bytes of the first piece of memory that a pane takes, and of the largest.
const FIRST: usize = 256;
const LARGEST: usize = 64 << 10;

/// Entries of single windows in the order in which they came.
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
    /// The entry exists and is in no list; no other thread uses it.
    #[inline]
    pub unsafe fn append(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says; so is the last one.
        unsafe {
            (*entry).beside = self.tail;
            (*BeforeEntry::of(entry)).next = std::ptr::null_mut();
            match self.tail.is_null() {
                true => self.head = entry,
                false => (*BeforeEntry::of(self.tail)).next = entry,
            }
        }
        self.tail = entry;
    }

    /// # Safety
    /// The entry is in this list; no other thread uses the list.
    #[inline]
    pub unsafe fn take_out(&mut self, entry: *mut EntryHeader) {
        // SAFETY: as the caller says; so are its neighbours.
        unsafe {
            let (before, behind) = ((*entry).beside, (*BeforeEntry::of(entry)).next);
            match before.is_null() {
                true => self.head = behind,
                false => (*BeforeEntry::of(before)).next = behind,
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
            next = unsafe { (*BeforeEntry::of(entry)).next };
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
    /// Of each earlier piece of memory how much was used.
    memory: Vec<(Box<[u64]>, usize)>,
    arena: Option<Arena>,
    /// Of single windows, by key group, which stand in this one.
    standing: Option<Box<[List; GROUPS_OF_CELL]>>,
}

// SAFETY: a pane owns its entries; nothing in it refers to a thread.
unsafe impl Send for Pane {}

/// How large a pane was: the next one of its cell may become as large.
#[derive(Debug, Default, Clone, Copy)]
pub struct Extent {
    places: usize,
    bytes: usize,
}

impl Extent {
    /// As numbers, and of them.
    pub fn words(self) -> [u64; 2] {
        [self.places as u64, self.bytes as u64]
    }

    pub fn of([places, bytes]: [u64; 2]) -> Self {
        Self { places: places as usize, bytes: bytes as usize }
    }
}

impl Pane {
    /// An empty one, with room for about as much as one had before it.
    ///
    /// # Errors
    /// There is no memory.
    pub fn like(before: Extent) -> Result<Box<Self>, OutOfMemory> {
        let table = Table::like(before.places).ok_or(OutOfMemory)?;
        let pane = Self { table, at: 0, left: 0, memory: Vec::new(), arena: None, standing: None };
        let mut pane = boxed(pane).ok_or(OutOfMemory)?;
        pane.begin(before)?;
        Ok(pane)
    }

    pub fn extent(&self) -> Extent {
        let whole: usize = self.memory.iter().map(|(piece, _)| 8 * piece.len() - BEHIND).sum();
        Extent { places: self.table.wanted(), bytes: whole - self.left }
    }

    /// Has it be like a new one; none of its entries is used any more.
    pub fn clear(&mut self) {
        let before = self.extent();
        self.table.clear();
        if !self.arena.as_mut().is_some_and(Arena::reset) {
            self.arena = None;
        }
        if let Some(standing) = &mut self.standing {
            **standing = <[List; GROUPS_OF_CELL]>::default();
        }
        match &mut self.memory[..] {
            [(piece, _)] => {
                // As it was before its first entry: zero.
                let start = piece.as_mut_ptr() as usize;
                piece[..(self.at - start) / 8].fill(0);
                (self.at, self.left) = (start, 8 * piece.len() - BEHIND);
            }
            _ => {
                self.memory.clear();
                // As much as a power of two, so that sizes which vary a little need no other piece. Without memory in
                // advance, its first entry asks for some.
                let _ = self.begin(Extent { bytes: before.bytes.next_power_of_two(), ..before });
            }
        }
    }

    /// Takes memory for as much as there was before, and a little more.
    fn begin(&mut self, before: Extent) -> Result<(), OutOfMemory> {
        (self.at, self.left) = (0, 0);
        if before.bytes > 0 {
            self.take((before.bytes + before.bytes / 8).min(LARGEST))?;
        }
        Ok(())
    }

    /// The entry of a key in this pane's window, made if it is not there; windows are not single ones.
    ///
    /// # Errors
    /// There is no memory for it; the pane is of no use any more.
    #[inline(always)]
    pub fn find(&mut self, shape: &Shape, hash: u64, key: KeyFields) -> Result<*mut EntryHeader, OutOfMemory> {
        // SAFETY: entries in the table are of this shape.
        match self.table.find(hash, |entry| shape.equal(unsafe { shape.key_of(entry) }, key)) {
            Some(entry) => Ok(entry),
            None => self.make(shape, hash, key),
        }
    }

    #[inline(never)]
    fn make(&mut self, shape: &Shape, hash: u64, key: KeyFields) -> Result<*mut EntryHeader, OutOfMemory> {
        let memory = self.memory(shape.bytes(key))?;
        // SAFETY: the pane's, zeroed, new.
        let entry = unsafe { shape.make(memory, hash, key) };
        self.table.add(entry, hash).ok_or(OutOfMemory)?;
        if shape.grows() {
            // SAFETY: just made.
            unsafe { (*BeforeEntry::of(entry)).arena = self.arena()? };
        }
        Ok(entry)
    }

    /// Has an entry of single windows stand in this one, behind those that do.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// It is this cell's, in no list.
    pub unsafe fn stand(&mut self, entry: *mut EntryHeader) -> Result<(), OutOfMemory> {
        if self.standing.is_none() {
            self.standing = Some(boxed(<[List; GROUPS_OF_CELL]>::default()).ok_or(OutOfMemory)?);
        }
        if let Some(standing) = &mut self.standing {
            // SAFETY: as the caller says.
            unsafe { standing[group((*entry).hash) % GROUPS_OF_CELL].append(entry) };
        }
        Ok(())
    }

    /// Its entries, by key group, in the order in which they were first touched, into `entries`, which is empty.
    ///
    /// # Errors
    /// There is no memory to list them.
    pub fn entries(&self, shape: &Shape, entries: &mut Vec<*mut EntryHeader>) -> Result<(), OutOfMemory> {
        if let Some(standing) = &self.standing {
            // SAFETY: entries in lists are there.
            let all = || standing.iter().flat_map(|list| unsafe { list.entries() });
            entries.try_reserve(all().count())?;
            entries.extend(all());
            return Ok(());
        }
        // They lie in the order in which they came: those of each group are put together.
        let of = |entry: *mut EntryHeader| {
            // SAFETY: it is there.
            shape.group_in_cell(unsafe { (*entry).hash })
        };
        let mut places = [0; MOST_GROUPS];
        let next = &mut places[..shape.groups_of_cell()];
        self.each(shape, |entry| next[of(entry)] += 1);
        let mut before = 0;
        for place in &mut *next {
            before += std::mem::replace(place, before);
        }
        entries.try_reserve(before)?;
        entries.resize(before, std::ptr::null_mut());
        self.each(shape, |entry| {
            let place = &mut next[of(entry)];
            entries[*place] = entry;
            *place += 1;
        });
        Ok(())
    }

    /// Its entries as they lie in memory.
    #[inline(always)]
    pub fn each(&self, shape: &Shape, mut see: impl FnMut(*mut EntryHeader)) {
        for (number, (piece, used)) in self.memory.iter().enumerate() {
            let start = piece.as_ptr() as usize;
            let end = if number + 1 == self.memory.len() { self.at } else { start + used };
            let mut at = start;
            while at < end {
                let entry = (at + shape.before()) as *mut EntryHeader;
                see(entry);
                // SAFETY: an entry of this shape.
                at += shape.bytes(unsafe { shape.key_of(entry) });
            }
        }
    }

    /// Zeroed memory that goes with the pane; `BEHIND` bytes behind it can be read.
    #[inline]
    fn memory(&mut self, bytes: usize) -> Result<*mut u8, OutOfMemory> {
        if self.left < bytes {
            // As much again as there is.
            let whole: usize = self.memory.iter().map(|(piece, _)| 8 * piece.len()).sum();
            self.take(whole.clamp(FIRST, LARGEST).max(bytes))?;
        }
        let at = self.at as *mut u8;
        self.at += bytes;
        self.left -= bytes;
        Ok(at)
    }

    #[cold]
    fn take(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let bytes = bytes.next_multiple_of(8);
        self.memory.try_reserve(1)?;
        let mut piece = zeroed_words((bytes + BEHIND) / 8).ok_or(OutOfMemory)?;
        if let Some((piece, used)) = self.memory.last_mut() {
            *used = self.at - piece.as_ptr() as usize;
        }
        (self.at, self.left) = (piece.as_mut_ptr() as usize, bytes);
        self.memory.push((piece, 0));
        Ok(())
    }

    /// Where containers of its entries grow.
    fn arena(&mut self) -> Result<*mut ArenaHeader, OutOfMemory> {
        if self.arena.is_none() {
            self.arena = Arena::small();
        }
        self.arena.as_mut().map(Arena::header).ok_or(OutOfMemory)
    }
}
