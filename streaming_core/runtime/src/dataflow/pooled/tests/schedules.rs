//! Whole runs, pooled, under schedules that shuttle draws.

use super::*;
use crate::dataflow::testing::schedules::{events, explore};
use crate::threads::idle::Strategy;
use std::sync::atomic::{AtomicU64, Ordering};

fn chain(round: u64) -> Vec<Op> {
    match round % 4 {
        0 => vec![stateless(0), partitioned(5, true)],
        1 => vec![partitioned(4, false), stateless(2), partitioned(4, true)],
        2 => vec![stateless(2), stateful(5, true), partitioned(4, false), stateless(0)],
        _ => vec![stateless(0)],
    }
}

#[test]
fn shuttle_every_schedule_equals_the_loop() {
    for way in ways() {
        for threads in [2, 3] {
            for idle in [Strategy::Yield, Strategy::Park] {
                let way = way.clone();
                explore(64, move |round| {
                    let options = Options { idle, ..by(&way, options(threads, 3)) };
                    let grouping = Grouping::InTurn(vec![1 + round as usize / 4 % 4, 2]);
                    check(&Pipeline::chain(&chain(round), false), &events(round), options, Some(grouping));
                });
            }
        }
    }
}

#[test]
fn shuttle_lanes_digest_as_one_thread_does() {
    explore(200, |round| {
        let pipeline = Pipeline::chain(&[stateless(1), partitioned(4, false), stateless(0)], false);
        let values: Vec<(i64, i64)> = (0..24).map(|i| ((i * 7 + round as i64) % 5, i % 4)).collect();
        let blocks = [Events::integers(0, &values[..20]), Events::integers(20, &values[20..])];
        // With four threads, batches have up to two units.
        let digest = |threads, grouping| {
            let options = Options { sink: SinkKind::Digest, ..options(threads, 1) };
            let mut executor = make_pooled(&pipeline, options, grouping).unwrap();
            blocks.iter().for_each(|block| executor.process(&block.block()).unwrap());
            (executor.metrics().digest, executor.metrics().in_order)
        };
        assert_eq!(digest(4, Some(Grouping::InTurn(vec![3]))), digest(1, None));
    });
}

#[test]
fn shuttle_a_failure_ends_every_schedule() {
    for way in ways() {
        let way = way.clone();
        explore(32, move |round| {
            let mut values = some(40, 3);
            values[3 + round as usize].1 = 4242;
            let ops = [partitioned(6, false), stateful(4, false)];
            let options = Options { idle: Strategy::Park, ..by(&way, options(3, 2)) };
            let error = run(&Pipeline::chain(&ops, false), &[Events::integers(0, &values)], options, None).unwrap_err();
            assert_eq!(
                error.rank(),
                RunError::Kernel {
                    operator: "fragile".into(),
                    seq: 3 + round as i64,
                    window: None,
                    order: 0,
                    exception: vec![]
                }
                .rank()
            );
        });
    }
}

#[test]
fn shuttle_a_buffer_that_does_not_wait_is_found_out() {
    static EQUAL: AtomicU64 = AtomicU64::new(0);
    static DIFFERENT: AtomicU64 = AtomicU64::new(0);
    explore(100, |round| {
        let (pipeline, blocks) = (Pipeline::chain(&[stateless(0)], false), events(round));
        let options = options(3, 1);
        let strategies = Strategies::named(&options).unwrap();
        let grouping = strategies.grouping(&options);
        let mut executor = pooled(&pipeline.program(), &options, strategies, grouping).unwrap();
        executor.work.back = Box::new(NonBlocking::broken(8));
        blocks.iter().for_each(|block| executor.process(&block.block()).unwrap());
        let rows = Model::run(&pipeline, &blocks).outcomes.rows;
        let expected: Vec<u8> = rows.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let equal = executor.take_outputs().0 == expected;
        assert_eq!(equal, executor.metrics().in_order);
        if equal { &EQUAL } else { &DIFFERENT }.fetch_add(1, Ordering::Relaxed);
    });
    let [equal, different] = [&EQUAL, &DIFFERENT].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(equal + different, 100);
    assert!(different > 10, "{different} of 100 schedules were found to be different");
}
