//! Ranges of rows, and their owners. Neighbouring rows have one owner, at the same relative position in every table. Every
//! owner has about as many events.

/// Ranges begin at one of so many places of a table.
pub(super) const BUCKETS: usize = 256;
/// Places have 16 bits (ABI.md, PlaceContext).
const SHIFT: u32 = 16 - BUCKETS.ilog2();

/// The number of events that begin in each bucket.
pub(super) type Load = [u64; BUCKETS];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges {
    owners: [u16; BUCKETS],
}

impl Ranges {
    /// Makes ranges that divide this load between `threads` owners, in ascending order, as evenly as buckets allow.
    pub fn new(threads: usize, load: &Load) -> Self {
        let total: u64 = load.iter().sum::<u64>().max(1);
        let mut before = 0;
        let owners = load.map(|events| {
            // A bucket belongs to the owner whose share contains its middle.
            let owner = (2 * before + events) * threads as u64 / (2 * total);
            before += events;
            owner.min(threads as u64 - 1) as u16
        });
        Self { owners }
    }

    #[inline(always)]
    pub fn owner(&self, place: u32) -> usize {
        usize::from(self.owners[bucket(place)])
    }
}

/// Buckets by place.
#[inline(always)]
pub(super) fn bucket(place: u32) -> usize {
    (place >> SHIFT) as usize & (BUCKETS - 1)
}

/// The place of a row, as the place kernel has it; `scale` is `scale(rows of its table)`.
#[inline(always)]
pub(super) fn place(row: u32, scale: u64) -> u32 {
    ((u64::from(row) * scale) >> 32) as u32
}

pub(super) fn scale(rows: usize) -> u64 {
    (1 << 48) / rows as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_owner_has_its_share() {
        let mut load = [1; BUCKETS];
        load[..8].fill(31); // as much as all the others
        let ranges = Ranges::new(2, &load);
        assert_eq!((ranges.owner(7 << 8), ranges.owner(9 << 8)), (0, 1));
        let ranges = Ranges::new(3, &[5; BUCKETS]);
        for owner in 0..3 {
            let buckets = (0..BUCKETS as u32).filter(|bucket| ranges.owner(bucket << 8) == owner).count();
            assert!((85..=86).contains(&buckets));
        }
        assert_eq!(Ranges::new(4, &[0; BUCKETS]).owner(65535), 0, "no load, one owner");
    }

    #[test]
    fn places_are_relative_positions() {
        for rows in [1_usize, 2, 3, 10_000, 4_000_000_000] {
            let scale = scale(rows);
            assert_eq!(place(0, scale), 0);
            assert!(place(rows as u32 - 1, scale) < 1 << 16);
        }
        assert_eq!(place(4096, scale(8192)), 1 << 15);
    }
}
