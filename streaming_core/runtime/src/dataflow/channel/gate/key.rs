//! The keys that order the rows of several sources: event, stream, rank, or number.

use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::channel::rank::{Rank, path_too_long};
use crate::error::RunError;
use crate::planted::{self, Fault};

/// A key that orders rows.
pub trait SortKey: Copy + Ord {
    /// Of a row of `jumbo`, which came through `stream`.
    fn of(jumbo: &Jumbo, position: usize, stream: u64) -> Self;

    /// A key after all rows of events up to `upto`, and before all rows of later events.
    fn behind(upto: i64) -> Self;

    /// Whether it tells rows of one event apart.
    const RANKED: bool;

    /// Whether it has the `sub` of the row.
    const NUMBERED: bool = false;

    /// The `sub` of the row, if it is numbered.
    fn sub(&self) -> u32 {
        0
    }

    /// Event, stream and rank.
    fn order(&self) -> Order;

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

    fn order(&self) -> Order {
        Order { seq: *self, ..Order::FIRST }
    }

    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        self < other
    }
}

/// By event and `sub`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbered {
    seq: i64,
    sub: u32,
}

impl SortKey for Numbered {
    #[inline(always)]
    fn of(jumbo: &Jumbo, position: usize, stream: u64) -> Self {
        Self { seq: i64::of(jumbo, position, stream), sub: jumbo.subs.get(position).copied().unwrap_or(0) }
    }

    fn behind(upto: i64) -> Self {
        Self { seq: upto, sub: u32::MAX }
    }

    const RANKED: bool = false;

    const NUMBERED: bool = true;

    fn sub(&self) -> u32 {
        self.sub
    }

    fn order(&self) -> Order {
        Order { seq: self.seq, ..Order::FIRST }
    }

    #[inline(always)]
    fn is_before(&self, other: &Self) -> bool {
        (self.seq < other.seq) | ((self.seq == other.seq) & (self.sub < other.sub) & !planted::has(Fault::NumberedTie))
    }
}

/// By event, stream and rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    pub seq: i64,
    pub stream: u64,
    pub rank: Rank,
}

impl Order {
    /// Not behind any other.
    pub const FIRST: Self = Self { seq: i64::MIN, stream: 0, rank: Rank::ONLY };

    /// The rank of the row behind where it was taken; `united`: of rows of several streams.
    #[inline(always)]
    pub fn rank_behind(self, united: bool) -> Result<Rank, RunError> {
        let Self { seq, stream, rank } = self;
        if united { rank.through(stream).ok_or_else(|| path_too_long(seq)) } else { Ok(rank) }
    }
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

    fn order(&self) -> Order {
        *self
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
