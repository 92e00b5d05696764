//! Shared tables: fixed rows that state transactions access by number.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use crate::error::RunError;
use crate::memory::arena::{Arena, ArenaHeader};
use crate::memory::placement::TableRows;
use crate::program;
use crate::state::container::{ContainerHead, ENTRY};
use crate::threads::sync::{CachePadded, UnsafeCell};

/// Rows start on a page, so that those of one cache line are the same in every table and run.
const ALIGN: usize = 4096;

/// The tables of a run and, per thread, the memory that containers in their rows grow into.
///
/// Which thread may touch which row when is the scheme's business; this only keeps the memory.
#[derive(Debug)]
pub struct Tables {
    layouts: Vec<program::TableSpec>,
    memory: Vec<Layout>,
    /// Base address per table; never written after `new`.
    bases: Vec<*mut u8>,
    /// One per thread, used by that thread only.
    arenas: Vec<CachePadded<UnsafeCell<Arena>>>,
}

// SAFETY: bases never change; what lies behind them is accessed by kernels under a scheme's protocol; an arena is
// used by its own thread only.
unsafe impl Sync for Tables {}
// SAFETY: nothing refers to the thread that made it.
unsafe impl Send for Tables {}

impl Tables {
    /// Zeroed rows.
    pub fn new(tables: &[program::TableSpec], threads: usize) -> Result<Self, RunError> {
        let mut memory = Vec::new();
        let mut bases = Vec::new();
        for table in tables {
            let bytes = table.rows.saturating_mul(table.stride).max(1);
            let layout = Layout::from_size_align(bytes, ALIGN)
                .map_err(|_| RunError::Invalid(format!("table {} is too large", table.name)))?;
            memory.push(layout);
        }
        for layout in &memory {
            // SAFETY: the size is not zero.
            let base = unsafe { alloc_zeroed(*layout) };
            if base.is_null() {
                handle_alloc_error(*layout);
            }
            bases.push(base);
        }
        let arenas = (0..threads).map(|_| CachePadded::new(UnsafeCell::new(Arena::new()))).collect();
        Ok(Self { layouts: tables.to_vec(), memory, bases, arenas })
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

    /// The arena of a thread.
    ///
    /// # Safety
    /// Only thread `thread` uses the result, and only while no other call for this thread is in use.
    pub unsafe fn arena(&self, thread: usize) -> *mut ArenaHeader {
        // SAFETY: only this thread is at its arena.
        self.arenas[thread].with_mut(|arena| unsafe { (*arena).header() })
    }

    /// Replaces all rows of a table.
    pub fn load(&mut self, index: usize, rows: &[u8]) -> Result<(), RunError> {
        let table = self.layout(index)?;
        let bytes = table.rows * table.stride;
        if rows.len() != bytes {
            let message = format!("table {} needs {bytes} bytes of rows, got {}", table.name, rows.len());
            return Err(RunError::Invalid(message));
        }
        // SAFETY: `bytes` bytes are there, and `&mut self` means that no thread runs.
        unsafe { std::ptr::copy_nonoverlapping(rows.as_ptr(), self.bases[index], bytes) };
        Ok(())
    }

    /// All rows of a table; the caller sees to it that no thread runs.
    pub fn copy(&self, index: usize) -> Result<Vec<u8>, RunError> {
        let table = self.layout(index)?;
        // SAFETY: that many bytes are there, initialised.
        Ok(unsafe { std::slice::from_raw_parts(self.bases[index], table.rows * table.stride) }.to_vec())
    }

    /// A table as it can be kept outside of this process: its rows, with zeros for addresses, then the entries of their
    /// growing containers, row by row. The caller sees to it that no thread runs.
    pub fn image(&self, index: usize) -> Result<Vec<u8>, RunError> {
        let table = self.layout(index)?;
        let mut image = self.copy(index)?;
        let bytes = image.len();
        let heads = || heads(table);
        let entries: usize = heads().map(|(at, _)| ContainerHead::read(&image[at..bytes]).length * ENTRY).sum();
        image.reserve_exact(entries);
        for (at, _) in heads() {
            let head = ContainerHead::read(&image[at..bytes]);
            image[at..at + 8].fill(0);
            // SAFETY: the head is that of a kernels' container, and no kernel runs.
            image.extend_from_slice(unsafe { head.entries() });
        }
        Ok(image)
    }

    /// Replaces all rows of a table, and gives them the containers of an image.
    pub fn restore(&mut self, index: usize, image: &[u8]) -> Result<(), RunError> {
        let table = self.layout(index)?.clone();
        let unfit = || RunError::Invalid(format!("the image does not fit table {}", table.name));
        let (rows, mut entries) = image.split_at_checked(table.rows * table.stride).ok_or_else(unfit)?;
        let mut rows = rows.to_vec();
        for (at, container) in heads(&table) {
            let head = ContainerHead::read(&rows[at..]);
            if head.block != 0 || !head.is_sound(container.indexed) {
                return Err(unfit());
            }
            let (these, others) = entries.split_at_checked(head.length * ENTRY).ok_or_else(unfit)?;
            entries = others;
            // SAFETY: `&mut self` means that no thread is at its arena.
            let alloc = |bytes| self.arenas[0].with_mut(|arena| unsafe { (*arena).alloc(bytes) });
            let block = head.put_back(these, container.indexed, alloc)?;
            rows[at..at + 8].copy_from_slice(&block.to_le_bytes());
        }
        if !entries.is_empty() {
            return Err(unfit());
        }
        self.load(index, &rows)
    }

    fn layout(&self, index: usize) -> Result<&program::TableSpec, RunError> {
        self.layouts.get(index).ok_or_else(|| RunError::Invalid(format!("there is no table {index}")))
    }
}

/// Where in a table's rows the heads of growing containers lie, row by row.
fn heads(table: &program::TableSpec) -> impl Iterator<Item = (usize, &program::Growing)> {
    (0..table.rows).flat_map(move |row| table.growing.iter().map(move |head| (row * table.stride + head.offset, head)))
}

impl Drop for Tables {
    fn drop(&mut self) {
        for (&base, &layout) in self.bases.iter().zip(&self.memory) {
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(base, layout) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::program::Growing;

    fn tables() -> Tables {
        let growing =
            [(8, true), (40, false)].map(|(offset, indexed)| Growing { offset, indexed, columns: vec![] }).to_vec();
        let layout =
            program::TableSpec { name: "t".into(), rows: 3, stride: 72, containers: true, growing, read: (0, 8) };
        Tables::new(&[layout], 2).unwrap()
    }

    fn set(rows: &mut [u8], at: usize, block: u64, length: u32, capacity: u32) {
        rows[at..at + 8].copy_from_slice(&block.to_le_bytes());
        rows[at + 8..at + 12].copy_from_slice(&length.to_le_bytes());
        rows[at + 12..at + 16].copy_from_slice(&capacity.to_le_bytes());
    }

    #[test]
    fn an_image_holds_entries_and_no_addresses() {
        let mut tables = tables();
        let mut rows = vec![7; 3 * 72];
        for head in heads(&tables.layouts[0]) {
            set(&mut rows, head.0, 0, 0, 0);
        }
        tables.load(0, &rows).unwrap();
        assert_eq!(tables.image(0).unwrap(), rows);
        let mut blocks = [vec![1_u8; 8 * 24], vec![2; 3 * 16]];
        set(&mut rows, 72 + 8, blocks[0].as_mut_ptr() as u64, 2, 8);
        set(&mut rows, 2 * 72 + 40, blocks[1].as_mut_ptr() as u64, 1, 3);
        tables.load(0, &rows).unwrap();
        let image = tables.image(0).unwrap();
        assert_eq!(image[3 * 72..], [&blocks[0][..2 * 16], &blocks[1][..16]].concat());
        let mut other = self::tables();
        other.restore(0, &image).unwrap();
        drop((tables, blocks));
        assert_eq!(other.image(0).unwrap(), image);
        let set_back = ContainerHead::read(&other.copy(0).unwrap()[72 + 8..]);
        assert_eq!((set_back.length, set_back.capacity, set_back.block % 8), (2, 8, 0));
        let mut uneven = image.clone();
        set(&mut uneven, 72 + 8, 0, 2, 7);
        for damaged in
            [&image[1..], &image[..image.len() - 1], &image[..100], &[&image[..], &[0]].concat(), &rows, &uneven]
        {
            assert!(matches!(other.restore(0, damaged), Err(RunError::Invalid(_))));
        }
    }
}
