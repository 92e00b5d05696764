//! Rows made of columns, as Arrow has them, and the hashes of these rows in a digest.

use crate::rows::block::{SEQ_BYTES, Text};
use crate::rows::column::{Column, ColumnKind};
use crate::rows::mix::{DIGEST_SEED, finish, step, text_words, validity};

/// Rows that are filled together, so that they and their hashes stay in the core's cache.
const TILE: usize = 1024;
/// The only NaN of rows (ABI.md).
const NAN: u64 = 0x7FF8_0000_0000_0000;

/// The values of a column, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// Where the column lies in a row.
    pub column: Column,
    /// `n * column.count` values; of a text, `n + 1` offsets of 32 bits.
    pub values: *const u8,
    /// Where the first text begins in the text beside the rows.
    pub base: u32,
}

/// Rows to fill.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    pub rows: *mut u8,
    pub n: usize,
    pub stride: usize,
    /// The text beside the rows; it is complete.
    pub text: Text,
    pub seq: *const i64,
    pub sub: Option<*const i64>,
}

// SAFETY: the maker keeps the values unchanged, and lets one thread fill the rows.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}
// SAFETY: as above.
unsafe impl Send for Values {}
// SAFETY: as above.
unsafe impl Sync for Values {}

/// Fills rows. Returns the sum of their hashes, or None if a text lies outside of the text beside the rows.
///
/// The hash of a row covers its seq, `sub` if there is one, and its columns in order. A NaN counts as it is in the column.
///
/// # Safety
/// `n * stride` bytes can be written at `rows`, and no other thread uses them. The columns lie in a row. `seq` and `sub` have
/// `n` values of 64 bits, and the columns as many as `Values` says.
pub unsafe fn fill(rows: Rows, columns: &[Values]) -> Option<u64> {
    let mut sum = 0_u64;
    for begin in (0..rows.n).step_by(TILE) {
        let tile = Tile { rows, begin, n: TILE.min(rows.n - begin) };
        let mut hashes = [DIGEST_SEED; TILE];
        let seqs = Column { kind: ColumnKind::I64, offset: 0, count: 1 };
        // SAFETY: as the caller says. A row begins with its seq, and `sub` is not stored.
        unsafe {
            tile.add(&mut hashes, &Values { column: seqs, values: rows.seq.cast(), base: 0 })?;
            if let Some(sub) = rows.sub {
                for (i, hash) in hashes[..tile.n].iter_mut().enumerate() {
                    *hash = step(*hash, sub.add(begin + i).read_unaligned() as u64);
                }
            }
            for values in columns {
                tile.add(&mut hashes, values)?;
            }
        }
        sum = hashes[..tile.n].iter().fold(sum, |sum, &hash| sum.wrapping_add(finish(hash)));
    }
    Some(sum)
}

/// Some of the rows.
struct Tile {
    rows: Rows,
    begin: usize,
    n: usize,
}

impl Tile {
    /// Stores a column, and adds it to the hashes.
    ///
    /// # Safety
    /// As for `fill`.
    unsafe fn add(&self, hashes: &mut [u64; TILE], values: &Values) -> Option<()> {
        let Column { kind, offset, count } = values.column;
        // SAFETY: as the caller says.
        let field = |i: usize| unsafe { self.rows.rows.add((self.begin + i) * self.rows.stride + offset) };
        macro_rules! store {
            ($type:ty, $word:expr, $value:expr) => {
                for element in 0..count {
                    for (i, hash) in hashes[..self.n].iter_mut().enumerate() {
                        // SAFETY: as the caller says.
                        unsafe {
                            let value = values.values.cast::<$type>().add((self.begin + i) * count + element);
                            let value = value.read_unaligned();
                            *hash = step(*hash, $word(value));
                            field(i).cast::<$type>().add(element).write_unaligned($value(value));
                        }
                    }
                }
            };
            ($type:ty) => {
                store!($type, |value: $type| value as u64, |value: $type| value)
            };
        }
        match kind {
            ColumnKind::Boolean | ColumnKind::U8 => store!(u8),
            ColumnKind::Valid => {
                for (i, hash) in hashes[..self.n].iter_mut().enumerate() {
                    // SAFETY: as the caller says.
                    unsafe {
                        let is_valid = values.values.add(self.begin + i).read();
                        *hash = validity(*hash, is_valid != 0);
                        field(i).write(is_valid);
                    }
                }
            }
            ColumnKind::I8 => store!(i8),
            ColumnKind::I16 => store!(i16),
            ColumnKind::I32 => store!(i32),
            ColumnKind::I64 => store!(i64),
            ColumnKind::U16 => store!(u16),
            ColumnKind::U32 => store!(u32),
            ColumnKind::F64 => {
                store!(u64, |bits: u64| bits, |bits: u64| if f64::from_bits(bits).is_nan() { NAN } else { bits })
            }
            ColumnKind::Text => {
                let offsets = values.values.cast::<u32>();
                for (i, hash) in hashes[..self.n].iter_mut().enumerate() {
                    // SAFETY: as the caller says. `field` checks that the text exists, and 64 bytes of padding follow.
                    unsafe {
                        let at = |i: usize| offsets.add(i).read_unaligned();
                        let (begin, end) = (at(self.begin + i), at(self.begin + i + 1));
                        let place = begin.wrapping_sub(at(0)).wrapping_add(values.base);
                        field(i).cast::<u32>().write_unaligned(place);
                        field(i).cast::<u32>().add(1).write_unaligned(end.wrapping_sub(begin));
                        *hash = text_words(*hash, self.rows.text.field(field(i))?);
                    }
                }
            }
        }
        Some(())
    }
}

impl Values {
    /// Bytes of the values of `n` rows.
    pub fn bytes(&self, n: usize) -> Option<usize> {
        match self.column.kind {
            ColumnKind::Text => n.checked_add(1)?.checked_mul(4),
            kind => n.checked_mul(self.column.count)?.checked_mul(kind.bytes()),
        }
    }

    /// Whether the column lies in a row of `stride` bytes, behind its seq.
    pub fn lies_in(&self, stride: usize) -> bool {
        let Column { kind, offset, count } = self.column;
        let end = kind.bytes().checked_mul(count).and_then(|bytes| bytes.checked_add(offset));
        offset >= SEQ_BYTES && end.is_some_and(|end| end <= stride) && (kind != ColumnKind::Text || count == 1)
    }
}
