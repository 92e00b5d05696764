//! wordcount: the number of tweets in the last two minutes that contain each word, every minute.
//!
//! A window is two panes of a minute. A tweet counts a word once in a pane. The end of a window adds up its panes.

use crate::input::{Block, Input};
use crate::output::{Digest, Hash};

const TS: usize = 8;
const TEXT: usize = 24;
const ADVANCE: i64 = 60_000;
const GROUPS: usize = 4_096;

const SEED: u64 = 0x2545_F491_4F6C_DD1D;
const K1: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xD6E8_FEB8_6659_FD93;

/// The words of a minute, in the order in which they first occurred, and a table with linear probing, at most half full.
struct Pane<'a> {
    /// 1 + the place in `words`; 0: none.
    slots: Vec<u32>,
    words: Vec<Word<'a>>,
}

#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a [u8],
    first16: u128,
    hash: u64,
    tweets: i64,
    /// The last tweet that it was counted for.
    last: i64,
}

pub fn run<const KEEP: bool>(input: &Input) -> Digest<KEEP> {
    let (mut digest, mut sorted) = (Digest::default(), Vec::new());
    let (mut before, mut now) = (Pane::new(), Pane::new());
    let (mut minute, mut seq) = (None, 0);
    for block in &input.blocks {
        for row in block.rows() {
            seq = row.seq();
            let of_row = row.i64(TS).div_euclid(ADVANCE);
            if let Some(last) = minute.replace(of_row)
                && of_row > last
            {
                let sub = expire(&mut digest, &mut sorted, (seq, 0), last + 1, &before, &now);
                std::mem::swap(&mut before, &mut now);
                now.clear();
                if of_row > last + 1 {
                    expire(&mut digest, &mut sorted, (seq, sub), last + 2, &before, &now);
                    before.clear();
                }
            }
            tweet(block, block.text(row, TEXT), seq, &mut now);
        }
    }
    if let Some(last) = minute {
        let sub = expire(&mut digest, &mut sorted, (seq + 1, 0), last + 1, &before, &now);
        before.clear();
        expire(&mut digest, &mut sorted, (seq + 1, sub), last + 2, &now, &before);
    }
    digest
}

#[inline(always)]
fn tweet<'a>(block: &'a Block, text: &'a [u8], seq: i64, pane: &mut Pane<'a>) {
    let mut start = 0;
    while start < text.len() {
        let stop = text[start..].iter().position(|byte| is_blank(*byte)).map_or(text.len(), |at| start + at);
        if stop > start {
            let word = &text[start..stop];
            pane.count(word, block.first16(word), seq);
        }
        start = stop + 1;
    }
}

#[inline(always)]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || (9..=13).contains(&byte)
}

/// The outputs of the window that ends with this minute: its words by key group, then in the order of their first tweet.
#[cold]
fn expire<'a, const KEEP: bool>(
    digest: &mut Digest<KEEP>,
    sorted: &mut Vec<Word<'a>>,
    (seq, mut sub): (i64, u64),
    end: i64,
    first: &Pane<'a>,
    second: &Pane<'a>,
) -> u64 {
    sorted.clear();
    sorted.extend_from_slice(&first.words);
    for word in &second.words {
        match first.find(word.text, word.first16, word.hash) {
            Ok(at) => sorted[at].tweets += word.tweets,
            Err(_) => sorted.push(*word),
        }
    }
    sorted.sort_by_key(|word| word.hash as usize >> (u64::BITS - GROUPS.trailing_zeros()));
    for word in sorted.iter() {
        let mut hash = Hash::of(seq, sub);
        hash.word((end * ADVANCE) as u64);
        hash.text(word.text, word.first16);
        hash.word(word.tweets as u64);
        digest.finish(hash);
        sub += 1;
    }
    sub
}

impl<'a> Pane<'a> {
    fn new() -> Self {
        Self { slots: vec![0; 1 << 10], words: Vec::new() }
    }

    fn clear(&mut self) {
        self.slots.fill(0);
        self.words.clear();
    }

    #[inline(always)]
    fn count(&mut self, text: &'a [u8], first16: u128, seq: i64) {
        let hash = hash_of(text, first16);
        match self.find(text, first16, hash) {
            Ok(at) => {
                let word = &mut self.words[at];
                word.tweets += i64::from(word.last != seq);
                word.last = seq;
            }
            Err(slot) => {
                self.words.push(Word { text, first16, hash, tweets: 1, last: seq });
                self.slots[slot] = self.words.len() as u32;
                if self.words.len() * 2 > self.slots.len() {
                    self.grow();
                }
            }
        }
    }

    /// Where a word is in `words`, or the slot that it gets.
    #[inline(always)]
    fn find(&self, text: &[u8], first16: u128, hash: u64) -> Result<usize, usize> {
        let mut slot = hash as usize & (self.slots.len() - 1);
        while self.slots[slot] != 0 {
            let at = self.slots[slot] as usize - 1;
            let word = &self.words[at];
            if word.first16 == first16 && word.text.len() == text.len() && (text.len() <= 16 || word.text == text) {
                return Ok(at);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        Err(slot)
    }

    #[cold]
    fn grow(&mut self) {
        let mask = self.slots.len() * 4 - 1;
        self.slots = vec![0; mask + 1];
        for (at, word) in self.words.iter().enumerate() {
            let mut slot = word.hash as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = at as u32 + 1;
        }
    }
}

/// The hash of a text that key groups are made of (ABI.md): its length and its words of eight bytes.
#[inline(always)]
fn hash_of(text: &[u8], first16: u128) -> u64 {
    let mut hash = (text.len() as u64 ^ SEED).wrapping_mul(K1);
    let mut step = |word: u64| {
        let product = (hash ^ word).wrapping_mul(K1);
        hash = product ^ (product >> 32);
    };
    if text.len() <= 16 {
        step(first16 as u64);
        if text.len() > 8 {
            step((first16 >> 64) as u64);
        }
    } else {
        for bytes in text.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            step(u64::from_le_bytes(word));
        }
    }
    let product = hash.wrapping_mul(K2);
    product ^ (product >> 29)
}
