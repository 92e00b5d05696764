//! How often rows have met the keys of each cell, for a controller that balances the replicas.
//!
//! Writers: a replica writes its own counts. They lie apart, because cells of different owners are neighbours.
//! ORDERING: Relaxed; statistics, which may be a few rows late.

use crate::state::windows::CELLS;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// See the module.
#[derive(Debug)]
pub struct Counts {
    of: Box<[CachePadded<Box<[AtomicU64]>>]>,
}

impl Counts {
    pub fn new(replicas: usize) -> Self {
        let cells = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Self { of: (0..replicas).map(|_| CachePadded::new(cells())).collect() }
    }

    /// Adds calls for keys of a cell. The caller is the replica.
    #[inline]
    pub fn add(&self, replica: usize, cell: usize, calls: u64) {
        let count = &self.of[replica][cell];
        count.store(count.load(Ordering::Relaxed) + calls, Ordering::Relaxed);
    }

    /// The calls of each cell so far.
    pub fn by_cell(&self) -> Vec<u64> {
        (0..CELLS).map(|cell| self.of.iter().map(|of| of[cell].load(Ordering::Relaxed)).sum()).collect()
    }
}
