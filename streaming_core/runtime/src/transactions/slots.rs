//! Where READs of an event go that is executed at once.

use std::ptr::{null, null_mut};

use crate::program::kernel::ExecuteContext;

/// Where READs of the event at hand go, when it is executed at once.
#[derive(Debug)]
pub struct Slots {
    pub(crate) inner: Box<SlotsInner>,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct SlotsInner {
    /// First, so that a context's address is this struct's.
    pub(crate) context: ExecuteContext,
    /// A word for the number of reads, then their slots.
    words: Vec<u64>,
}

// SAFETY: it owns its memory; the context's other pointers are set for each call.
unsafe impl Send for Slots {}

impl Slots {
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
            indexes: null(),
            lookups: 0,
        };
        let mut inner = Box::new(SlotsInner { context, words: Vec::new() });
        more_results(&raw mut inner.context, 1024);
        Self { inner }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes room for `bytes` of results; what is there stays.
pub(crate) extern "C" fn more_results(context: *mut ExecuteContext, bytes: i64) -> i64 {
    let Ok(bytes) = usize::try_from(bytes) else { return 1 };
    // SAFETY: the context is the first field of a `SlotsInner` that this thread alone uses while the kernel runs.
    let inner = unsafe { &mut *context.cast::<SlotsInner>() };
    let wanted = bytes.div_ceil(8).next_power_of_two();
    if inner.words.try_reserve(wanted).is_err() {
        return 1;
    }
    inner.words.resize(wanted + 1, 0);
    inner.context.results = inner.words.as_mut_ptr().wrapping_add(1).cast();
    inner.context.capacity = (wanted * 8) as i64;
    0
}
