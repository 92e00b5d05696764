//! Ranks: where a row stands among the rows of its event, as a path.
//!
//! The rows of one event part at a partitioned operator and meet again behind it. No task in between sees all of them, so no
//! task can count them. A rank names the stream of a row and, for each operator, the number of the row among the outputs of its
//! input. The code is prefix-free and keeps order. Of two rows of one event, the row with the smaller rank
//! comes first in the sequential meaning of the pipeline. A row that is its input's only output keeps its rank: paths part
//! where an input becomes several rows, and only there.
//!
//! The rows of an event in a stream of a windowed operator all pass one finder of keys (`Route::Range`), in one order. It
//! counts them, and paths begin anew there. So do readers of an elastic ScaleGate.
//!
//! Cost: 16 bytes a row where rows meet again. A number n takes l + 2 log2(l + 1) + 1 bits, where l is log2(n + 1). A rank has
//! room for 121 bits; a path that does not fit ends the run.

use crate::error::RunError;

/// Bits that count the others; they decide nothing, because no code is a prefix of another one.
const COUNT: u32 = 7;
const BITS: u32 = u128::BITS - COUNT;

/// The path of a row: bits from the highest one on, their number in the lowest seven.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u128);

impl Rank {
    /// Of a row that is alone with its event: an event itself.
    pub const ONLY: Self = Self(0);
    /// Not before any other.
    pub const LAST: Self = Self(u128::MAX);

    /// As a number that orders ranks likewise.
    pub fn order(self) -> u128 {
        self.0
    }

    fn len(self) -> u32 {
        (self.0 & ((1 << COUNT) - 1)) as u32
    }

    /// The rank of output `number` of the row that has this rank, if that emitted several; None: the path is too long.
    #[inline]
    pub fn output(self, number: u64) -> Option<Self> {
        if self == Self::ONLY && number < FIRST.len() as u64 {
            return Some(FIRST[number as usize]);
        }
        self.along(Path::default().number(number))
    }

    /// The number in the first `bits` bits, and the rank behind them.
    pub fn split(self, bits: u32) -> (u64, Self) {
        let path = self.0 >> COUNT << COUNT;
        let number = (path >> (u128::BITS - bits)) as u64;
        (number, Self(path << bits | u128::from(self.len() - bits)))
    }

    /// The rank of this row among those of several streams, coming through stream `number`; None: the path is too long.
    #[inline]
    pub fn through(self, number: u64) -> Option<Self> {
        let (code, bits) = code(number);
        let len = self.len() + bits;
        if len > BITS {
            return None;
        }
        let path = (self.0 >> COUNT << COUNT) >> bits;
        Some(Self(path | code << (u128::BITS - bits) | u128::from(len)))
    }
}

/// The failure of an event whose rows cannot be ranked any more.
#[cold]
pub fn path_too_long(seq: i64) -> RunError {
    RunError::TooManyRows { seq }
}

/// Ranks of the rows that a reader of whole events takes, as it counts them.
#[derive(Debug, Default)]
pub struct Counted {
    /// The event of the last row, and how many rows of it there were.
    last: Option<(i64, u64)>,
}

impl Counted {
    /// The rank of the next row, which is of event `seq` and came with this one.
    #[inline]
    pub fn rank(&mut self, seq: i64, rank: Rank) -> Rank {
        if rank == Rank::ONLY {
            return rank;
        }
        let number = self.last.filter(|&(event, _)| event == seq).map_or(0, |(_, rows)| rows);
        self.last = Some((seq, number + 1));
        Rank::ONLY.output(number).unwrap_or(Rank::LAST)
    }
}

/// Steps behind a rank that are taken together, for who knows several numbers at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Path {
    code: u128,
    bits: u32,
}

impl Path {
    /// One step more, `number` of any size.
    #[inline]
    pub fn number(self, number: u64) -> Self {
        let (code, bits) = code(number);
        self.then(code, bits)
    }

    /// One step more, `number` of any size; greater numbers come first.
    #[inline]
    pub fn back(self, number: u64) -> Self {
        let (code, bits) = code(number);
        self.then(code ^ ((1 << bits) - 1), bits)
    }

    /// One step more, `number < 2^bits`: all that part here have as many.
    #[inline]
    pub fn fixed(self, number: u64, bits: u32) -> Self {
        debug_assert!(number >> bits == 0);
        self.then(u128::from(number), bits)
    }

    #[inline]
    fn then(self, code: u128, bits: u32) -> Self {
        // Too long a path stays too long; what it says then is of no use.
        let all = self.bits + bits;
        Self { code: if all > BITS { 0 } else { self.code << bits | code }, bits: all }
    }
}

impl Rank {
    /// The rank of what is reached from a row of this rank; None: the path is too long.
    #[inline]
    pub fn along(self, path: Path) -> Option<Self> {
        let len = self.len() + path.bits;
        if len > BITS {
            return None;
        }
        let before = self.0 >> COUNT << COUNT;
        Some(Self(before | path.code.checked_shl(u128::BITS - len).unwrap_or(0) | u128::from(len)))
    }
}

/// The codes of small numbers.
const SMALL: [(u64, u32); 64] = {
    let mut codes = [(0, 0); 64];
    let mut number = 0;
    while number < codes.len() {
        let (code, bits) = delta(number as u64);
        codes[number] = (code as u64, bits);
        number += 1;
    }
    codes
};

/// The ranks of the first outputs of a row that was alone.
const FIRST: [Rank; 64] = {
    let mut ranks = [Rank::ONLY; 64];
    let mut number = 0;
    while number < ranks.len() {
        let (code, bits) = delta(number as u64);
        ranks[number] = Rank(code << (u128::BITS - bits) | bits as u128);
        number += 1;
    }
    ranks
};

/// The code of a number, and its bits.
#[inline(always)]
fn code(number: u64) -> (u128, u32) {
    match SMALL.get(number as usize) {
        Some(&(code, bits)) => (u128::from(code), bits),
        None => delta(number),
    }
}

/// Elias' delta code of `number + 1`: the gamma code of its length, then its bits but for the first. Greater numbers have
/// greater codes. And the code's bits.
const fn delta(number: u64) -> (u128, u32) {
    let number = number as u128 + 1;
    let power = number.ilog2();
    let (length, bits) = gamma(power);
    (length << power | (number - (1 << power)), bits + power)
}

/// Elias' gamma code of `number + 1`, its unary part made of ones, so that greater numbers have greater codes; its bits.
const fn gamma(number: u32) -> (u128, u32) {
    let number = number as u128 + 1;
    let power = number.ilog2();
    let ones = (1_u128 << power) - 1;
    (ones << (power + 1) | (number - (1 << power)), 2 * power + 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_numbers_have_short_codes() {
        assert_eq!(
            [0, 1, 2, 3, 6, 7].map(code),
            [(0, 1), (0b1000, 4), (0b1001, 4), (0b10100, 5), (0b10111, 5), (0b11000000, 8)]
        );
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused() {
        let mut rank = Rank::ONLY;
        for _ in 0..BITS {
            rank = rank.output(0).unwrap();
        }
        assert_eq!((rank.output(0), rank.through(0)), (None, None));
        assert!(Rank::ONLY.output((1 << 40) - 1).is_some());
    }

    #[test]
    fn steps_taken_together_are_steps() {
        let one_by_one = Rank::ONLY.output(3).unwrap().output(700).unwrap().output(0).unwrap();
        let path = Path::default().number(700).number(0);
        assert_eq!(Rank::ONLY.output(3).unwrap().along(path), Some(one_by_one));
        let fixed: Vec<Rank> =
            (0..8).map(|n| Rank::ONLY.along(Path::default().fixed(n, 3).number(n)).unwrap()).collect();
        assert!(fixed.is_sorted());
        assert_eq!(Rank::ONLY.along(Path::default()), Some(Rank::ONLY));
        let long = (0..BITS).fold(Path::default(), |path, _| path.number(0));
        assert!(Rank::ONLY.along(long).is_some());
        assert_eq!(Rank::ONLY.along(long.number(0).number(1 << 60)), None);
    }

    #[test]
    fn large_numbers_fit() {
        // A window of the largest delay, a million keys of one event, some outputs of each.
        let path = Path::default().fixed(0, 1).number(1 << 61).fixed(4095, 12).number(7);
        assert!(Rank::ONLY.output((1 << 20) - 2).unwrap().along(path).is_some());
        assert!(delta(u64::MAX).1 <= BITS);
    }

    #[test]
    fn greater_numbers_come_first_on_the_way_back() {
        let back = |number: u64| Rank::ONLY.along(Path::default().back(number)).unwrap();
        let ranks: Vec<Rank> = [u64::MAX, 1 << 61, 1000, 64, 63, 9, 2, 1, 0].map(back).to_vec();
        assert!(ranks.is_sorted_by(|left, right| left < right));
    }

    #[test]
    fn rows_are_counted_event_by_event() {
        let mut counted = Counted::default();
        let several = Rank::ONLY.output(0).unwrap();
        let ranks: Vec<Rank> = [1, 1, 2, 2, 2].map(|seq| counted.rank(seq, several)).to_vec();
        assert_eq!(ranks, [0, 1, 0, 1, 2].map(|number| Rank::ONLY.output(number).unwrap()));
        assert_eq!(counted.rank(3, Rank::ONLY), Rank::ONLY);
    }

    proptest! {
        #[test]
        fn codes_are_ordered_and_no_code_begins_another(a in any::<u64>(), b in any::<u64>(), shift in 0_u32..64) {
            let (a, b) = (a >> shift, b >> (shift / 2));
            let [left, right] = [a, b].map(|number| {
                let (code, bits) = code(number);
                (code << (u128::BITS - bits), bits)
            });
            prop_assert_eq!(left.0.cmp(&right.0), a.cmp(&b));
            let common = left.1.min(right.1);
            prop_assert!(a == b || left.0 >> (u128::BITS - common) != right.0 >> (u128::BITS - common));
        }

        /// Paths of one length, as those of rows that meet are: numbers decide from the first on.
        #[test]
        fn ranks_order_as_paths_do(
            (a, b) in (1_usize..7).prop_flat_map(|n| {
                let path = || proptest::collection::vec(prop_oneof![0_u64..3, 0_u64..60, 0_u64..1000], n);
                (path(), path())
            }),
        ) {
            let outputs = |path: &[u64]| path.iter().fold(Rank::ONLY, |rank, &n| rank.output(n).unwrap());
            prop_assert_eq!(outputs(&a).cmp(&outputs(&b)), a.cmp(&b));
            let streams = |path: &[u64]| path.iter().rev().fold(Rank::ONLY, |rank, &n| rank.through(n).unwrap());
            prop_assert_eq!(streams(&a), outputs(&a));
        }
    }
}
