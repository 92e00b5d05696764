//! Memory whose size follows the data: what takes it can report that there is none.

use std::alloc::{Layout, alloc, alloc_zeroed};

/// The value in memory of its own; None: there is no memory.
pub fn boxed<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() > 0, "the allocator needs a layout that is not empty") };
    // SAFETY: the layout is not empty; the memory is that of a `T` from the allocator of boxes, and is written before use.
    unsafe {
        let memory = alloc(Layout::new::<T>()).cast::<T>();
        if memory.is_null() {
            return None;
        }
        memory.write(value);
        Some(Box::from_raw(memory))
    }
}

/// So many zeroed words, one at least; None: there is no memory.
pub fn zeroed_words(n: usize) -> Option<Box<[u64]>> {
    // SAFETY: zero bits are a word.
    unsafe { zeroed(n.max(1)) }
}

/// So many zeroed values; None: there is no memory, or none is asked for.
///
/// # Safety
/// Zero bits are a value of `T`.
pub unsafe fn zeroed<T>(n: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(n).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout is not empty; the memory is that of a slice of `n` values, for which zero bits are one.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<T>();
        (!memory.is_null()).then(|| Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, n)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn values_and_words_are_there_or_reported() {
        assert_eq!(boxed(7_u64).as_deref(), Some(&7));
        assert_eq!(zeroed_words(0).unwrap().len(), 1);
        assert_eq!(zeroed_words(3).as_deref(), Some(&[0_u64; 3][..]));
        assert!(zeroed_words(usize::MAX).is_none());
        assert!(zeroed_words(1 << 50).is_none());
    }
}
