//! Pipelines of native kernels, batch by batch through all of it, against a loop that takes one event at a time.

use proptest::prelude::*;

use super::*;
use crate::dataflow::testing::pipelines::{
    Events, Pipeline, any_blocks, any_pipeline, check, integers, partitioned, some, stateful, stateless, texts,
};
use crate::dataflow::testing::unordered;
use crate::output::sink::SinkKind;
use crate::program::options::Rate;
use crate::threads::idle;
use crate::threads::testing::{cases, pairs};

fn options(threads: usize, batch: usize, order: &str) -> Options {
    let executor = "morsel".into();
    Options { executor, order: Some(order.into()), threads, batch, sink: SinkKind::Parquet, ..Options::default() }
}

fn everywhere(pipeline: &Pipeline, blocks: &[Events]) {
    for (threads, batch) in pairs(&[1, 2, 3, 8], &[1, 7, 256]) {
        let options = options(threads, batch, "total");
        let mut executor = morsel(&pipeline.program(), &options).unwrap();
        executor.choice.take_turns();
        check(pipeline, blocks, &mut executor, &options);
    }
}

#[test]
fn batches_take_turns_at_every_state() {
    let ops = vec![stateless(1).of(&[-1]), partitioned(4, false).of(&[0]), stateful(5, false).of(&[1])];
    everywhere(&Pipeline::new(ops, &[2], true), &texts(1500, 300));
}

#[test]
fn streams_part_and_meet_again() {
    let ops = vec![stateless(1).of(&[-1]), stateless(2).of(&[-1]), partitioned(4, true).of(&[1, -1, 0])];
    everywhere(&Pipeline::new(ops, &[2, -1], false), &integers(1000, 40));
}

#[test]
fn no_events_and_only_a_flush() {
    let ops = || vec![partitioned(5, true).of(&[-1]), stateful(5, true).of(&[0])];
    everywhere(&Pipeline::new(ops(), &[1], false), &[]);
    everywhere(&Pipeline::new(ops(), &[1], false), &[Events::integers(0, &[])]);
}

#[test]
fn without_order_every_row_comes_once_and_states_are_the_same() {
    // Sums and counts do not hang on the order of rows, and what they emit on the way does not reach the sink.
    let ops = vec![stateless(1).of(&[-1]), partitioned(4, false).of(&[0]), stateful(4, false).of(&[0])];
    let pipeline = Pipeline::new(ops, &[0, -1], false);
    let blocks = integers(1500, 40);
    let run = |options: &Options| {
        let (mut executor, pairs) = unordered::run(&pipeline, &blocks, |program| morsel(program, options).unwrap());
        let mut single = executor.states(2).unwrap();
        single.states.truncate(16); // Behind them is the key that came last.
        (pairs, executor.metrics().digest, executor.states(1).unwrap(), single)
    };
    let (rows, _, keyed, single) = run(&options(1, 256, "total"));
    let (.., digest, _, _) = run(&options(1, 1, "none"));
    let expected = (rows, digest, keyed, single);
    for (threads, batch) in pairs(&[1, 2, 3, 8], &[1, 7, 256]) {
        assert!(run(&options(threads, batch, "none")) == expected, "{threads} threads, batch {batch}");
    }
}

#[test]
fn the_earliest_failure_is_reported_and_nobody_hangs() {
    let mut values = some(3000, 20);
    values.iter_mut().for_each(|(_, value)| *value = *value % 1000 * 3);
    values[1795].1 = 4242;
    values[1793].1 = 4242 * 3;
    let blocks = [Events::integers(0, &values)];
    let late = vec![partitioned(6, false).of(&[-1]), stateless(2).of(&[0]), partitioned(6, false).of(&[1])];
    everywhere(&Pipeline::new(late, &[2], false), &blocks);
    let branches = vec![partitioned(6, false).of(&[-1]), stateless(7).of(&[-1]), stateful(4, false).of(&[0, 1])];
    everywhere(&Pipeline::new(branches, &[2], false), &blocks);
}

#[test]
fn every_idle_strategy_and_the_open_loop() {
    let ops = vec![stateless(0).of(&[-1]), partitioned(5, true).of(&[0]), stateful(4, true).of(&[1])];
    let pipeline = Pipeline::new(ops, &[2], false);
    for waiting in [idle::Strategy::Spin, idle::Strategy::Yield, idle::Strategy::Park] {
        for rate in [0.0, 1e6] {
            let options = Options { idle: waiting, rate: Rate::Constant(rate), ..options(3, 32, "total") };
            let mut executor = morsel(&pipeline.program(), &options).unwrap();
            check(&pipeline, &integers(3000, 100), &mut executor, &options);
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let pipeline = Pipeline::new(vec![stateless(0).of(&[-1])], &[0], false);
    let refused = |order: &str| match make(pipeline.program(), options(1, 1, order)) {
        Err(RunError::Invalid(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    };
    assert_eq!(refused("some"), "unknown order \"some\" of executor morsel; known: total, none");
    assert_eq!(refused("none"), "the application must declare what agrees without order, with `agrees_unordered`");
}

proptest! {
    #![proptest_config(cases(200))]
    #[test]
    fn random_pipelines_agree_with_the_loop(
        (pipeline, blocks) in any::<bool>()
            .prop_flat_map(|fails| (Just(fails), any_pipeline(fails)))
            .prop_flat_map(|(fails, pipeline)| {
                let blocks = any_blocks(pipeline.text_keys, fails);
                (Just(pipeline), blocks)
            }),
        threads in 1_usize..5, batch in 1_usize..40,
    ) {
        let options = options(threads, batch, "total");
        let mut executor = morsel(&pipeline.program(), &options).unwrap();
        check(&pipeline, &blocks, &mut executor, &options);
    }
}

#[cfg(shuttle)]
#[test]
fn shuttle_every_schedule_equals_the_loop() {
    use crate::dataflow::testing::schedules::{events, explore};
    for threads in [2, 3] {
        for waiting in [idle::Strategy::Yield, idle::Strategy::Park] {
            explore(200, move |round| {
                let ops = vec![partitioned(4, true).of(&[-1]), stateless(2).of(&[-1]), stateful(5, true).of(&[1, 0])];
                let pipeline = Pipeline::new(ops, &[2, 1], false);
                let options = Options { idle: waiting, ..options(threads, 2, "total") };
                let mut executor = morsel(&pipeline.program(), &options).unwrap();
                check(&pipeline, &events(round), &mut executor, &options);
            });
        }
    }
}
