//! Ranges of events, which replicated sinks share: all outputs of an event end at one sink.
//!
//! Sink `(seq / EVENTS) mod sinks` takes the outputs of event `seq`. So each sink numbers the outputs of its events (`sub`)
//! and checks their order without the others. Digests add. Rows that sinks keep are merged by range when they are taken.

/// Consecutive events of one range: those of a batch by default, so that most batches belong to one sink. Tests have few events.
pub const EVENTS: i64 = if cfg!(test) { 4 } else { 256 };

/// The sink of event `seq`, one of `sinks`.
#[inline(always)]
pub fn sink_of(seq: i64, sinks: usize) -> usize {
    if sinks == 1 { 0 } else { seq.div_euclid(EVENTS).rem_euclid(sinks as i64) as usize }
}

/// The first event behind the range of event `seq`.
#[inline(always)]
pub fn end_of(seq: i64) -> i64 {
    (seq.div_euclid(EVENTS) + 1).saturating_mul(EVENTS)
}

/// Merges the rows of all sinks, and their subs, into one sequence in the order of events.
///
/// Each row has `stride` bytes and begins with its seq. The rows of each sink are in the order of seq. If they are not, every
/// row is there once, in any order.
pub fn merged(mut parts: Vec<(Vec<u8>, Vec<u32>)>, stride: usize) -> (Vec<u8>, Vec<u32>) {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let total = parts.iter().map(|(_, subs)| subs.len()).sum::<usize>();
    let (mut rows, mut subs) = (Vec::with_capacity(total * stride), Vec::with_capacity(total));
    let mut next = vec![0; parts.len()];
    let seq = |part: usize, at: usize| {
        let (rows, subs) = &parts[part];
        let bytes = (at < subs.len()).then(|| &rows[at * stride..][..8]);
        bytes.map(|bytes| i64::from_ne_bytes(bytes.try_into().expect("a seq has eight bytes")))
    };
    // The part with the earliest event left: all of its rows up to the end of the range come next.
    while let Some((first, part)) = (0..parts.len()).filter_map(|part| Some((seq(part, next[part])?, part))).min() {
        let (begin, end) = (next[part], end_of(first));
        let mut at = begin + 1;
        while seq(part, at).is_some_and(|seq| seq < end) {
            at += 1;
        }
        rows.extend_from_slice(&parts[part].0[begin * stride..at * stride]);
        subs.extend_from_slice(&parts[part].1[begin..at]);
        next[part] = at;
    }
    (rows, subs)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_rows_are_those_of_one_sink(
            mut seqs in proptest::collection::vec(-600_i64..2_000, 0..300), sinks in 1_usize..5,
        ) {
            seqs.sort_unstable();
            let row = |(sub, &seq): (usize, &i64)| ([seq.to_ne_bytes(), (seq * 7 + sub as i64).to_ne_bytes()].concat(), sub as u32);
            let expected: Vec<(Vec<u8>, u32)> = seqs.iter().enumerate().map(row).collect();
            let mut parts = vec![(Vec::new(), Vec::new()); sinks];
            for (seq, (bytes, sub)) in seqs.iter().zip(&expected) {
                let part = &mut parts[sink_of(*seq, sinks)];
                part.0.extend_from_slice(bytes);
                part.1.push(*sub);
            }
            let (rows, subs) = merged(parts, 16);
            prop_assert_eq!(rows, expected.iter().flat_map(|(bytes, _)| bytes.clone()).collect::<Vec<u8>>());
            prop_assert_eq!(subs, expected.iter().map(|(_, sub)| *sub).collect::<Vec<u32>>());
        }
    }
}
