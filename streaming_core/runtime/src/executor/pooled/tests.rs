//! Chains of native kernels, pooled, against a loop that takes one event at a time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::batch::Text;
use crate::kernel::{BatchContext, Emitter};
use crate::program::ProgramKind;
use crate::sink::SinkKind;

/// All rows here: seq, a key (an integer, or a text slice), a value.
type Row = [i64; 3];
type State = [i64; 3];
const STRIDE: usize = 24;

/// What an operator does with one row. The state holds: times seen, sum, last key.
type Body = fn(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome;

#[derive(PartialEq)]
enum Outcome {
    Done,
    Invalid,
    Raises,
}

fn pass(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    emit(row[1], row[2].wrapping_mul(3) + 1);
    Outcome::Done
}

/// Selectivity 0 to 50.
fn fan(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    let n = row[2].unsigned_abs() % 60;
    (0..if n > 50 { 0 } else { n as i64 }).for_each(|i| emit(row[1], row[2] + i));
    Outcome::Done
}

fn few(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    if row[2] % 7 == 3 {
        return Outcome::Invalid;
    }
    if row[2] % 3 == 0 {
        emit(row[1], row[2] / 3);
    }
    Outcome::Done
}

/// Only for integer keys.
fn rekey(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    emit(row[1].wrapping_add(row[2]) % 5, row[2]);
    Outcome::Done
}

fn count(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    *state = [state[0] + 1, state[1].wrapping_add(row[2]), row[1]];
    emit(row[1], state[0]);
    Outcome::Done
}

fn burst(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    *state = [state[0] + 1, state[1].wrapping_mul(31).wrapping_add(row[2]), row[1]];
    (0..state[0] % 4).for_each(|i| emit(row[1], state[1] ^ i));
    Outcome::Done
}

fn fragile(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    state[0] += 1;
    emit(row[1], row[2]);
    if row[2] == 4242 { Outcome::Raises } else { Outcome::Done }
}

fn brittle(row: Row, _: &mut State, _: &mut dyn FnMut(i64, i64)) -> Outcome {
    if row[2] == 4242 { Outcome::Raises } else { Outcome::Done }
}

const BODIES: [Body; 8] = [pass, fan, few, rekey, count, burst, fragile, brittle];
const NAMES: [&str; 8] = ["pass", "fan", "few", "rekey", "count", "burst", "fragile", "brittle"];

/// The two ends of a flush: what stands in the state, and how many of them the key has seen.
fn flush_body(state: &mut State, emit: &mut dyn FnMut(i64, i64)) {
    emit(state[2], state[0]);
    if state[0] % 2 == 0 {
        emit(state[2], state[1]);
    }
    state[1] = -1;
}

/// What compiled `emit` does.
///
/// # Safety
/// The emitter is that of a kernel's context, its rows are `Row`s.
unsafe fn emit(emitter: *mut Emitter, row: Row, origin: u32) {
    // SAFETY: as the caller says; room is made before it is used.
    unsafe {
        let emitter = &mut *emitter;
        if emitter.len == emitter.cap {
            assert_eq!((emitter.grow)(emitter), 0);
        }
        emitter.rows.add(emitter.len as usize * STRIDE).cast::<Row>().write_unaligned(row);
        if !emitter.origin.is_null() {
            emitter.origin.add(emitter.len as usize).write(origin);
        }
        emitter.len += 1;
    }
}

extern "C" fn kernel<const BODY: usize>(context: *mut BatchContext) -> i64 {
    // SAFETY: the runtime calls kernels with contexts as the ABI says; all rows are `Row`s, all states `State`s.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let at = if context.selection.is_null() { i } else { *context.selection.add(i) as usize };
            let row = context.rows.add(at * STRIDE).cast::<Row>().read_unaligned();
            let mut nothing = [0; 3];
            let state =
                if context.states.is_null() { &mut nothing } else { &mut *(*context.states.add(i)).cast::<State>() };
            let emitter = context.emitter;
            match BODIES[BODY](row, state, &mut |key, value| emit(emitter, [row[0], key, value], at as u32)) {
                Outcome::Done => {}
                Outcome::Invalid => (*emitter).dropped += 1,
                Outcome::Raises => {
                    context.error_at = at as i64;
                    context.error = b"why".as_ptr();
                    context.error_len = 3;
                    return 1;
                }
            }
        }
        0
    }
}

extern "C" fn flush_kernel(context: *mut BatchContext) -> i64 {
    // SAFETY: as for `kernel`.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let state = &mut *(*context.states.add(i)).cast::<State>();
            let (emitter, seq) = (context.emitter, context.seq);
            flush_body(state, &mut |key, value| emit(emitter, [seq, key, value], i as u32));
        }
        0
    }
}

const KERNELS: [extern "C" fn(*mut BatchContext) -> i64; 8] =
    [kernel::<0>, kernel::<1>, kernel::<2>, kernel::<3>, kernel::<4>, kernel::<5>, kernel::<6>, kernel::<7>];

#[derive(Debug, Clone, Copy, PartialEq)]
struct Op {
    kind: OperatorKind,
    body: usize,
    flushes: bool,
}

fn stateless(body: usize) -> Op {
    Op { kind: OperatorKind::Stateless, body, flushes: false }
}

fn partitioned(body: usize, flushes: bool) -> Op {
    Op { kind: OperatorKind::Partitioned, body, flushes }
}

fn stateful(body: usize, flushes: bool) -> Op {
    Op { kind: OperatorKind::Stateful, body, flushes }
}

fn program(ops: &[Op], text_keys: bool) -> Program {
    let operators: Vec<_> = ops
        .iter()
        .enumerate()
        .map(|(index, op)| {
            let mut operator = json!({
                "inputs": [index as i64 - 1],
                "kind": match op.kind {
                    OperatorKind::Stateless => "stateless",
                    OperatorKind::Partitioned => "partitioned",
                    OperatorKind::Stateful => "stateful",
                },
                "name": NAMES[op.body], "kernel": KERNELS[op.body] as usize as u64, "stride": STRIDE,
                "flush": if op.flushes { flush_kernel as extern "C" fn(*mut BatchContext) -> i64 as usize as u64 } else { 0 },
            });
            if op.kind != OperatorKind::Stateless {
                operator["state_size"] = json!(24);
            }
            if op.kind == OperatorKind::Partitioned {
                operator["key"] = json!({"kind": if text_keys { "text" } else { "i64" }, "offset": 8});
            }
            operator
        })
        .collect();
    let key = if text_keys { "text" } else { "i64" };
    let program = json!({
        "kind": "dataflow", "event": {"stride": STRIDE}, "operators": operators,
        "outputs": [ops.len() - 1], "columns": [{"kind": key, "offset": 8}, {"kind": "i64", "offset": 16}],
    });
    let program = Program::parse(&program.to_string()).unwrap();
    assert_eq!(program.kind, ProgramKind::Dataflow);
    program
}

/// One block of events.
#[derive(Debug, Clone, Default)]
struct Events {
    rows: Vec<Row>,
    text: Vec<u8>,
}

impl Events {
    /// Integer keys.
    fn integers(first: i64, keys_and_values: &[(i64, i64)]) -> Self {
        let rows =
            keys_and_values.iter().enumerate().map(|(i, &(key, value))| [first + i as i64, key, value]).collect();
        Self { rows, text: vec![0; 64] }
    }

    /// Text keys: `word<key>`, now and then a long one.
    fn texts(first: i64, keys_and_values: &[(i64, i64)]) -> Self {
        let mut events = Self::default();
        for (i, &(key, value)) in keys_and_values.iter().enumerate() {
            let word = if key % 4 == 3 { format!("a rather long word {key}") } else { format!("word{key}") };
            let word = if key == 0 { "" } else { &word };
            let slice = events.text.len() as i64 | (word.len() as i64) << 32;
            events.rows.push([first + i as i64, slice, value]);
            events.text.extend(word.as_bytes());
        }
        events.text.extend([0xEE; 64]);
        events
    }

    fn block(&self) -> Block {
        // SAFETY: 64 bytes are behind the text; the events outlive the block.
        let text = unsafe { Text::new(self.text.as_ptr(), self.text.len() - 64) };
        // SAFETY: as above.
        unsafe { Block::new(self.rows.as_ptr().cast(), self.rows.len(), STRIDE, text) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ModelKey {
    Nothing,
    Integer(i64),
    Text(Vec<u8>),
}

/// What a run is about: outputs with subs, states per stateful operator, invalid events.
#[derive(Debug, Default, PartialEq)]
struct Outcomes {
    rows: Vec<Row>,
    subs: Vec<u32>,
    states: Vec<Vec<(ModelKey, State)>>,
    dropped: u64,
}

/// One event at a time, depth first.
struct Model<'a> {
    ops: &'a [Op],
    text_keys: bool,
    text: &'a [u8],
    states: Vec<BTreeMap<ModelKey, State>>,
    outcomes: Outcomes,
    failed: Option<(i64, &'static str)>,
}

impl<'a> Model<'a> {
    fn take(&mut self, index: usize, row: Row) {
        if self.failed.is_some() {
            return;
        }
        let Some(op) = self.ops.get(index) else {
            let sub = match self.outcomes.rows.last() {
                Some(last) if last[0] == row[0] => self.outcomes.subs.last().unwrap() + 1,
                _ => 0,
            };
            self.outcomes.rows.push(row);
            self.outcomes.subs.push(sub);
            return;
        };
        let key = match op.kind {
            OperatorKind::Partitioned if self.text_keys => {
                let (start, len) = (row[1] as u32 as usize, (row[1] >> 32) as usize);
                ModelKey::Text(self.text[start..start + len].to_vec())
            }
            OperatorKind::Partitioned => ModelKey::Integer(row[1]),
            _ => ModelKey::Nothing,
        };
        let mut nothing = [0; 3];
        let state = match op.kind {
            OperatorKind::Stateless => &mut nothing,
            _ => self.states[index].entry(key).or_insert([0; 3]),
        };
        let mut emitted = Vec::new();
        match BODIES[op.body](row, state, &mut |key, value| emitted.push([row[0], key, value])) {
            Outcome::Done => {}
            Outcome::Invalid => self.outcomes.dropped += 1,
            Outcome::Raises => {
                self.failed = Some((row[0], NAMES[op.body]));
                return;
            }
        }
        for row in emitted {
            self.take(index + 1, row);
        }
    }

    fn run(ops: &'a [Op], blocks: &'a [Events], text_keys: bool, end: i64) -> Self {
        let mut model = Model {
            ops,
            text_keys,
            text: &[],
            states: vec![BTreeMap::new(); ops.len()],
            outcomes: Outcomes::default(),
            failed: None,
        };
        for block in blocks {
            model.text = &block.text;
            block.rows.iter().for_each(|&row| model.take(0, row));
        }
        for (index, op) in ops.iter().enumerate() {
            if op.kind == OperatorKind::Stateful {
                model.states[index].entry(ModelKey::Nothing).or_insert([0; 3]);
            }
            if op.flushes && model.failed.is_none() {
                let mut emitted = Vec::new();
                for state in model.states[index].values_mut() {
                    flush_body(state, &mut |key, value| emitted.push([end, key, value]));
                }
                emitted.into_iter().for_each(|row| model.take(index + 1, row));
            }
        }
        let states = std::mem::take(&mut model.states);
        model.outcomes.states = ops
            .iter()
            .zip(states)
            .filter(|(op, _)| op.kind != OperatorKind::Stateless)
            .map(|(_, states)| states.into_iter().collect())
            .collect();
        model
    }
}

fn options(threads: usize, batch: usize) -> Options {
    Options { executor: "pooled".into(), threads, batch, sink: SinkKind::Parquet, ..Options::default() }
}

/// A whole run. None of `ops` may flush when keys are text: there is no text at the end of the stream.
fn run(
    ops: &[Op],
    blocks: &[Events],
    text_keys: bool,
    end: i64,
    options: Options,
    grouping: Grouping,
) -> Result<Outcomes, RunError> {
    let mut executor = Pooled::new(program(ops, text_keys), options, grouping)?;
    let mut outcomes = Outcomes::default();
    let mut take = |executor: &mut Pooled| {
        let (rows, subs) = executor.take_outputs();
        assert_eq!(rows.len(), subs.len() * STRIDE);
        // SAFETY: a row of 24 bytes.
        outcomes.rows.extend(rows.chunks(STRIDE).map(|row| unsafe { row.as_ptr().cast::<Row>().read_unaligned() }));
        outcomes.subs.extend(subs);
    };
    for block in blocks {
        executor.process(&block.block())?;
        take(&mut executor);
    }
    executor.finish(end)?;
    take(&mut executor);
    for (index, op) in ops.iter().enumerate() {
        if op.kind == OperatorKind::Stateless {
            assert!(executor.states(index).is_err());
            continue;
        }
        let States { keys, states } = executor.states(index)?;
        // SAFETY: a state of 24 bytes.
        let states = states.chunks(24).map(|state| unsafe { state.as_ptr().cast::<State>().read_unaligned() });
        let keys: Vec<ModelKey> = match keys {
            Keys::None => vec![ModelKey::Nothing],
            Keys::Integers(keys) => keys.into_iter().map(ModelKey::Integer).collect(),
            Keys::Texts(keys) => keys.into_iter().map(ModelKey::Text).collect(),
        };
        outcomes.states.push(keys.into_iter().zip(states).collect());
    }
    let metrics = executor.metrics();
    assert!(metrics.in_order);
    assert_eq!(metrics.digest.rows, outcomes.rows.len() as u64);
    assert_eq!(metrics.events, blocks.iter().map(|block| block.rows.len() as u64).sum::<u64>());
    outcomes.dropped = metrics.counters.dropped;
    Ok(outcomes)
}

/// One lane, several, and numbers that change from block to block.
fn groupings(threads: usize) -> [Grouping; 4] {
    let in_turn = |numbers: &[usize]| Grouping::InTurn(numbers.to_vec());
    [in_turn(&[1]), in_turn(&[4 * threads]), in_turn(&[3, 1, 40, 2, 1]), Grouping::ByCost]
}

fn check(ops: &[Op], blocks: &[Events], text_keys: bool, options: Options, grouping: Grouping) {
    let end = blocks.iter().map(|block| block.rows.len() as i64).sum();
    let expected = Model::run(ops, blocks, text_keys, end);
    assert_eq!(expected.failed, None);
    let (threads, batch) = (options.threads, options.batch);
    let real = run(ops, blocks, text_keys, end, options, grouping.clone()).unwrap();
    let same = real.rows.iter().zip(&expected.outcomes.rows).take_while(|(a, b)| a == b).count();
    assert!(
        real == expected.outcomes,
        "{ops:?}, {threads} threads, batch {batch}, {grouping:?}: {} rows and not {}, the first {same} agree; dropped {} and {}",
        real.rows.len(),
        expected.outcomes.rows.len(),
        real.dropped,
        expected.outcomes.dropped,
    );
}

fn everywhere(ops: &[Op], blocks: &[Events], text_keys: bool) {
    for threads in [1, 2, 3, 8] {
        for batch in [1, 7, 256] {
            for grouping in groupings(threads) {
                check(ops, blocks, text_keys, options(threads, batch), grouping);
            }
        }
    }
}

/// Keys and values that look random: `keys` different keys.
fn some(n: usize, keys: u64) -> Vec<(i64, i64)> {
    (0..n as i64)
        .map(|i| {
            let word = crate::key_group::hash_i64(i);
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
    use crate::idle::Strategy;
    let blocks = integers(3000, 100);
    let ops = [stateless(0), partitioned(5, true), stateless(2), stateful(4, true)];
    for idle in [Strategy::Spin, Strategy::Yield, Strategy::Park] {
        for threads in [1, 2, 3] {
            for rate in [0.0, 1e6] {
                for grouping in groupings(threads) {
                    check(&ops, &blocks, false, Options { idle, rate, ..options(threads, 32) }, grouping);
                }
            }
        }
    }
}

#[test]
fn the_digest_does_not_depend_on_threads_or_batches() {
    let blocks = texts(3000, 200);
    let digest = |threads, batch, sink| {
        let program = program(&[stateless(1), partitioned(4, false)], true);
        let mut executor = make(program, Options { sink, ..options(threads, batch) }).unwrap();
        blocks.iter().for_each(|block| executor.process(&block.block()).unwrap());
        executor.finish(3000).unwrap();
        let metrics = executor.metrics();
        assert!(metrics.in_order && metrics.processing.to_json()["max"].as_f64().unwrap() > 0.0);
        metrics.digest
    };
    let expected = digest(1, 256, SinkKind::Parquet);
    assert!(expected.rows > 30_000);
    for (threads, batch) in [(1, 7), (2, 256), (3, 64), (8, 100)] {
        assert_eq!(digest(threads, batch, SinkKind::Digest), expected);
        assert_eq!(digest(threads, batch, SinkKind::Count).rows, expected.rows);
    }
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
    let expected = Model::run(&late, &blocks, false, 3000).failed;
    assert_eq!(expected, Some((1793, "fragile")));
    // What an event emitted before it failed goes nowhere: else `brittle` would fail.
    let cut = [partitioned(6, false), stateless(7)];
    for ops in [&late[..], &cut, &[stateless(6), stateful(4, false)], &[stateful(6, false)]] {
        let (seq, operator) = Model::run(ops, &blocks, false, 3000).failed.expect("a failure");
        for threads in [1, 2, 3, 8] {
            for batch in [1, 7, 256] {
                for grouping in groupings(threads) {
                    let error = run(ops, &blocks, false, 3000, options(threads, batch), grouping).unwrap_err();
                    let exception = b"why".to_vec();
                    assert_eq!(
                        error,
                        RunError::Kernel { operator: operator.into(), seq, exception },
                        "{threads} {batch}"
                    );
                }
            }
        }
    }
}

#[test]
fn text_outside_of_the_block_ends_the_run() {
    let mut events = Events::texts(0, &some(2000, 20));
    events.rows[1500][1] = 1 << 30;
    for ops in [&[partitioned(4, false)][..], &[stateless(0)], &[stateful(4, false)]] {
        for threads in [1, 2, 3] {
            for grouping in groupings(threads) {
                let events = std::slice::from_ref(&events);
                let error = run(ops, events, true, 2000, options(threads, 16), grouping).unwrap_err();
                assert!(matches!(error, RunError::Invalid(_)), "{error}");
                assert!(error.to_string().contains("outside of its block"), "{error}");
            }
        }
    }
}

#[test]
fn unknown_strategies_are_refused() {
    for wrong in [
        Options { heuristic: Some("lp".into()), ..options(1, 1) },
        Options { queue: Some("shared".into()), ..options(1, 1) },
        Options { reorder: Some("lock".into()), ..options(1, 1) },
    ] {
        assert!(matches!(make(program(&[stateless(0)], false), wrong), Err(RunError::Invalid(_))));
    }
}

/// Two batches of a stateless chain, the second completed first.
fn second_first(back: ReorderBuffer) -> (bool, Vec<u8>) {
    let program = program(&[stateless(0)], false);
    let options = options(2, 10);
    let sink = Sink::new(options.sink, program.hasher().unwrap());
    // SAFETY: the program's kernels are functions of this file.
    let chain = unsafe { Chain::bind(&program) }.unwrap();
    let mut shared = Shared::new(chain, sink, &options);
    shared.back = back;
    let events = Events::integers(0, &some(20, 5));
    let block = events.block();
    let job = Job { block: &block, first: 0, end: 2, before: 0, clock: Clock::default().start() };
    let (first, second) = (shared.start(&job).unwrap(), shared.start(&job).unwrap());
    shared.workers[0].with_mut(|worker| {
        let mut clock = Stopwatch::start();
        for serial in [second, first] {
            // SAFETY: there is no other thread.
            let worker = unsafe { &mut *worker };
            shared.run_step(0, serial, worker, &job, &mut clock).unwrap();
        }
    });
    // SAFETY: there is no other thread.
    shared.delivery.with_mut(|delivery| unsafe { ((*delivery).sink.in_order(), (*delivery).sink.take().0) })
}

#[test]
fn a_broken_reorder_buffer_is_noticed() {
    let (in_order, rows) = second_first(ReorderBuffer::new(8));
    let (broken_in_order, broken_rows) = second_first(ReorderBuffer::broken(8));
    assert!(in_order && !broken_in_order);
    assert_ne!(rows, broken_rows);
    let expected = Model::run(&[stateless(0)], &[Events::integers(0, &some(20, 5))], false, 20).outcomes.rows;
    assert_eq!(rows, expected.iter().flatten().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
}

fn any_op(text_keys: bool) -> impl Strategy<Value = Op> {
    let flushes = if text_keys { Just(false).boxed() } else { any::<bool>().boxed() };
    let bodies = if text_keys { 0_usize..3 } else { 0..4 };
    prop_oneof![
        bodies.prop_map(stateless),
        (4_usize..6, flushes.clone()).prop_map(|(body, flushes)| partitioned(body, flushes)),
        (4_usize..6, flushes).prop_map(|(body, flushes)| stateful(body, flushes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn random_chains_agree_with_the_loop(
        (text_keys, ops) in any::<bool>().prop_flat_map(|text| (Just(text), proptest::collection::vec(any_op(text), 1..5))),
        blocks in proptest::collection::vec(proptest::collection::vec((0_i64..30, 0_i64..2000), 0..150), 0..4),
        skewed: bool, threads in 1_usize..5, batch in 1_usize..40, lanes in proptest::collection::vec(1_usize..20, 1..5),
    ) {
        // A product of fan-outs would be all that is measured.
        prop_assume!(ops.iter().filter(|op| op.body == 1).count() < 2);
        let mut first = 0;
        let blocks: Vec<Events> = blocks
            .into_iter()
            .map(|mut block| {
                if skewed {
                    block.iter_mut().for_each(|(key, _)| *key = if *key < 25 { 1 } else { *key });
                }
                let make = if text_keys { Events::texts } else { Events::integers };
                let events = make(first, &block);
                first += block.len() as i64;
                events
            })
            .collect();
        check(&ops, &blocks, text_keys, options(threads, batch), Grouping::InTurn(lanes));
    }
}
