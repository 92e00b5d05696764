//! Pipelines of native kernels, pinned, against a loop that takes one event at a time.

#[cfg(not(shuttle))]
mod faults;
#[cfg(shuttle)]
mod schedules;
mod windows;

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::dataflow::pinned::wiring::graph::PERIOD;
use crate::dataflow::testing::pipelines::{
    Events, Model, Pipeline, any_blocks, any_pipeline, integers, partitioned, run, some, stateful, stateless, texts,
};
use crate::dataflow::testing::unordered;
use crate::output::digest::Digest;
use crate::output::sink::SinkKind;
use crate::program::OperatorKind;
use crate::program::options::Rate;
use crate::threads::idle;
use crate::threads::testing::{cases, pairs};

/// Channels that keep order.
const ORDERED: [&str; 3] = ["gate", "scalegate", "merge_sort"];
/// Channels that keep none.
const UNORDERED: [&str; 2] = ["shared_ring", "pair_queue"];

fn options(threads: usize, batch: usize, channel: &str) -> Options {
    let executor = "pinned".into();
    Options { executor, channel: Some(channel.into()), threads, batch, sink: SinkKind::Parquet, ..Options::default() }
}

fn check(pipeline: &Pipeline, blocks: &[Events], options: Options) {
    let mut executor = pinned(&pipeline.program(), &options).unwrap();
    executor.choice.take_turns();
    crate::dataflow::testing::pipelines::check(pipeline, blocks, &mut executor, &options);
    if options.channel.as_deref() != Some("gate") {
        return;
    }
    // A sink that keeps no rows may take them numbered, and then only adds results.
    let [kept, added] = [SinkKind::Parquet, SinkKind::Digest].map(|sink| {
        let options = Options { sink, ..options.clone() };
        let mut executor = pinned(&pipeline.program(), &options).unwrap();
        executor.choice.take_turns();
        let mut outcome = || {
            blocks.iter().try_for_each(|block| executor.process(&block.block()))?;
            executor.finish(blocks.iter().map(|block| block.rows.len() as i64).sum())
        };
        let failure = outcome().err().map(|error| error.ordered(|_| 0));
        let metrics = executor.metrics();
        // After a failure, the outputs of some earlier events may not be delivered.
        (failure.is_none().then_some((metrics.digest, metrics.in_order, metrics.counters.dropped)), failure)
    });
    assert_eq!(kept, added, "{pipeline:?}, {options:?}");
}

fn everywhere(pipeline: &Pipeline, blocks: &[Events]) {
    for channel in ORDERED {
        for (threads, batch) in pairs(&[1, 2, 3, 8], &[1, 7, 256]) {
            check(pipeline, blocks, options(threads, batch, channel));
        }
    }
}

// source -> fan -> count by key -> sink
#[test]
fn words_are_counted_by_text() {
    let ops = vec![stateless(1).of(&[-1]), partitioned(4, false).of(&[0])];
    everywhere(&Pipeline::new(ops, &[1], true), &texts(1500, 300));
}

// source -> burst by key -> rekey -> burst by key -> sink
#[test]
fn rows_of_an_event_part_and_meet_again() {
    let ops = vec![partitioned(5, true).of(&[-1]), stateless(3).of(&[0]), partitioned(5, true).of(&[1])];
    everywhere(&Pipeline::new(ops, &[2], false), &integers(1500, 40));
}

// source -> fan -> burst, one state -> count by key -> sink
#[test]
fn a_single_replica_between_several() {
    let ops = vec![stateless(1).of(&[-1]), stateful(5, true).of(&[0]), partitioned(4, true).of(&[1])];
    everywhere(&Pipeline::new(ops, &[2], false), &integers(1000, 40));
}

// source -+-> fan --+-> count by key -+-> sink
//         +-> few --+                 |
//         +---------+-----------------+
#[test]
fn streams_part_and_meet_again() {
    let ops = vec![stateless(1).of(&[-1]), stateless(2).of(&[-1]), partitioned(4, true).of(&[1, -1, 0])];
    everywhere(&Pipeline::new(ops, &[2, -1], false), &integers(1000, 40));
}

#[test]
fn a_stream_meets_itself() {
    let ops = vec![stateless(0).of(&[-1, -1]), partitioned(5, true).of(&[0, 0])];
    everywhere(&Pipeline::new(ops, &[1, 1], false), &integers(1000, 40));
}

/// Both inputs of the last operator get 12,150 rows of every event. Rows of the second input become those of the first, and
/// wait for all of them.
#[test]
fn an_event_may_have_more_rows_than_all_outlets_hold_batches() {
    let thrice = |of: i64| stateless(0).of(&[of, of, of]);
    let mut ops = vec![stateless(1).of(&[-1])];
    ops.extend((0..5).map(thrice));
    ops.extend([partitioned(4, false).of(&[5]), stateless(0).of(&[6, 5])]);
    everywhere(&Pipeline::new(ops, &[7], false), &[Events::integers(0, &[(1, 50), (2, 50), (1, 50)])]);
}

#[test]
fn no_events_and_events_that_vanish() {
    let ops = || vec![stateless(2).of(&[-1]), partitioned(4, true).of(&[0]), stateful(5, true).of(&[1])];
    everywhere(&Pipeline::new(ops(), &[2], false), &[Events::integers(0, &[])]);
    everywhere(&Pipeline::new(ops(), &[2], false), &[]);
    let values: Vec<(i64, i64)> =
        (0..4000).map(|i| (i % 50, if i / 300 % 2 == 0 { 7 * i + 1 } else { 3 * i })).collect();
    everywhere(&Pipeline::new(ops(), &[2], false), &[Events::integers(0, &values)]);
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
    let cut = vec![partitioned(6, false).of(&[-1]), stateless(7).of(&[0])];
    everywhere(&Pipeline::new(cut, &[1], false), &blocks);
    let branches = vec![partitioned(6, false).of(&[-1]), stateless(7).of(&[-1]), stateful(4, false).of(&[0, 1])];
    everywhere(&Pipeline::new(branches, &[2], false), &blocks);
}

/// Runs the pipeline and holds keys and values of its rows, in whatever order, against the model's; their digest.
fn check_unordered(pipeline: &Pipeline, blocks: &[Events], options: &Options) -> Digest {
    let (executor, pairs) = unordered::run(pipeline, blocks, |program| pinned(program, options).unwrap());
    assert_eq!(pairs, unordered::pairs(Model::run(pipeline, blocks).outcomes.rows), "{options:?}");
    executor.metrics().digest
}

// source -+-> fan --+-> pass -+-> sink
//         +-> few --+         |
//         +-------------------+
#[test]
fn without_order_every_row_comes_once() {
    let ops = vec![stateless(1).of(&[-1]), stateless(2).of(&[-1]), stateless(0).of(&[1, 0])];
    let pipeline = Pipeline::new(ops, &[2, -1], false);
    let blocks = integers(1000, 40);
    let mut digests = Vec::new();
    for channel in UNORDERED {
        for (threads, batch) in pairs(&[1, 2, 3, 8], &[1, 7, 256]) {
            let plan = [("source".to_string(), vec![0, threads - 1])].into();
            let options = Options { plan, ..options(threads, batch, channel) };
            digests.push(check_unordered(&pipeline, &blocks, &options));
        }
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]));
}

// source -+-> few -+-> count by key -> sink
//         +--------+
#[test]
fn refilled_tuples_reach_the_owners_of_their_keys() {
    let ops = vec![stateless(2).of(&[-1]), partitioned(4, true).of(&[0, -1])];
    let pipeline = Pipeline::new(ops, &[1], false);
    let blocks = integers(1000, 40);
    for (source, few, count) in [(1, 1, 1), (2, 1, 3), (1, 3, 2), (3, 2, 4)] {
        for threads in [1, 2, 3] {
            for (batch, rate) in [(1, 0.0), (7, 0.0), (7, 1e6), (256, 0.0), (256, 1e6)] {
                let on = |replicas: usize, first: usize| (0..replicas).map(|i| (first + i) % threads).collect();
                let plan = [
                    ("source".into(), on(source, 0)),
                    (pipeline.name(0), on(few, 1)),
                    (pipeline.name(1), on(count, 2)),
                ];
                let rate = Rate::Constant(rate);
                let options = Options { plan: plan.into(), rate, ..options(threads, batch, "pair_queue") };
                check_unordered(&pipeline, &blocks, &options);
            }
        }
    }
}

/// The stuck run of one thread would be noticed.
#[test]
fn an_event_may_have_more_rows_than_all_queues_hold() {
    let thrice = |of: i64| stateless(0).of(&[of, of, of]);
    let mut ops = vec![stateless(1).of(&[-1])];
    ops.extend((0..5).map(thrice));
    let pipeline = Pipeline::new(ops, &[5], false);
    for threads in [1, 2] {
        for batch in [1, 7] {
            let blocks = [Events::integers(0, &[(1, 50), (2, 50), (1, 50)])];
            check_unordered(&pipeline, &blocks, &options(threads, batch, "pair_queue"));
        }
    }
}

#[test]
fn a_failure_ends_a_run_without_order() {
    let mut values = some(3000, 20);
    values[1795].1 = 4242;
    let blocks = [Events::integers(0, &values)];
    let ops = vec![partitioned(6, false).of(&[-1]), stateless(0).of(&[0, -1])];
    let pipeline = Pipeline::new(ops, &[1], false);
    for channel in UNORDERED {
        for threads in [1, 2, 3] {
            for batch in [1, 16] {
                let program = Program { unordered: Some(vec![0, 1]), ..pipeline.program() };
                let mut executor = pinned(&program, &options(threads, batch, channel)).unwrap();
                let error = run(&pipeline, &blocks, &mut executor).unwrap_err();
                assert_eq!(error.rank().1, 1795, "{channel}: {error}");
            }
        }
    }
}

#[test]
fn events_that_become_nothing_take_time_too() {
    let pipeline = Pipeline::new(vec![stateless(7).of(&[-1]), partitioned(4, false).of(&[0])], &[1], false);
    for channel in ORDERED.into_iter().chain(UNORDERED) {
        for threads in [1, 2] {
            let program = Program { unordered: Some(vec![0, 1]), ..pipeline.program() };
            let mut executor = pinned(&program, &options(threads, 100, channel)).unwrap();
            executor.process(&integers(1000, 40)[0].block()).unwrap();
            let metrics = executor.metrics();
            assert_eq!(metrics.digest.rows, 0);
            assert!(!metrics.processing.is_empty(), "{channel}, {threads} threads");
        }
    }
}

#[test]
fn text_outside_of_the_block_ends_the_run() {
    let mut events = Events::texts(0, &some(2000, 20));
    events.rows[1500][1] = 1 << 30;
    for op in [partitioned(4, false).of(&[-1]), stateless(0).of(&[-1])] {
        let pipeline = Pipeline::new(vec![op], &[0], true);
        for threads in [1, 2, 3] {
            let mut executor = pinned(&pipeline.program(), &options(threads, 16, "gate")).unwrap();
            let error = run(&pipeline, std::slice::from_ref(&events), &mut executor).unwrap_err();
            assert!(error.to_string().contains("outside its block"), "{error}");
        }
    }
}

#[test]
fn every_idle_strategy_and_the_open_loop() {
    let ops =
        vec![stateless(0).of(&[-1]), partitioned(5, true).of(&[0]), stateless(2).of(&[1]), stateful(4, true).of(&[2])];
    let pipeline = Pipeline::new(ops, &[3], false);
    for waiting in [idle::Strategy::Spin, idle::Strategy::Yield, idle::Strategy::Park] {
        for threads in [1, 2, 3] {
            for rate in [0.0, 1e6] {
                check(
                    &pipeline,
                    &integers(3000, 100),
                    Options { idle: waiting, rate: Rate::Constant(rate), ..options(threads, 32, "gate") },
                );
            }
        }
    }
}

/// A run with two threads has these, and one more for each reader with several sources.
#[test]
fn merge_operators_have_threads_of_their_own() {
    let pipeline = Pipeline::new(vec![stateless(0).of(&[-1]), partitioned(4, false).of(&[0])], &[1], false);
    let merging = |channel| {
        let plan = [("sink".to_string(), vec![1])].into();
        let executor = pinned(&pipeline.program(), &Options { plan, ..options(2, 16, channel) }).unwrap();
        let tasks = executor.work.tasks(&executor.frame);
        let (merge, other): (Vec<_>, Vec<_>) =
            tasks.as_array().unwrap().iter().cloned().partition(|task| task["role"] == "merge");
        assert!(other.iter().all(|task| task["thread"].as_u64() < Some(2)));
        merge.iter().map(|task| (task["operator"].to_string(), task["thread"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    let named = [("sink", 2), ("count_1", 3), ("count_1", 4)].map(|(name, thread)| (format!("{name:?}"), thread));
    assert_eq!(merging("merge_sort"), named);
    assert_eq!(merging("scalegate"), []);
}

/// Viper, section 3.3: sources add watermarks periodically. With four instances and four
/// sinks, watermarks behind each event would be sixteen for a tuple.
#[test]
fn watermarks_are_few_for_any_number_of_instances() {
    for instances in [2, 4] {
        let pipeline = Pipeline::new(vec![stateless(0).of(&[-1])], &[0], false);
        let places = |name: &str| (name.to_string(), vec![0; instances]);
        let plan = [places(&pipeline.name(0)), places("sink")].into();
        let mut executor = pinned(&pipeline.program(), &Options { plan, ..options(1, 1, "scalegate") }).unwrap();
        let events = &integers(20 * PERIOD, 40)[0];
        executor.process(&events.block()).unwrap();
        let sum = |tasks: &Vec<Task>| {
            let added = tasks.iter().flat_map(|task| &task.feeds).map(|feed| feed.added);
            added.fold((0, 0), |(tuples, watermarks), added| (tuples + added.0, watermarks + added.1))
        };
        // SAFETY: no thread is at work.
        let (tuples, watermarks) = unsafe { executor.work.tasks.with(0, sum) };
        assert_eq!(tuples, executor.metrics().digest.rows);
        let most = instances * instances * (events.rows.len() / PERIOD + 2);
        assert!(watermarks as usize <= most && most < events.rows.len(), "{watermarks} for {tuples} tuples");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let pipeline = Pipeline::new(vec![stateless(0).of(&[-1]), stateful(4, false).of(&[0])], &[1], false);
    let refused = |options: Options| match make(pipeline.program(), options) {
        Err(RunError::Invalid(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    };
    let known =
        "unknown channel \"pipe\" of executor pinned; known: gate, scalegate, merge_sort, shared_ring, pair_queue";
    assert_eq!(refused(options(1, 1, "pipe")), known);
    for channel in UNORDERED {
        assert_eq!(
            refused(options(1, 1, channel)),
            "the application must declare what agrees without order, with `agrees_unordered`"
        );
    }
    for (name, places, why) in [
        ("absent", vec![0], "plan: unknown operator absent; the operators are source, pass_0, count_1, sink"),
        ("pass_0", vec![], "plan: pass_0 cannot have 0 replicas"),
        ("count_1", vec![0, 1], "plan: count_1 cannot have 2 replicas"),
        ("sink", vec![], "plan: sink cannot have 0 replicas"),
        ("pass_0", vec![0, 2], "plan: pass_0 is on thread 2, but the threads are 0 to 1"),
    ] {
        let plan = [(name.to_string(), places)].into();
        assert_eq!(refused(Options { plan, ..options(2, 1, "gate") }), why);
    }
}

proptest! {
    #![proptest_config(cases(300))]
    #[test]
    fn random_pipelines_agree_with_the_loop(
        (pipeline, blocks) in any::<bool>()
            .prop_flat_map(any_pipeline_that)
            .prop_flat_map(|(fails, pipeline)| {
                let blocks = any_blocks(pipeline.text_keys, fails);
                (Just(pipeline), blocks)
            }),
        threads in 1_usize..5, batch in 1_usize..40, channel in prop::sample::select(&ORDERED),
        replicas in proptest::collection::vec(proptest::collection::vec(any::<prop::sample::Index>(), 0..4), 9),
    ) {
        // Replicas anywhere, also several of one operator on one thread.
        let mut plan = std::collections::BTreeMap::new();
        for (index, op) in pipeline.ops.iter().enumerate() {
            let most = if op.kind == OperatorKind::Stateful { 1 } else { 4 };
            let places: Vec<usize> = replicas[index].iter().take(most).map(|at| at.index(threads)).collect();
            if !places.is_empty() {
                plan.insert(pipeline.name(index), places);
            }
        }
        if !replicas[7].is_empty() {
            plan.insert("source".into(), replicas[7].iter().map(|at| at.index(threads)).collect());
        }
        if !replicas[8].is_empty() {
            plan.insert("sink".into(), replicas[8].iter().map(|at| at.index(threads)).collect());
        }
        check(&pipeline, &blocks, Options { plan, ..options(threads, batch, channel) });
    }
}

fn any_pipeline_that(fails: bool) -> impl Strategy<Value = (bool, Pipeline)> {
    (Just(fails), any_pipeline(fails))
}
