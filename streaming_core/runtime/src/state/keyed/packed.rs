//! Keys of several fields as one text: equal if all fields are, and ascending as the fields do, the first one first.
//!
//! An integer is eight bytes, the most significant first, with its sign flipped. In a text, a byte 0xFF follows each zero byte;
//! two zero bytes end it.

use crate::program::Key;
use crate::rows::column::ColumnKind;
use crate::state::states::Keys;

const SIGN: u64 = 1 << 63;

/// Whether entries hold a text: that of the key, or its packed fields.
pub fn is_text(key: &[Key]) -> bool {
    !matches!(key, [field] if field.kind != ColumnKind::Text)
}

/// Appends an integer to a packed key.
pub fn push_integer(packed: &mut Vec<u8>, value: i64) {
    packed.extend((value as u64 ^ SIGN).to_be_bytes());
}

/// Appends a text to a packed key.
pub fn push_text(packed: &mut Vec<u8>, text: &[u8]) {
    for (number, part) in text.split(|&byte| byte == 0).enumerate() {
        if number > 0 {
            packed.extend([0, 0xFF]);
        }
        packed.extend(part);
    }
    packed.extend([0, 0]);
}

/// The columns of packed keys: one for each of `fields`.
pub fn unpacked(fields: &[Key], packed: &[Vec<u8>]) -> Keys {
    let mut rests: Vec<&[u8]> = packed.iter().map(Vec::as_slice).collect();
    let column = |field: &Key| match field.kind {
        ColumnKind::Text => Keys::Texts(rests.iter_mut().map(take_text).collect()),
        _ => Keys::Integers(rests.iter_mut().map(take_integer).collect()),
    };
    Keys::Fields(fields.iter().map(column).collect())
}

fn take_integer(rest: &mut &[u8]) -> i64 {
    let (word, after) = rest.split_first_chunk().expect("a packed key holds all fields");
    *rest = after;
    (u64::from_be_bytes(*word) ^ SIGN) as i64
}

fn take_text(rest: &mut &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    loop {
        let zero = rest.iter().position(|&byte| byte == 0).expect("a packed text has an end");
        text.extend(&rest[..zero]);
        let is_end = rest[zero + 1] == 0;
        *rest = &rest[zero + 2..];
        if is_end {
            return text;
        }
        text.push(0);
    }
}
