//! The canonical digest of output rows; ABI.md defines it.

use serde::{Deserialize, Serialize};
use std::ops::{AddAssign, SubAssign};

use crate::error::RunError;
use crate::output::vectors::{LANES, Vectors};
use crate::rows::block::{SEQ_BYTES, Text};
use crate::rows::column::{Column, ColumnKind};
use crate::rows::mix::{DIGEST_SEED, finish, step, text_words, validity};

/// Number of rows and the sum of their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Digest {
    pub rows: u64,
    pub sum: u64,
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl SubAssign for Digest {
    fn sub_assign(&mut self, other: Self) {
        self.rows -= other.rows;
        self.sum = self.sum.wrapping_sub(other.sum);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:016x}", self.rows, self.sum)
    }
}

/// Hashes rows of one layout.
#[derive(Debug, Clone)]
pub struct Hasher {
    stride: usize,
    columns: Vec<Column>,
    /// Rows are told apart by these columns alone, not by (seq, sub).
    unordered: bool,
    /// None: on this processor, or for these columns, rows are hashed one by one.
    vectors: Option<Vectors>,
}

impl Hasher {
    /// Refuses columns that do not lie inside of a row.
    pub fn new(columns: &[Column], stride: usize) -> Result<Self, RunError> {
        if stride < SEQ_BYTES {
            return Err(RunError::Invalid(format!("output rows of {stride} bytes are too small for seq")));
        }
        for column in columns {
            let end = column.kind.bytes().checked_mul(column.count).and_then(|n| n.checked_add(column.offset));
            if end.is_none_or(|end| end > stride) {
                return Err(RunError::Invalid(format!("column {column:?} lies outside a row of {stride} bytes")));
            }
        }
        Ok(Self { stride, columns: columns.to_vec(), unordered: false, vectors: Vectors::of(columns, stride, true) })
    }

    /// A hasher of what has to agree without order: these columns, by number, and nothing else.
    pub fn unordered(&self, columns: &[usize]) -> Self {
        let columns: Vec<Column> = columns.iter().map(|&at| self.columns[at]).collect();
        Self { vectors: Vectors::of(&columns, self.stride, false), columns, unordered: true, ..*self }
    }

    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Hash of one row as the `sub`-th output of its seq; None if its text lies outside of the block's.
    ///
    /// # Safety
    /// `row` has `stride` readable bytes.
    #[inline(always)]
    pub unsafe fn row(&self, row: *const u8, sub: u64, text: Text) -> Option<u64> {
        // SAFETY: one row is there.
        unsafe { self.rows(|_| row, [sub], text) }
    }

    /// Sum of the hashes of `N` rows, `row(i)` the i-th, whose `sub`s are given; None if some text lies outside of the
    /// block's.
    ///
    /// Column by column: the kind is looked at once, and the rows' chains of multiplications overlap.
    ///
    /// # Safety
    /// Each row has `stride` readable bytes.
    #[inline(always)]
    pub unsafe fn rows<const N: usize>(
        &self,
        row: impl Fn(usize) -> *const u8,
        subs: [u64; N],
        text: Text,
    ) -> Option<u64> {
        if let (Some(vectors), Ok(subs)) = (&self.vectors, <[u64; LANES]>::try_from(&subs[..])) {
            // SAFETY: as the caller says. `vectors` exists only if the processor can.
            return unsafe { vectors.rows(row, subs, text) };
        }
        let mut h = [DIGEST_SEED; N];
        // SAFETY: rows start with their seq, and the columns lie inside of a row.
        unsafe {
            if !self.unordered {
                for (i, (h, sub)) in h.iter_mut().zip(subs).enumerate() {
                    *h = step(step(*h, row(i).cast::<u64>().read_unaligned()), sub);
                }
            }
            for column in &self.columns {
                let size = column.kind.bytes();
                for element in 0..column.count {
                    let offset = column.offset + element * size;
                    macro_rules! each {
                        ($kind:expr) => {
                            for (i, h) in h.iter_mut().enumerate() {
                                *h = step(*h, $kind.load(row(i).add(offset)));
                            }
                        };
                    }
                    match column.kind {
                        ColumnKind::Text => {
                            for (i, h) in h.iter_mut().enumerate() {
                                *h = text_words(*h, text.field(row(i).add(offset))?);
                            }
                        }
                        ColumnKind::Valid => {
                            for (i, h) in h.iter_mut().enumerate() {
                                *h = validity(*h, row(i).add(offset).read() != 0);
                            }
                        }
                        ColumnKind::Boolean | ColumnKind::U8 => each!(ColumnKind::U8),
                        ColumnKind::I8 => each!(ColumnKind::I8),
                        ColumnKind::I16 => each!(ColumnKind::I16),
                        ColumnKind::I32 => each!(ColumnKind::I32),
                        ColumnKind::U16 => each!(ColumnKind::U16),
                        ColumnKind::U32 => each!(ColumnKind::U32),
                        ColumnKind::I64 | ColumnKind::F64 => each!(ColumnKind::I64),
                    }
                }
            }
        }
        Some(h.iter().fold(0, |sum: u64, &h| sum.wrapping_add(finish(h))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rows::mix::word;
    use proptest::prelude::*;
    use std::ops::Range;

    /// The definition of ABI.md, word by word, on big integers cut to 64 bits.
    fn slow(words: &[u64]) -> u64 {
        let cut = |x: u128| x % (1_u128 << 64);
        let mut h: u128 = 0x243F6A8885A308D3;
        for &word in words {
            h = cut((h ^ u128::from(word)) * 0x9E3779B97F4A7C15);
            h ^= h >> 32;
        }
        h = cut(h * 0xD6E8FEB86659FD93);
        (h ^ (h >> 29)) as u64
    }

    fn slow_text(bytes: &[u8]) -> Vec<u64> {
        let mut words = vec![bytes.len() as u64];
        for chunk in bytes.chunks(8) {
            words.push(chunk.iter().enumerate().map(|(i, &byte)| u64::from(byte) << (8 * i)).sum());
        }
        words
    }

    #[test]
    fn scalars_are_extended() {
        let mut row = [0_u8; 40];
        row[..8].copy_from_slice(&77_i64.to_le_bytes());
        row[8..16].copy_from_slice(&(-5_i64).to_le_bytes());
        row[16] = 0xFE;
        row[17] = 1;
        row[18..20].copy_from_slice(&(-2_i16).to_le_bytes());
        row[20..24].copy_from_slice(&0xFFFF_FFF0_u32.to_le_bytes());
        row[24..32].copy_from_slice(&(-0.0_f64).to_le_bytes());
        row[32..36].copy_from_slice(&(-3_i32).to_le_bytes());
        row[36..38].copy_from_slice(&0xFFF0_u16.to_le_bytes());
        let column = |kind, offset, count| Column { kind, offset, count };
        let columns = [
            column(ColumnKind::I64, 8, 1),
            column(ColumnKind::I8, 16, 1),
            column(ColumnKind::Boolean, 17, 1),
            column(ColumnKind::I16, 18, 1),
            column(ColumnKind::U32, 20, 1),
            column(ColumnKind::F64, 24, 1),
            column(ColumnKind::I32, 32, 1),
            column(ColumnKind::U16, 36, 1),
            column(ColumnKind::U8, 16, 2),
        ];
        let minus = |n: i64| n as u64;
        let words = [77, 3, minus(-5), minus(-2), 1, minus(-2), 0xFFFF_FFF0, 1 << 63, minus(-3), 0xFFF0, 0xFE, 1];
        let hasher = Hasher::new(&columns, 40).unwrap();
        // SAFETY: the row has 40 bytes.
        assert_eq!(unsafe { hasher.row(row.as_ptr(), 3, Text::empty()) }, Some(slow(&words)));
        // Pinned, so that the definition cannot drift with both implementations: only seq 0 and sub 0.
        let hasher = Hasher::new(&[], 8).unwrap();
        // SAFETY: 8 bytes.
        assert_eq!(unsafe { hasher.row([0_u8; 8].as_ptr(), 0, Text::empty()) }, Some(slow(&[0, 0])));
    }

    #[test]
    fn columns_outside_of_the_row_are_refused() {
        for (offset, count) in [(9, 1), (8, 2), (usize::MAX, 1), (0, usize::MAX)] {
            assert!(Hasher::new(&[Column { kind: ColumnKind::I64, offset, count }], 16).is_err());
        }
    }

    proptest! {
        #[test]
        fn text_is_hashed_by_its_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..70), seq: i64, sub: u32) {
            let mut row = seq.to_le_bytes().to_vec();
            row.extend(0_u32.to_le_bytes());
            row.extend((bytes.len() as u32).to_le_bytes());
            let hasher = Hasher::new(&[Column { kind: ColumnKind::Text, offset: 8, count: 1 }], 16).unwrap();
            let padded = [&bytes[..], &[0xEE; 64]].concat();
            // SAFETY: row and text outlive the call.
            let hash = unsafe { hasher.row(row.as_ptr(), u64::from(sub), Text::new(padded.as_ptr(), bytes.len())) };
            let mut words = vec![seq as u64, u64::from(sub)];
            words.extend(slow_text(&bytes));
            prop_assert_eq!(hash, Some(slow(&words)));
        }

        #[test]
        fn rows_hash_together_as_they_do_alone(
            lengths in proptest::collection::vec(0_usize..40, 0..30), extra: [i64; 3], narrow: i16,
        ) {
            let text: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|i| (i * 7) as u8 ^ 0x80).collect();
            let (mut rows, mut start) = (Vec::new(), 0);
            for (i, &length) in lengths.iter().enumerate() {
                rows.extend((i as i64 / 3).to_le_bytes());
                rows.extend((start as u32).to_le_bytes());
                rows.extend((length as u32).to_le_bytes());
                rows.extend(extra.map(|word| word ^ i as i64).iter().flat_map(|word| word.to_le_bytes()));
                rows.extend((narrow ^ i as i16).to_le_bytes());
                start += length;
            }
            let column = |kind, offset, count| Column { kind, offset, count };
            let columns = [
                column(ColumnKind::Text, 8, 1), column(ColumnKind::I64, 16, 2), column(ColumnKind::F64, 32, 1),
                column(ColumnKind::I16, 40, 1),
            ];
            let hasher = Hasher::new(&columns, 42).unwrap();
            let subs: Vec<u64> = (0..lengths.len() as u64).map(|i| i % 3).collect();
            let padded = [&text[..], &[0xEE; 64]].concat();
            // SAFETY: rows and text outlive the calls.
            unsafe {
                let text = Text::new(padded.as_ptr(), text.len());
                let row = |i: usize| rows[i * 42..].as_ptr();
                let sum = |of: Range<usize>| {
                    of.fold(0_u64, |sum, i| sum.wrapping_add(hasher.row(row(i), subs[i], text).unwrap()))
                };
                for (i, subs) in subs.as_chunks::<4>().0.iter().enumerate() {
                    prop_assert_eq!(hasher.rows(|j| row(i * 4 + j), *subs, text), Some(sum(i * 4..i * 4 + 4)));
                }
                for (i, subs) in subs.as_chunks::<8>().0.iter().enumerate() {
                    prop_assert_eq!(hasher.rows(|j| row(i * 8 + j), *subs, text), Some(sum(i * 8..i * 8 + 8)));
                }
            }
        }

        /// Columns of all kinds, in any order, in rows of up to four times 64 bytes; some lie across two words.
        #[test]
        fn eight_rows_have_the_hashes_of_each(
            bytes in proptest::collection::vec(any::<u8>(), 8 * 200),
            fields in proptest::collection::vec((0..9_usize, 0..24_usize, 1..4_usize), 0..12),
            stride in 100..200_usize,
            skewed in 0..8_usize,
        ) {
            use ColumnKind::{Boolean, F64, I8, I16, I32, I64, U8, U16, U32};
            let kinds = [Boolean, I8, I16, I32, I64, U8, U16, U32, F64];
            let columns: Vec<Column> = fields.iter().map(|&(kind, word, count)| {
                let offset = 8 + (word * 8 + if skewed == 0 { 1 } else { 0 }) % 64;
                Column { kind: kinds[kind], offset, count }
            }).collect();
            let hasher = Hasher::new(&columns, stride).unwrap();
            for hasher in [hasher.unordered(&(0..columns.len()).collect::<Vec<_>>()), hasher] {
                let row = |i: usize| bytes[i * stride..].as_ptr();
                let subs = std::array::from_fn(|i| i as u64 * 3);
                // SAFETY: there are eight rows.
                unsafe {
                    let sum = (0..8).fold(0_u64, |sum, i| {
                        sum.wrapping_add(hasher.row(row(i), subs[i], Text::empty()).unwrap())
                    });
                    prop_assert_eq!(hasher.rows::<8>(row, subs, Text::empty()), Some(sum));
                }
            }
        }

        #[test]
        fn a_word_is_its_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..9)) {
            let wanted: u64 = bytes.iter().enumerate().map(|(i, &b)| u64::from(b) << (8 * i)).sum();
            prop_assert_eq!(word(&bytes), wanted);
        }
    }
}
