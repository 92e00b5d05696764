//! Memory of a thread for an interval. The thread draws item by item, and the next interval uses all of it again.

use crate::state::index::prefetch_to_write;

/// A thread prefetches an item so many draws ahead.
const AHEAD: usize = 8;
/// The items of an allocation.
const CHUNK: usize = if cfg!(loom) { 4 } else { 1024 };

/// As much as the largest interval so far needed. Items never move, because other threads hold their addresses.
pub(super) struct Arena<T> {
    chunks: Vec<Vec<T>>,
    used: usize,
}

impl<T: Default> Arena<T> {
    pub fn new() -> Self {
        Self { chunks: Vec::new(), used: 0 }
    }

    /// An item that nothing else uses in this interval. It holds what an earlier one left.
    #[inline(always)]
    pub fn draw(&mut self) -> *const T {
        let (chunk, place) = (self.used / CHUNK, self.used % CHUNK);
        if chunk == self.chunks.len() {
            self.chunks.push((0..CHUNK).map(|_| T::default()).collect());
        }
        self.used += 1;
        let item = &raw const self.chunks[chunk][place];
        // Other threads read the last interval's.
        prefetch_to_write(item.wrapping_add(AHEAD));
        item
    }

    /// Takes back the last item.
    pub fn take_back(&mut self) {
        self.used -= 1;
    }

    /// Takes back all items.
    pub fn clear(&mut self) {
        self.used = 0;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_interval_draws_the_items_of_the_one_before() {
        let mut arena = Arena::<u64>::new();
        let draw = |arena: &mut Arena<u64>| (0..2500).map(|_| arena.draw().addr()).collect::<Vec<_>>();
        let first = draw(&mut arena);
        arena.take_back();
        assert_eq!(arena.draw().addr(), first[2499]);
        arena.clear();
        assert_eq!((draw(&mut arena), arena.chunks.len()), (first.clone(), 3));
        let mut different = first;
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), 2500);
    }
}
