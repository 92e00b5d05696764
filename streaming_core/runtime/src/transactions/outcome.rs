//! Outcomes: what becomes of each event of a batch.

use std::cell::UnsafeCell;

use crate::memory::arena::ArenaHeader;
use crate::program::kernel::{ApplyContext, decision};
use crate::transactions::batch::Batch;

/// For each event of a batch: its decision, and the addresses of its results and captures. Plan and apply kernels write
/// through the addresses (decisions atomically while several threads apply), so no borrow is mutable then.
#[derive(Debug)]
pub struct Outcome {
    pub(crate) events: usize,
    pub(crate) decisions: Column<u32>,
    pub(crate) results: Column<u64>,
    pub(crate) captures: Column<u64>,
    pub(crate) first: Column<u32>,
}

/// An array that kernels write through its address. std's cell and not the shim's: no model sees a kernel.
pub(crate) type Column<T> = Box<[UnsafeCell<T>]>;

/// Addresses of columns, in which kernels find event `n` of the batch at index `n`.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    pub decisions: *mut u32,
    pub results: *mut u64,
    pub captures: *mut u64,
    pub first: *mut u32,
}

impl Columns {
    /// As `Outcome::apply_context`.
    pub fn apply_context(
        self,
        batch: &Batch,
        tables: *const *mut u8,
        arena: *mut ArenaHeader,
        shared: bool,
    ) -> ApplyContext {
        ApplyContext {
            rows: batch.rows(),
            text: batch.block.text.pointer(),
            tables,
            decisions: self.decisions,
            results: self.results,
            captures: self.captures,
            arena,
            shared: i64::from(shared),
            ..ApplyContext::default()
        }
    }
}

// SAFETY: Rust code only reads decisions, atomically; everything else is for kernels, under a scheme's protocol.
unsafe impl Sync for Outcome {}

pub(crate) fn address<T>(column: &Column<T>) -> *mut T {
    UnsafeCell::raw_get(column.as_ptr())
}

impl Outcome {
    /// For batches of up to `events` events.
    pub fn new(events: usize) -> Self {
        fn column<T: Default>(events: usize) -> Column<T> {
            (0..events).map(|_| UnsafeCell::default()).collect()
        }
        Self {
            events,
            decisions: column(events),
            results: column(events),
            captures: column(events),
            first: column(events),
        }
    }

    /// Where kernels find the events of the batch.
    pub fn columns(&self) -> Columns {
        Columns {
            decisions: address(&self.decisions),
            results: address(&self.results),
            captures: address(&self.captures),
            first: address(&self.first),
        }
    }

    /// A context for applying accesses of this batch; `shared`: other threads apply accesses of the same events.
    pub fn apply_context(
        &self,
        batch: &Batch,
        tables: *const *mut u8,
        arena: *mut ArenaHeader,
        shared: bool,
    ) -> ApplyContext {
        self.columns().apply_context(batch, tables, arena, shared)
    }

    /// Where the results of a planned event's reads go.
    #[inline(always)]
    pub fn results(&self, event: u32) -> *mut u8 {
        // SAFETY: no thread plans the event now.
        unsafe { *self.results[event as usize].get() as *mut u8 }
    }

    /// A planned event's first access, by its number in the event's planner.
    #[inline(always)]
    pub fn first(&self, event: u32) -> usize {
        // SAFETY: no thread plans the event now.
        unsafe { *self.first[event as usize].get() as usize }
    }

    /// Whether an event has an outcome yet, while other threads apply its conditions.
    #[inline(always)]
    pub fn is_decided(&self, event: u32) -> bool {
        // SAFETY: inside of the array, aligned; while threads apply, all accesses are atomic. This is std's atomic, not the
        // shim's: the other users of the word are kernels, which no model sees.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(self.decisions[event as usize].get()) };
        // ORDERING: Acquire pairs with the kernels' Release: captures and rows read for the decision came before it.
        decision::is_decided(word.load(std::sync::atomic::Ordering::Acquire))
    }
}
