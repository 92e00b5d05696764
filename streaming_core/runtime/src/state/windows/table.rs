//! A table of entries by the hash of their keys.

use crate::program::kernel::EntryHeader;
use crate::state::index::Index;

#[derive(Debug)]
pub struct Table(Index);

impl Default for Table {
    fn default() -> Self {
        Self::like(0).expect("the allocator has memory for an empty table")
    }
}

/// # Safety
/// It is an entry that is there.
#[inline(always)]
unsafe fn hash_of(entry: *const u8) -> u64 {
    // SAFETY: as the caller says.
    unsafe { (*entry.cast::<EntryHeader>()).hash }
}

impl Table {
    /// One that begins with so many places, or with as many as a segment has. None: there is no memory.
    pub fn like(places: usize) -> Option<Self> {
        let mut table = Self(Index::small()?);
        if places > 0 {
            table.0.reserve(places);
        }
        Some(table)
    }

    /// How many places what is in it needs.
    pub fn wanted(&self) -> usize {
        match self.0.extent() {
            (_, 0) => 0,
            (_, taken) => (2 * taken).next_power_of_two(),
        }
    }

    /// Forgets all entries; how many places it keeps hangs on what was wanted.
    pub fn clear(&mut self) {
        let wanted = self.wanted();
        // Numbers of keys vary from window to window: few that are too large are kept.
        let fitting = if self.0.extent().0 <= 4 * wanted.max(8) { None } else { Self::like(wanted) };
        match fitting {
            Some(table) => *self = table,
            None => self.0.clear(),
        }
    }

    /// Has the place come near at which a search begins.
    #[inline(always)]
    pub fn near(&self, hash: u64) {
        self.0.fetch_place(hash);
    }

    /// Has the entry come near that is noted there.
    #[inline(always)]
    pub fn nearer(&self, hash: u64) {
        self.0.fetch_entry(hash, 2);
    }

    /// The entry with this hash for which `same` holds.
    #[inline(always)]
    pub fn find(&self, hash: u64, same: impl Fn(*mut EntryHeader) -> bool) -> Option<*mut EntryHeader> {
        // SAFETY: entries in the table are there.
        let slot = self.0.find(hash, |entry| unsafe { hash_of(entry) } == hash && same(entry.cast_mut().cast()));
        slot.map(<*mut u8>::cast)
    }

    /// Puts an entry in that is not there. None: memory ran out.
    #[inline]
    pub fn add(&mut self, added: *mut EntryHeader, hash: u64) -> Option<()> {
        // SAFETY: entries in the table are there.
        self.0.enter(hash, added.cast(), |entry| unsafe { hash_of(entry) })
    }

    /// Takes out an entry that is there.
    pub fn remove(&mut self, removed: *mut EntryHeader) {
        // SAFETY: entries in the table are there.
        let hash_of = |entry: *const u8| unsafe { hash_of(entry) };
        self.0.remove(hash_of(removed.cast()), removed.cast(), hash_of);
    }

    /// All entries, in no order that says anything.
    pub fn entries(&self) -> impl Iterator<Item = *mut EntryHeader> {
        self.0.entries().map(<*mut u8>::cast)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_table_finds_what_is_in_it(steps in proptest::collection::vec((0_u64..40, any::<bool>()), 0..200)) {
            let mut table = Table::default();
            let mut known: BTreeMap<u64, Box<EntryHeader>> = BTreeMap::new();
            let null: *mut EntryHeader = std::ptr::null_mut();
            for (key, adds) in steps {
                // Few places, so that many are asked for by several.
                let hash = (key % 5) | (key << 32);
                if adds && !known.contains_key(&hash) {
                    let mut new =
                        Box::new(EntryHeader { hash, beside: null });
                    table.add(&raw mut *new, hash).unwrap();
                    known.insert(hash, new);
                } else if !adds && let Some(mut entry) = known.remove(&hash) {
                    table.remove(&raw mut *entry);
                }
                for key in 0..40 {
                    let hash = (key % 5) | (key << 32);
                    let slot = table.find(hash, |_| true);
                    let wanted = known.get(&hash).map_or(std::ptr::null(), |entry| &raw const **entry);
                    prop_assert_eq!(slot.unwrap_or(null).cast_const(), wanted);
                }
                prop_assert_eq!(table.entries().count(), known.len());
            }
        }
    }
}
