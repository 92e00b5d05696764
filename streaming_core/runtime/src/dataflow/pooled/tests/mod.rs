//! Chains of native kernels, pooled, against a loop that takes one event at a time.

#[cfg(not(shuttle))]
mod decisions;
#[cfg(not(shuttle))]
mod faults;
#[cfg(shuttle)]
mod schedules;

use proptest::prelude::*;

use super::*;
use crate::dataflow::lane::PARTITIONINGS;
#[cfg(not(shuttle))]
use crate::dataflow::pooled::touched::TOUCHED;
use crate::dataflow::pooled::worklist::QUEUES;
use crate::dataflow::testing::pipelines::{self, *};
use crate::output::clock::Clock;
use crate::output::digest::Digest;
use crate::output::sink::SinkKind;
use crate::program::options::Rate;
use crate::threads::choice::Choice;
use crate::threads::reorder::BUFFERS;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::testing::{cases, pairs};

use heuristic::HEURISTICS;

fn options(threads: usize, batch: usize) -> Options {
    Options { executor: "pooled".into(), threads, batch, sink: SinkKind::Parquet, ..Options::default() }
}

fn make_pooled(pipeline: &Pipeline, options: Options, grouping: Option<Grouping>) -> Result<Pooled, RunError> {
    let strategies = Strategies::named(&options)?;
    let grouping = grouping.unwrap_or(strategies.grouping(&options));
    pooled(&pipeline.program(), &options, strategies, grouping)
}

fn run(
    pipeline: &Pipeline,
    blocks: &[Events],
    options: Options,
    grouping: Option<Grouping>,
) -> Result<Outcomes, RunError> {
    pipelines::run(pipeline, blocks, &mut make_pooled(pipeline, options, grouping)?)
}

/// One lane, several, numbers that change from block to block, and as the queue has it.
fn groupings(threads: usize) -> [Option<Grouping>; 4] {
    let in_turn = |numbers: &[usize]| Some(Grouping::InTurn(numbers.to_vec()));
    [in_turn(&[1]), in_turn(&[4 * threads]), in_turn(&[3, 1, 40, 2, 1]), None]
}

/// Every heuristic with every queue, and with either of these every reorder buffer, every partitioning, and few partitions
/// or many; short slices and long ones.
fn ways() -> Vec<Options> {
    let mut ways = Vec::new();
    for (h, (heuristic, _)) in HEURISTICS.iter().enumerate() {
        for (q, (queue, _)) in QUEUES.iter().enumerate() {
            let (reorder, _) = BUFFERS[(h + q) % BUFFERS.len()];
            let (partitioning, _) = PARTITIONINGS[(h + q / 2) % PARTITIONINGS.len()];
            let [heuristic, queue, reorder, partitioning] =
                [heuristic, queue, reorder, partitioning].map(|name| Some(name.into()));
            let (partitions, slice) = ([5, 70][(h + q) / 2 % 2], [1, 1000][h % 2]);
            let throughput_window = 3 * slice;
            ways.push(Options {
                heuristic,
                queue,
                reorder,
                partitioning,
                partitions,
                slice,
                throughput_window,
                ..Options::default()
            });
        }
    }
    ways
}

/// The strategies of one of these ways, and the rest of the options.
fn by(way: &Options, rest: Options) -> Options {
    let Options { executor, threads, batch, rate, idle, sink, .. } = rest;
    Options { executor, threads, batch, rate, idle, sink, ..way.clone() }
}

fn check(pipeline: &Pipeline, blocks: &[Events], options: Options, grouping: Option<Grouping>) {
    let mut executor = make_pooled(pipeline, options.clone(), grouping.clone()).unwrap();
    executor.choice.take_turns();
    pipelines::check(pipeline, blocks, &mut executor, &(options, grouping));
}

fn everywhere(ops: &[Op], blocks: &[Events], text_keys: bool) {
    let ways = ways();
    let mut ways = ways.iter().cycle();
    for (threads, batch) in pairs(&[1, 2, 3, 8], &[1, 7, 256]) {
        for grouping in groupings(threads) {
            let options = by(ways.next().unwrap(), options(threads, batch));
            check(&Pipeline::chain(ops, text_keys), blocks, options, grouping);
        }
    }
}

/// Keys and values that look random: `keys` different keys.
fn some(n: usize, keys: u64) -> Vec<(i64, i64)> {
    (0..n as i64)
        .map(|i| {
            let word = crate::state::key_group::hash_i64(i);
            ((word % keys) as i64, (word >> 40) as i64)
        })
        .collect()
}

fn integers(n: usize, keys: u64) -> Vec<Events> {
    let all = some(n, keys);
    let (a, b) = all.split_at(n / 3);
    vec![Events::integers(0, a), Events::integers(a.len() as i64, b)]
}

fn texts(n: usize, keys: u64) -> Vec<Events> {
    let all = some(n, keys);
    let (a, b) = all.split_at(n / 3);
    vec![Events::texts(0, a), Events::texts(a.len() as i64, b)]
}

// source -> fan -> count by key -> sink
#[test]
fn words_are_counted_by_text() {
    everywhere(&[stateless(1), partitioned(4, false)], &texts(1500, 300), true);
}

// source -> fan -> count by key -> sink
#[test]
fn integers_are_counted_and_flushed() {
    everywhere(&[stateless(1), partitioned(4, true)], &integers(1500, 300), false);
}

// source -> count by key -> few -> sink
#[test]
fn a_stateless_last_stage() {
    everywhere(&[partitioned(4, true), stateless(2)], &integers(3000, 54), false);
}

// source -> burst by key -> rekey -> burst by key -> sink
#[test]
fn two_partitioned_stages_with_another_key() {
    everywhere(&[partitioned(5, true), stateless(3), partitioned(5, true)], &integers(1500, 40), false);
}

// source -> count by key -> count by key -> sink
#[test]
fn partitioned_stages_side_by_side() {
    everywhere(&[partitioned(4, true), partitioned(5, true)], &integers(2000, 100), false);
}

// source -> few -> pass -> burst, one state -> sink
#[test]
fn a_stateful_last_stage() {
    everywhere(&[stateless(2), stateless(0), stateful(5, true)], &integers(3000, 100), false);
}

// source -> count, one state -> burst, one state -> pass -> sink
#[test]
fn stateful_stages_side_by_side() {
    everywhere(&[stateful(4, true), stateful(5, true), stateless(0)], &integers(2000, 100), false);
}

// source -> burst by text -> count, one state -> count by text -> sink
#[test]
fn every_kind_of_stage() {
    everywhere(&[partitioned(5, false), stateful(4, false), partitioned(4, false)], &texts(1500, 30), true);
}

// source -> pass -> sink
#[test]
fn nothing_but_stateless_operators() {
    everywhere(&[stateless(0), stateless(1), stateless(2)], &integers(1500, 10), false);
}

#[test]
fn a_single_key_takes_all() {
    everywhere(&[stateless(1), partitioned(4, true)], &integers(1500, 1), false);
    everywhere(&[partitioned(5, false)], &texts(3000, 1), true);
}

#[test]
fn no_events_at_all() {
    everywhere(&[stateless(1), partitioned(4, true), stateful(4, true)], &[Events::integers(0, &[])], false);
    everywhere(&[partitioned(4, true)], &[], false);
}

#[test]
fn events_that_vanish_leave_empty_batches() {
    // Values of the form 3k + 1 are filtered out: many batches are empty, between others that are not.
    let values: Vec<(i64, i64)> =
        (0..4000).map(|i| (i % 50, if i / 300 % 2 == 0 { 7 * i + 1 } else { 3 * i })).collect();
    for ops in [
        &[stateless(2), partitioned(4, true)][..],
        &[stateless(2), stateful(4, true), partitioned(5, true)],
        &[partitioned(4, false), stateless(2), partitioned(4, false), stateless(2), stateful(4, false)],
    ] {
        everywhere(ops, &[Events::integers(0, &values)], false);
    }
}

#[test]
fn every_idle_strategy_and_the_open_loop() {
    use crate::threads::idle::Strategy;
    let blocks = integers(3000, 100);
    let ops = [stateless(0), partitioned(5, true), stateless(2), stateful(4, true)];
    let ways = ways();
    let mut ways = ways.iter().cycle();
    for idle in [Strategy::Spin, Strategy::Yield, Strategy::Park] {
        for threads in [1, 2, 3] {
            for rate in [0.0, 1e6] {
                for grouping in groupings(threads) {
                    let options = by(ways.next().unwrap(), options(threads, 32));
                    check(
                        &Pipeline::chain(&ops, false),
                        &blocks,
                        Options { idle, rate: Rate::Constant(rate), ..options },
                        grouping,
                    );
                }
            }
        }
    }
}

#[test]
fn the_digest_does_not_depend_on_threads_or_batches() {
    let blocks = texts(3000, 200);
    let digest = |ops: &[Op], threads, batch, sink, grouping| {
        let pipeline = Pipeline::chain(ops, true);
        let mut executor = make_pooled(&pipeline, Options { sink, ..options(threads, batch) }, grouping).unwrap();
        // Lanes digest what operators emit that emit one row each, and steps what others do (5).
        let numbered = sink != SinkKind::Parquet && ops[1..].iter().all(|op| op.body != 5);
        assert_eq!(executor.work.numbered.is_some(), numbered);
        blocks.iter().for_each(|block| executor.process(&block.block()).unwrap());
        executor.finish(3000).unwrap();
        let metrics = executor.metrics();
        assert!(metrics.in_order && metrics.processing.to_json()["max"].as_f64().unwrap() > 0.0);
        metrics.digest
    };
    let fan = stateless(1);
    for ops in [
        &[fan.clone(), partitioned(4, false)][..],
        &[fan.clone(), partitioned(4, false), stateless(0), stateless(0)],
        &[fan.clone(), partitioned(5, false)],
    ] {
        let expected = digest(ops, 1, 256, SinkKind::Parquet, None);
        assert!(expected.rows > 30_000);
        for (threads, batch) in [(1, 7), (2, 256), (3, 64), (8, 100), (8, 1)] {
            for grouping in groupings(threads) {
                assert_eq!(digest(ops, threads, batch, SinkKind::Digest, grouping.clone()), expected);
                assert_eq!(digest(ops, threads, batch, SinkKind::Count, grouping).rows, expected.rows);
            }
        }
    }
}

/// Lanes and parts that a batch of one event looks at, on its way through two partitioned stages with so many partitions.
#[cfg(not(shuttle))]
fn touched(queue: &str, partitions: usize) -> usize {
    let [heuristic, queue] = ["ct", queue].map(|name| Some(name.into()));
    let options = Options { heuristic, queue, partitions, ..options(1, 1) };
    let pipeline = Pipeline::chain(&[stateless(0), partitioned(8, false), partitioned(4, false)], false);
    let mut executor = make_pooled(&pipeline, options, None).unwrap();
    let events = Events::integers(0, &some(500, 300));
    let before = TOUCHED.get();
    executor.process(&events.block()).unwrap();
    assert_eq!(executor.metrics().digest.rows, 500);
    TOUCHED.get() - before
}

/// The work of a batch of one event does not grow with the number of partitions. There is a look at its lane when a worker
/// deals it, one at its only part, and one when a worker adds the part.
#[cfg(not(shuttle))]
#[test]
fn hybrid_costs_the_same_for_any_number_of_partitions() {
    for partitions in [2, 16, 256] {
        assert_eq!(touched("hybrid", partitions), 500 * 2 * 3);
    }
}

/// The parts of the first two batches when the second has left step 0, and when the first has too.
#[cfg(not(shuttle))]
fn dealt(queue: &str, grouping: Option<Grouping>, reorder: &str) -> [[usize; 2]; 2] {
    let [queue, reorder] = [queue, reorder].map(|name| Some(name.into()));
    let options = Options { queue, reorder, partitions: 40, ..options(2, 10) };
    let pipeline = Pipeline::chain(&[stateless(0), partitioned(4, false)], false);
    let mut executor = make_pooled(&pipeline, options, grouping).unwrap();
    executor.work.begin(&mut executor.frame, 20, &Choice::fixed(2)).unwrap();
    let events = Events::integers(0, &some(20, 20));
    let block = events.block();
    let (pool, job) = (&executor.work, executor.frame.job(&block));
    assert_eq!([pool.start(&job), pool.start(&job)], [Some(0), Some(1)]);
    [1, 0].map(|serial| {
        // SAFETY: there is no other thread, and no lane is at a batch.
        unsafe {
            pool.workers.with_mut(0, |worker| pool.run_step(0, serial, worker, &job, &mut Stopwatch::start())).unwrap();
            [0, 1].map(|serial| pool.slot(serial).inputs[0].batch.with(|batch| (*batch).parts.len()))
        }
    })
}

#[cfg(not(shuttle))]
#[test]
fn the_worker_that_releases_a_batch_deals_its_rows() {
    for (reorder, _) in BUFFERS {
        for queue in ["hybrid", "shared"] {
            // The buffer has the outputs of the second batch in one piece, and passes both batches on.
            let [waiting, [first, second]] = dealt(queue, None, reorder);
            assert_eq!(waiting, [0, 1], "{queue}");
            assert!(first > 1 && second > 1, "{queue}");
        }
        // With our lanes, the worker that makes the rows deals them.
        let [waiting, all] = dealt("lanes", Some(Grouping::InTurn(vec![40])), reorder);
        assert!(waiting[0] == 0 && waiting[1] > 1 && waiting[1] == all[1]);
    }
}

/// Digest and order of a run whose lanes digest their outputs, if `fault` happens to the numbers of the first batch.
fn numbered_with(fault: impl FnOnce(&mut [u32])) -> (Digest, bool) {
    let pipeline = Pipeline::chain(&[stateless(1), partitioned(4, false)], false);
    let options = Options { sink: SinkKind::Digest, ..options(2, 10) };
    let mut executor = make_pooled(&pipeline, options, Some(Grouping::InTurn(vec![5]))).unwrap();
    executor.work.begin(&mut executor.frame, 20, &Choice::fixed(2)).unwrap();
    let events = Events::integers(0, &some(20, 5));
    let block = events.block();
    let (pool, job) = (&executor.work, executor.frame.job(&block));
    let mut clock = Stopwatch::start();
    let mut fault = Some(fault);
    // SAFETY: there is no other thread, and no lane is at a batch between the calls.
    unsafe {
        pool.workers.with_mut(0, |worker| {
            while let Some(serial) = pool.start(&job) {
                pool.run_step(0, serial, worker, &job, &mut clock).unwrap();
                let batch = &pool.slot(serial).inputs[0].batch;
                batch.with_mut(|batch| fault.take().into_iter().for_each(|fault| fault(&mut (*batch).subs)));
            }
            while pool.run_lanes(1, Reach::All, 0, worker, &job, &mut clock).unwrap() {}
            while let Some(serial) = pool.stages[0].done.take() {
                pool.run_step(1, serial, worker, &job, &mut clock).unwrap();
            }
        });
    }
    assert!(pool.is_over());
    let metrics = executor.metrics();
    (metrics.digest, metrics.in_order)
}

#[test]
fn wrong_numbers_in_a_lane_are_noticed() {
    let (digest, in_order) = numbered_with(|_| ());
    let pipeline = Pipeline::chain(&[stateless(1), partitioned(4, false)], false);
    let mut alone = make_pooled(&pipeline, options(1, 256), None).unwrap();
    alone.process(&Events::integers(0, &some(20, 5)).block()).unwrap();
    assert_eq!((digest, in_order), (alone.metrics().digest, true));
    let (shifted, _) = numbered_with(|subs| subs[0] += 1);
    assert_ne!(shifted, digest);
    // Two outputs of an event in one lane have changed places.
    let (swapped, in_order) = numbered_with(|subs| {
        let at = (1..subs.len()).find(|&i| subs[i - 1] < subs[i]).unwrap();
        subs.swap(at - 1, at);
    });
    assert!(swapped != digest && !in_order);
}

/// The numbers of events of the batches that can be started one second after the start.
fn started(options: Options, n: usize) -> Vec<usize> {
    let threads = options.threads;
    let mut executor = make_pooled(&Pipeline::chain(&[stateless(0)], false), options, None).unwrap();
    executor.work.begin(&mut executor.frame, n, &Choice::fixed(threads)).unwrap();
    let events = Events::integers(0, &some(n, 5));
    let block = events.block();
    let mut job = executor.frame.job(&block);
    job.clock = Clock::after(1_000_000_000).start();
    let (mut sizes, mut upto) = (Vec::new(), 0);
    while let Some(serial) = executor.work.start(&job) {
        // SAFETY: there is no other thread.
        let (start, end) = executor.work.slot(serial).head.with(|head| unsafe { ((*head).start, (*head).end) });
        assert_eq!(start, upto);
        sizes.push(end - start);
        upto = end;
    }
    sizes
}

#[test]
fn batches_grow_with_threads_and_wait_for_no_event() {
    assert_eq!(started(options(2, 10), 75), [10, 10, 10, 10, 10, 10, 10, 5]);
    let sizes = started(options(8, 10), 1005);
    assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] == 40 && sizes[31] == 10, "{sizes:?}");
    // The events up to number 25 have arrived.
    let rate = Rate::Constant(25.0);
    assert_eq!(started(Options { rate, ..options(8, 10) }, 1005), [20]);
    let ct = Options { heuristic: Some("ct".into()), ..options(8, 10) };
    assert_eq!(started(ct, 1005)[0], 10);
}

#[test]
fn the_earliest_failure_is_reported_and_nobody_hangs() {
    // Two operators fail, the later one at an earlier event of the same batch.
    let mut values = some(3000, 20);
    values.iter_mut().for_each(|(_, value)| *value = *value % 1000 * 3);
    values[1795].1 = 4242;
    values[1793].1 = 4242 * 3;
    let blocks = [Events::integers(0, &values)];
    let late = [partitioned(6, false), stateless(2), partitioned(6, false)];
    let expected = Model::run(&Pipeline::chain(&late, false), &blocks).failed;
    assert_eq!(expected, Some((1793, 2)));
    // What an event emitted before it failed goes nowhere: else `brittle` would fail.
    let cut = [partitioned(6, false), stateless(7)];
    for ops in [&late[..], &cut, &[stateless(6), stateful(4, false)], &[stateful(6, false)]] {
        everywhere(ops, &blocks, false);
    }
    // Behind lanes that digest their outputs: a key has come 4242 times.
    let (pipeline, blocks) =
        (Pipeline::chain(&[stateless(1), partitioned(4, false), stateless(6)], false), integers(3000, 5));
    let failure = |options: Options, grouping| run(&pipeline, &blocks, options, grouping).unwrap_err().ordered(|_| 0);
    let expected = failure(options(1, 256), None);
    for grouping in groupings(3) {
        assert_eq!(failure(Options { sink: SinkKind::Digest, ..options(3, 16) }, grouping), expected);
    }
}

#[test]
fn text_outside_of_the_block_ends_the_run() {
    let mut events = Events::texts(0, &some(2000, 20));
    events.rows[1500][1] = 1 << 30;
    let ways = ways();
    let mut ways = ways.iter().cycle();
    for ops in [&[partitioned(4, false)][..], &[stateless(0)], &[stateful(4, false)]] {
        for threads in [1, 2, 3] {
            for grouping in groupings(threads) {
                let events = std::slice::from_ref(&events);
                let options = by(ways.next().unwrap(), options(threads, 16));
                let error = run(&Pipeline::chain(ops, true), events, options, grouping).unwrap_err();
                assert!(matches!(error, RunError::Invalid(_)), "{error}");
                assert!(error.to_string().contains("outside its block"), "{error}");
            }
        }
    }
}

#[test]
fn every_way() {
    let blocks = integers(600, 30);
    let ops = [stateless(0), partitioned(5, true), stateless(3), partitioned(4, true), stateful(4, true)];
    for way in ways() {
        for (threads, batch) in pairs(&[2, 3, 8], &[1, 7, 256]) {
            for grouping in groupings(threads) {
                check(&Pipeline::chain(&ops, false), &blocks, by(&way, options(threads, batch)), grouping);
            }
        }
    }
}

#[test]
fn unknown_strategies_are_refused_with_those_there_are() {
    for (wrong, line) in [
        (
            Options { heuristic: Some("cp".into()), ..options(1, 1) },
            "unknown heuristic \"cp\" of executor pooled; known: affinity, ct, lp, et, qst",
        ),
        (
            Options { queue: Some("own".into()), ..options(1, 1) },
            "unknown queue \"own\" of executor pooled; known: lanes, hybrid, partitioned, shared",
        ),
        (
            Options { reorder: Some("none".into()), ..options(1, 1) },
            "unknown reorder \"none\" of executor pooled; known: non_blocking, lock",
        ),
        (
            Options { partitioning: Some("list".into()), ..options(1, 1) },
            "unknown partitioning \"list\" of executor pooled; known: hash, range",
        ),
    ] {
        match make(Pipeline::chain(&[stateless(0)], false).program(), wrong) {
            Err(RunError::Invalid(message)) => assert_eq!(message, line),
            _ => panic!("not refused: {line}"),
        }
    }
}

/// A sink that takes its time, which also looks how many batches are in flight.
#[derive(Debug)]
struct Slow {
    buffer: Box<dyn ReorderBuffer>,
    window: u64,
}

impl ReorderBuffer for Slow {
    fn released(&self) -> u64 {
        self.buffer.released()
    }

    fn complete_and_release(&self, serial: u64, deliver: &mut dyn FnMut(u64)) -> usize {
        assert!(serial < self.released() + self.window, "batch {serial} was started too early");
        self.buffer.complete_and_release(serial, &mut |serial| {
            (0..50).for_each(|_| std::thread::yield_now());
            deliver(serial);
        })
    }
}

#[test]
fn no_more_batches_are_in_flight_than_there_is_room_for_when_the_sink_is_slow() {
    let blocks = integers(2000, 30);
    let pipeline = Pipeline::chain(&[stateless(1), partitioned(4, false), stateless(0)], false);
    let expected = Model::run(&pipeline, &blocks).outcomes.rows;
    for way in ways() {
        let options = by(&way, options(3, 7));
        let strategies = Strategies::named(&options).unwrap();
        let mut executor = pooled(&pipeline.program(), &options, strategies, Grouping::InTurn(vec![5])).unwrap();
        executor.work.regroup(&mut executor.frame, &executor.choice).unwrap();
        let window = executor.work.slots.len() as u64;
        executor.work.back = Box::new(Slow { buffer: (strategies.reorder)(window as usize), window });
        let mut rows = Vec::new();
        for block in &blocks {
            executor.process(&block.block()).unwrap();
            rows.extend(executor.take_outputs().0);
        }
        assert!(rows == expected.iter().flatten().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(), "{way:?}");
    }
}

/// Two batches of a stateless chain, the second completed first.
fn second_first(back: Box<dyn ReorderBuffer>) -> (bool, Vec<u8>) {
    let mut executor = make_pooled(&Pipeline::chain(&[stateless(0)], false), options(2, 10), None).unwrap();
    executor.work.back = back;
    executor.work.begin(&mut executor.frame, 20, &executor.choice).unwrap();
    let events = Events::integers(0, &some(20, 5));
    let block = events.block();
    let (pool, job) = (&executor.work, executor.frame.job(&block));
    let (first, second) = (pool.start(&job).unwrap(), pool.start(&job).unwrap());
    for serial in [second, first] {
        let mut clock = Stopwatch::start();
        // SAFETY: there is no other thread.
        unsafe { pool.workers.with_mut(0, |worker| pool.run_step(0, serial, worker, &job, &mut clock)) }.unwrap();
    }
    (executor.metrics().in_order, executor.take_outputs().0)
}

#[test]
fn a_broken_reorder_buffer_is_noticed() {
    let (broken_in_order, broken_rows) = second_first(Box::new(NonBlocking::broken(8)));
    let expected =
        Model::run(&Pipeline::chain(&[stateless(0)], false), &[Events::integers(0, &some(20, 5))]).outcomes.rows;
    let expected: Vec<u8> = expected.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    assert!(!broken_in_order && broken_rows != expected);
    for (_, make) in BUFFERS {
        assert_eq!(second_first(make(8)), (true, expected.clone()));
    }
}

// source -+-> fan --+-> count by key -+-> pass -+-> sink
//         +-> few --+                 |         |
//         +---------+-----------------+---------+
#[test]
fn streams_part_and_meet_again() {
    let ops = vec![
        stateless(1).of(&[-1]),
        stateless(2).of(&[-1]),
        partitioned(4, true).of(&[1, -1, 0]),
        stateless(0).of(&[2, 1]),
        stateful(5, true).of(&[-1]),
    ];
    let pipeline = Pipeline::new(ops, &[3, -1, 2, 4], false);
    for way in ways() {
        for (threads, batch) in [(1, 7), (2, 256), (3, 7), (8, 1)] {
            for grouping in groupings(threads) {
                check(&pipeline, &integers(500, 40), by(&way, options(threads, batch)), grouping);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(600))]
    #[test]
    fn random_pipelines_agree_with_the_loop(
        (pipeline, blocks) in any::<bool>().prop_flat_map(|fails| (Just(fails), any_pipeline(fails))).prop_flat_map(
            |(fails, pipeline)| {
                let blocks = any_blocks(pipeline.text_keys, fails);
                (Just(pipeline), blocks)
            }
        ),
        threads in 1_usize..5, batch in 1_usize..40, lanes in proptest::collection::vec(1_usize..20, 1..5),
        way in 0_usize..20,
    ) {
        check(&pipeline, &blocks, by(&ways()[way], options(threads, batch)), Some(Grouping::InTurn(lanes)));
    }
}
