//! State transactions: their compiled operators and the memory that a thread runs them with on a batch.
//!
//! All memory is kept from batch to batch.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use crate::batch::{Block, RowBuffer};
use crate::kernel::{
    Access, ApplyContext, ArenaHeader, ExecuteContext, Kernel, PlaceContext, PlanContext, PostContext, Raised,
    RunError, decision,
};
use crate::program;

/// A run of events within a block; kernels number them from 0.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub block: &'a Block,
    pub begin: usize,
    pub end: usize,
}

impl Batch<'_> {
    pub fn len(&self) -> usize {
        self.end - self.begin
    }

    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    pub fn rows(&self) -> *const u8 {
        self.block.row(self.begin)
    }

    /// The `index`-th of `count` contiguous, equally long slices, as event numbers of the batch.
    pub fn slice(&self, index: usize, count: usize) -> std::ops::Range<usize> {
        self.len() * index / count..self.len() * (index + 1) / count
    }
}

/// The kernels of a transaction.
#[derive(Debug, Clone)]
pub struct Transaction {
    name: String,
    plan: Kernel<PlanContext>,
    apply: Kernel<ApplyContext>,
    post: Kernel<PostContext>,
    execute: Kernel<ExecuteContext>,
    place: Kernel<PlaceContext>,
    pub output_stride: usize,
}

impl Transaction {
    /// # Safety
    /// The program's addresses are kernels that follow README.md and outlive this.
    pub unsafe fn new(transaction: &program::Transaction) -> Result<Self, RunError> {
        // SAFETY: as the caller says.
        unsafe {
            Ok(Self {
                name: transaction.name.clone(),
                plan: Kernel::at(transaction.plan)?,
                apply: Kernel::at(transaction.apply)?,
                post: Kernel::at(transaction.post)?,
                execute: Kernel::at(transaction.execute)?,
                place: Kernel::at(transaction.place)?,
                output_stride: transaction.stride,
            })
        }
    }

    #[cold]
    fn failed(&self, batch: &Batch, raised: Raised) -> RunError {
        let at = batch.begin + usize::try_from(raised.at).unwrap_or(0);
        let seq = if at < batch.block.n { batch.block.seq(at) } else { -1 };
        RunError::Kernel { operator: self.name.clone(), seq, exception: raised.exception }
    }

    /// Compute mode: appends the accesses of some events of the batch to the planner.
    ///
    /// Only this call writes the outcome's entries of these events while it runs.
    pub fn plan(
        &self,
        batch: &Batch,
        events: std::ops::Range<usize>,
        planner: &mut Planner,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        assert!(events.end <= batch.len() && batch.len() <= outcome.events);
        let context = &mut planner.inner.context;
        context.rows = batch.rows();
        context.text = batch.block.text.pointer();
        context.begin = events.start as i64;
        context.end = events.end as i64;
        context.decisions = address(&outcome.decisions);
        context.results = address(&outcome.results);
        context.captures = address(&outcome.captures);
        context.first = address(&outcome.first);
        // SAFETY: the arrays have an entry per event; accesses and result memory belong to the planner.
        unsafe { self.plan.call(context) }.map_err(|raised| self.failed(batch, raised))
    }

    /// State access mode: applies accesses in their order, up to the first that has to wait for its event's decision.
    /// Returns how many were applied.
    ///
    /// # Safety
    /// Nobody else applies accesses of the same rows meanwhile, or the scheme answers for it; `accesses` has `n`.
    #[inline(always)]
    pub unsafe fn apply(
        &self,
        batch: &Batch,
        context: &mut ApplyContext,
        accesses: *const Access,
        n: usize,
    ) -> Result<usize, RunError> {
        context.accesses = accesses;
        context.n = n as i64;
        context.done = 0;
        // SAFETY: the context was made by `Outcome::apply_context`; the caller answers for the accesses.
        unsafe { self.apply.call(context) }.map_err(|raised| self.failed(batch, raised))?;
        Ok(context.done as usize)
    }

    /// Post-processing of events all of whose accesses were applied. Returns how many were rejected.
    pub fn post(
        &self,
        batch: &Batch,
        events: std::ops::Range<usize>,
        outcome: &Outcome,
        outputs: &mut RowBuffer,
    ) -> Result<u64, RunError> {
        assert!(events.end <= batch.len() && batch.len() <= outcome.events);
        let mut context = PostContext {
            rows: batch.rows(),
            begin: events.start as i64,
            end: events.end as i64,
            text: batch.block.text.pointer(),
            decisions: address(&outcome.decisions),
            results: address(&outcome.results),
            emitter: outputs.emitter(),
            ..PostContext::default()
        };
        // SAFETY: the arrays have an entry per event; result memory lives in planners that were not reset since.
        unsafe { self.post.call(&mut context) }.map_err(|raised| self.failed(batch, raised))?;
        Ok(context.rejected as u64)
    }

    /// Where the rows of some events of the batch lie: `place::low` and `place::high` of what is written into `places`,
    /// which is as long as the batch. Only this call writes the entries of these events while it runs.
    pub fn place(&self, batch: &Batch, events: std::ops::Range<usize>, places: *mut u32) -> Result<(), RunError> {
        assert!(events.end <= batch.len());
        let mut context = PlaceContext {
            rows: batch.rows(),
            begin: events.start as i64,
            end: events.end as i64,
            text: batch.block.text.pointer(),
            places,
            error_at: 0,
            error: null_mut(),
            error_len: 0,
        };
        // SAFETY: the caller's array has an entry per event.
        unsafe { self.place.call(&mut context) }.map_err(|raised| self.failed(batch, raised))
    }

    /// Takes events of the batch, all or those selected in ascending order, from plan to outputs, one after the other.
    /// Returns how many were (dropped, rejected).
    ///
    /// # Safety
    /// Nobody else is at the tables meanwhile, or the scheme answers for it.
    pub unsafe fn execute(
        &self,
        batch: &Batch,
        tables: *const *mut u8,
        arena: *mut ArenaHeader,
        scratch: &mut Scratch,
        selection: Option<&[u32]>,
        outputs: &mut RowBuffer,
    ) -> Result<(u64, u64), RunError> {
        let context = &mut scratch.inner.context;
        context.selection = selection.map_or(null_mut(), |events| events.as_ptr());
        context.rows = batch.rows();
        context.begin = 0;
        context.end = selection.map_or(batch.len(), <[u32]>::len) as i64;
        context.text = batch.block.text.pointer();
        context.tables = tables;
        context.arena = arena;
        context.emitter = outputs.emitter();
        context.dropped = 0;
        context.rejected = 0;
        // SAFETY: the batch has that many rows, the scratch memory is this thread's; the caller answers for the tables.
        unsafe { self.execute.call(context) }.map_err(|raised| self.failed(batch, raised))?;
        Ok((context.dropped as u64, context.rejected as u64))
    }
}

/// Where READs of the event at hand go, when it is executed at once.
#[derive(Debug)]
pub struct Scratch {
    inner: Box<ScratchInner>,
}

#[repr(C)]
#[derive(Debug)]
struct ScratchInner {
    /// First, so that a context's address is this struct's.
    context: ExecuteContext,
    /// A word for the number of reads, then their slots.
    words: Vec<u64>,
}

// SAFETY: it owns its memory; the context's other pointers are set for each call.
unsafe impl Send for Scratch {}

impl Scratch {
    pub fn new() -> Self {
        let context = ExecuteContext {
            rows: null_mut(),
            begin: 0,
            end: 0,
            text: null_mut(),
            tables: null_mut(),
            arena: null_mut(),
            emitter: null_mut(),
            results: null_mut(),
            capacity: 0,
            more: more_results,
            dropped: 0,
            rejected: 0,
            error_at: 0,
            error: null_mut(),
            error_len: 0,
            selection: null_mut(),
        };
        let mut inner = Box::new(ScratchInner { context, words: Vec::new() });
        more_results(&raw mut inner.context, 1024);
        Self { inner }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes room for `bytes` of results; what is there stays.
extern "C" fn more_results(context: *mut ExecuteContext, bytes: i64) -> i64 {
    let Ok(bytes) = usize::try_from(bytes) else { return 1 };
    // SAFETY: the context is the first field of a `ScratchInner` that this thread alone uses while the kernel runs.
    let inner = unsafe { &mut *context.cast::<ScratchInner>() };
    let wanted = bytes.div_ceil(8).next_power_of_two();
    if inner.words.try_reserve(wanted).is_err() {
        return 1;
    }
    inner.words.resize(wanted + 1, 0);
    inner.context.results = inner.words.as_mut_ptr().wrapping_add(1).cast();
    inner.context.capacity = (wanted * 8) as i64;
    0
}

/// Per event of a batch: its decision, and where its results and captures are. Written by plan and apply kernels
/// through the addresses (the decisions atomically while several threads apply), so it is never borrowed mutably then.
#[derive(Debug)]
pub struct Outcome {
    events: usize,
    decisions: Column<u32>,
    results: Column<u64>,
    captures: Column<u64>,
    first: Column<u32>,
}

/// An array that kernels write through its address. std's cell and not the shim's: no model sees a kernel.
type Column<T> = Box<[UnsafeCell<T>]>;

// SAFETY: Rust code only reads decisions, atomically; everything else is for kernels, under a scheme's protocol.
unsafe impl Sync for Outcome {}

fn address<T>(column: &Column<T>) -> *mut T {
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

    /// A context for applying accesses of this batch; `shared`: other threads apply accesses of the same events.
    pub fn apply_context(
        &self,
        batch: &Batch,
        tables: *const *mut u8,
        arena: *mut ArenaHeader,
        shared: bool,
    ) -> ApplyContext {
        ApplyContext {
            rows: batch.rows(),
            text: batch.block.text.pointer(),
            tables,
            decisions: address(&self.decisions),
            results: address(&self.results),
            captures: address(&self.captures),
            arena,
            shared: i64::from(shared),
            ..ApplyContext::default()
        }
    }

    /// Where the results of a planned event's reads go.
    #[inline(always)]
    pub fn results(&self, event: u32) -> *mut u8 {
        // SAFETY: nobody plans the event now.
        unsafe { *self.results[event as usize].get() as *mut u8 }
    }

    /// Whether an event's outcome is known, while other threads apply its conditions.
    #[inline(always)]
    pub fn is_decided(&self, event: u32) -> bool {
        // SAFETY: inside of the array, aligned; while threads apply, it is only accessed atomically. std's atomic and
        // not the shim's: its other users are kernels, which no model sees.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(self.decisions[event as usize].get()) };
        // ORDERING: Acquire pairs with the kernels' Release: captures and rows read for the decision came before it.
        decision::is_decided(word.load(std::sync::atomic::Ordering::Acquire))
    }
}

/// Where a thread's plan kernel puts accesses and finds memory for results.
#[derive(Debug)]
pub struct Planner {
    inner: Box<PlannerInner>,
}

#[repr(C)]
#[derive(Debug)]
struct PlannerInner {
    /// First, so that a context's address is this struct's.
    context: PlanContext,
    chunks: Vec<(*mut u8, Layout)>,
    /// The chunk that `next` points into; beyond the last before the first is asked for.
    current: usize,
}

// SAFETY: a planner owns its memory; nothing in it refers to the thread that made it.
unsafe impl Send for Planner {}

/// Result memory is asked for in pieces of this size.
const CHUNK: usize = 64 << 10;

impl Planner {
    pub fn new() -> Self {
        let context = PlanContext {
            rows: null_mut(),
            begin: 0,
            end: 0,
            text: null_mut(),
            accesses: std::ptr::dangling_mut(),
            len: 0,
            cap: 0,
            grow,
            decisions: null_mut(),
            results: null_mut(),
            first: null_mut(),
            next: null_mut(),
            limit: null_mut(),
            more,
            captures: null_mut(),
            dropped: 0,
            error_at: 0,
            error: null_mut(),
            error_len: 0,
            owner: null_mut(),
        };
        Self { inner: Box::new(PlannerInner { context, chunks: Vec::new(), current: 0 }) }
    }

    /// Forgets accesses and results, keeps the memory.
    pub fn reset(&mut self) {
        let inner = &mut *self.inner;
        inner.context.len = 0;
        inner.current = 0;
        let (start, bytes) = inner.chunks.first().map_or((null_mut(), 0), |(chunk, layout)| (*chunk, layout.size()));
        inner.context.next = start;
        inner.context.limit = start.wrapping_add(bytes);
    }

    #[inline(always)]
    pub fn accesses(&self) -> &[Access] {
        // SAFETY: the kernel wrote `len` accesses.
        unsafe { std::slice::from_raw_parts(self.inner.context.accesses, self.inner.context.len as usize) }
    }

    /// Events declared invalid since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.inner.context.dropped) as u64
    }
}

impl Default for Planner {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PlannerInner {
    fn drop(&mut self) {
        for &(chunk, layout) in &self.chunks {
            // SAFETY: allocated with this layout, freed once.
            unsafe { dealloc(chunk, layout) };
        }
        if self.context.cap > 0
            && let Ok(layout) = Layout::array::<Access>(self.context.cap as usize)
        {
            // SAFETY: as above.
            unsafe { dealloc(self.context.accesses.cast(), layout) };
        }
    }
}

extern "C" fn grow(context: *mut PlanContext) -> i64 {
    // SAFETY: kernels hand back the context they were given, which this thread alone uses.
    let context = unsafe { &mut *context };
    let cap = context.cap as usize;
    let wanted = cap.saturating_mul(2).max(1024);
    let (Ok(old), Ok(new)) = (Layout::array::<Access>(cap), Layout::array::<Access>(wanted)) else { return 1 };
    // SAFETY: sizes are not zero; the old block was allocated with the old layout.
    let accesses = unsafe { if cap == 0 { alloc(new) } else { realloc(context.accesses.cast(), old, new.size()) } };
    if accesses.is_null() {
        return 1;
    }
    context.accesses = accesses.cast();
    context.cap = wanted as i64;
    0
}

extern "C" fn more(context: *mut PlanContext, bytes: i64) -> i64 {
    let Ok(bytes) = usize::try_from(bytes) else { return 1 };
    // SAFETY: the context is the first field of a `PlannerInner` that this thread alone uses while the kernel runs.
    let inner = unsafe { &mut *context.cast::<PlannerInner>() };
    // Chunks too small for this request are passed over, and found again after the next reset.
    let started = !inner.context.next.is_null();
    let mut index = if started { inner.current + 1 } else { 0 };
    while index < inner.chunks.len() && inner.chunks[index].1.size() < bytes {
        index += 1;
    }
    if index == inner.chunks.len() {
        let Ok(layout) = Layout::from_size_align(bytes.max(CHUNK), 64) else { return 1 };
        // SAFETY: the size is not zero.
        let chunk = unsafe { alloc(layout) };
        if chunk.is_null() {
            return 1;
        }
        inner.chunks.push((chunk, layout));
    }
    let (chunk, layout) = inner.chunks[index];
    inner.current = index;
    inner.context.next = chunk;
    inner.context.limit = chunk.wrapping_add(layout.size());
    0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_again_after_a_reset() {
        let mut planner = Planner::new();
        let mut addresses = Vec::new();
        for _ in 0..3 {
            planner.reset();
            let mut round = Vec::new();
            for bytes in [8, 200_000, 16, 70_000] {
                let context = &mut planner.inner.context;
                if (context.limit as usize) - (context.next as usize) < bytes {
                    assert_eq!(more(context, bytes as i64), 0);
                }
                assert!((context.limit as usize) - (context.next as usize) >= bytes);
                round.push(context.next as usize);
                context.next = context.next.wrapping_add(bytes);
            }
            addresses.push(round);
        }
        assert_eq!(addresses[1], addresses[2], "memory is reused");
        assert_eq!(more(&mut planner.inner.context, -1), 1);
    }
}
