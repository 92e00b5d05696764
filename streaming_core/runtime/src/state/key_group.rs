//! hash(key) mod G and the owner map: the one partitioner of the runtime.
//!
//! Hashes have a fixed seed: where a key goes is the same in every process and on every host.

use crate::rows::mix::{K1, finish, first_words, select, step, word};

/// Key groups: the unit in which ownership is given out. A power of two, far more than threads.
pub const GROUPS: usize = 4096;

/// What the hash of a key begins with.
pub const SEED: u64 = 0x2545_F491_4F6C_DD1D;

/// Text keys of up to so many bytes are two words.
pub const SHORT: usize = 16;

/// What the hash of a text key begins with.
#[inline(always)]
fn start(len: usize) -> u64 {
    (len as u64 ^ SEED).wrapping_mul(K1)
}

/// Hash of an integer key; every bit of the key reaches the high bits.
#[inline(always)]
pub fn hash_i64(key: i64) -> u64 {
    finish(step(SEED, key as u64))
}

/// Hash of a text key, eight bytes at a time.
#[inline(always)]
pub fn hash_bytes(key: &[u8]) -> u64 {
    let mut h = start(key.len());
    let mut words = key.chunks_exact(8);
    for chunk in &mut words {
        h = step(h, u64::from_le_bytes(chunk.try_into().expect("`chunks_exact` gives chunks of 8 bytes")));
    }
    let rest = words.remainder();
    finish(if rest.is_empty() { h } else { step(h, word(rest)) })
}

/// Hash of a short text key, given as its first words. Both are always mixed, and the result chosen: lengths of words vary,
/// and a branch on them would be guessed wrong.
#[inline(always)]
pub fn hash_short(len: usize, (low, high): (u64, u64)) -> u64 {
    let empty = start(len);
    let eight = step(empty, low);
    finish(select(len > 8, step(eight, high), select(len == 0, empty, eight)))
}

/// `hash_bytes` of a text key, if it is short without a branch on its length.
///
/// # Safety
/// `SHORT` bytes can be read at the key.
#[inline(always)]
pub unsafe fn hash_text(key: &[u8]) -> u64 {
    if key.len() > SHORT {
        return hash_bytes(key);
    }
    // SAFETY: as the caller says.
    hash_short(key.len(), unsafe { first_words(key.as_ptr(), key.len()) })
}

/// The key group of a hash: its high bits, so that the low ones stay for hash tables inside of a group.
#[inline(always)]
pub fn group(hash: u64) -> usize {
    (hash >> (64 - GROUPS.trailing_zeros())) as usize
}

/// A hash in a key group. Another hash gives its low bits.
pub fn with_group(hash: u64, group: usize) -> u64 {
    (group as u64) << (64 - GROUPS.trailing_zeros()) | hash >> GROUPS.trailing_zeros()
}

/// Who owns which key group.
#[derive(Debug, Clone)]
pub struct OwnerMap {
    owners: Box<[u16; GROUPS]>,
}

impl OwnerMap {
    /// Deals the groups to `owners` in contiguous, equally long ranges.
    pub fn even(owners: usize) -> Self {
        assert!((1..=GROUPS).contains(&owners));
        let mut map = Box::new([0; GROUPS]);
        for (group, owner) in map.iter_mut().enumerate() {
            *owner = (group * owners / GROUPS) as u16;
        }
        Self { owners: map }
    }

    #[inline(always)]
    pub fn owner(&self, group: usize) -> usize {
        self.owners[group & (GROUPS - 1)] as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        // Pinned: a changed hash moves keys between owners and hosts.
        assert_eq!(hash_i64(0), 0x7837_0140_C1AB_1441);
        assert_eq!(hash_bytes(b"lockstep!"), 0xF879_29D7_8C02_A65B);
        assert_ne!(hash_bytes(b"a"), hash_bytes(b"a\0"));
        assert_ne!(hash_bytes(b"abcdefgh"), hash_bytes(b"abcdefgh\0"));
    }

    #[test]
    fn consecutive_keys_spread_over_all_groups() {
        let mut counts = vec![0; GROUPS];
        for key in 0..(GROUPS as i64 * 100) {
            counts[group(hash_i64(key))] += 1;
        }
        assert!(counts.iter().all(|&n| (40..180).contains(&n)), "{counts:?}");
    }

    #[test]
    fn every_owner_gets_its_share() {
        for owners in [1, 2, 3, 7, 1024] {
            let map = OwnerMap::even(owners);
            let mut counts = vec![0; owners];
            (0..GROUPS).for_each(|g| counts[map.owner(g)] += 1);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1);
        }
    }
}
