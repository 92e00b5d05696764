//! The events of a workload, the initial rows of tables, and constants, from a file.
//!
//! The file holds little-endian u64 numbers, and bytes that are padded to whole words:
//!
//!     number of tables, then each as its bytes; number of blocks, then each as its events, rows and text
//!
//! Bytes stand behind their number. A constant is a table.

use std::fs;
use std::io::{self, ErrorKind};

/// Bytes after a text that can be read.
const PADDING: usize = 64;

/// The content of a file.
pub struct Input {
    pub tables: Vec<Vec<u8>>,
    pub blocks: Vec<Block>,
}

/// Events, and the texts that they name.
pub struct Block {
    rows: Vec<u8>,
    stride: usize,
    text: Vec<u8>,
}

/// An event.
#[derive(Clone, Copy)]
pub struct Row<'a>(&'a [u8]);

impl Input {
    pub fn read(file: &str) -> io::Result<Self> {
        let bytes = fs::read(file)?;
        let mut reader = Reader(&bytes);
        let tables = (0..reader.number()?).map(|_| Ok(reader.bytes()?.to_vec())).collect::<io::Result<_>>()?;
        let blocks = (0..reader.number()?).map(|_| reader.block()).collect::<io::Result<_>>()?;
        Ok(Self { tables, blocks })
    }

    /// Table `index` as integers.
    pub fn integers(&self, index: usize) -> Vec<i64> {
        let (words, _) = self.tables[index].as_chunks();
        words.iter().map(|word| i64::from_le_bytes(*word)).collect()
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(ErrorKind::UnexpectedEof)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> io::Result<usize> {
        let word = self.take(8)?.try_into().map_err(|_| ErrorKind::UnexpectedEof)?;
        usize::try_from(u64::from_le_bytes(word)).map_err(|_| ErrorKind::InvalidData.into())
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let n = self.number()?;
        let padded = n.checked_next_multiple_of(8).ok_or(ErrorKind::InvalidData)?;
        Ok(&self.take(padded)?[..n])
    }

    fn block(&mut self) -> io::Result<Block> {
        let events = self.number()?;
        let (rows, text) = (self.bytes()?.to_vec(), self.bytes()?);
        if events == 0 || rows.len() % events != 0 {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut padded = text.to_vec();
        padded.resize(text.len() + PADDING, 0);
        Ok(Block { stride: rows.len() / events, rows, text: padded })
    }
}

impl Block {
    /// The events in order.
    #[inline(always)]
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.chunks_exact(self.stride).map(Row)
    }

    /// The text that a row names at an offset.
    #[inline(always)]
    pub fn text(&self, row: Row, offset: usize) -> &[u8] {
        let (start, length) = (row.u32(offset) as usize, row.u32(offset + 4) as usize);
        &self.text[start..start + length]
    }

    /// The first 16 bytes of a text that a row names or that lies within it, as a number; bytes behind its end are zeros.
    #[inline(always)]
    pub fn first16(&self, text: &[u8]) -> u128 {
        let at = text.as_ptr() as usize - self.text.as_ptr() as usize;
        let bytes: [u8; 16] = self.text[at..at + 16].try_into().expect("the padding is longer");
        let keep = text.len().min(16) as u32 * 8;
        u128::from_le_bytes(bytes) & if keep == 128 { u128::MAX } else { (1 << keep) - 1 }
    }
}

impl Row<'_> {
    #[inline(always)]
    pub fn seq(self) -> i64 {
        self.i64(0)
    }

    #[inline(always)]
    pub fn u8(self, offset: usize) -> u8 {
        self.0[offset]
    }

    #[inline(always)]
    pub fn u32(self, offset: usize) -> u32 {
        u32::from_le_bytes(self.0[offset..offset + 4].try_into().expect("four bytes"))
    }

    #[inline(always)]
    pub fn f64(self, offset: usize) -> f64 {
        f64::from_bits(self.i64(offset) as u64)
    }

    #[inline(always)]
    pub fn i64(self, offset: usize) -> i64 {
        i64::from_le_bytes(self.0[offset..offset + 8].try_into().expect("eight bytes"))
    }
}
