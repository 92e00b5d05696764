//! Hashes of eight rows at a time, in vectors of eight words of 64 bits (AVX-512). Their definition is in ABI.md, section Digest.
//!
//! Rows are loaded eight words at a time, and turned so that a vector holds the same word of all rows. A field is a part of one
//! word: it takes two shifts.

use crate::rows::block::Text;
use crate::rows::column::Column;
#[cfg(target_arch = "x86_64")]
use crate::rows::column::ColumnKind;

/// Rows that are hashed together, and words of them that are loaded together.
pub const LANES: usize = 8;

#[cfg(not(target_arch = "x86_64"))]
#[derive(Debug, Clone)]
pub enum Vectors {}

#[cfg(not(target_arch = "x86_64"))]
impl Vectors {
    /// There are no such vectors here.
    pub fn of(_: &[Column], _: usize, _: bool) -> Option<Self> {
        None
    }

    /// Is never called.
    ///
    /// # Safety
    /// There is nothing to keep to.
    pub unsafe fn rows(&self, _: impl Fn(usize) -> *const u8, _: [u64; LANES], _: Text) -> Option<u64> {
        match *self {}
    }
}

/// How rows of one layout are hashed.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone)]
pub struct Vectors {
    stride: usize,
    /// Whether seq and `sub` count.
    ordered: bool,
    fields: Vec<Field>,
}

/// A field of a row.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
enum Field {
    /// In word `word`: the bits that are left after a shift to the left and one to the right.
    Bits {
        word: usize,
        left: u32,
        right: u32,
        is_signed: bool,
    },
    Text {
        offset: usize,
    },
}

#[cfg(target_arch = "x86_64")]
impl Vectors {
    /// None if the processor has no such vectors, a field may be null, or a field is a part of two words.
    pub fn of(columns: &[Column], stride: usize, ordered: bool) -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        let mut fields = Vec::new();
        for column in columns {
            if column.kind == ColumnKind::Valid {
                return None;
            }
            let size = column.kind.bytes();
            for offset in (column.offset..).step_by(size).take(column.count) {
                if column.kind == ColumnKind::Text {
                    fields.push(Field::Text { offset });
                    continue;
                }
                let (word, begin) = (offset / 8, offset % 8);
                if begin + size > 8 {
                    return None;
                }
                let (left, right) = (8 * (8 - begin - size) as u32, 8 * (8 - size) as u32);
                let is_signed = matches!(column.kind, ColumnKind::I8 | ColumnKind::I16 | ColumnKind::I32);
                fields.push(Field::Bits { word, left, right, is_signed });
            }
        }
        has.then_some(Self { stride, ordered, fields })
    }

    /// As `Hasher::rows`.
    ///
    /// # Safety
    /// As for `Hasher::rows`.
    #[inline(always)]
    pub unsafe fn rows(&self, row: impl Fn(usize) -> *const u8, subs: [u64; LANES], text: Text) -> Option<u64> {
        // SAFETY: as the caller says; `of` found these instructions.
        unsafe { self.hash(std::array::from_fn(row), subs, text) }
    }

    #[target_feature(enable = "avx512f,avx512dq,avx512bw")]
    unsafe fn hash(&self, rows: [*const u8; LANES], subs: [u64; LANES], text: Text) -> Option<u64> {
        use std::arch::x86_64::*;

        use crate::rows::mix::{DIGEST_SEED, K1, K2, text_words};

        let step = |h, words| {
            let h = _mm512_mullo_epi64(_mm512_xor_si512(h, words), _mm512_set1_epi64(K1 as i64));
            _mm512_xor_si512(h, _mm512_srli_epi64::<32>(h))
        };
        // SAFETY: as the caller says. A load leaves out what lies behind the row.
        let turned = |group: usize| unsafe {
            let left = self.stride - group * 64;
            let mask = if left >= 64 { !0 } else { (1_u64 << left) - 1 };
            let load = |i: usize| _mm512_maskz_loadu_epi8(mask, rows[i].add(group * 64).cast());
            let pairs = |i: usize| {
                let (this, next) = (load(i), load(i + 1));
                (_mm512_unpacklo_epi64(this, next), _mm512_unpackhi_epi64(this, next))
            };
            // First even words and odd words of two rows, then two words of four rows, then one word of all.
            let ((a, b), (c, d), (e, f), (g, h)) = (pairs(0), pairs(2), pairs(4), pairs(6));
            let fours =
                |this, next| (_mm512_shuffle_i64x2::<0x88>(this, next), _mm512_shuffle_i64x2::<0xDD>(this, next));
            let ((ac04, ac26), (bd15, bd37)) = (fours(a, c), fours(b, d));
            let ((eg04, eg26), (fh15, fh37)) = (fours(e, g), fours(f, h));
            let (w0, w4) = fours(ac04, eg04);
            let (w1, w5) = fours(bd15, fh15);
            let (w2, w6) = fours(ac26, eg26);
            let (w3, w7) = fours(bd37, fh37);
            [w0, w1, w2, w3, w4, w5, w6, w7]
        };
        let (mut group, mut words) = (0, turned(0));
        let mut h = _mm512_set1_epi64(DIGEST_SEED as i64);
        if self.ordered {
            h = step(h, words[0]);
            // SAFETY: the array has that size.
            h = step(h, unsafe { _mm512_loadu_si512(subs.as_ptr().cast()) });
        }
        for field in &self.fields {
            match *field {
                Field::Bits { word, left, right, is_signed } => {
                    if word / LANES != group {
                        group = word / LANES;
                        words = turned(group);
                    }
                    let (left, right) = (_mm_cvtsi32_si128(left as i32), _mm_cvtsi32_si128(right as i32));
                    let bits = _mm512_sll_epi64(words[word % LANES], left);
                    let bits = if is_signed { _mm512_sra_epi64(bits, right) } else { _mm512_srl_epi64(bits, right) };
                    h = step(h, bits);
                }
                Field::Text { offset } => {
                    let mut hashes = [0; LANES];
                    // SAFETY: the array has that size. The caller answers for the rows.
                    unsafe {
                        _mm512_storeu_si512(hashes.as_mut_ptr().cast(), h);
                        for (row, hash) in rows.iter().zip(&mut hashes) {
                            *hash = text_words(*hash, text.field(row.add(offset))?);
                        }
                        h = _mm512_loadu_si512(hashes.as_ptr().cast());
                    }
                }
            }
        }
        let h = _mm512_mullo_epi64(h, _mm512_set1_epi64(K2 as i64));
        Some(_mm512_reduce_add_epi64(_mm512_xor_si512(h, _mm512_srli_epi64::<29>(h))) as u64)
    }
}
