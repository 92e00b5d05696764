//! Planners: where a thread's plan kernel puts accesses and finds memory for results.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::ptr::{null, null_mut};

use crate::program::kernel::{Access, PlanContext};

/// Where a thread's plan kernel puts accesses and finds memory for results.
#[derive(Debug)]
pub struct Planner {
    pub(crate) inner: Box<PlannerInner>,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct PlannerInner {
    /// First, so that a context's address is this struct's.
    pub(crate) context: PlanContext,
    chunks: Vec<(*mut u8, Layout)>,
    /// The chunk that `next` points into; beyond the last before the first request.
    current: usize,
}

// SAFETY: a planner owns its memory; nothing in it refers to the thread that made it.
unsafe impl Send for Planner {}

/// The planner requests result memory in pieces of this size.
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
            indexes: null(),
            lookups: 0,
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

    #[inline(always)]
    pub fn accesses_mut(&mut self) -> &mut [Access] {
        // SAFETY: as above, and they are this planner's.
        unsafe { std::slice::from_raw_parts_mut(self.inner.context.accesses, self.inner.context.len as usize) }
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
    // SAFETY: kernels pass back the context that they got, and this thread alone uses it.
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
    // The planner skips chunks that are too small for this request, and uses them again after the next reset.
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
