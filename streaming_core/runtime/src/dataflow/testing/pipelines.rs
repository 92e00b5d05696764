//! Pipelines of native kernels, and what one thread makes of them that takes one event at a time.
//!
//! For tests: every executor is held against `Model`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;
use serde_json::json;

use crate::error::RunError;
use crate::executor::Executor;
use crate::output::digest::Digest;
use crate::output::sink::{Sink, SinkKind};
use crate::program::kernel::BatchContext;
use crate::program::{OperatorKind, Program, ProgramKind};
use crate::rows::block::{Block, Text};
use crate::rows::buffer::RowBuffer;
use crate::rows::emitter::Emitter;
use crate::state::states::{Keys, States};

/// All rows here: seq, a key (an integer, or a text slice), a value.
pub type Row = [i64; 3];
pub type State = [i64; 3];
pub const STRIDE: usize = 24;

/// What an operator does with one row. The state holds: times seen, sum, last key.
pub type Body = fn(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending;

#[derive(PartialEq)]
pub enum Ending {
    Done,
    Invalid,
    Raises,
}

fn pass(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    emit(row[1], row[2].wrapping_mul(3) + 1);
    Ending::Done
}

/// Selectivity 0 to 50.
fn fan(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    let n = row[2].unsigned_abs() % 60;
    (0..if n > 50 { 0 } else { n as i64 }).for_each(|i| emit(row[1], row[2] + i));
    Ending::Done
}

fn few(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    if row[2] % 7 == 3 {
        return Ending::Invalid;
    }
    if row[2] % 3 == 0 {
        emit(row[1], row[2] / 3);
    }
    Ending::Done
}

/// Only for integer keys.
fn rekey(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    emit(row[1].wrapping_add(row[2]) % 5, row[2]);
    Ending::Done
}

fn count(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    *state = [state[0] + 1, state[1].wrapping_add(row[2]), row[1]];
    emit(row[1], state[0]);
    Ending::Done
}

fn burst(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    *state = [state[0] + 1, state[1].wrapping_mul(31).wrapping_add(row[2]), row[1]];
    (0..state[0] % 4).for_each(|i| emit(row[1], state[1] ^ i));
    Ending::Done
}

fn fragile(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    state[0] += 1;
    emit(row[1], row[2]);
    if row[2] == 4242 { Ending::Raises } else { Ending::Done }
}

fn brittle(row: Row, _: &mut State, _: &mut dyn FnMut(i64, i64)) -> Ending {
    if row[2] == 4242 { Ending::Raises } else { Ending::Done }
}

/// Called by `probe`, for tests that look at an executor while an operator is at work.
pub type Probe = Box<dyn Fn(Row)>;

thread_local! {
    /// The probe of this thread.
    pub static PROBE: RefCell<Option<Probe>> = const { RefCell::new(None) };
}

fn probe(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Ending {
    PROBE.with_borrow(|probe| probe.iter().for_each(|probe| probe(row)));
    count(row, state, emit)
}

pub const BODIES: [Body; 9] = [pass, fan, few, rekey, count, burst, fragile, brittle, probe];
pub const NAMES: [&str; 9] = ["pass", "fan", "few", "rekey", "count", "burst", "fragile", "brittle", "probe"];

/// The least and the most rows of each body.
const EMITS: [(u64, Option<u64>); 9] = {
    let row = (1, Some(1));
    [row, (0, None), (0, Some(1)), row, row, (0, None), row, (0, Some(0)), row]
};

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
pub(super) unsafe fn emit(emitter: *mut Emitter, row: Row, origin: u32) {
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

pub(super) extern "C" fn kernel<const BODY: usize>(context: *mut BatchContext) -> i64 {
    // SAFETY: the runtime calls kernels with contexts as the ABI says; all rows are `Row`s, all states `State`s.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let row = if context.places.is_null() { context.rows.add(i * STRIDE) } else { *context.places.add(i) };
            let row = row.cast::<Row>().read_unaligned();
            let mut nothing = [0; 3];
            let state =
                if context.states.is_null() { &mut nothing } else { &mut *(*context.states.add(i)).cast::<State>() };
            let emitter = context.emitter;
            match BODIES[BODY](row, state, &mut |key, value| emit(emitter, [row[0], key, value], i as u32)) {
                Ending::Done => {}
                Ending::Invalid => (*emitter).dropped += 1,
                Ending::Raises => {
                    context.error_at = i as i64;
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

const KERNELS: [extern "C" fn(*mut BatchContext) -> i64; 9] = [
    kernel::<0>,
    kernel::<1>,
    kernel::<2>,
    kernel::<3>,
    kernel::<4>,
    kernel::<5>,
    kernel::<6>,
    kernel::<7>,
    kernel::<8>,
];

/// An operator, and whose rows it takes: -1 the events.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    pub kind: OperatorKind,
    pub body: usize,
    pub flushes: bool,
    pub inputs: Vec<i64>,
}

/// Operators, and whose rows the sink takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    pub ops: Vec<Op>,
    pub outputs: Vec<i64>,
    pub text_keys: bool,
}

pub fn stateless(body: usize) -> Op {
    Op { kind: OperatorKind::Stateless, body, flushes: false, inputs: Vec::new() }
}

pub fn partitioned(body: usize, flushes: bool) -> Op {
    Op { kind: OperatorKind::Partitioned, body, flushes, inputs: Vec::new() }
}

pub fn stateful(body: usize, flushes: bool) -> Op {
    Op { kind: OperatorKind::Stateful, body, flushes, inputs: Vec::new() }
}

impl Op {
    /// Takes the rows of these; without this, of the operator before it.
    pub fn of(self, inputs: &[i64]) -> Self {
        Self { inputs: inputs.to_vec(), ..self }
    }
}

impl Pipeline {
    pub fn new(mut ops: Vec<Op>, outputs: &[i64], text_keys: bool) -> Self {
        for (index, op) in ops.iter_mut().enumerate() {
            if op.inputs.is_empty() {
                op.inputs = vec![index as i64 - 1];
            }
        }
        Self { ops, outputs: outputs.to_vec(), text_keys }
    }

    /// Operators that follow one another.
    pub fn chain(ops: &[Op], text_keys: bool) -> Self {
        Self::new(ops.to_vec(), &[ops.len() as i64 - 1], text_keys)
    }

    /// The name of operator `index`.
    pub fn name(&self, index: usize) -> String {
        format!("{}_{index}", NAMES[self.ops[index].body])
    }

    pub fn program(&self) -> Program {
        let key = if self.text_keys { "text" } else { "i64" };
        let operators: Vec<_> = (self.ops.iter().enumerate())
            .map(|(index, op)| {
                let mut operator = json!({
                    "inputs": op.inputs,
                    "kind": match op.kind {
                        OperatorKind::Stateless => "stateless",
                        OperatorKind::Partitioned => "partitioned",
                        OperatorKind::Stateful => "stateful",
                        OperatorKind::Windowed => unreachable!("drawn pipelines have no windows"),
                    },
                    "name": self.name(index), "kernel": KERNELS[op.body] as usize as u64, "stride": STRIDE,
                    "emits": EMITS[op.body],
                    "flush": if op.flushes { flush_kernel as extern "C" fn(*mut BatchContext) -> i64 as usize as u64 } else { 0 },
                });
                if op.kind != OperatorKind::Stateless {
                    operator["state_size"] = json!(24);
                }
                if op.kind == OperatorKind::Partitioned {
                    operator["key"] = json!([{"kind": key, "offset": 8}]);
                }
                operator
            })
            .collect();
        let program = json!({
            "kind": "dataflow", "event": {"stride": STRIDE}, "operators": operators, "outputs": self.outputs,
            "columns": [{"kind": key, "offset": 8}, {"kind": "i64", "offset": 16}],
        });
        // SAFETY: the kernels are functions of this file, for its rows and states.
        let program = unsafe { Program::parse(&program.to_string()) }.unwrap();
        assert_eq!(program.kind, ProgramKind::Dataflow);
        program
    }
}

/// One block of events.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events {
    pub rows: Vec<Row>,
    text: Vec<u8>,
}

impl Events {
    /// Integer keys.
    pub fn integers(first: i64, keys_and_values: &[(i64, i64)]) -> Self {
        let rows =
            keys_and_values.iter().enumerate().map(|(i, &(key, value))| [first + i as i64, key, value]).collect();
        Self { rows, text: vec![0; 64] }
    }

    /// Text keys: `word<key>`, now and then a long one.
    pub fn texts(first: i64, keys_and_values: &[(i64, i64)]) -> Self {
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

    pub fn block(&self) -> Block {
        // SAFETY: 64 bytes are behind the text; the events outlive the block.
        let text = unsafe { Text::new(self.text.as_ptr(), self.text.len() - 64) };
        // SAFETY: as above.
        unsafe { Block::new(self.rows.as_ptr().cast(), self.rows.len(), STRIDE, text) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelKey {
    Nothing,
    Integer(i64),
    Text(Vec<u8>),
}

/// What a run is about: outputs with subs, states per stateful operator, invalid events.
#[derive(Debug, Default, PartialEq)]
pub struct Outcomes {
    pub rows: Vec<Row>,
    pub subs: Vec<u32>,
    pub states: Vec<Vec<(ModelKey, State)>>,
    pub dropped: u64,
}

/// One event at a time, operators in topological order.
pub struct Model<'a> {
    pipeline: &'a Pipeline,
    text: &'a [u8],
    states: Vec<BTreeMap<ModelKey, State>>,
    pub outcomes: Outcomes,
    /// The event and the operator that raised.
    pub failed: Option<(i64, usize)>,
}

impl<'a> Model<'a> {
    /// What operator `index` makes of `row`; None: it raises.
    fn take(&mut self, index: usize, row: Row) -> Option<Vec<Row>> {
        let op = &self.pipeline.ops[index];
        let key = match op.kind {
            OperatorKind::Partitioned if self.pipeline.text_keys => {
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
            Ending::Done => {}
            Ending::Invalid => self.outcomes.dropped += 1,
            Ending::Raises => return None,
        }
        Some(emitted)
    }

    /// One event, or the end of the stream: `end` is its seq then.
    fn event(&mut self, event: Option<Row>, end: i64) {
        let mut emitted: Vec<Vec<Row>> = Vec::new();
        let taken = |inputs: &[i64], emitted: &[Vec<Row>]| -> Vec<Row> {
            let stream =
                |&input: &i64| usize::try_from(input).map_or(event.into_iter().collect(), |i| emitted[i].clone());
            inputs.iter().flat_map(stream).collect()
        };
        for (index, op) in self.pipeline.ops.iter().enumerate() {
            let mut rows = Vec::new();
            for row in taken(&op.inputs, &emitted) {
                match self.take(index, row) {
                    Some(more) => rows.extend(more),
                    None => {
                        self.failed = Some((row[0], index));
                        return;
                    }
                }
            }
            if event.is_none() && op.flushes {
                for state in self.states[index].values_mut() {
                    flush_body(state, &mut |key, value| rows.push([end, key, value]));
                }
            }
            emitted.push(rows);
        }
        for (sub, row) in taken(&self.pipeline.outputs, &emitted).into_iter().enumerate() {
            self.outcomes.rows.push(row);
            self.outcomes.subs.push(sub as u32);
        }
    }

    pub fn run(pipeline: &'a Pipeline, blocks: &'a [Events]) -> Self {
        let (ops, end) = (&pipeline.ops, blocks.iter().map(|block| block.rows.len() as i64).sum());
        let states = vec![BTreeMap::new(); ops.len()];
        let mut model = Model { pipeline, text: &[], states, outcomes: Outcomes::default(), failed: None };
        for block in blocks {
            model.text = &block.text;
            for &row in &block.rows {
                if model.failed.is_none() {
                    model.event(Some(row), end);
                }
            }
        }
        for (op, states) in ops.iter().zip(&mut model.states) {
            if op.kind == OperatorKind::Stateful {
                states.entry(ModelKey::Nothing).or_insert([0; 3]);
            }
        }
        if model.failed.is_none() {
            model.event(None, end);
        }
        let states = std::mem::take(&mut model.states);
        model.outcomes.states = (ops.iter().zip(states))
            .filter(|(op, _)| op.kind != OperatorKind::Stateless)
            .map(|(_, states)| states.into_iter().collect())
            .collect();
        model
    }
}

/// A whole run. No operator may flush when keys are text: there is no text at the end of the stream.
pub fn run(pipeline: &Pipeline, blocks: &[Events], executor: &mut dyn Executor) -> Result<Outcomes, RunError> {
    let mut outcomes = Outcomes::default();
    let mut take = |executor: &mut dyn Executor| {
        let (rows, subs) = executor.take_outputs();
        assert_eq!(rows.len(), subs.len() * STRIDE);
        // SAFETY: a row of 24 bytes.
        outcomes.rows.extend(rows.chunks(STRIDE).map(|row| unsafe { row.as_ptr().cast::<Row>().read_unaligned() }));
        outcomes.subs.extend(subs);
    };
    for block in blocks {
        executor.process(&block.block())?;
        take(executor);
    }
    executor.finish(blocks.iter().map(|block| block.rows.len() as i64).sum())?;
    take(executor);
    for (index, op) in pipeline.ops.iter().enumerate() {
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
            Keys::Fields(_) => unreachable!("drawn pipelines have keys of one field"),
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

/// Runs the pipeline and holds it against the model: outcomes, or the first failure.
pub fn check(pipeline: &Pipeline, blocks: &[Events], executor: &mut dyn Executor, about: &dyn Debug) {
    let expected = Model::run(pipeline, blocks);
    let about = format!("{pipeline:?}, {about:?}");
    let real = run(pipeline, blocks, executor);
    if let Some((seq, index)) = expected.failed {
        let error = RunError::Kernel {
            operator: pipeline.name(index),
            seq,
            window: None,
            order: 0,
            exception: b"why".to_vec(),
        };
        assert_eq!(real.err().map(|error| error.ordered(|_| 0)), Some(error), "{about}");
        return;
    }
    let real = real.unwrap_or_else(|error| panic!("{about}: {error}"));
    let same = real.rows.iter().zip(&expected.outcomes.rows).take_while(|(a, b)| a == b).count();
    assert!(
        real == expected.outcomes,
        "{about}: {} rows and not {}, the first {same} agree; dropped {} and {}",
        real.rows.len(),
        expected.outcomes.rows.len(),
        real.dropped,
        expected.outcomes.dropped,
    );
    // Text lies in blocks that are gone.
    if !pipeline.text_keys {
        let metrics = executor.metrics();
        assert_eq!((metrics.digest, metrics.in_order), (digest(pipeline, &real.rows), true), "{about}");
    }
}

/// What a sink says that takes all rows at once.
fn digest(pipeline: &Pipeline, rows: &[Row]) -> Digest {
    let mut sink = Sink::new(SinkKind::Digest, pipeline.program().hasher().unwrap());
    let mut buffer = RowBuffer::new(STRIDE, false);
    // SAFETY: rows of 24 bytes.
    unsafe { buffer.extend(rows.as_ptr().cast(), rows.len(), |_| 0).unwrap() };
    let prepared = sink.preparer().prepare(&buffer, Text::empty()).unwrap();
    sink.deliver(&buffer, &prepared, Text::empty()).unwrap();
    sink.digest()
}

/// Keys and values that look random: `keys` different keys.
pub fn some(n: usize, keys: u64) -> Vec<(i64, i64)> {
    (0..n as i64)
        .map(|i| {
            let word = crate::state::key_group::hash_i64(i);
            ((word % keys) as i64, (word >> 40) as i64)
        })
        .collect()
}

/// Two blocks.
pub fn integers(n: usize, keys: u64) -> Vec<Events> {
    let all = some(n, keys);
    let (a, b) = all.split_at(n / 3);
    vec![Events::integers(0, a), Events::integers(a.len() as i64, b)]
}

/// Two blocks.
pub fn texts(n: usize, keys: u64) -> Vec<Events> {
    let all = some(n, keys);
    let (a, b) = all.split_at(n / 3);
    vec![Events::texts(0, a), Events::texts(a.len() as i64, b)]
}

prop_compose! {
    /// Blocks of events, skewed or not; one in some hundred makes fragile operators raise, if that is wanted.
    pub fn any_blocks(text_keys: bool, fails: bool)(
        blocks in proptest::collection::vec(proptest::collection::vec((0_i64..30, 0_i64..2000), 0..150), 0..4),
        skewed: bool,
    ) -> Vec<Events> {
        let mut first = 0;
        let blocks = blocks.into_iter().map(|mut block| {
            for (key, value) in &mut block {
                if skewed && *key < 25 {
                    *key = 1;
                }
                if fails && *value < 20 {
                    *value = 4242;
                }
            }
            let make = if text_keys { Events::texts } else { Events::integers };
            let events = make(first, &block);
            first += block.len() as i64;
            events
        });
        blocks.collect()
    }
}

/// Any pipeline of up to six operators that branches and meets again.
pub fn any_pipeline(fails: bool) -> impl Strategy<Value = Pipeline> {
    // For each operator its kind, its body, whether it flushes, and the earlier operators whose rows it takes.
    let op = (0_u8..3, 0_usize..8, any::<bool>(), proptest::collection::vec(any::<prop::sample::Index>(), 1..4));
    let outputs = proptest::collection::vec(any::<prop::sample::Index>(), 1..3);
    (proptest::collection::vec(op, 1..7), outputs, any::<bool>()).prop_map(move |(drawn, outputs, text_keys)| {
        let mut fans = 0;
        let mut ops: Vec<Op> = Vec::new();
        for (kind, body, flushes, inputs) in drawn {
            // Mostly the latest: chains with side branches.
            let inputs: Vec<i64> = (inputs.iter().enumerate())
                .map(|(nth, at)| if nth == 0 { ops.len() as i64 - 1 } else { at.index(ops.len() + 1) as i64 - 1 })
                .collect();
            let mut body = match kind {
                0 => [0, 1, 2, if text_keys { 0 } else { 3 }, 0, 2, if fails { 7 } else { 0 }, 1][body],
                _ => [4, 5, 4, 5, 4, 5, if fails { 6 } else { 4 }, 5][body],
            };
            // A product of fan-outs would be all that is measured.
            fans += usize::from(body == 1);
            if body == 1 && fans > 1 {
                body = 0;
            }
            let flushes = flushes && kind > 0 && !text_keys;
            let kind = [OperatorKind::Stateless, OperatorKind::Partitioned, OperatorKind::Stateful][usize::from(kind)];
            ops.push(Op { kind, body, flushes, inputs });
        }
        let n = ops.len();
        let mut outputs: Vec<i64> = outputs.iter().map(|at| at.index(n) as i64).collect();
        outputs[0] = n as i64 - 1;
        Pipeline { ops, outputs, text_keys }
    })
}
