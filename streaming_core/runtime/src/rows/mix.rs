//! The mixing step of all hashes of the runtime: of a row in a digest, and of a key. Hashes differ in their seeds and inputs.
//! ABI.md defines the digest. Its values go into reports, so nothing here may change.

/// What the hash of a row in a digest begins with.
pub const DIGEST_SEED: u64 = 0x243F_6A88_85A3_08D3;
pub const K1: u64 = 0x9E37_79B9_7F4A_7C15;
pub const K2: u64 = 0xD6E8_FEB8_6659_FD93;
/// The word behind a value that is null.
const NULL: u64 = 0x6C6C_756E;

/// Adds a word.
#[inline(always)]
pub fn step(h: u64, word: u64) -> u64 {
    let h = (h ^ word).wrapping_mul(K1);
    h ^ (h >> 32)
}

/// Adds the validity of the value before.
#[inline(always)]
pub fn validity(h: u64, is_valid: bool) -> u64 {
    if is_valid { h } else { step(h, NULL) }
}

/// Finishes the hash after all words.
#[inline(always)]
pub fn finish(h: u64) -> u64 {
    let h = h.wrapping_mul(K2);
    h ^ (h >> 29)
}

/// Up to eight bytes as one little-endian word, zero-padded.
#[inline(always)]
pub fn word(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    debug_assert!(n <= 8);
    // Two overlapping loads instead of a loop over bytes.
    if n >= 4 {
        let low = u32::from_le_bytes(bytes[..4].try_into().expect("the slice has 4 bytes"));
        let high = u32::from_le_bytes(bytes[n - 4..].try_into().expect("the slice has 4 bytes"));
        u64::from(low) | u64::from(high) << ((n - 4) * 8)
    } else if n > 0 {
        let middle = u64::from(bytes[n / 2]) << (n / 2 * 8);
        u64::from(bytes[0]) | middle | u64::from(bytes[n - 1]) << ((n - 1) * 8)
    } else {
        0
    }
}

/// The first 16 bytes as two little-endian words, zero-padded, without a branch on the length.
///
/// # Safety
/// `len` bytes, and at least 16, can be read at `bytes`.
#[inline(always)]
pub unsafe fn first_words(bytes: *const u8, len: usize) -> (u64, u64) {
    // SAFETY: 16 bytes are there.
    let (low, high) = unsafe { (bytes.cast::<u64>().read_unaligned(), bytes.add(8).cast::<u64>().read_unaligned()) };
    let (low_mask, high_mask) = MASKS[len.min(16)];
    (low.to_le() & low_mask, high.to_le() & high_mask)
}

/// The bytes of two words that belong to a text of that length.
static MASKS: [(u64, u64); 17] = {
    let mut masks = [(u64::MAX, u64::MAX); 17];
    let mut n = 0;
    while n < 8 {
        masks[n] = ((1 << (8 * n)) - 1, 0);
        masks[n + 8] = (u64::MAX, (1 << (8 * n)) - 1);
        n += 1;
    }
    masks
};

/// `yes` if the condition holds, else `no`, without a branch. Lengths of words vary, and a wrong branch prediction costs more
/// than a useless multiplication.
#[inline(always)]
pub fn select(condition: bool, yes: u64, no: u64) -> u64 {
    no ^ (yes ^ no) & u64::from(condition).wrapping_neg()
}

/// Adds a text: its length, and its bytes as words.
///
/// # Safety
/// 16 bytes can be read at `bytes`, however short the text is.
#[inline(always)]
pub unsafe fn text_words(h: u64, bytes: &[u8]) -> u64 {
    let mut h = step(h, bytes.len() as u64);
    if bytes.len() <= 16 {
        // SAFETY: 16 bytes are there, with the padding.
        let (low, high) = unsafe { first_words(bytes.as_ptr(), bytes.len()) };
        let eight = step(h, low);
        let short = select(bytes.is_empty(), h, eight);
        return select(bytes.len() > 8, step(eight, high), short);
    }
    let mut words = bytes.chunks_exact(8);
    for chunk in &mut words {
        h = step(h, u64::from_le_bytes(chunk.try_into().expect("`chunks_exact` gives chunks of 8 bytes")));
    }
    let rest = words.remainder();
    if rest.is_empty() { h } else { step(h, word(rest)) }
}
