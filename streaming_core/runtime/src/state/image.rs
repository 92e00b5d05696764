//! Images: the state as it can be kept outside of this process, in parts.
//!
//! A part has the keys of neighbouring key groups, or neighbouring rows of a dense table. An image consists of words, without
//! addresses. Any executor takes it, because state belongs to keys. A part that does not change has the same image as before. The reader of an image has checked
//! that it is what was written, by a program with the same states.

use crate::error::RunError;
use crate::program::Growing;
use crate::state::container::{forget_places, pack, unpack};
use crate::state::key_group::{GROUPS, group};
use crate::state::keyed::KeyRef;

/// The parts of a state, numbered from 0.
pub const PARTS: usize = 64;

/// Receives the number of a part, and its image.
pub type Take<'a> = &'a mut dyn FnMut(usize, &[u64]) -> Result<(), RunError>;

/// The part of a key, by its hash.
pub fn part_of(hash: u64) -> usize {
    group(hash) * PARTS / GROUPS
}

/// Rows or states of one size, a whole number of words, and the containers that grow in each.
#[derive(Debug, Clone, Copy)]
pub struct RowShape<'a> {
    pub bytes: usize,
    pub growing: &'a [Growing],
}

impl RowShape<'_> {
    /// Appends a row, and then the content of its containers.
    ///
    /// # Errors
    /// `Memory`: there is none.
    ///
    /// # Safety
    /// The row has this shape, and no kernel is at it.
    pub unsafe fn put(&self, row: *const u8, image: &mut Vec<u64>) -> Result<(), RunError> {
        let at = image.len();
        image.try_reserve(self.bytes / 8).map_err(|_| out_of_memory())?;
        // SAFETY: as the caller says.
        image.extend_from_slice(unsafe { std::slice::from_raw_parts(row.cast::<u64>(), self.bytes / 8) });
        for growing in self.growing {
            let head = image[at + growing.offset / 8..].as_mut_ptr().cast();
            // SAFETY: the head lies in the copy.
            forget_places(unsafe { std::slice::from_raw_parts_mut(head, growing.head()) }, growing);
        }
        for growing in self.growing {
            // SAFETY: as the caller says.
            unsafe { pack(row.add(growing.offset), growing, image) }.map_err(|_| out_of_memory())?;
        }
        Ok(())
    }

    /// Writes the next row of an image to `to`; `alloc` gives memory for the content of its containers.
    ///
    /// # Errors
    /// `Memory`: there is none. `Invalid`: the image ends.
    ///
    /// # Safety
    /// Such a row comes next, and no other thread uses the memory at `to`.
    pub unsafe fn take(
        &self,
        image: &mut Reader,
        to: *mut u8,
        mut alloc: impl FnMut(usize) -> *mut u8,
    ) -> Result<(), RunError> {
        let row = image.words(self.bytes / 8)?;
        // SAFETY: as the caller says.
        unsafe { to.copy_from_nonoverlapping(row.as_ptr().cast(), self.bytes) };
        for growing in self.growing {
            // SAFETY: as the caller says; the head is the one just copied.
            image.0 = &image.0[unsafe { unpack(to.add(growing.offset), growing, image.0, &mut alloc) }?..];
        }
        Ok(())
    }
}

#[cold]
fn out_of_memory() -> RunError {
    RunError::Memory("an image of the state".into())
}

/// The words of an image that were not read yet.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u64]);

impl<'a> Reader<'a> {
    pub fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// # Errors
    /// `Invalid`: there are not so many.
    pub fn words(&mut self, n: usize) -> Result<&'a [u64], RunError> {
        let ends = || RunError::Invalid("an image of the state ends too early".into());
        let (words, rest) = self.0.split_at_checked(n).ok_or_else(ends)?;
        self.0 = rest;
        Ok(words)
    }

    /// # Errors
    /// As for `words`.
    pub fn key(&mut self, is_text: bool) -> Result<KeyRef<'a>, RunError> {
        let first = self.words(1)?[0];
        if !is_text {
            return Ok(KeyRef::Integer(first as i64));
        }
        let words = self.words((first as usize).div_ceil(8))?;
        // SAFETY: the words have so many bytes.
        Ok(KeyRef::Text(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), first as usize) }))
    }
}

/// Appends a key.
pub fn put_key(key: KeyRef, image: &mut Vec<u64>) {
    match key {
        KeyRef::Integer(key) => image.push(key as u64),
        KeyRef::Text(text) => {
            image.push(text.len() as u64);
            image.extend(text.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            }));
        }
    }
}
