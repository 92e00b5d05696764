//! The shares of an operator, each on the rows that a dealer gives it, merged into one order against the sequential model.

use super::*;
use crate::dataflow::testing::pipelines::{Events, Op, Pipeline, Row, partitioned, some, stateful, stateless};
use crate::dataflow::testing::windows::{Single, Windows as Declared, blocks};
use crate::output::sink::SinkKind;

fn executor(program: Program, share: (usize, usize)) -> Box<dyn Executor> {
    let options = Options { executor: "share".into(), sink: SinkKind::Parquet, share, ..Options::default() };
    make(program, options).unwrap()
}

/// The outputs of an executor since the last call.
fn outputs(executor: &mut dyn Executor) -> Vec<(Row, u32, u128)> {
    let (rows, subs) = executor.take_outputs();
    let words: Vec<i64> = rows.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect();
    let ranks = executor.take_ranks();
    assert_eq!(ranks.len(), subs.len());
    words.chunks_exact(3).zip(subs).zip(ranks).map(|((row, sub), rank)| ([row[0], row[1], row[2]], sub, rank)).collect()
}

/// What the shares of a windowed operator make of events in blocks, in one order, and how many rows are late.
fn merged(program: impl Fn() -> Program, events: &[Events], shares: usize) -> (Vec<Row>, u64) {
    let mut dealer = Dealer::new(&program(), shares).unwrap();
    let mut rows_of: Vec<Vec<Row>> = vec![Vec::new(); shares];
    for block in events {
        let numbered: Vec<(i64, i64)> = block.rows.iter().map(|row| (row[1], row[2])).collect();
        let mut pairs = dealer.deal(&Events::integers(0, &numbered).block()).unwrap();
        pairs.sort_unstable();
        pairs.iter().for_each(|&[at, share]| rows_of[share as usize].push(block.rows[at as usize]));
    }
    let end = events.last().map_or(0, |block| block.rows.last().unwrap()[0] + 1);
    let (mut merged, mut late) = (Vec::new(), 0);
    for (share, rows) in rows_of.iter().enumerate() {
        let mut executor = executor(program(), (share, shares));
        for chunk in rows.chunks(7) {
            let pairs: Vec<(i64, i64)> = chunk.iter().map(|row| (row[1], row[2])).collect();
            let mut events = Events::integers(0, &pairs);
            events.rows.copy_from_slice(chunk); // these kernels compute with `seq`
            executor.process(&events.block()).unwrap();
        }
        executor.finish(end).unwrap();
        late += executor.metrics().late;
        merged.extend(outputs(&mut *executor).into_iter().map(|(row, sub, rank)| ((row[0], rank, share, sub), row)));
    }
    merged.sort_unstable();
    (merged.into_iter().map(|(_, row)| row).collect(), late)
}

#[test]
fn shares_of_windows_give_the_outputs_of_one() {
    for (declared, step, keys) in [
        (Declared { advance: 3, size: 10, delay: 0 }, 2, 40),
        (Declared { advance: 5, size: 5, delay: 4 }, 3, 9),
        (Declared { advance: 1, size: 4, delay: 2 }, 9, 300),
    ] {
        let events = blocks(&declared.events(1500, step, keys), 97);
        let expected = (declared.model(&events, false).0, declared.late(&events, false));
        for shares in [1, 2, 5, 64] {
            assert_eq!(merged(|| declared.program(false), &events, shares), expected, "{declared:?}, {shares} shares");
        }
    }
}

#[test]
fn shares_of_single_windows_give_the_outputs_of_one() {
    for (every, size) in [(None, 9), (Some(40), 5)] {
        let declared = Single { advance: 1, size, every, joins: false };
        let rows = Declared { advance: 1, size, delay: 0 }.events(1200, 2, 30);
        let events = blocks(&rows, 64);
        for shares in [1, 3, 16] {
            let (outputs, _) = merged(|| declared.program(), &events, shares);
            assert_eq!(outputs, declared.model(&events), "{declared:?}, {shares} shares");
        }
    }
}

/// What executor share makes of rows with its only share: each output with the number of its row, and its `sub`.
fn alone(ops: Vec<Op>, pairs: &[(i64, i64)]) -> Vec<(Row, u32)> {
    let last = ops.len() as i64 - 1;
    let mut executor = executor(Pipeline::new(ops, &[last], false).program(), (0, 1));
    executor.process(&Events::integers(0, pairs).block()).unwrap();
    executor.finish(pairs.len() as i64).unwrap();
    let (rows, subs) = executor.take_outputs();
    let words: Vec<i64> = rows.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect();
    words.chunks_exact(3).map(|row| [row[0], row[1], row[2]]).zip(subs).collect()
}

#[test]
fn flushed_rows_are_numbered_by_key() {
    let pairs = some(300, 12);
    let outputs = alone(vec![partitioned(5, true).of(&[-1]), stateless(1).of(&[0])], &pairs);
    let mut keys: Vec<i64> = pairs.iter().map(|&(key, _)| key).collect();
    keys.sort_unstable();
    keys.dedup();
    let flushed: Vec<i64> = outputs.iter().map(|(row, _)| row[0]).filter(|&seq| seq >= 300).collect();
    assert!(flushed.is_sorted() && flushed.iter().all(|&seq| seq < 300 + keys.len() as i64), "{flushed:?}");
    assert!(flushed.iter().any(|&seq| seq > 300), "several keys flush");
}

#[test]
fn a_program_that_does_not_fit_is_refused() {
    let two = || Pipeline::new(vec![stateful(5, true).of(&[-1]), stateful(4, true).of(&[0])], &[1], false).program();
    let options = |share| Options { executor: "share".into(), share, ..Options::default() };
    let refusal = |program, share| make(program, options(share)).err().unwrap().to_string();
    assert!(refusal(two(), (0, 1)).contains("one operator with state, got 2"));
    let one = || Pipeline::new(vec![stateful(5, true).of(&[-1])], &[0], false).program();
    for share in [(1, 1), (0, 0), (0, 2000)] {
        assert!(refusal(one(), share).contains("there are 1 to 1024 shares"));
    }
    assert!(Dealer::new(&one(), 2).err().unwrap().to_string().contains("needs an operator with windows"));
}
