//! A windowed operator of native kernels, and what it means: one row at a time, every window asked.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::dataflow::testing::pipelines::{Events, Row, emit, kernel};
use crate::executor::Executor;
use crate::program::Program;
use crate::program::kernel::{BatchContext, EntryHeader, WindowContext};
use crate::program::options::Scheduled;
use crate::state::key_group::{group, hash_i64};

const STRIDE: usize = size_of::<Row>();
/// Where the key and the states are in an entry.
const KEY: usize = size_of::<EntryHeader>();

/// By stream, the factor of its updates.
const FACTORS: [i64; 2] = [31, 37];

/// The windows of an operator over rows (seq, ts, key).
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    pub advance: i64,
    pub size: i64,
    pub delay: i64,
}

/// Of a row none, one or two keys, of these one twice.
fn keys_of(row: Row) -> Vec<i64> {
    match row[2] % 7 {
        0 => vec![],
        1 | 2 => vec![row[2], row[2] + 1, row[2]],
        _ => vec![row[2]],
    }
}

/// Hangs on the order of rows, and on their stream by its factor.
fn update(state: &mut [i64; 2], row: Row, factor: i64) -> Option<i64> {
    *state = [state[0].wrapping_mul(factor).wrapping_add(row[0]), state[1] + 1];
    (state[1] % 4 == 0).then_some(state[0])
}

extern "C" fn keys_kernel(context: *mut BatchContext) -> i64 {
    // SAFETY: the runtime calls kernels with contexts as the ABI says; a key is a row of its own, of two words.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let row = if context.places.is_null() { context.rows.add(i * STRIDE) } else { *context.places.add(i) };
            let row = row.cast::<Row>().read_unaligned();
            for key in keys_of(row) {
                emit(context.emitter, [row[0], key, 0], i as u32);
            }
        }
    }
    0
}

/// Every row has all keys.
extern "C" fn no_keys_kernel(_: *mut BatchContext) -> i64 {
    0
}

extern "C" fn update_kernel<const FACTOR: i64>(context: *mut WindowContext) -> i64 {
    // SAFETY: as above.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let row = (*context.rows.add(i)).cast::<Row>().read_unaligned();
            if row[2] == 4242 {
                context.error_at = i as i64;
                return 1;
            }
            let state = &mut *(*context.entries.add(i)).add(KEY + 16).cast::<[i64; 2]>();
            if let Some(sum) = update(state, row, FACTOR) {
                emit(context.emitter, [row[0], *context.starts.add(i) + context.span, sum], i as u32);
            }
        }
    }
    0
}

extern "C" fn result_kernel(context: *mut WindowContext) -> i64 {
    // SAFETY: as above.
    unsafe {
        let context = &mut *context;
        for i in 0..context.n as usize {
            let entry = *context.entries.add(i);
            let (key, state) = (entry.add(KEY).cast::<i64>().read(), entry.add(KEY + 16).cast::<[i64; 2]>().read());
            let end = *context.starts.add(i) + context.span;
            (0..1 + state[1] % 2).for_each(|n| emit(context.emitter, [context.seq, end + n, state[0] ^ key], i as u32));
        }
    }
    0
}

/// An operator that passes rows on.
fn pass(inputs: &[i64], name: &str) -> Value {
    let kernel = kernel::<0> as extern "C" fn(*mut BatchContext) -> i64 as usize as u64;
    json!({"kind": "stateless", "name": name, "inputs": inputs, "kernel": kernel, "stride": STRIDE})
}

impl Windows {
    /// events -> window -> sink; or, `detour`:
    ///
    /// ```text
    /// events -+-> pass -+-> pass -> window -> sink
    ///         +---------+
    /// ```
    pub fn program(&self, detour: bool) -> Program {
        // SAFETY: the kernels are functions of this file, for its rows and states.
        unsafe { Program::parse(&self.json(detour).to_string()) }.unwrap()
    }

    fn json(&self, detour: bool) -> Value {
        let address = |kernel: extern "C" fn(*mut WindowContext) -> i64| kernel as usize as u64;
        let key = json!({"kind": "i64", "offset": 8});
        let mut program = json!({
            "kind": "dataflow", "event": {"stride": STRIDE}, "outputs": [0],
            "columns": [{"kind": "i64", "offset": 8}, {"kind": "i64", "offset": 16}],
            "operators": [{
                "kind": "windowed", "name": "window", "inputs": [-1], "stride": STRIDE, "state_size": 16,
                "window": {
                    "single": false, "advance": self.advance, "size": self.size, "delay": self.delay, "bag": false,
                    "of": [0], "result": address(result_kernel), "slide": 0,
                    "key": {"stride": STRIDE, "fields": [key]},
                    "streams": [{
                        "ts": {"kind": "i64", "offset": 8}, "update": address(update_kernel::<{ FACTORS[0] }>),
                        "keys": keys_kernel as extern "C" fn(*mut BatchContext) -> i64 as usize as u64,
                    }],
                },
            }],
        });
        if detour {
            let mut window = program["operators"][0].take();
            window["inputs"] = json!([1]);
            program["operators"] = json!([pass(&[-1], "first"), pass(&[0, -1], "second"), window]);
            program["outputs"] = json!([2]);
        }
        program
    }

    /// events -> window -> again -> sink; or, `through` an operator in between that takes the events too:
    ///
    /// ```text
    /// events -+-> window -+-> pass -> again -> sink
    ///         +-----------+
    /// ```
    pub fn chain(&self, through: bool) -> Program {
        let mut program = self.json(false);
        let mut again = program["operators"][0].clone();
        (again["name"], again["inputs"]) = (json!("again"), json!([i64::from(through)]));
        let between = if through { vec![pass(&[0, -1], "pass")] } else { Vec::new() };
        program["outputs"] = json!([between.len() + 1]);
        program["operators"].as_array_mut().unwrap().extend(between.into_iter().chain([again]));
        // SAFETY: as for `program`.
        unsafe { Program::parse(&program.to_string()) }.unwrap()
    }

    /// The rows that it takes of events.
    fn taken(blocks: &[Events], detour: bool) -> Vec<Row> {
        let pass = |row: Row| [row[0], row[1], row[2].wrapping_mul(3) + 1];
        let taken = |row: &Row| if detour { vec![pass(pass(*row)), pass(*row)] } else { vec![*row] };
        blocks.iter().flat_map(|block| &block.rows).flat_map(taken).collect()
    }

    /// Rows that come after all of their windows have expired.
    pub fn late(&self, blocks: &[Events], detour: bool) -> u64 {
        let mut latest = i64::MIN;
        let mut is_late = |row: &Row| {
            latest = latest.max(row[1]);
            let last = row[1].div_euclid(self.advance) * self.advance + self.size;
            last <= latest - self.delay
        };
        Self::taken(blocks, detour).iter().filter(|row| is_late(row)).count() as u64
    }

    /// What it makes of events, up to the first that raises: whose seq that is.
    pub fn model(&self, blocks: &[Events], detour: bool) -> (Vec<Row>, Option<i64>) {
        let mut out: Vec<Row> = Vec::new();
        // By window, key group, and when they were first touched: key and state.
        let mut open: BTreeMap<(i64, usize, usize), (i64, [i64; 2])> = BTreeMap::new();
        let mut watermark = i64::MIN;
        let first_beyond = |ts: i64| (ts - self.size).div_euclid(self.advance) + 1;
        let mut touched = 0;
        let expire =
            |open: &mut BTreeMap<(i64, usize, usize), (i64, [i64; 2])>, before: i64, seq: i64, out: &mut Vec<Row>| {
                let later = open.split_off(&(before, 0, 0));
                for ((number, ..), (key, state)) in std::mem::replace(open, later) {
                    let end = number * self.advance + self.size;
                    (0..1 + state[1] % 2).for_each(|n| out.push([seq, end + n, state[0] ^ key]));
                }
            };
        let mut end = 0;
        for row in &Self::taken(blocks, detour) {
            let before = out.iter().take_while(|earlier| earlier[0] < row[0]).count();
            end = row[0] + 1;
            if row[1] - self.delay > watermark {
                watermark = row[1] - self.delay;
                expire(&mut open, first_beyond(watermark), row[0], &mut out);
            }
            for number in first_beyond(row[1]).max(first_beyond(watermark))..=row[1].div_euclid(self.advance) {
                let mut met = Vec::new();
                for key in keys_of(*row) {
                    if met.contains(&key) {
                        continue;
                    }
                    met.push(key);
                    if row[2] == 4242 {
                        out.truncate(before);
                        return (out, Some(row[0]));
                    }
                    let group = group(hash_i64(key));
                    let entry =
                        open.range((number, group, 0)..=(number, group, usize::MAX)).find(|window| window.1.0 == key);
                    let place = entry.map_or((number, group, touched), |window| *window.0);
                    touched += 1;
                    let state = &mut open.entry(place).or_insert((key, [0; 2])).1;
                    out.extend(
                        update(state, *row, FACTORS[0]).map(|sum| [row[0], number * self.advance + self.size, sum]),
                    );
                }
            }
        }
        expire(&mut open, i64::MAX, end, &mut out);
        (out, None)
    }

    /// Events whose `ts` go on by up to `step`, now and then back, and sometimes further than `delay` allows.
    pub fn events(&self, n: usize, step: i64, keys: i64) -> Vec<Row> {
        let mut draw = 0x2545_F491_u64;
        let mut next = |below: i64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) as i64 % below.max(1)
        };
        let mut latest = -7;
        (0..n as i64)
            .map(|seq| {
                latest += next(step + 1);
                let more = if next(16) == 0 { 2 * self.size } else { 0 };
                [seq, latest - next(self.delay + more + 1), next(keys)]
            })
            .collect()
    }
}

/// A single window for each key, which expires without a kernel call.
#[derive(Debug, Clone, Copy)]
pub struct Single {
    pub advance: i64,
    pub size: i64,
    /// Every row has so many keys.
    pub every: Option<i64>,
    /// Whether the operator takes two streams.
    pub joins: bool,
}

impl Single {
    /// events -> window -> sink; or, if it joins:
    ///
    /// ```text
    /// events -+-> pass -+-> window -> sink
    ///         +---------+
    /// ```
    pub fn program(&self) -> Program {
        let address = |kernel: extern "C" fn(*mut BatchContext) -> i64| kernel as usize as u64;
        let keys = address(if self.every.is_some() { no_keys_kernel } else { keys_kernel });
        let stream = |update: extern "C" fn(*mut WindowContext) -> i64| json!({"ts": {"kind": "i64", "offset": 8}, "keys": keys, "update": update as usize as u64});
        let streams = [stream(update_kernel::<{ FACTORS[0] }>), stream(update_kernel::<{ FACTORS[1] }>)];
        let (inputs, of, n) = if self.joins { (vec![0, -1], vec![0, 1], 2) } else { (vec![-1], vec![0], 1) };
        let window = json!({
            "kind": "windowed", "name": "window", "inputs": inputs, "stride": STRIDE, "state_size": 16,
            "window": {
                "single": true, "advance": self.advance, "size": self.size, "delay": 0, "idle": 0, "bag": false, "of": of,
                "every": self.every, "result": 0, "slide": 0, "streams": &streams[..n],
                "key": {"stride": STRIDE, "fields": [{"kind": "i64", "offset": 8}]},
            },
        });
        let program = json!({
            "kind": "dataflow", "event": {"stride": STRIDE}, "outputs": [n - 1],
            "columns": [{"kind": "i64", "offset": 8}, {"kind": "i64", "offset": 16}],
            "operators": if self.joins { vec![pass(&[-1], "pass"), window] } else { vec![window] },
        });
        // SAFETY: the kernels are functions of this file, for its rows and states.
        unsafe { Program::parse(&program.to_string()) }.unwrap()
    }

    /// What it makes of events.
    pub fn model(&self, blocks: &[Events]) -> Vec<Row> {
        let mut out = Vec::new();
        // By key the latest `ts`, and the state.
        let mut states: BTreeMap<i64, (i64, [i64; 2])> = BTreeMap::new();
        let mut watermark = i64::MIN;
        let first_beyond = |ts: i64| (ts - self.size).div_euclid(self.advance) + 1;
        for &row in blocks.iter().flat_map(|block| &block.rows) {
            let passed = [row[0], row[1], row[2].wrapping_mul(3) + 1];
            let taken = if self.joins { vec![passed, row] } else { vec![row] };
            for (row, factor) in taken.into_iter().zip(FACTORS) {
                watermark = watermark.max(row[1]);
                let number = first_beyond(watermark);
                if number > row[1].div_euclid(self.advance) {
                    continue;
                }
                let mut keys = self.every.map_or_else(|| keys_of(row), |n| (0..n).collect());
                // A key that is there twice counts once.
                let mut seen = Vec::new();
                keys.retain(|key| {
                    !seen.contains(key) && {
                        seen.push(*key);
                        true
                    }
                });
                for key in keys {
                    let start = number * self.advance;
                    let (last, state) = states.entry(key).or_insert((row[1], [0; 2]));
                    if *last < start {
                        *state = [0; 2];
                    }
                    *last = row[1].max(if *last < start { i64::MIN } else { *last });
                    out.extend(update(state, row, factor).map(|sum| [row[0], start + self.size, sum]));
                }
            }
        }
        out
    }
}

/// Blocks of at most `size` events.
pub fn blocks(rows: &[Row], size: usize) -> Vec<Events> {
    rows.chunks(size)
        .map(|rows| {
            let pairs: Vec<(i64, i64)> = rows.iter().map(|row| (row[1], row[2])).collect();
            Events::integers(rows[0][0], &pairs)
        })
        .collect()
}

/// What an executor delivers, and the event of its failure.
pub fn outputs(blocks: &[Events], executor: &mut impl Executor) -> (Vec<Row>, Option<i64>) {
    let mut failed = None;
    let end = blocks.last().map_or(0, |events| events.rows.last().expect("a block has events")[0] + 1);
    for events in blocks {
        if let Err(error) = executor.process(&events.block()) {
            failed = Some(error.rank().1);
            break;
        }
    }
    if failed.is_none() {
        executor.finish(end).unwrap();
    }
    let rows = executor.take_outputs().0;
    let words = rows.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
    (words.collect::<Vec<_>>().chunks_exact(3).map(|row| [row[0], row[1], row[2]]).collect(), failed)
}

/// From an event on, the pattern of the owners of the operator's cells.
pub fn scheduled(event: i64, pattern: &[usize]) -> Scheduled {
    Scheduled { event, owners: BTreeMap::from([("window".into(), pattern.to_vec())]) }
}
