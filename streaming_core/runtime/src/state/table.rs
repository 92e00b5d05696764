//! Shared tables: fixed rows that state transactions access by number, and the index of tables whose rows have keys.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::null;

use crate::error::RunError;
use crate::memory::arena::{Arena, ArenaHeader};
use crate::memory::placement::TableRows;
use crate::program;
use crate::program::KeyKind;
use crate::program::kernel::IndexHeader;
use crate::state::image::{PARTS, Reader, RowShape, Take, part_of, put_key};
use crate::state::key_index::KeyIndex;
use crate::state::keyed::KeyRef;
use crate::state::states::{Keys, States};
use crate::threads::sync::{CachePadded, UnsafeCell};

/// Rows start on a page, so that those of one cache line are the same in every table and run.
const ALIGN: usize = 4096;
/// What the allocator aligns without writing zeros itself: pages that no thread touches then take no memory.
const LAZY: usize = 16;

/// The tables of a run and, per thread, the memory that containers in their rows grow into.
///
/// Which thread may touch which row when is the scheme's business; this only keeps the memory.
#[derive(Debug)]
pub struct Tables {
    layouts: Vec<program::TableSpec>,
    memory: Vec<(*mut u8, Layout)>,
    /// Base address per table; never written after `new`.
    bases: Vec<*mut u8>,
    /// The index of each table whose rows have keys. Boxed, because kernels have its address.
    indexes: Vec<Option<Box<KeyIndex>>>,
    /// The address of each index; null for a dense table.
    headers: Vec<*const IndexHeader>,
    /// One per thread, used by that thread only.
    arenas: Vec<CachePadded<UnsafeCell<Arena>>>,
}

// SAFETY: bases and indexes never change. Kernels access the rows under a scheme's protocol. Any thread may use an index, and
// only its own thread an arena.
unsafe impl Sync for Tables {}
// SAFETY: nothing refers to the thread that made it.
unsafe impl Send for Tables {}

impl Tables {
    /// Zeroed rows, and empty indexes.
    pub fn new(tables: &[program::TableSpec], threads: usize) -> Result<Self, RunError> {
        let mut allocated = Self {
            layouts: tables.to_vec(),
            memory: Vec::new(),
            bases: Vec::new(),
            indexes: Vec::new(),
            headers: Vec::new(),
            arenas: (0..threads).map(|_| CachePadded::new(UnsafeCell::new(Arena::new()))).collect(),
        };
        let sizes = tables.iter().map(|table| {
            let bytes = table.rows.saturating_mul(table.stride).saturating_add(ALIGN);
            Layout::from_size_align(bytes, LAZY)
                .map_err(|_| RunError::Invalid(format!("table {} is too large", table.name)))
        });
        let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        for (table, layout) in tables.iter().zip(sizes) {
            // SAFETY: the size is not zero.
            let memory = unsafe { alloc_zeroed(layout) };
            if memory.is_null() {
                handle_alloc_error(layout);
            }
            allocated.memory.push((memory, layout));
            let base = memory.wrapping_add(memory.align_offset(ALIGN));
            allocated.bases.push(base);
            // SAFETY: the rows live as long as the tables.
            let index = table.index.map(|spec| unsafe { KeyIndex::new(spec, table.rows, base, table.stride) });
            allocated.indexes.push(index.transpose()?.map(Box::new));
        }
        allocated.headers =
            allocated.indexes.iter().map(|index| index.as_ref().map_or(null(), |index| index.header())).collect();
        Ok(allocated)
    }

    pub fn len(&self) -> usize {
        self.layouts.len()
    }

    /// Where the rows of each table lie.
    pub fn rows(&self) -> impl Iterator<Item = TableRows> {
        self.layouts.iter().zip(&self.bases).map(|(table, &base)| TableRows {
            base,
            rows: table.rows,
            stride: table.stride,
        })
    }

    /// What goes into an apply context.
    pub fn bases(&self) -> *const *mut u8 {
        self.bases.as_ptr()
    }

    /// What goes into the contexts of kernels that name rows.
    pub fn indexes(&self) -> *const *const IndexHeader {
        self.headers.as_ptr()
    }

    /// An estimate of the time that threads have spent in indexes.
    pub fn lookup_nanoseconds(&self) -> u64 {
        self.indexes.iter().flatten().map(|index| index.nanoseconds()).sum()
    }

    /// The arena of a thread.
    ///
    /// # Safety
    /// Only thread `thread` uses the result, and only while no other call for this thread is in use.
    pub unsafe fn arena(&self, thread: usize) -> *mut ArenaHeader {
        // SAFETY: only this thread is at its arena.
        self.arenas[thread].with_mut(|arena| unsafe { (*arena).header() })
    }

    /// Replaces all rows of a table. An indexed one takes the key of each row; if it inserts rows, no keys and one row, which
    /// a new row starts with.
    pub fn load(&mut self, index: usize, keys: &Keys, rows: &[u8]) -> Result<(), RunError> {
        let table = self.layout(index)?;
        let inserts = self.index(index).is_some_and(KeyIndex::inserts);
        let bytes = if inserts { table.stride } else { table.rows * table.stride };
        if rows.len() != bytes {
            let message = format!("table {} needs {bytes} bytes of rows, got {}", table.name, rows.len());
            return Err(RunError::Invalid(message));
        }
        match self.index(index) {
            Some(known) if inserts && *keys == Keys::None => known.set_initial(rows),
            Some(_) if !inserts => self.enter(index, keys, rows),
            None if *keys == Keys::None => {
                // SAFETY: `bytes` bytes are there, and `&mut self` means that no thread runs.
                unsafe { std::ptr::copy_nonoverlapping(rows.as_ptr(), self.bases[index], bytes) };
                Ok(())
            }
            _ => Err(RunError::Invalid(format!("table {} takes no keys", table.name))),
        }
    }

    /// Enters keys and their rows into an indexed table without any.
    fn enter(&mut self, index: usize, keys: &Keys, rows: &[u8]) -> Result<(), RunError> {
        let (base, stride) = (self.bases[index], self.layouts[index].stride);
        let known = self.indexes[index].as_ref().expect("the caller asks for indexed tables");
        let count = keys.len();
        if rows.len() != count * stride {
            let message =
                format!("table {} has {count} keys for {} bytes of rows", self.layouts[index].name, rows.len());
            return Err(RunError::Invalid(message));
        }
        known.enter(keys, |number, row| {
            let bytes = &rows[number * stride..][..stride];
            // SAFETY: the row is inside of the table, and `&mut self` means that no thread runs.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.add(row * stride), stride) };
        })
    }

    /// The keys of a table in ascending order and their rows; the caller sees to it that no thread runs.
    pub fn copy(&self, index: usize) -> Result<States, RunError> {
        let table = self.layout(index)?;
        // SAFETY: that many bytes are there, initialised.
        let all = unsafe { std::slice::from_raw_parts(self.bases[index], table.rows * table.stride) };
        Ok(match self.index(index) {
            None => States { keys: Keys::None, states: all.to_vec() },
            Some(known) => {
                let (keys, rows) = known.keys();
                let states = rows.iter().flat_map(|row| &all[row * table.stride..][..table.stride]).copied().collect();
                States { keys, states }
            }
        })
    }

    /// A table in parts: of keys, or of neighbouring rows, which then begin with the number of the first one. The caller sees to
    /// it that no thread runs.
    ///
    /// # Errors
    /// `Memory`: there is none; and those of `take`.
    pub fn images(&self, index: usize, take: Take) -> Result<(), RunError> {
        let (table, base, mut image) = (self.layout(index)?, self.bases[index], Vec::new());
        let shape = shape_of(table);
        let Some(known) = self.index(index) else {
            for part in 0..PARTS {
                let rows = table.rows * part / PARTS..table.rows * (part + 1) / PARTS;
                if rows.is_empty() {
                    continue;
                }
                image.clear();
                image.push(rows.start as u64);
                for row in rows {
                    // SAFETY: a row of this table, and no thread runs.
                    unsafe { shape.put(base.add(row * table.stride), &mut image) }?;
                }
                take(part, &image)?;
            }
            return Ok(());
        };
        let (keys, rows) = known.keys();
        let key = |number: usize| match &keys {
            Keys::Integers(keys) => KeyRef::Integer(keys[number]),
            Keys::Texts(keys) => KeyRef::Text(&keys[number]),
            Keys::None | Keys::Fields(_) => unreachable!("tables have keys of one field"),
        };
        let mut parts: [Vec<usize>; PARTS] = std::array::from_fn(|_| Vec::new());
        (0..keys.len()).for_each(|number| parts[part_of(key(number).hash())].push(number));
        for (part, numbers) in parts.iter().enumerate().filter(|(_, numbers)| !numbers.is_empty()) {
            image.clear();
            for &number in numbers {
                put_key(key(number), &mut image);
                // SAFETY: as above.
                unsafe { shape.put(base.add(rows[number] * table.stride), &mut image) }?;
            }
            take(part, &image)?;
        }
        Ok(())
    }

    /// Replaces the rows of an image, in a table that was loaded.
    ///
    /// # Errors
    /// `Invalid`: the image has other rows than the table. `Memory`: there is none for it.
    pub fn restore(&mut self, index: usize, image: &[u64]) -> Result<(), RunError> {
        let (table, base, mut image) = (self.layout(index)?, self.bases[index], Reader(image));
        let unfit = || RunError::Invalid(format!("the image does not fit table {}", table.name));
        let shape = shape_of(table);
        let mut next = if table.index.is_none() { image.words(1)?[0] as usize } else { 0 };
        while !image.is_done() {
            let row = match (self.index(index), table.index) {
                (Some(known), Some(spec)) => known.row_of(image.key(spec.key == KeyKind::Text)?)?,
                _ => Some(next),
            };
            let row = row.filter(|&row| row < table.rows).ok_or_else(unfit)?;
            next += 1;
            // SAFETY: `&mut self` means that no thread is at its arena.
            let alloc = |bytes| self.arenas[0].with_mut(|arena| unsafe { (*arena).alloc(bytes) });
            // SAFETY: a row of this table, and no thread runs.
            unsafe { shape.take(&mut image, base.add(row * table.stride), alloc) }?;
        }
        Ok(())
    }

    pub fn name(&self, index: usize) -> &str {
        &self.layouts[index].name
    }

    fn layout(&self, index: usize) -> Result<&program::TableSpec, RunError> {
        self.layouts.get(index).ok_or_else(|| RunError::Invalid(format!("there is no table {index}")))
    }

    fn index(&self, index: usize) -> Option<&KeyIndex> {
        self.indexes[index].as_deref()
    }
}

fn shape_of(table: &program::TableSpec) -> RowShape<'_> {
    RowShape { bytes: table.stride, growing: &table.growing }
}

impl Drop for Tables {
    fn drop(&mut self) {
        for &(memory, layout) in &self.memory {
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(memory, layout) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::program::Growing;
    use crate::state::container::ContainerHead;

    fn tables() -> Tables {
        let growing = [(8, true), (40, false)]
            .map(|(offset, indexed)| Growing { offset, indexed, ..Growing::default() })
            .to_vec();
        let layout = program::TableSpec {
            name: "t".into(),
            rows: 3,
            stride: 72,
            containers: true,
            growing,
            read: (0, 8),
            index: None,
        };
        Tables::new(&[layout], 2).unwrap()
    }

    fn set(rows: &mut [u8], at: usize, block: u64, length: u32, capacity: u32) {
        rows[at..at + 32].fill(0);
        rows[at..at + 8].copy_from_slice(&block.to_le_bytes());
        rows[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
        rows[at + 12..at + 16].copy_from_slice(&capacity.to_le_bytes());
    }

    /// The parts of a table.
    fn parts(tables: &Tables) -> Vec<(usize, Vec<u64>)> {
        let mut parts = Vec::new();
        tables
            .images(0, &mut |part, image| {
                parts.push((part, image.to_vec()));
                Ok(())
            })
            .unwrap();
        parts
    }

    #[test]
    fn an_image_holds_entries_and_no_addresses() {
        let mut tables = tables();
        let mut rows = vec![7; 3 * 72];
        let heads: Vec<usize> = (0..3).flat_map(|row| [row * 72 + 8, row * 72 + 40]).collect();
        for &head in &heads {
            set(&mut rows, head, 0, 0, 0);
        }
        tables.load(0, &Keys::None, &rows).unwrap();
        let words =
            |bytes: &[u8]| bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>();
        let bare: Vec<_> = parts(&tables).into_iter().flat_map(|(_, image)| image[1..].to_vec()).collect();
        assert_eq!(bare, words(&rows));
        let mut blocks = [vec![1_u8; 8 * 24], vec![2; 3 * 16]];
        set(&mut rows, 72 + 8, blocks[0].as_mut_ptr() as u64, 2, 8);
        set(&mut rows, 2 * 72 + 40, blocks[1].as_mut_ptr() as u64, 1, 3);
        tables.load(0, &Keys::None, &rows).unwrap();
        let image = parts(&tables);
        assert_eq!(image[1].1[1 + 9..], words(&blocks[0][..2 * 16]));
        assert_eq!(image[2].1[1 + 9..], words(&blocks[1][..16]));
        let mut other = self::tables();
        image.iter().rev().for_each(|(_, image)| other.restore(0, image).unwrap());
        drop((tables, blocks));
        assert_eq!(parts(&other), image);
        let set_back = ContainerHead::read(&other.copy(0).unwrap().states[72 + 8..]);
        assert_eq!((set_back.length, set_back.capacity, set_back.block % 8), (2, 8, 0));
        for damaged in [&image[0].1[..5], &[7][..], &[&[3][..], &image[0].1[1..]].concat()] {
            assert!(matches!(other.restore(0, damaged), Err(RunError::Invalid(_))) || damaged.len() == 1);
        }
    }

    /// Tables of four rows with a key each.
    fn indexed(key: KeyKind, inserts: bool) -> Tables {
        let growing = vec![Growing { offset: 8, ..Growing::default() }];
        let index = Some(program::IndexSpec { key, inserts });
        let layout = program::TableSpec {
            name: "t".into(),
            rows: 4,
            stride: 40,
            containers: true,
            growing,
            read: (0, 8),
            index,
        };
        Tables::new(&[layout], 1).unwrap()
    }

    #[test]
    fn an_image_holds_keys() {
        let row = |value: u8| [&[value; 8][..], &[0; 32]].concat();
        let texts = Keys::Texts(vec![vec![], b"of more bytes than sixteen".to_vec(), vec![0; 3]]);
        let integers = Keys::Integers(vec![i64::MAX, i64::MIN, 0]);
        for (kind, keys) in [(KeyKind::Text, &texts), (KeyKind::Integer, &integers)] {
            let mut tables = indexed(kind, true);
            tables.load(0, &Keys::None, &row(9)).unwrap();
            tables.enter(0, keys, &[row(1), row(2), row(3)].concat()).unwrap();
            let mut other = indexed(kind, true);
            other.load(0, &Keys::None, &row(9)).unwrap();
            parts(&tables).iter().for_each(|(_, image)| other.restore(0, image).unwrap());
            assert_eq!(other.copy(0).unwrap(), tables.copy(0).unwrap());
            assert_eq!(parts(&other), parts(&tables));
            // A table that inserts no rows has none of these keys.
            let (_, image) = &parts(&tables)[0];
            assert!(matches!(indexed(kind, false).restore(0, image), Err(RunError::Invalid(_))));
        }
    }

    #[test]
    fn a_table_refuses_keys_and_rows_that_do_not_fit() {
        let keys = Keys::Integers(vec![4, 3, 2, 1]);
        let mut tables = indexed(KeyKind::Integer, false);
        assert!(tables.load(0, &Keys::None, &[0; 160]).is_err());
        assert!(tables.load(0, &keys, &[0; 40]).is_err());
        assert!(tables.load(0, &Keys::Integers(vec![1]), &[0; 160]).is_err());
        tables.load(0, &keys, &[0; 160]).unwrap();
        assert_eq!(tables.copy(0).unwrap().keys, Keys::Integers(vec![1, 2, 3, 4]));
        assert!(indexed(KeyKind::Integer, true).load(0, &keys, &[0; 160]).is_err());
        assert!(self::tables().load(0, &keys, &[0; 3 * 72]).is_err());
    }
}
