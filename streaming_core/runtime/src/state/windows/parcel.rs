//! Parcels: cells by value, to be made again in memory of another replica's own.
//!
//! In words, so that an entry lies here as it does in memory. Of a cell its number, how large its last pane was, how many
//! panes it has, and how many single entries stand in none; of a pane its window, how large it is, and how many entries it
//! has. An entry is there with its header, with zeros for addresses, and then with what its containers hold.
//!
//! Order: entries of a pane key group by key group, single ones that stand in none as they were touched, each first to last:
//! made again one after the other, they are in the order in which they were.

use crate::error::RunError;
use crate::memory::arena::ArenaHeader;
use crate::program::kernel::EntryHeader;
use crate::state::container::{pack, unpack};
use crate::state::windows::cell::Cell;
use crate::state::windows::entry::{BEHIND, Shape};
use crate::state::windows::pane::{Extent, Pane};

/// Words of a header that are addresses.
const ADDRESSES: [usize; 3] = [0, 4, 5];

/// See the module.
#[derive(Debug, Default)]
pub struct Parcel {
    words: Vec<u64>,
}

impl Parcel {
    pub fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    /// Forgets what is in it, and gives the memory back: parcels are few, and as large as states.
    pub fn clear(&mut self) {
        self.words = Vec::new();
    }

    /// Packs a cell, number `number`, of an operator whose entries have this shape.
    ///
    /// # Safety
    /// Nobody else is at the cell, nor any kernel at its entries.
    pub unsafe fn put(&mut self, number: usize, mut cell: Cell, shape: &Shape) {
        // SAFETY: entries in lists are there, and the cell's.
        let touched: Vec<_> = unsafe { cell.touched.entries() }.collect();
        let panes = cell.panes.iter_mut().count();
        self.words.push(number as u64);
        self.words.extend(cell.extent.words());
        self.words.extend([panes as u64, touched.len() as u64]);
        for (window, pane) in cell.panes.iter_mut() {
            self.words.push(window as u64);
            self.words.extend(pane.extent().words());
            let before = self.words.len();
            self.words.push(0);
            let mut entries = 0;
            for list in &pane.lists {
                // SAFETY: as above.
                for entry in unsafe { list.entries() } {
                    // SAFETY: as above.
                    unsafe { self.put_entry(entry, shape) };
                    entries += 1;
                }
            }
            self.words[before] = entries;
        }
        for entry in touched {
            // SAFETY: as above.
            unsafe { self.put_entry(entry, shape) };
        }
    }

    /// # Safety
    /// The entry is there, of this shape, and nobody else is at it.
    unsafe fn put_entry(&mut self, entry: *const EntryHeader, shape: &Shape) {
        let states = shape.states().start;
        // SAFETY: as the caller says; an entry is a whole number of words.
        unsafe {
            let words = shape.bytes(shape.key_of(entry)) / 8;
            let at = self.words.len();
            self.words.extend_from_slice(std::slice::from_raw_parts(entry.cast::<u64>(), words));
            let image = &mut self.words[at..];
            ADDRESSES.iter().for_each(|&word| image[word] = 0);
            for growing in shape.growing() {
                image[(states + growing.offset) / 8] = 0;
            }
            for growing in shape.growing() {
                pack(entry.cast::<u8>().add(states + growing.offset), growing, &mut self.words);
            }
        }
    }

    /// Makes the cells again; `place` is given each, and its number. `single`: the windows are single ones.
    ///
    /// # Errors
    /// `Engine`: there is no memory.
    ///
    /// # Safety
    /// They were packed with this shape.
    pub unsafe fn unpack(
        &mut self,
        shape: &Shape,
        single: bool,
        mut place: impl FnMut(usize, Cell),
    ) -> Result<(), RunError> {
        let end = self.words.len();
        // A text may be the last thing in it.
        self.words.resize(end + BEHIND / 8, 0);
        let mut from = Reader { words: &self.words, at: 0 };
        while from.at < end {
            let [number, slots, bytes, panes, touched] = from.take();
            let mut cell = Cell::default();
            cell.extent = Extent::of([slots, bytes]);
            for _ in 0..panes {
                let [window, slots, bytes, entries] = from.take();
                let window = window as i64;
                let mut pane = Box::new(Pane::like(Extent::of([slots, bytes])));
                for _ in 0..entries {
                    // SAFETY: as the caller says.
                    unsafe {
                        let entry = from.entry(&mut cell, (!single).then_some(&mut *pane), shape)?;
                        if single {
                            pane.stand(entry, window);
                        }
                    }
                }
                cell.panes.get_or_make(window, || pane);
            }
            for _ in 0..touched {
                // SAFETY: as above; the entry is in no list yet.
                unsafe {
                    let entry = from.entry(&mut cell, None, shape)?;
                    cell.touched.append(entry);
                }
            }
            place(number as usize, cell);
        }
        Ok(())
    }
}

/// What is read of a parcel next.
struct Reader<'a> {
    words: &'a [u64],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u64; N] {
        self.at += N;
        self.words[self.at - N..self.at].try_into().expect("so many words")
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
        let image = self.words[self.at..].as_ptr().cast::<EntryHeader>();
        let states = shape.states();
        // SAFETY: as the caller says: an image is what an entry was, and is made one with the same key.
        unsafe {
            let key = shape.key_of(image);
            let (hash, number) = ((*image).hash, (*image).number);
            let entry = match pane {
                Some(pane) => Some(pane.find(shape, number, hash, key)),
                None => cell.new_single(shape, number, hash, key),
            };
            let entry = entry.ok_or_else(|| RunError::Engine("out of memory for the state of a window".into()))?;
            (*entry).last = (*image).last;
            let (from, to) = (image.cast::<u8>(), entry.cast::<u8>());
            std::ptr::copy_nonoverlapping(from.add(states.start), to.add(states.start), states.len());
            self.at += shape.bytes(key) / 8;
            for growing in shape.growing() {
                let arena: *mut ArenaHeader = (*entry).arena;
                let alloc = |bytes: usize| ((*arena).alloc)(arena, bytes as i64);
                self.at += unpack(to.add(states.start + growing.offset), growing, &self.words[self.at..], alloc)?;
            }
            Ok(entry)
        }
    }
}
