//! A table of entries by the hash of their keys: open addressing, linear probing, at most half full.
//!
//! A slot is an entry's address with 16 bits of its hash above, so that hardly ever an entry is looked at in vain.

use crate::program::kernel::EntryHeader;

const ADDRESS: u64 = (1 << 48) - 1;
const LEAST: usize = 8;

#[derive(Debug, Default)]
pub struct Table {
    slots: Vec<u64>,
    used: usize,
}

#[inline(always)]
fn tag(hash: u64) -> u64 {
    (hash << 16) & !ADDRESS
}

#[inline(always)]
fn entry(slot: u64) -> *mut EntryHeader {
    (slot & ADDRESS) as usize as *mut EntryHeader
}

/// Has what is there come near.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Table {
    /// With room for about as many entries as a table had.
    pub fn like(slots: usize) -> Self {
        Self { slots: vec![0; slots], used: 0 }
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many slots what is in it needs.
    pub fn wanted(&self) -> usize {
        match self.used {
            0 => 0,
            used => (2 * used).next_power_of_two().max(LEAST),
        }
    }

    pub fn clear(&mut self) {
        self.slots.fill(0);
        self.used = 0;
    }

    /// Has the slot come near at which a search begins.
    #[inline(always)]
    pub fn near(&self, hash: u64) {
        if !self.slots.is_empty() {
            prefetch(self.slots.as_ptr().wrapping_add(hash as usize & (self.slots.len() - 1)));
        }
    }

    /// Has the entry come near that the slot there names.
    #[inline(always)]
    pub fn nearer(&self, hash: u64) {
        if !self.slots.is_empty() {
            let found = entry(self.slots[hash as usize & (self.slots.len() - 1)]).cast::<u8>();
            prefetch(found);
            prefetch(found.wrapping_add(64));
        }
    }

    /// The entry with this hash for which `same` holds, or the place where it would be, for `add`.
    ///
    /// # Errors
    /// There is none.
    #[inline(always)]
    pub fn find(&self, hash: u64, same: impl Fn(*mut EntryHeader) -> bool) -> Result<*mut EntryHeader, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let slot = self.slots[place];
            if slot == 0 {
                return Err(place);
            }
            if slot & !ADDRESS == tag(hash) {
                let found = entry(slot);
                // SAFETY: entries in the table are there.
                if unsafe { (*found).hash } == hash && same(found) {
                    return Ok(found);
                }
            }
            place = (place + 1) & mask;
        }
    }

    /// Puts an entry in that is not there, at the place that `find` has just given.
    #[inline]
    pub fn add(&mut self, added: *mut EntryHeader, hash: u64, place: usize) {
        self.used += 1;
        if 2 * self.used > self.slots.len() {
            self.grow();
            self.put(added, hash);
        } else {
            self.slots[place] = added as usize as u64 | tag(hash);
        }
    }

    #[inline]
    fn put(&mut self, added: *mut EntryHeader, hash: u64) {
        debug_assert_eq!(added as usize as u64 & !ADDRESS, 0);
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        while self.slots[place] != 0 {
            place = (place + 1) & mask;
        }
        self.slots[place] = added as usize as u64 | tag(hash);
    }

    #[cold]
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![0; (2 * old.len()).max(LEAST)];
        for slot in old.into_iter().filter(|&slot| slot != 0) {
            // SAFETY: as in `find`.
            self.put(entry(slot), unsafe { (*entry(slot)).hash });
        }
    }

    /// Takes out an entry that is there; those behind it move up, so that none is behind a gap.
    pub fn remove(&mut self, removed: *mut EntryHeader) {
        let mask = self.slots.len() - 1;
        // SAFETY: as in `find`.
        let home = |slot: u64| unsafe { (*entry(slot)).hash } as usize & mask;
        // SAFETY: as in `find`.
        let mut gap = unsafe { (*removed).hash } as usize & mask;
        while entry(self.slots[gap]) != removed {
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let other = self.slots[at];
            if other == 0 {
                break;
            }
            // It may move unless the place its hash asks for lies behind the gap.
            if (at.wrapping_sub(home(other)) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = other;
                gap = at;
            }
        }
        self.slots[gap] = 0;
        self.used -= 1;
    }

    /// All entries, in no order that says anything.
    pub fn entries(&self) -> impl Iterator<Item = *mut EntryHeader> {
        self.slots.iter().filter(|&&slot| slot != 0).map(|&slot| entry(slot))
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
                    let place = table.find(hash, |_| true).unwrap_err();
                    table.add(&raw mut *new, hash, place);
                    known.insert(hash, new);
                } else if !adds && let Some(mut entry) = known.remove(&hash) {
                    table.remove(&raw mut *entry);
                }
                for key in 0..40 {
                    let hash = (key % 5) | (key << 32);
                    let found = table.find(hash, |_| true);
                    let wanted = known.get(&hash).map_or(std::ptr::null(), |entry| &raw const **entry);
                    prop_assert_eq!(found.unwrap_or(null).cast_const(), wanted);
                }
                prop_assert_eq!(table.entries().count(), known.len());
            }
        }
    }
}
