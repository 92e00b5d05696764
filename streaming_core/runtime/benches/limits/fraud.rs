//! fd: scores of the last transactions of an entity.

use std::collections::HashMap;

use crate::input::{Block, Input, Row};
use crate::output::{Digest, Hash};

const LINE: usize = 16;
const STATES: usize = 18;
const WINDOW: usize = 5;
const THRESHOLD: i64 = 9_600;
const ONE: i64 = 1 << 32;

/// The last transactions of an entity, oldest first.
#[derive(Clone, Copy, Default)]
struct Chain {
    recent: [u8; WINDOW],
    n: usize,
    missed: i64,
}

/// Chains by entity. Names of up to 16 bytes are numbers in a table with linear probing, at most half full.
struct Chains {
    short: Vec<(u128, Chain)>,
    taken: usize,
    long: HashMap<Vec<u8>, Chain>,
}

pub fn run(input: &Input) -> Digest {
    let miss = input.integers(0);
    let mut chains = Chains { short: vec![(0, Chain::default()); 1 << 10], taken: 0, long: HashMap::new() };
    let mut digest = Digest::default();
    for block in &input.blocks {
        for row in block.rows() {
            event(block, row, &miss, &mut chains, &mut digest);
        }
    }
    digest
}

#[inline(always)]
fn event(block: &Block, row: Row, miss: &[i64], chains: &mut Chains, digest: &mut Digest) {
    let line = block.text(row, LINE);
    let Some(first) = line.iter().position(|&byte| byte == b',').filter(|&first| first > 0) else { return };
    let Some(second) = line[first + 1..].iter().position(|&byte| byte == b',').map(|at| first + 1 + at) else { return };
    let [amount, kind, elapsed] = line[second + 1..] else { return };
    let Some(state) = state(amount, kind, elapsed) else { return };
    let entity = &line[..first];
    let first16 = block.first16(entity);
    let chain = chains.find(entity, first16);
    if chain.n > 0 {
        chain.missed += miss[usize::from(chain.recent[chain.n - 1]) * STATES + usize::from(state)];
    }
    if chain.n == WINDOW {
        chain.missed -= miss[usize::from(chain.recent[0]) * STATES + usize::from(chain.recent[1])];
        chain.recent.copy_within(1.., 0);
    } else {
        chain.n += 1;
    }
    chain.recent[chain.n - 1] = state;
    let (mut score, mut is_outlier) = (0, false);
    if chain.n == WINDOW {
        is_outlier = chain.missed * 10_000 > THRESHOLD * (WINDOW as i64 - 1) * ONE;
        score = chain.missed.div_euclid(WINDOW as i64 - 1);
    }
    let mut hash = Hash::of(row.seq(), 0);
    hash.text(entity, first16);
    hash.word(score as u64);
    hash.word(u64::from(is_outlier));
    digest.finish(hash);
}

#[inline(always)]
fn state(amount: u8, kind: u8, elapsed: u8) -> Option<u8> {
    let number = |letters: &[u8], letter: u8| letters.iter().position(|&known| known == letter).map(|at| at as u8);
    Some(number(b"LMH", amount)? * 6 + number(b"NH", kind)? * 3 + number(b"LNS", elapsed)?)
}

impl Chains {
    #[inline(always)]
    fn find(&mut self, entity: &[u8], first16: u128) -> &mut Chain {
        if entity.len() > 16 {
            return self.long.entry(entity.to_vec()).or_default();
        }
        if self.taken * 2 >= self.short.len() {
            self.grow();
        }
        let at = slot(&self.short, first16);
        self.taken += usize::from(self.short[at].1.n == 0);
        self.short[at].0 = first16;
        &mut self.short[at].1
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = vec![(0, Chain::default()); self.short.len() * 4];
        for entry in self.short.iter().filter(|entry| entry.1.n > 0) {
            let at = slot(&larger, entry.0);
            larger[at] = *entry;
        }
        self.short = larger;
    }
}

/// The place of an entity, or the free one that it gets.
#[inline(always)]
fn slot(entries: &[(u128, Chain)], entity: u128) -> usize {
    let product = (entity as u64 ^ ((entity >> 64) as u64).rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut at = (product >> 32) as usize & (entries.len() - 1);
    while entries[at].1.n != 0 && entries[at].0 != entity {
        at = (at + 1) & (entries.len() - 1);
    }
    at
}
