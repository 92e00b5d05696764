//! Parcels: cells by value, to be rebuilt in other memory: another replica's own, or that of a run that goes on.
//!
//! A parcel consists of words, so an entry has the same layout here as in memory. A cell begins with four words: its number, the
//! size of its last pane, and its numbers of panes and of single entries. Single entries, such as sessions, lie outside panes. A pane
//! begins with its window, its size and its number of entries. An entry has its header, with zeros for addresses, and then the
//! content of its containers.
//!
//! Order: entries of a pane come key group by key group. Single entries outside panes come in the order in which they were
//! touched. Rebuilt one after the other, entries are in the same order as before. There, operators whose windows are
//! not single may have fewer or more cells: an entry goes to the cell of its key.

use std::mem::offset_of;

use crate::error::RunError;
use crate::memory::arena::ArenaHeader;
use crate::program::kernel::{BeforeEntry, EntryHeader};
use crate::state::container::{forget_places, pack, unpack};
use crate::state::windows::OutOfMemory;
use crate::state::windows::cell::Cell;
use crate::state::windows::entry::{BEHIND, Shape};
use crate::state::windows::pane::{Extent, Pane};

/// See the module.
#[derive(Debug, Default)]
pub struct Parcel {
    words: Vec<u64>,
}

impl Parcel {
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    /// What is in it, which it forgets.
    pub fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.words)
    }

    /// Packs a cell, number `number`, of an operator whose entries have this shape.
    ///
    /// # Errors
    /// There is no memory.
    ///
    /// # Safety
    /// No other thread uses the cell, and no kernel its entries.
    pub unsafe fn put(&mut self, number: usize, cell: &mut Cell, shape: &Shape) -> Result<(), OutOfMemory> {
        // SAFETY: entries in lists are there, and the cell's.
        let touched: Vec<_> = unsafe { cell.touched.entries() }.chain(cell.sessions.entries()).collect();
        let panes = cell.panes.iter_mut().count();
        self.words.try_reserve(5)?;
        self.words.push(number as u64);
        self.words.extend(cell.extent.words());
        self.words.extend([panes as u64, touched.len() as u64]);
        for (window, pane) in cell.panes.iter_mut() {
            self.words.try_reserve(4)?;
            self.words.push(window as u64);
            self.words.extend(pane.extent().words());
            let mut entries = Vec::new();
            pane.entries(shape, &mut entries)?;
            self.words.push(entries.len() as u64);
            for entry in entries {
                // SAFETY: as above.
                unsafe { self.put_entry(entry, shape) }?;
            }
        }
        for entry in touched {
            // SAFETY: as above.
            unsafe { self.put_entry(entry, shape) }?;
        }
        Ok(())
    }

    /// # Safety
    /// The entry exists, has this shape, and no other thread is at it.
    unsafe fn put_entry(&mut self, entry: *const EntryHeader, shape: &Shape) -> Result<(), OutOfMemory> {
        let states = shape.states().start;
        // SAFETY: as the caller says; an entry is a whole number of words.
        unsafe {
            let words = shape.bytes(shape.key_of(entry)) / 8;
            let at = self.words.len();
            self.words.try_reserve(words)?;
            let start = entry.cast::<u8>().sub(shape.before());
            self.words.extend_from_slice(std::slice::from_raw_parts(start.cast::<u64>(), words));
            // Addresses say nothing elsewhere.
            let (before, image) = self.words[at..].split_at_mut(shape.before() / 8);
            let kept = if shape.is_single() { offset_of!(BeforeEntry, next) / 8 } else { 0 };
            before[kept..].fill(0);
            if !shape.is_numbered() {
                image[offset_of!(EntryHeader, beside) / 8] = 0;
            }
            for growing in shape.growing() {
                let head = image[(states + growing.offset) / 8..].as_mut_ptr().cast();
                forget_places(std::slice::from_raw_parts_mut(head, growing.head()), growing);
            }
            for growing in shape.growing() {
                pack(entry.cast::<u8>().add(states + growing.offset), growing, &mut self.words)?;
            }
        }
        Ok(())
    }
}

/// Makes cells again that were packed. `with` lends the cell of a number. `session`: the windows are sessions.
///
/// # Errors
/// There is no memory.
///
/// # Safety
/// They were packed with this shape, but for the number of its cells. No entry of them is there yet, and no other thread uses the
/// cells.
pub unsafe fn unpack_cells(
    mut words: Vec<u64>,
    shape: &Shape,
    session: bool,
    with: impl Fn(usize, &mut dyn FnMut(&mut Cell) -> Result<(), RunError>) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let end = words.len();
    // A text may be the last thing in it.
    words.try_reserve_exact(BEHIND / 8).map_err(OutOfMemory::from)?;
    words.resize(end + BEHIND / 8, 0);
    let mut from = Reader { words: &words, at: 0 };
    while from.at < end {
        let [_, places, bytes, panes, touched] = from.take();
        let extent = Extent::of([places, bytes]);
        for _ in 0..panes {
            let [window, places, bytes, entries] = from.take();
            let (window, size) = (window as i64, Extent::of([places, bytes]));
            for _ in 0..entries {
                // SAFETY: as the caller says.
                let cell = shape.cell_of(unsafe { from.hash(shape) });
                with(cell, &mut |cell| {
                    cell.extent = extent;
                    let pane = cell.panes.get_or_make(window, || Pane::like(size))?.0;
                    let pane: *mut Pane = &raw mut **pane;
                    // SAFETY: as the caller says; the pane stays in place.
                    unsafe {
                        let entry = from.entry(cell, (!shape.is_single()).then_some(&mut *pane), shape)?;
                        if shape.is_single() {
                            (*pane).stand(entry)?;
                        }
                        if shape.is_numbered() {
                            cell.entries = cell.entries.max((*entry).beside.addr());
                        }
                    }
                    Ok(())
                })?;
            }
        }
        for _ in 0..touched {
            // SAFETY: as above.
            let cell = shape.cell_of(unsafe { from.hash(shape) });
            with(cell, &mut |cell| {
                // SAFETY: as above; the entry is in no list yet.
                unsafe {
                    let entry = from.entry(cell, None, shape)?;
                    match session {
                        true => cell.sessions.note(entry)?,
                        false => cell.touched.append(entry),
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// What is read of a parcel next.
struct Reader<'a> {
    words: &'a [u64],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u64; N] {
        self.at += N;
        self.words[self.at - N..self.at].try_into().expect("the slice has N words")
    }

    /// The hash of the next entry's key.
    ///
    /// # Safety
    /// An entry of this shape comes next.
    unsafe fn hash(&self, shape: &Shape) -> u64 {
        self.words[self.at + (shape.before() + offset_of!(EntryHeader, hash)) / 8]
    }

    /// Makes the next entry again, in its pane, or, a single one, in the cell.
    ///
    /// # Safety
    /// An entry of this shape comes next, whose key is not there.
    unsafe fn entry(
        &mut self,
        cell: &mut Cell,
        pane: Option<&mut Pane>,
        shape: &Shape,
    ) -> Result<*mut EntryHeader, RunError> {
        let image = self.words[self.at + shape.before() / 8..].as_ptr().cast::<EntryHeader>().cast_mut();
        let states = shape.states();
        // SAFETY: as the caller says: an image is what an entry was, and is made one with the same key.
        unsafe {
            let key = shape.key_of(image);
            let hash = (*image).hash;
            let entry = match pane {
                Some(pane) => pane.find(shape, hash, key)?,
                None => cell.get_or_make_single(shape, hash, key).ok_or(OutOfMemory)?.0,
            };
            if shape.is_numbered() {
                (*entry).beside = (*image).beside;
            }
            if shape.is_single() {
                let (to, from) = (BeforeEntry::of(entry), BeforeEntry::of(image));
                ((*to).last, (*to).start, (*to).order) = ((*from).last, (*from).start, (*from).order);
            }
            let (from, to) = (image.cast::<u8>(), entry.cast::<u8>());
            std::ptr::copy_nonoverlapping(from.add(states.start), to.add(states.start), states.len());
            self.at += shape.bytes(key) / 8;
            for growing in shape.growing() {
                let arena: *mut ArenaHeader = (*BeforeEntry::of(entry)).arena;
                let alloc = |bytes: usize| ((*arena).alloc)(arena, bytes as i64);
                self.at += unpack(to.add(states.start + growing.offset), growing, &self.words[self.at..], alloc)?;
            }
            Ok(entry)
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::program::{Growing, Key, KeySpec};
    use crate::rows::block::Text;
    use crate::rows::column::ColumnKind;
    use crate::state::windows::entry::KeyFields;
    use crate::threads::own::Own;
    use proptest::prelude::*;

    const WORDS: &[u8] = b"abcdefghijklmnopqrstuvwxyz                ";

    /// Keys of a text and a number. States of a number, a queue of bytes, words and texts, a top-k, a map of texts, and a
    /// text.
    fn shape(single: bool) -> Shape {
        let fields = vec![Key { kind: ColumnKind::Text, offset: 8 }, Key { kind: ColumnKind::I64, offset: 16 }];
        let growing = vec![
            Growing { offset: 8, columns: vec![1, 8, 8], texts: vec![2], ..Growing::default() },
            Growing { offset: 40, ..Growing::default() },
            Growing { offset: 72, indexed: true, texts: vec![0, 1], ..Growing::default() },
            Growing { offset: 104, plain: true, ..Growing::default() },
        ];
        Shape::new(&KeySpec { stride: 24, fields }, 112, &growing, single)
    }

    /// Gives an entry content that hangs on `n`, as kernels would: a queue that does not begin at its first place.
    unsafe fn fill(entry: *mut EntryHeader, shape: &Shape, n: u8) {
        // SAFETY: as the caller says: an entry of the shape.
        unsafe {
            let state = entry.cast::<u8>().add(shape.states().start);
            let arena: *mut ArenaHeader = (*BeforeEntry::of(entry)).arena;
            let alloc = |bytes: i64| ((*arena).alloc)(arena, bytes);
            let text = |length: u8| {
                if length == 0 {
                    return 0;
                }
                let block = alloc(i64::from(length) + 24);
                block.cast::<u64>().write(u64::from(n ^ length) << 32 | u64::from(length));
                (0..length).for_each(|at| block.add(8 + usize::from(at)).write(at ^ n));
                block as u64
            };
            state.cast::<u64>().write(u64::from(n));
            let (length, capacity, first) = (u32::from(n % 6), 8, u64::from(n % 3));
            if !n.is_multiple_of(4) {
                let queue = alloc(136);
                (0..72).for_each(|at| queue.add(at).write(n ^ at as u8));
                (0..8).for_each(|at| queue.add(72).cast::<u64>().add(at).write(text(at as u8 * 5)));
                state.add(8).cast::<u64>().write(queue as u64);
                state.add(16).cast::<[u32; 2]>().write([length, capacity]);
                state.add(24).cast::<u64>().write(first);
                let best = alloc(3 * 16).cast::<u64>();
                (0..2 * u64::from(n % 4)).for_each(|at| best.add(at as usize).write(u64::from(n) << 8 | at));
                state.add(40).cast::<u64>().write(best as u64);
                state.add(48).cast::<[u32; 2]>().write([u32::from(n % 4), 3]);
                let map = alloc(4 * 24).cast::<u64>();
                (0..2 * (n % 4)).for_each(|at| map.add(at.into()).write(text(at * 9)));
                state.add(72).cast::<u64>().write(map as u64);
                state.add(80).cast::<[u32; 2]>().write([u32::from(n % 4), 4]);
                state.add(104).cast::<u64>().write(text(n));
            }
        }
    }

    /// What an entry says, without addresses.
    unsafe fn content(entry: *mut EntryHeader, shape: &Shape) -> Vec<u64> {
        let mut parcel = Parcel::default();
        // SAFETY: as the caller says: an entry of the shape.
        unsafe { parcel.put_entry(entry, shape) }.unwrap();
        let first = (shape.before() + shape.states().start) / 8 + 3;
        parcel.words[first] = 0; // a queue begins anew
        parcel.words
    }

    /// Its entries in their order: where they stand, their hashes.
    unsafe fn order(cell: &mut Cell, shape: &Shape) -> Vec<(Option<i64>, u64)> {
        let mut content = Vec::new();
        // SAFETY: entries in lists are there.
        unsafe {
            for (window, pane) in cell.open() {
                let mut entries = Vec::new();
                (*pane).entries(shape, &mut entries).unwrap();
                content.extend(entries.into_iter().map(|entry| (Some(window), (*entry).hash)));
            }
            content.extend(cell.touched.entries().map(|entry| (None, (*entry).hash)));
            let mut sessions: Vec<_> = cell.sessions.entries().collect();
            sessions.sort_by_key(|&entry| (*BeforeEntry::of(entry)).order);
            content.extend(sessions.into_iter().map(|entry| (Some((*BeforeEntry::of(entry)).start), (*entry).hash)));
        }
        content
    }

    proptest! {
        /// Entries of panes, single ones that stand in panes, those that expire without a kernel call, and sessions. Made
        /// again, they are found, say the same, and stand in the same order.
        #[test]
        fn what_is_packed_is_made_again(
            keys in proptest::collection::vec((0_i64..3, 0_u32..20, any::<u8>()), 0..40),
            (single, reports, session) in prop::sample::select(vec![
                (false, false, false), (true, true, false), (true, false, false), (true, false, true),
            ]),
        ) {
            let shape = shape(single);
            // SAFETY: the array outlives the text; entries are made and used as cells say.
            unsafe {
                let text = Text::new(WORDS.as_ptr(), 26);
                let mut cell = Cell::default();
                let mut known: Vec<(i64, u64, [u64; 3], Vec<u64>)> = Vec::new();
                for &(window, length, n) in &keys {
                    let row = [0, u64::from(length) << 32 | 3, u64::from(n / 8)];
                    let key = KeyFields { row: row.as_ptr().cast(), text };
                    let hash = shape.hash(key).unwrap();
                    if known.iter().any(|&(at, other, ..)| other == hash && (single || at == window)) {
                        continue;
                    }
                    let entry = match single {
                        true => cell.get_or_make_single(&shape, hash, key).unwrap().0,
                        false => (*cell.pane(window).unwrap()).find(&shape, hash, key).unwrap(),
                    };
                    match (single, reports) {
                        _ if session => cell.sessions.begin(entry, window).unwrap(),
                        (true, true) => (*cell.pane(window).unwrap()).stand(entry).unwrap(),
                        (true, false) => cell.touched.append(entry),
                        _ => {}
                    }
                    fill(entry, &shape, n);
                    if single {
                        (*BeforeEntry::of(entry)).last = i64::from(n);
                    }
                    known.push((window, hash, row, content(entry, &shape)));
                }
                let before = order(&mut cell, &shape);
                let mut parcel = Parcel::default();
                parcel.put(7, &mut cell, &shape).unwrap();
                parcel.put(9, &mut Cell::default(), &shape).unwrap();
                let cells = Own::new(1, Cell::default);
                unpack_cells(parcel.take(), &shape, session, |_, work| cells.with_mut(0, work)).unwrap();
                let mut cell = cells.with_mut(0, std::mem::take);
                prop_assert_eq!(order(&mut cell, &shape), before);
                for (window, hash, row, bytes) in &known {
                    let key = KeyFields { row: row.as_ptr().cast(), text };
                    let entry = match single {
                        true => cell.single(&shape, *hash, key).unwrap_or(std::ptr::null_mut()),
                        false => (*cell.pane(*window).unwrap()).find(&shape, *hash, key).unwrap(),
                    };
                    prop_assert!(!entry.is_null());
                    prop_assert_eq!(&content(entry, &shape), bytes);
                }
            }
        }
    }
}
