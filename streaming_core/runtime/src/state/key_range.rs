//! Ranges of keys, in their order: the other way of dealing keys out, which keeps neighbours together.

/// Where an integer key lies: ascending as the keys are.
#[inline(always)]
pub fn position_i64(key: i64) -> u64 {
    key as u64 ^ 1 << 63
}

/// Where a text key lies, by its first eight bytes: keys that begin alike lie together.
#[inline]
pub fn position_text(key: &[u8]) -> u64 {
    let mut first = [0; 8];
    let n = key.len().min(8);
    first[..n].copy_from_slice(&key[..n]);
    u64::from_be_bytes(first)
}

/// Ranges of one width; the outermost are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRanges {
    low: u64,
    width: u64,
    last: usize,
}

impl KeyRanges {
    /// `count` of them from position `low` to position `high`.
    pub fn new(low: u64, high: u64, count: usize) -> Self {
        assert!(count > 0 && low <= high, "there must be a range, and `low` must not exceed `high`");
        Self { low, width: (high - low) / count as u64 + 1, last: count - 1 }
    }

    /// That of a position.
    #[inline(always)]
    pub fn range(&self, position: u64) -> usize {
        (position.saturating_sub(self.low) / self.width).min(self.last as u64) as usize
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn positions_ascend_as_keys_do() {
        let keys = [i64::MIN, -7, -1, 0, 1, 300, i64::MAX];
        assert!(keys.map(position_i64).is_sorted());
        let texts: [&[u8]; 6] = [b"", b"a", b"a\0b", b"ab", b"b", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"];
        assert!(texts.map(position_text).is_sorted());
        assert_eq!(position_text(b"sentence1"), position_text(b"sentence2"));
    }

    #[test]
    fn ranges_are_equally_wide_and_the_outermost_open() {
        let ranges = KeyRanges::new(position_i64(-50), position_i64(49), 10);
        let ranges_of_keys: Vec<usize> = (-50..50).map(|key| ranges.range(position_i64(key))).collect();
        assert_eq!(ranges_of_keys, (0..100).map(|key| key / 10).collect::<Vec<_>>());
        assert_eq!([i64::MIN, i64::MAX].map(|key| ranges.range(position_i64(key))), [0, 9]);
        // Fewer keys than ranges: one each.
        let few = KeyRanges::new(3, 5, 100);
        assert_eq!([3, 4, 5].map(|position| few.range(position)), [0, 1, 2]);
        assert_eq!(KeyRanges::new(0, u64::MAX, 2).range(u64::MAX), 1);
    }
}
