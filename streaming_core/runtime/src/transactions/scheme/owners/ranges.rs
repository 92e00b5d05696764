//! Ranges of rows, and their owners. Neighbouring rows have one owner, at the same relative position in every table. Every
//! owner has about as many events, and few events have rows of two owners.

/// Ranges begin at one of so many places of a table. A thread of a model has a stack of 32 KiB only.
pub(super) const BUCKETS: usize = if cfg!(loom) { 16 } else { 256 };
/// Places have 16 bits (ABI.md, PlaceContext).
const SHIFT: u32 = 16 - BUCKETS.ilog2();
/// A range may differ from an equal part of the load by a part of that: 1 in so many.
const SLACK: u64 = 16;

/// Where the rows of events lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Load {
    /// The events whose lowest row lies in each bucket.
    events: [u64; BUCKETS],
    /// How many more events have rows on both sides of each bucket's start, than of the start of the bucket before.
    crossing: [i64; BUCKETS + 1],
}

impl Load {
    pub const NONE: Self = Self { events: [0; BUCKETS], crossing: [0; BUCKETS + 1] };

    /// Counts an event with its lowest and its highest place.
    #[inline(always)]
    pub fn count(&mut self, low: u32, high: u32) {
        let (low, high) = (bucket(low), bucket(high));
        self.events[low] += 1;
        if low < high {
            self.crossing[low + 1] += 1;
            self.crossing[high + 1] -= 1;
        }
    }

    /// Adds the load of another thread.
    pub fn add(&mut self, more: &Self) {
        self.events.iter_mut().zip(more.events).for_each(|(sum, events)| *sum += events);
        self.crossing.iter_mut().zip(more.crossing).for_each(|(sum, events)| *sum += events);
    }

    /// Lets what was counted so far count for half as much.
    pub fn halve(&mut self) {
        self.events.iter_mut().for_each(|events| *events /= 2);
        self.crossing.iter_mut().for_each(|events| *events /= 2);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges {
    owners: [u16; BUCKETS],
}

impl Ranges {
    /// Makes ranges that divide this load between owners, in ascending order, about as evenly as buckets allow. Without a load,
    /// they divide the tables evenly.
    pub fn new(owners: usize, load: &Load) -> Self {
        let total: u64 = load.events.iter().sum();
        let (events, total) = if total == 0 { ([1; BUCKETS], BUCKETS as u64) } else { (load.events, total) };
        // By the bucket that a range begins with: the events before it, and those that would span the cut.
        let (mut before, mut crossing, mut cuts) = (0, 0, Vec::with_capacity(BUCKETS + 1));
        for bucket in 0..=BUCKETS {
            crossing += load.crossing[bucket];
            cuts.push((before, crossing));
            before += events.get(bucket).copied().unwrap_or(0);
        }
        let (mut ranges, mut begin) = (Self { owners: [0; BUCKETS] }, 0);
        for owner in 1..owners {
            let ideal = total * owner as u64 / owners as u64;
            let worth = |cut: &usize| {
                let (before, crossing) = cuts[*cut];
                let distance = before.abs_diff(ideal);
                // A few more events for one owner cost less than an event that spans two.
                let is_even = distance * owners as u64 * SLACK <= total;
                if is_even { (0, crossing, distance) } else { (1, 0, distance) }
            };
            begin = (begin..=BUCKETS).min_by_key(worth).unwrap_or(BUCKETS);
            ranges.owners[begin..].fill(owner as u16);
        }
        ranges
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

/// What is known of rows.
pub(super) struct Layout {
    /// Per table: the factor from a row to its place.
    pub scales: Vec<u64>,
    /// Bytes of a captured row, and of a read's result.
    pub stride: usize,
    pub result: usize,
}

/// A set of buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Buckets([u64; BUCKETS.div_ceil(64)]);

impl Buckets {
    pub const NONE: Self = Self([0; BUCKETS.div_ceil(64)]);

    /// Adds the bucket of a place.
    #[inline(always)]
    pub fn add(&mut self, place: u32) {
        let bucket = bucket(place);
        self.0[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Adds those of another set.
    #[inline(always)]
    pub fn join(&mut self, more: &Self) {
        self.0.iter_mut().zip(more.0).for_each(|(word, more)| *word |= more);
    }

    /// Whether the sets have a bucket in common.
    #[inline(always)]
    pub fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(word, other)| word & other != 0)
    }

    /// Whether a bucket between those of two places is in the set; none is between if the first place is above the second.
    #[inline(always)]
    pub fn meet(&self, low: u32, high: u32) -> bool {
        let (first, last) = (bucket(low), bucket(high));
        low <= high
            && (first / 64..=last / 64).any(|word| {
                let from = if word == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
                let upto = if word == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
                self.0[word] & from & upto != 0
            })
    }
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

    fn load(events: [u64; BUCKETS]) -> Load {
        Load { events, ..Load::NONE }
    }

    #[test]
    fn every_owner_has_its_share() {
        let mut events = [1; BUCKETS];
        events[..8].fill(31); // as much as all the others
        let ranges = Ranges::new(2, &load(events));
        assert_eq!((ranges.owner(7 << 8), ranges.owner(9 << 8)), (0, 1));
        for none in [load([5; BUCKETS]), Load::NONE] {
            let ranges = Ranges::new(3, &none);
            for owner in 0..3 {
                let buckets = (0..BUCKETS as u32).filter(|bucket| ranges.owner(bucket << 8) == owner).count();
                assert!((85..=86).contains(&buckets));
            }
        }
    }

    #[test]
    fn a_cut_lies_where_the_fewest_events_span_it() {
        let mut load = Load::NONE;
        for bucket in 0..BUCKETS as u32 {
            // Partitions of four buckets; one begins at 124 and one at 128. The rows of an event lie in one of them.
            load.count(bucket << 8, (bucket | 3) << 8);
        }
        assert_eq!((0..BUCKETS as u32).find(|bucket| Ranges::new(2, &load).owner(bucket << 8) == 1), Some(128));
        // A bit more in the second half, and the fair cut would lie within a partition.
        (200..206).for_each(|bucket| load.count(bucket << 8, bucket << 8));
        assert_eq!((0..BUCKETS as u32).find(|bucket| Ranges::new(2, &load).owner(bucket << 8) == 1), Some(132));
        let mut sum = load.clone();
        sum.add(&load);
        sum.halve();
        assert_eq!(sum, load);
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
