//! The one door to threads, atomics and cells: std normally, loom's models under `cfg(loom)`, shuttle's under
//! `cfg(shuttle)`.
//!
//! All shared data uses the exports of this file, so that the models see it. Loom explores all interleavings and reorderings
//! of one structure. Shuttle explores many schedules of a whole executor.

#[cfg(loom)]
pub use loom::{
    hint,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};
#[cfg(shuttle)]
pub use shuttle::{
    hint,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    hint,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

pub use crossbeam_utils::CachePadded;

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// Plain memory shared under a protocol; the same face as loom's cell, which checks the protocol.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Lends a pointer for reading; no thread may write meanwhile.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Lends a pointer for writing; no other thread may read or write meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// The lock, also when a thread panicked while it held it: the panic itself is reported by the team that ran it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// A raw pointer that crosses threads; the code that makes one says why that is sound.
pub struct Shared<T: ?Sized>(*mut T);

impl<T: ?Sized> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Shared<T> {}

// SAFETY: moving the address is harmless; the caller of `Shared::new` guarantees that every use is sound.
unsafe impl<T: ?Sized> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized> Sync for Shared<T> {}

impl<T: ?Sized> Shared<T> {
    /// # Safety
    /// Accesses through the pointer from several threads must be ordered by the caller's protocol.
    pub const unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    #[inline(always)]
    pub const fn get(self) -> *mut T {
        self.0
    }
}
