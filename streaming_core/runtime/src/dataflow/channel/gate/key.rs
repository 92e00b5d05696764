//! What the rows of several sources are ordered by: event, stream, rank.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::channel::rank::Rank;

/// What rows are ordered by.
pub trait SortKey: Copy + Ord {
    /// Of a row of `jumbo`, which came through `stream`.
    fn of(jumbo: &Jumbo, position: usize, stream: u64) -> Self;

    /// Not before any row of events up to `upto`, before any row of a later one.
    fn behind(upto: i64) -> Self;

    /// Whether it tells rows of one event apart.
    const RANKED: bool;

    /// Event, stream and rank.
    fn parts(&self) -> (i64, u64, Rank);

    /// `self < other`, without a branch.
    fn is_before(&self, other: &Self) -> bool;
}

/// By event alone.
impl SortKey for i64 {
    #[inline(always)]
    fn of(jumbo: &Jumbo, position: usize, _: u64) -> Self {
        // SAFETY: a row of the jumbo tuple.
        unsafe { jumbo.rows.seq(position) }
    }

    fn behind(upto: i64) -> Self {
        upto
    }

    const RANKED: bool = false;

    fn parts(&self) -> (i64, u64, Rank) {
        (*self, 0, Rank::ONLY)
    }

    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        self < other
    }
}

/// By event, stream and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    pub seq: i64,
    pub stream: u64,
    pub rank: Rank,
}

impl SortKey for Order {
    #[inline(always)]
    fn of(jumbo: &Jumbo, position: usize, stream: u64) -> Self {
        Self { seq: i64::of(jumbo, position, stream), stream, rank: rank(jumbo, position) }
    }

    fn behind(upto: i64) -> Self {
        Self { seq: upto, stream: u64::MAX, rank: Rank::LAST }
    }

    const RANKED: bool = true;

    fn parts(&self) -> (i64, u64, Rank) {
        (self.seq, self.stream, self.rank)
    }

    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        let ranked = (self.stream < other.stream) | ((self.stream == other.stream) & (self.rank < other.rank));
        (self.seq < other.seq) | ((self.seq == other.seq) & ranked)
    }
}

#[inline(always)]
fn rank(jumbo: &Jumbo, position: usize) -> Rank {
    jumbo.ranks.get(position).copied().unwrap_or(Rank::ONLY)
}
