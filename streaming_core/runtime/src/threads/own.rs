//! Each thread's own part of what threads share.

use crate::threads::sync::{CachePadded, UnsafeCell};

/// Each thread's own part of what an executor holds, lent to that thread for a job.
#[derive(Debug)]
pub struct Lent<'a, T>(pub &'a [CachePadded<UnsafeCell<T>>]);

// SAFETY: `with` makes its caller answer for it; a part is used by a thread other than the one that made it.
unsafe impl<T: Send> Sync for Lent<'_, T> {}

impl<T> Lent<'_, T> {
    /// Hands out the part of thread `index`.
    ///
    /// # Safety
    /// The caller is that thread.
    pub unsafe fn with<R>(&self, index: usize, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as the caller says.
        self.0[index].with_mut(|part| work(unsafe { &mut *part }))
    }
}

/// A thread's own things, used by that thread only (by the executor between blocks).
#[derive(Debug)]
pub(crate) struct PerThread<T>(Vec<CachePadded<UnsafeCell<T>>>);

// SAFETY: `get` makes its caller answer for who is at an element.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    pub(crate) fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self((0..threads).map(|_| CachePadded::new(UnsafeCell::new(make()))).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// # Safety
    /// For the time of the result nobody else uses this element mutably, nor at all if the result is written through.
    pub(crate) unsafe fn get(&self, thread: usize) -> *mut T {
        self.0[thread].with_mut(|element| element)
    }
}
