//! The digest of outputs (ABI.md, "Digest").

const SEED: u64 = 0x243F_6A88_85A3_08D3;
const K1: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xD6E8_FEB8_6659_FD93;

/// The number of outputs, and the sum of their hashes.
#[derive(Default)]
pub struct Digest {
    pub rows: u64,
    pub sum: u64,
}

/// The hash of an output so far.
pub struct Hash(u64);

impl Digest {
    /// Adds an output of integers.
    #[inline(always)]
    pub fn add<const N: usize>(&mut self, seq: i64, sub: u64, columns: [i64; N]) {
        let mut hash = Hash::of(seq, sub);
        for column in columns {
            hash.word(column as u64);
        }
        self.finish(hash);
    }

    /// Adds an output whose columns are all in its hash.
    #[inline(always)]
    pub fn finish(&mut self, Hash(hash): Hash) {
        let hash = hash.wrapping_mul(K2);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hash ^ (hash >> 29));
    }
}

impl Hash {
    #[inline(always)]
    pub fn of(seq: i64, sub: u64) -> Self {
        let mut hash = Self(SEED);
        hash.word(seq as u64);
        hash.word(sub);
        hash
    }

    #[inline(always)]
    pub fn word(&mut self, word: u64) {
        let hash = (self.0 ^ word).wrapping_mul(K1);
        self.0 = hash ^ (hash >> 32);
    }

    /// A text, and its first 16 bytes with zeros behind its end.
    #[inline(always)]
    pub fn text(&mut self, text: &[u8], first16: u128) {
        self.word(text.len() as u64);
        if text.len() <= 16 {
            if !text.is_empty() {
                self.word(first16 as u64);
            }
            if text.len() > 8 {
                self.word((first16 >> 64) as u64);
            }
            return;
        }
        for bytes in text.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.word(u64::from_le_bytes(word));
        }
    }
}
