//! Chains of native operators, and the loop that takes one event at a time through them.

use std::collections::BTreeMap;

use serde_json::json;

use crate::batch::{Block, Text};
use crate::kernel::{BatchContext, Emitter};
use crate::program::{OperatorKind, Program, ProgramKind};

/// All rows here: seq, a key (an integer, or a text slice), a value.
pub type Row = [i64; 3];
pub type State = [i64; 3];
pub const STRIDE: usize = 24;

/// What an operator does with one row. The state holds: times seen, sum, last key.
pub type Body = fn(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome;

#[derive(PartialEq)]
pub enum Outcome {
    Done,
    Invalid,
    Raises,
}

pub fn pass(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    emit(row[1], row[2].wrapping_mul(3) + 1);
    Outcome::Done
}

/// Selectivity 0 to 50.
pub fn fan(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    let n = row[2].unsigned_abs() % 60;
    (0..if n > 50 { 0 } else { n as i64 }).for_each(|i| emit(row[1], row[2] + i));
    Outcome::Done
}

pub fn few(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    if row[2] % 7 == 3 {
        return Outcome::Invalid;
    }
    if row[2] % 3 == 0 {
        emit(row[1], row[2] / 3);
    }
    Outcome::Done
}

/// Only for integer keys.
pub fn rekey(row: Row, _: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    emit(row[1].wrapping_add(row[2]) % 5, row[2]);
    Outcome::Done
}

pub fn count(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    *state = [state[0] + 1, state[1].wrapping_add(row[2]), row[1]];
    emit(row[1], state[0]);
    Outcome::Done
}

pub fn burst(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    *state = [state[0] + 1, state[1].wrapping_mul(31).wrapping_add(row[2]), row[1]];
    (0..state[0] % 4).for_each(|i| emit(row[1], state[1] ^ i));
    Outcome::Done
}

pub fn fragile(row: Row, state: &mut State, emit: &mut dyn FnMut(i64, i64)) -> Outcome {
    state[0] += 1;
    emit(row[1], row[2]);
    if row[2] == 4242 { Outcome::Raises } else { Outcome::Done }
}

pub fn brittle(row: Row, _: &mut State, _: &mut dyn FnMut(i64, i64)) -> Outcome {
    if row[2] == 4242 { Outcome::Raises } else { Outcome::Done }
}

pub const BODIES: [Body; 8] = [pass, fan, few, rekey, count, burst, fragile, brittle];
pub const NAMES: [&str; 8] = ["pass", "fan", "few", "rekey", "count", "burst", "fragile", "brittle"];

/// The two ends of a flush: what stands in the state, and how many of them the key has seen.
pub fn flush_body(state: &mut State, emit: &mut dyn FnMut(i64, i64)) {
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

pub const KERNELS: [extern "C" fn(*mut BatchContext) -> i64; 8] =
    [kernel::<0>, kernel::<1>, kernel::<2>, kernel::<3>, kernel::<4>, kernel::<5>, kernel::<6>, kernel::<7>];

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Op {
    pub kind: OperatorKind,
    pub body: usize,
    pub flushes: bool,
}

pub fn stateless(body: usize) -> Op {
    Op { kind: OperatorKind::Stateless, body, flushes: false }
}

pub fn partitioned(body: usize, flushes: bool) -> Op {
    Op { kind: OperatorKind::Partitioned, body, flushes }
}

pub fn stateful(body: usize, flushes: bool) -> Op {
    Op { kind: OperatorKind::Stateful, body, flushes }
}

pub fn program(ops: &[Op], text_keys: bool) -> Program {
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
pub struct Events {
    pub rows: Vec<Row>,
    pub text: Vec<u8>,
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

/// One event at a time, depth first.
pub struct Model<'a> {
    pub ops: &'a [Op],
    pub text_keys: bool,
    pub text: &'a [u8],
    pub states: Vec<BTreeMap<ModelKey, State>>,
    pub outcomes: Outcomes,
    pub failed: Option<(i64, &'static str)>,
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

    pub fn run(ops: &'a [Op], blocks: &'a [Events], text_keys: bool, end: i64) -> Self {
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
