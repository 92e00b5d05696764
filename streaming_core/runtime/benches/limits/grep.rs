//! gs: ten records read and summed, or overwritten.

use crate::input::{Input, Row};
use crate::output::Digest;

const LENGTH: usize = 10;
const WORDS: usize = 4;
const MODULUS: i64 = 2_147_483_647;
const IS_READ: usize = 16;
const KEYS: usize = 20;
const VALUES: usize = 64;

pub fn run(input: &Input) -> Digest {
    let (records, _) = input.tables[0].as_chunks::<{ 8 * WORDS }>();
    let mut items: Vec<[i64; WORDS]> = records
        .iter()
        .map(|record| std::array::from_fn(|word| i64::from_le_bytes(std::array::from_fn(|i| record[word * 8 + i]))))
        .collect();
    let mut digest = Digest::default();
    for row in input.blocks.iter().flat_map(|block| block.rows()) {
        event(row, &mut items, &mut digest);
    }
    digest
}

#[inline(always)]
fn event(row: Row, items: &mut [[i64; WORDS]], digest: &mut Digest) {
    let keys: [usize; LENGTH] = std::array::from_fn(|i| row.u32(KEYS + 4 * i) as usize);
    if keys.iter().any(|&key| key >= items.len()) {
        return;
    }
    let is_read = row.u8(IS_READ) != 0;
    let (mut total, mut mixed) = (0_i64, 0_i64);
    if is_read {
        for key in keys {
            let [value, payload @ ..] = items[key];
            total += payload.iter().fold(value, |sum, word| sum + word - value);
        }
        mixed = (total.rem_euclid(MODULUS) * 48_271 + 11).rem_euclid(MODULUS);
    } else {
        for (i, key) in keys.into_iter().enumerate() {
            items[key] = [row.i64(VALUES + 8 * i); WORDS];
        }
    }
    digest.add(row.seq(), 0, [i64::from(is_read), total, mixed]);
}
