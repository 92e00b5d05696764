use super::*;
use crate::rows::block::Text;
use crate::rows::view::Rows;
use crate::state::states::Keys;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key(kind: ColumnKind) -> [Key; 1] {
    [Key { kind, offset: 8 }]
}

/// Rows of seq and one text field, and the text.
fn text_rows(keys: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>, usize) {
    let (mut rows, mut text) = (Vec::new(), Vec::new());
    for (seq, key) in keys.iter().enumerate() {
        rows.extend((seq as i64).to_le_bytes());
        rows.extend((text.len() as u32).to_le_bytes());
        rows.extend((key.len() as u32).to_le_bytes());
        text.extend(key);
    }
    let bytes = text.len();
    // What stands behind the text must not matter.
    text.extend([0x5A; 64]);
    (rows, text, bytes)
}

fn integer_rows(keys: &[i64]) -> Vec<u8> {
    keys.iter().enumerate().flat_map(|(seq, key)| [(seq as i64).to_le_bytes(), key.to_le_bytes()].concat()).collect()
}

/// Counts each row's key, and checks that states stay where they are.
fn count(table: &mut KeyedState, rows: &KeyedRows) {
    let mut hashes = vec![0; rows.n()];
    rows.hash(&table.key, &mut hashes).unwrap();
    let mut states = vec![std::ptr::null_mut(); rows.n()];
    table.locate(rows, &hashes, &mut states).unwrap();
    let mut again = states.clone();
    table.locate(rows, &hashes, &mut again).unwrap();
    assert_eq!(states, again);
    for state in states {
        assert_eq!(state as usize % 8, 0);
        // SAFETY: states of 8 bytes.
        unsafe { *state.cast::<u64>() += 1 };
    }
}

impl KeyRef<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            KeyRef::Integer(key) => key.to_le_bytes().to_vec(),
            KeyRef::Text(key) => key.to_vec(),
        }
    }
}

fn counted<'a>(table: &'a KeyedState) -> Vec<(KeyRef<'a>, u64)> {
    // SAFETY: states of 8 bytes.
    table.sorted().into_iter().map(|(key, state)| (key, unsafe { *state.cast::<u64>() })).collect()
}

fn check_text(keys: &[Vec<u8>], batch: usize) {
    let mut table = KeyedState::new(&key(ColumnKind::Text), 8);
    for chunk in keys.chunks(batch) {
        let (rows, text, bytes) = text_rows(chunk);
        // SAFETY: rows and text live until the end of the loop's body, with 64 bytes behind the text.
        count(&mut table, &unsafe {
            KeyedRows::new(Rows::new(rows.as_ptr(), chunk.len(), 16, Text::new(text.as_ptr(), bytes)))
        });
    }
    let mut expected = BTreeMap::new();
    keys.iter().for_each(|key| *expected.entry(&key[..]).or_insert(0) += 1);
    let expected: Vec<_> = expected.into_iter().map(|(key, n)| (KeyRef::Text(key), n)).collect();
    assert_eq!(counted(&table), expected);
}

fn check_integers(keys: &[i64], batch: usize) {
    let mut table = KeyedState::new(&key(ColumnKind::I64), 8);
    for chunk in keys.chunks(batch) {
        let rows = integer_rows(chunk);
        // SAFETY: the rows live until the end of the loop's body.
        count(&mut table, &unsafe { KeyedRows::new(Rows::new(rows.as_ptr(), chunk.len(), 16, Text::empty())) });
    }
    let mut expected = BTreeMap::new();
    keys.iter().for_each(|&key| *expected.entry(key).or_insert(0) += 1);
    let expected: Vec<_> = expected.into_iter().map(|(key, n)| (KeyRef::Integer(key), n)).collect();
    assert_eq!(counted(&table), expected);
}

proptest! {
    #[test]
    fn counts_text_like_a_map(
        keys in proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..40), 0..300), batch in 1_usize..80,
    ) {
        check_text(&keys, batch);
    }

    #[test]
    fn counts_integers_like_a_map(
        keys in proptest::collection::vec(prop_oneof![-20_i64..20, any::<i64>()], 0..300), batch in 1_usize..80,
    ) {
        check_integers(&keys, batch);
    }

    #[test]
    fn counts_several_fields_like_a_map(
        keys in proptest::collection::vec((-2_i64..2, proptest::collection::vec(0_u8..2, 0..20), any::<i8>()), 0..200),
        batch in 1_usize..80,
    ) {
        let kinds = [ColumnKind::I64, ColumnKind::Text, ColumnKind::I8];
        let fields = [8, 16, 24].iter().zip(kinds).map(|(&offset, kind)| Key { kind, offset }).collect::<Vec<_>>();
        let mut table = KeyedState::new(&fields, 8);
        for chunk in keys.chunks(batch) {
            let (mut rows, mut text) = (Vec::new(), Vec::new());
            for (integer, bytes, small) in chunk {
                rows.extend([0, *integer, text.len() as i64 | (bytes.len() as i64) << 32, i64::from(*small)]);
                text.extend(bytes);
            }
            let bytes = text.len();
            text.extend([0x5A; 64]);
            // SAFETY: rows and text live until the end of the loop's body, with 64 bytes behind the text.
            count(&mut table, &unsafe {
                KeyedRows::new(Rows::new(rows.as_ptr().cast(), chunk.len(), 32, Text::new(text.as_ptr(), bytes)))
            });
        }
        let mut expected = BTreeMap::new();
        keys.iter().for_each(|key| *expected.entry(key.clone()).or_insert(0) += 1);
        let (packed, counts): (Vec<_>, Vec<_>) = counted(&table).into_iter().map(|(key, n)| (key.bytes(), n)).unzip();
        prop_assert_eq!(counts, expected.values().copied().collect::<Vec<u64>>());
        let integers = Keys::Integers(expected.keys().map(|key| key.0).collect());
        let texts = Keys::Texts(expected.keys().map(|key| key.1.clone()).collect());
        let small = Keys::Integers(expected.keys().map(|key| key.2.into()).collect());
        prop_assert_eq!(unpacked(&fields, &packed), Keys::Fields(vec![integers, texts, small]));
    }

    #[test]
    fn text_hashes_are_those_of_the_partitioner(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
        let mut padded = bytes.clone();
        padded.extend([0xC3; 64]);
        // SAFETY: 64 bytes behind the key.
        let key = unsafe { TextKey::load(padded.as_ptr(), bytes.len()) };
        prop_assert_eq!(key.hash(), hash_bytes(&bytes));
    }
}

#[test]
fn large_tables_fetch_ahead_and_stay_right() {
    let keys: Vec<i64> = (0..400_000).map(|i| (i * 7919) % 150_000 - 75_000).collect();
    check_integers(&keys, 1000);
    let keys: Vec<Vec<u8>> = keys.iter().take(200_000).map(|key| format!("key number {key}").into_bytes()).collect();
    check_text(&keys, 1000);
}

#[test]
fn entries_given_away_keep_their_states_and_addresses() {
    for make in [|key: i64| key.to_string().into_bytes(), |key: i64| format!("a key of some length {key}").into()] {
        let keys: Vec<Vec<u8>> = (0..1000_i64).map(make).collect();
        let (rows, text, bytes) = text_rows(&keys);
        // SAFETY: rows and text live until the end, with 64 bytes behind the text.
        let rows = unsafe { KeyedRows::new(Rows::new(rows.as_ptr(), 1000, 16, Text::new(text.as_ptr(), bytes))) };
        let mut old = KeyedState::new(&key(ColumnKind::Text), 8);
        count(&mut old, &rows);
        let before: BTreeMap<Vec<u8>, usize> = old.sorted().iter().map(|(k, s)| (k.bytes(), *s as usize)).collect();
        let mut new: Vec<KeyedState> = (0..3).map(|_| KeyedState::new(&key(ColumnKind::Text), 8)).collect();
        old.give_away(|hash, _| &raw mut new[hash as usize % 3]).unwrap();
        assert!(old.len() == 0 && new.iter().all(|table| table.len() > 200));
        let after: BTreeMap<Vec<u8>, usize> =
            new.iter().flat_map(|table| table.sorted()).map(|(k, s)| (k.bytes(), s as usize)).collect();
        assert_eq!(before, after);
    }
}

#[test]
fn narrow_integers_are_extended() {
    for (kind, bytes, value) in [
        (ColumnKind::I8, vec![0xFE], -2),
        (ColumnKind::U8, vec![0xFE], 254),
        (ColumnKind::Boolean, vec![1], 1),
        (ColumnKind::I16, vec![0xFE, 0xFF], -2),
        (ColumnKind::U32, vec![0xFF; 4], u32::MAX.into()),
    ] {
        let mut rows = [0_u8; 16];
        rows[8..8 + bytes.len()].copy_from_slice(&bytes);
        let mut table = KeyedState::new(&key(kind), 8);
        // SAFETY: one row of 16 bytes.
        count(&mut table, &unsafe { KeyedRows::new(Rows::new(rows.as_ptr(), 1, 16, Text::empty())) });
        assert_eq!(counted(&table), [(KeyRef::Integer(value), 1)]);
    }
}

#[test]
fn keys_outside_of_the_text_are_refused() {
    let row = [5_i64, 3 | 9 << 32];
    let text = [0_u8; 128];
    // SAFETY: one row of 16 bytes, a text of 8 with more than 64 behind.
    let rows = unsafe { KeyedRows::new(Rows::new(row.as_ptr().cast(), 1, 16, Text::new(text.as_ptr(), 8))) };
    let error = rows.hash(&key(ColumnKind::Text), &mut [0]).unwrap_err();
    assert!(error.to_string().contains("event 5"), "{error}");
}
