//! Texts that operators build, and numbers that they read from texts.
//!
//! Kernels call these functions through a table, whose address is in the program. A text lies in memory of the thread until
//! its kernel returns. A kernel that emits it copies it to the texts of the block first.

use std::cell::RefCell;
use std::num::IntErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::planted::{self, Fault};
use crate::rows::block::TEXT_PADDING;

/// Bytes that a thread keeps for texts, and the most that the texts of one call of a kernel take.
const KEPT: usize = 64 << 10;
const MOST: usize = 1 << 32;

/// What `integer` and `float` return.
const NO_NUMBER: i64 = 1;
const OUTSIDE: i64 = 2;

thread_local! {
    static BUILT: RefCell<Built> = const { RefCell::new(Built { chunks: Vec::new(), bytes: 0 }) };
}

/// Chunks of memory. Texts are appended to the last one; none of them ever moves.
struct Built {
    chunks: Vec<Vec<u8>>,
    /// The sum of their capacities.
    bytes: usize,
}

impl Built {
    /// Puts a text behind the last one; null: there is no room. What was built last grows in place, so that a loop that
    /// appends to a text takes linear time.
    fn put(&mut self, first: &[u8], second: &[u8]) -> *const u8 {
        if let Some(chunk) = self.chunks.last_mut()
            && chunk.len() >= first.len()
            && chunk.as_ptr().wrapping_add(chunk.len() - first.len()) == first.as_ptr()
            && chunk.capacity() - chunk.len() >= second.len() + TEXT_PADDING
        {
            chunk.extend_from_slice(second);
            return first.as_ptr();
        }
        let bytes = first.len() + second.len();
        let Some(chunk) = self.chunk(bytes) else { return std::ptr::null() };
        let at = chunk.len();
        chunk.extend_from_slice(first);
        chunk.extend_from_slice(second);
        chunk.as_ptr().wrapping_add(at)
    }

    /// A chunk with room for so many bytes and the padding behind them.
    fn chunk(&mut self, bytes: usize) -> Option<&mut Vec<u8>> {
        let is_full = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() < bytes + TEXT_PADDING;
        if self.chunks.last().is_none_or(is_full) {
            // Each chunk is at least as large as all before it, so that a text that grows moves a few times only.
            let wanted = (2 * bytes + TEXT_PADDING).max(KEPT).max(self.bytes);
            let mut chunk = Vec::new();
            if self.bytes + wanted > MOST || chunk.try_reserve_exact(wanted).is_err() {
                return None;
            }
            self.bytes += wanted;
            self.chunks.push(chunk);
        }
        self.chunks.last_mut()
    }

    /// Forgets all texts, and frees all memory but a little.
    fn release(&mut self) {
        self.chunks.truncate(1);
        self.chunks.retain(|chunk| chunk.capacity() <= KEPT);
        self.chunks.iter_mut().for_each(Vec::clear);
        self.bytes = self.chunks.iter().map(Vec::capacity).sum();
    }
}

/// # Safety
/// So many bytes are readable at `text`, and stay as they are while the result is used.
unsafe fn bytes<'a>(text: *const u8, length: i64) -> &'a [u8] {
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(text, length as usize) }
}

extern "C" fn concat(left: *const u8, n: i64, right: *const u8, m: i64) -> *const u8 {
    // SAFETY: the kernel says that so many bytes are there.
    let (left, right) = unsafe { (bytes(left, n), bytes(right, m)) };
    BUILT.with_borrow_mut(|built| built.put(left, right))
}

/// A text with other letters.
fn cased(text: *const u8, length: i64, change: impl FnOnce(&mut [u8])) -> *const u8 {
    // SAFETY: the kernel says that so many bytes are there.
    let text = unsafe { bytes(text, length) };
    BUILT.with_borrow_mut(|built| {
        let Some(chunk) = built.chunk(text.len()) else { return std::ptr::null() };
        let at = chunk.len();
        chunk.extend_from_slice(text);
        change(&mut chunk[at..]);
        chunk.as_ptr().wrapping_add(at)
    })
}

extern "C" fn lower(text: *const u8, length: i64) -> *const u8 {
    let rest = if planted::has(Fault::UnloweredTail) { length as usize % 8 } else { 0 };
    cased(text, length, |text| text[..length as usize - rest].make_ascii_lowercase())
}

extern "C" fn upper(text: *const u8, length: i64) -> *const u8 {
    cased(text, length, <[u8]>::make_ascii_uppercase)
}

extern "C" fn decimal(value: i64, length: *mut i64) -> *const u8 {
    let digits = value.to_string();
    // SAFETY: the kernel has a word there.
    unsafe { length.write(digits.len() as i64) };
    BUILT.with_borrow_mut(|built| built.put(b"", digits.as_bytes()))
}

extern "C" fn integer(text: *const u8, length: i64, value: *mut i64) -> i64 {
    // SAFETY: the kernel says that so many bytes are there.
    let text = unsafe { bytes(text, length) };
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    match str::from_utf8(text).map(str::parse::<i64>) {
        // SAFETY: the kernel has a word there.
        Ok(Ok(number)) if is_number => unsafe { value.write(number) },
        Ok(Err(error)) if is_number => {
            debug_assert!(matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow));
            return OUTSIDE;
        }
        _ => return NO_NUMBER,
    }
    0
}

extern "C" fn float(text: *const u8, length: i64, value: *mut f64) -> i64 {
    // SAFETY: the kernel says that so many bytes are there.
    let text = unsafe { bytes(text, length) };
    // No `inf` and no `nan`; else Rust accepts what the language does.
    let is_number = text.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte));
    match str::from_utf8(text).map(str::parse::<f64>) {
        // SAFETY: the kernel has a word there.
        Ok(Ok(number)) if is_number => unsafe { value.write(number) },
        _ => return NO_NUMBER,
    }
    0
}

extern "C" fn release() -> i64 {
    BUILT.with_borrow_mut(Built::release);
    0
}

/// Fills the table of a program's kernels with the addresses of the functions.
///
/// # Safety
/// A word for each function is at `table`. Every process has one table, and only this function writes it.
pub unsafe fn fill(table: *mut usize) {
    // In the order of the constants TEXT_* (program/kernel.rs).
    let functions = [
        concat as *const () as usize,
        lower as *const () as usize,
        upper as *const () as usize,
        decimal as *const () as usize,
        integer as *const () as usize,
        float as *const () as usize,
        release as *const () as usize,
    ];
    for (at, function) in functions.into_iter().enumerate() {
        // SAFETY: as the caller says; the word is aligned.
        let word = unsafe { AtomicUsize::from_ptr(table.add(at)) };
        // ORDERING: Relaxed; all programs write the same, before their threads start.
        word.store(function, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn read<'a>(text: *const u8, length: usize) -> &'a [u8] {
        assert!(!text.is_null());
        // SAFETY: the functions return as many bytes, which live until `release`.
        unsafe { bytes(text, length as i64) }
    }

    #[test]
    fn texts_stay_until_release_whatever_is_built_after_them() {
        let mut texts = Vec::new();
        for i in 0..10_000_i64 {
            let mut length = 0;
            let digits = decimal(i, &raw mut length);
            let whole = concat(digits, length, b"-x".as_ptr(), 2);
            let other = concat(digits, length, b"+y".as_ptr(), 2);
            texts.push((i, length as usize, digits, whole, other));
        }
        for (i, length, digits, whole, other) in texts {
            let expected = i.to_string();
            assert_eq!(read(digits, length), expected.as_bytes());
            assert_eq!(read(whole, length + 2), format!("{expected}-x").as_bytes());
            assert_eq!(read(other, length + 2), format!("{expected}+y").as_bytes());
        }
        release();
        assert!(BUILT.with_borrow(|built| built.bytes <= KEPT && built.chunks.iter().all(Vec::is_empty)));
    }

    #[test]
    fn a_text_that_grows_takes_memory_in_proportion_to_its_length() {
        let mut text = b"".as_ptr();
        for length in 0..1_000_000 {
            text = concat(text, length, b"z".as_ptr(), 1);
        }
        assert!(read(text, 1_000_000).iter().all(|&byte| byte == b'z'));
        assert!(BUILT.with_borrow(|built| built.bytes < 16 << 20));
        release();
    }

    #[test]
    fn letters_change_and_numbers_are_read_as_the_language_says() {
        assert_eq!(read(lower(b"aZ\xc3\x84".as_ptr(), 4), 4), b"az\xc3\x84");
        assert_eq!(read(upper(b"az[`".as_ptr(), 4), 4), b"AZ[`");
        release();
        let whole = |text: &str| {
            let mut value = 0;
            (integer(text.as_ptr(), text.len() as i64, &raw mut value), value)
        };
        assert_eq!(whole("-9223372036854775808"), (0, i64::MIN));
        assert_eq!(whole("+007"), (0, 7));
        assert_eq!(whole("9223372036854775808").0, OUTSIDE);
        assert!(["", "-", "+-1", " 1", "1_0", "0x1", "99999999999999999999x"].iter().all(|t| whole(t).0 == NO_NUMBER));
        let real = |text: &str| {
            let mut value = 0.0;
            (float(text.as_ptr(), text.len() as i64, &raw mut value), value)
        };
        assert_eq!(real("-.5e1"), (0, -5.0));
        assert_eq!(real("5."), (0, 5.0));
        assert!(["", ".", "inf", "nan", "1e", "e5", " 1", "1.2.3"].iter().all(|text| real(text).0 == NO_NUMBER));
    }
}
