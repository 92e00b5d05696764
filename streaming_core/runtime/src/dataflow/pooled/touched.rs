//! How many lanes and parts a batch's way through a stage looks at: a count of work for tests, nothing in a build.

#[cfg(all(test, not(loom)))]
thread_local! {
    /// The count of this thread.
    pub static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts lanes or parts that are looked at.
#[inline(always)]
pub fn touch(_count: usize) {
    #[cfg(all(test, not(loom)))]
    TOUCHED.set(TOUCHED.get() + _count);
}
