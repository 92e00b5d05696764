//! wc: running counts of words.

use std::collections::HashMap;

use crate::input::{Block, Input};
use crate::output::{Digest, Hash};

const LINE: usize = 16;

/// Counts by word. Words of up to 16 bytes are numbers in a table with linear probing, at most half full.
struct Counts {
    short: Vec<Entry>,
    taken: usize,
    long: HashMap<Vec<u8>, i64>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Its bytes, and zeros behind its end; a word may end with zeros of its own.
    word: u128,
    length: usize,
    /// 0: no word.
    n: i64,
}

pub fn run<const KEEP: bool>(input: &Input) -> Digest<KEEP> {
    let mut counts = Counts { short: vec![Entry::default(); 1 << 10], taken: 0, long: HashMap::new() };
    let mut digest = Digest::default();
    for block in &input.blocks {
        for row in block.rows() {
            let line = block.text(row, LINE);
            let (mut sub, mut start) = (0, 0);
            while start < line.len() {
                let stop = line[start..].iter().position(|&byte| byte == b' ').map_or(line.len(), |at| start + at);
                if stop > start {
                    count(block, &line[start..stop], row.seq(), sub, &mut counts, &mut digest);
                    sub += 1;
                }
                start = stop + 1;
            }
        }
    }
    digest
}

#[inline(always)]
fn count<const KEEP: bool>(
    block: &Block,
    word: &[u8],
    seq: i64,
    sub: u64,
    counts: &mut Counts,
    digest: &mut Digest<KEEP>,
) {
    let first16 = block.first16(word);
    let n = counts.add(word, first16);
    let mut hash = Hash::of(seq, sub);
    hash.text(word, first16);
    hash.word(n as u64);
    digest.finish(hash);
}

impl Counts {
    #[inline(always)]
    fn add(&mut self, word: &[u8], first16: u128) -> i64 {
        if word.len() > 16 {
            let n = self.long.entry(word.to_vec()).or_default();
            *n += 1;
            return *n;
        }
        if self.taken * 2 >= self.short.len() {
            self.grow();
        }
        let entry = find(&mut self.short, first16, word.len());
        self.taken += usize::from(entry.n == 0);
        (entry.word, entry.length) = (first16, word.len());
        entry.n += 1;
        entry.n
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = vec![Entry::default(); self.short.len() * 4];
        for entry in self.short.iter().filter(|entry| entry.n > 0) {
            *find(&mut larger, entry.word, entry.length) = *entry;
        }
        self.short = larger;
    }
}

/// The entry of a word, or the free one that it gets.
#[inline(always)]
fn find(entries: &mut [Entry], word: u128, length: usize) -> &mut Entry {
    let product = (word as u64 ^ ((word >> 64) as u64).rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut at = (product >> 32) as usize & (entries.len() - 1);
    while entries[at].n != 0 && (entries[at].word, entries[at].length) != (word, length) {
        at = (at + 1) & (entries.len() - 1);
    }
    &mut entries[at]
}
