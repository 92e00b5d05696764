//! Whole runs, pinned, under schedules that shuttle draws.

use super::*;
use crate::dataflow::testing::schedules::{events, explore};
use crate::threads::idle::Strategy;

/// Where streams part, meet again and are counted, by key and all together.
fn pipeline(round: u64) -> Pipeline {
    match round % 4 {
        // source -+-> pass -+-> burst by key -> sink
        //         +---------+
        0 => Pipeline::new(vec![stateless(0).of(&[-1]), partitioned(5, true).of(&[0, -1])], &[1], false),
        // source -> burst by key -> rekey -> count by key -> sink
        1 => Pipeline::chain(&[partitioned(5, false), stateless(3), partitioned(4, true)], false),
        // source -+-> few -+-> burst, one state -> pass -> sink
        //         +-> few -+
        2 => {
            let ops = vec![stateless(2).of(&[-1]), stateless(2).of(&[-1]), stateful(5, true).of(&[1, 0]), stateless(0)];
            Pipeline::new(ops, &[3], false)
        }
        // source -> pass -+-> sink
        //        +--------+
        _ => Pipeline::new(vec![stateless(0).of(&[-1])], &[0, -1], false),
    }
}

/// Several sources now and then, and replicas anywhere: the round's digits say.
fn plan(pipeline: &Pipeline, threads: usize, mut round: u64) -> BTreeMap<String, Vec<usize>> {
    let mut digit = |below: usize| {
        let digit = round % below as u64;
        round /= below as u64;
        digit as usize
    };
    let mut plan = BTreeMap::from([("source".to_string(), (0..1 + digit(2)).map(|i| i % threads).collect())]);
    for (index, op) in pipeline.ops.iter().enumerate() {
        let replicas = if op.kind == OperatorKind::Stateful { 1 } else { 1 + digit(2) };
        let first = digit(threads);
        plan.insert(pipeline.name(index), (0..replicas).map(|i| (first + i) % threads).collect());
    }
    plan
}

#[test]
fn shuttle_every_schedule_equals_the_loop() {
    for channel in ORDERED {
        for threads in [1, 2, 3] {
            for idle in [Strategy::Yield, Strategy::Park] {
                explore(if threads == 1 { 50 } else { 200 }, move |round| {
                    let pipeline = pipeline(round);
                    let plan = plan(&pipeline, threads, round / 4);
                    check(&pipeline, &events(round), Options { idle, plan, ..options(threads, 2, channel) });
                });
            }
        }
    }
}

#[test]
fn shuttle_without_order_every_row_comes_once() {
    for channel in UNORDERED {
        for threads in [1, 2, 3] {
            for idle in [Strategy::Yield, Strategy::Park] {
                explore(if threads == 1 { 50 } else { 200 }, move |round| {
                    // source -+-> few -+-> count by key -> sink: counts come up to the same numbers in any order.
                    //         +--------+
                    let ops = vec![stateless(2).of(&[-1]), partitioned(4, true).of(&[0, -1])];
                    let pipeline = Pipeline::new(ops, &[1], false);
                    let plan = plan(&pipeline, threads, round);
                    check_unordered(&pipeline, &events(round), &Options { idle, plan, ..options(threads, 2, channel) });
                });
            }
        }
    }
}

#[test]
fn shuttle_a_failure_ends_every_schedule() {
    for channel in ORDERED {
        for threads in [1, 2, 3] {
            explore(if threads == 1 { 50 } else { 200 }, move |round| {
                let mut values = some(40, 3);
                values[3 + round as usize % 32].1 = 4242;
                let ops = vec![partitioned(6, false).of(&[-1]), stateless(0).of(&[-1]), stateful(4, false).of(&[1, 0])];
                let pipeline = Pipeline::new(ops, &[2], false);
                let plan = plan(&pipeline, threads, round);
                let options = Options { idle: Strategy::Park, plan, ..options(threads, 2, channel) };
                check(&pipeline, &[Events::integers(0, &values)], options);
            });
        }
    }
}
