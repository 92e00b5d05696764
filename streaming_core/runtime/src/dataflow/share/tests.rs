//! The shares of an operator, each on the rows that a dealer gives it, merged into one order against the sequential model.

use super::*;
use crate::dataflow::testing::pipelines::{Events, Pipeline, Row, partitioned, some, stateful, stateless};
use crate::dataflow::testing::windows::{Single, Windows as Declared, blocks};

fn executor(program: Program, share: (usize, usize)) -> Box<dyn Executor> {
    let options = Options { executor: "share".into(), share, ..Options::default() };
    make(program, options).unwrap()
}

/// The outputs of an executor since the last call, each with the position of its input and its rank.
fn outputs(executor: &mut dyn Executor) -> Vec<(usize, u128, Row)> {
    let (rows, numbers) = executor.take_outputs();
    let words: Vec<i64> = rows.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect();
    let ranks = executor.take_ranks();
    assert_eq!(ranks.len(), numbers.len());
    let rows = words.chunks_exact(3).map(|row| [row[0], row[1], row[2]]);
    rows.zip(ranks).zip(numbers).map(|((row, rank), position)| (position as usize, rank, row)).collect()
}

/// What the shares of a windowed operator make of events in blocks, in one order, and how many rows are late.
fn merged(program: impl Fn() -> Program, events: &[Events], shares: usize) -> (Vec<Row>, u64) {
    let mut dealer = Dealer::new(&program(), shares).unwrap();
    let mut rows_of: Vec<Vec<Row>> = vec![Vec::new(); shares];
    for block in events {
        let mut pairs = dealer.deal(&block.block()).unwrap();
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
            events.rows.copy_from_slice(chunk);
            executor.process(&events.block()).unwrap();
            for (position, rank, row) in outputs(&mut *executor) {
                assert_eq!(row[0], chunk[position][0], "the position is that of the row's event");
                merged.push(((row[0], rank), row));
            }
        }
        executor.finish(end).unwrap();
        merged.extend(outputs(&mut *executor).into_iter().map(|(_, rank, row)| ((row[0], rank), row)));
        late += executor.metrics().late;
    }
    merged.sort_unstable();
    assert!(merged.windows(2).all(|pair| pair[0].0 != pair[1].0), "every output has a rank of its own");
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

#[test]
fn outputs_name_their_inputs_and_flushed_rows_their_keys() {
    let pairs = some(300, 12);
    let ops = vec![stateless(1).of(&[-1]), partitioned(5, true).of(&[0]), stateless(1).of(&[1])];
    let pipeline = Pipeline::new(ops, &[2], false);
    let mut executor = executor(pipeline.program(), (0, 1));
    let events = Events::integers(7, &pairs);
    executor.process(&events.block()).unwrap();
    let mut last = None;
    for (position, rank, row) in outputs(&mut *executor) {
        assert_eq!(row[0], 7 + position as i64);
        assert!(last < Some((position, rank)), "ranks ascend");
        last = Some((position, rank));
    }
    assert!(last.is_some());
    executor.finish(400).unwrap();
    let flushed = outputs(&mut *executor);
    assert!(flushed.iter().all(|(_, _, row)| row[0] == 400));
    let keys: Vec<usize> = flushed.iter().map(|&(key, ..)| key).collect();
    assert!(keys.is_sorted() && keys.iter().any(|&key| key > 0), "several keys flush: {keys:?}");
}

#[test]
fn a_program_that_does_not_fit_is_refused() {
    let two = || Pipeline::new(vec![stateful(5, true).of(&[-1]), stateful(4, true).of(&[0])], &[1], false).program();
    let options = |share| Options { executor: "share".into(), share, ..Options::default() };
    let refusal = |program, share| make(program, options(share)).err().unwrap().to_string();
    assert!(refusal(two(), (0, 1)).contains("one operator with state, got 2"));
    let program = || Pipeline::new(vec![stateful(5, true).of(&[-1])], &[0], false).program();
    for share in [(1, 1), (0, 0), (0, 2000)] {
        assert!(refusal(program(), share).contains("there are 1 to 1024 shares"));
    }
    let ops = vec![stateless(1).of(&[-1]), stateless(2).of(&[-1]), stateless(1).of(&[0, 1])];
    assert!(refusal(Pipeline::new(ops, &[2], false).program(), (0, 1)).contains("must be a chain of operators"));
    assert!(Dealer::new(&program(), 2).err().unwrap().to_string().contains("needs an operator with keys"));
}
