//! The digest of outputs (ABI.md, "Digest"), and the outputs themselves where a caller asks for them.

use std::io::{self, Write};

const SEED: u64 = 0x243F_6A88_85A3_08D3;
const K1: u64 = 0x9E37_79B9_7F4A_7C15;
const K2: u64 = 0xD6E8_FEB8_6659_FD93;

/// The number of outputs, and the sum of their hashes. With `KEEP`, also the outputs; measured passes are without.
#[derive(Default)]
pub struct Digest<const KEEP: bool = false> {
    pub rows: u64,
    pub sum: u64,
    columns: Vec<Column>,
}

/// The hash of an output so far, and its values.
pub struct Hash<const KEEP: bool = false> {
    hash: u64,
    values: Vec<Value>,
}

enum Value {
    Word(u64),
    Text(Vec<u8>),
}

/// The words of a column; or the lengths of its texts, and the texts.
#[derive(Default)]
struct Column {
    words: Vec<u64>,
    texts: Option<Vec<u8>>,
}

impl<const KEEP: bool> Digest<KEEP> {
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
    pub fn finish(&mut self, output: Hash<KEEP>) {
        let hash = output.hash.wrapping_mul(K2);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hash ^ (hash >> 29));
        if KEEP {
            self.keep(output.values);
        }
    }

    fn keep(&mut self, values: Vec<Value>) {
        self.columns.resize_with(values.len(), Column::default);
        for (column, value) in self.columns.iter_mut().zip(values) {
            match value {
                Value::Word(word) => column.words.push(word),
                Value::Text(text) => {
                    column.words.push(text.len() as u64);
                    column.texts.get_or_insert_default().extend(text);
                }
            }
        }
    }

    /// Writes each column: the number of its words, the words, the bytes of its texts, the texts. Without outputs, there
    /// is no column.
    pub fn write(&self, mut file: impl Write) -> io::Result<()> {
        for Column { words, texts } in &self.columns {
            let texts = texts.as_deref().unwrap_or_default();
            for word in [words.len() as u64].iter().chain(words).chain(&[texts.len() as u64]) {
                file.write_all(&word.to_le_bytes())?;
            }
            file.write_all(texts)?;
        }
        file.flush()
    }
}

impl<const KEEP: bool> Hash<KEEP> {
    #[inline(always)]
    pub fn of(seq: i64, sub: u64) -> Self {
        let mut hash = Self { hash: SEED, values: Vec::new() };
        hash.word(seq as u64);
        hash.word(sub);
        hash
    }

    #[inline(always)]
    pub fn word(&mut self, word: u64) {
        if KEEP {
            self.values.push(Value::Word(word));
        }
        self.fold(word);
    }

    #[inline(always)]
    fn fold(&mut self, word: u64) {
        let hash = (self.hash ^ word).wrapping_mul(K1);
        self.hash = hash ^ (hash >> 32);
    }

    /// A text, and its first 16 bytes with zeros behind its end.
    #[inline(always)]
    pub fn text(&mut self, text: &[u8], first16: u128) {
        if KEEP {
            self.values.push(Value::Text(text.to_vec()));
        }
        self.fold(text.len() as u64);
        if text.len() <= 16 {
            if !text.is_empty() {
                self.fold(first16 as u64);
            }
            if text.len() > 8 {
                self.fold((first16 >> 64) as u64);
            }
            return;
        }
        for bytes in text.chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.fold(u64::from_le_bytes(word));
        }
    }
}
