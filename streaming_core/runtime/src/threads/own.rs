//! A part of shared data for each thread.

use crate::threads::sync::{CachePadded, UnsafeCell};

/// A part per thread, or per share of the work whose thread is decided elsewhere. Each has its own cache lines.
///
/// Parts are lent for the time of a call, so that loom sees which thread uses one at a time.
#[derive(Debug)]
pub(crate) struct Own<T>(Box<[CachePadded<UnsafeCell<T>>]>);

// SAFETY: the callers of `with` and `with_mut` guarantee that no other thread uses the part in conflict.
unsafe impl<T: Send> Sync for Own<T> {}
// SAFETY: the parts are owned, and go along.
unsafe impl<T: Send> Send for Own<T> {}

impl<T> Own<T> {
    pub fn new(parts: usize, mut make: impl FnMut() -> T) -> Self {
        (0..parts).map(|_| make()).collect()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Lends a part for reading.
    ///
    /// # Safety
    /// No thread writes it meanwhile, and the writes of its last writer are visible.
    #[inline(always)]
    pub unsafe fn with<R>(&self, part: usize, work: impl FnOnce(&T) -> R) -> R {
        // SAFETY: as the caller says.
        self.0[part].with(|part| work(unsafe { &*part }))
    }

    /// Lends a part for writing.
    ///
    /// # Safety
    /// No other thread is at it meanwhile, and the writes of its last user are visible.
    #[inline(always)]
    pub unsafe fn with_mut<R>(&self, part: usize, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as the caller says.
        self.0[part].with_mut(|part| work(unsafe { &mut *part }))
    }

    /// All parts; no other thread can be at them.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub fn each_mut(&mut self, mut work: impl FnMut(&mut T)) {
        for part in &mut self.0 {
            // SAFETY: borrowed mutably.
            part.with_mut(|part| work(unsafe { &mut *part }));
        }
    }

    /// Sums `part` over all parts.
    ///
    /// # Safety
    /// As for `with`, of all of them.
    pub unsafe fn sum<S: Default + std::ops::AddAssign>(&self, part: impl Fn(&T) -> S) -> S {
        let mut sum = S::default();
        for index in 0..self.len() {
            // SAFETY: as the caller says.
            sum += unsafe { self.with(index, &part) };
        }
        sum
    }
}

impl<T> FromIterator<T> for Own<T> {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Self {
        Self(parts.into_iter().map(|part| CachePadded::new(UnsafeCell::new(part))).collect())
    }
}
