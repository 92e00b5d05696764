//! Runs events through an executor and compares everything with the sequential loop.

use crate::error::RunError;
use crate::executor::Executor;
use crate::memory::placement::Placement;
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::block::{Block, TEXT_PADDING, Text};
use crate::state::states::Keys;
use crate::transactions::executor::make;
use crate::transactions::testing::bank::kernels::{EVENT, Transfer, VERDICT, Verdict, program, sequential};

pub fn options(scheme: &str, threads: usize, punctuation: usize, more: &str) -> Options {
    Options::parse(&format!(
        r#"{{"executor": "transactional", "scheme": "{scheme}", "threads": {threads}, "punctuation": {punctuation},
            "sink": "parquet" {more}}}"#
    ))
    .unwrap()
}

pub fn flat(threads: usize) -> Placement {
    Placement::flat(threads, "a test")
}

pub fn bytes<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: plain integers without padding, read as bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// `rows`: of accounts and stocks. The place kernel finds them in the text, as a compiled one has them built in.
pub fn process(engine: &mut dyn Executor, rows: [usize; 2], events: &[Transfer]) -> Result<(), RunError> {
    let mut padding = [0_u64; TEXT_PADDING / 8];
    (padding[0], padding[1]) = (rows[0] as u64, rows[1] as u64);
    // SAFETY: both outlive the call.
    let block = unsafe {
        let text = Text::new(padding.as_ptr().cast(), 0);
        Block::new(events.as_ptr().cast(), events.len(), EVENT, text)
    };
    engine.process(&block)
}

pub fn verdicts(rows: &[u8]) -> Vec<Verdict> {
    assert_eq!(rows.len() % VERDICT, 0);
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
    rows.chunks(VERDICT)
        .map(|row| {
            let field = |i: usize| number(&row[i * 8..i * 8 + 8]);
            Verdict { seq: field(0), ok: field(1), from: field(2), to: field(3), item: field(4) }
        })
        .collect()
}

/// Runs events in blocks of `block` and compares everything with the sequential loop.
pub fn check(events: &[Transfer], accounts: usize, stocks: usize, options: Options, block: usize) {
    check_program(program(accounts, stocks), events, options, block);
}

pub fn check_program(program: Program, events: &[Transfer], options: Options, block: usize) {
    let rows = [program.tables[0].rows, program.tables[1].rows];
    let what = format!("{options:?}");
    check_engine(make(program, options).unwrap(), rows, events, block, &what);
}

pub fn check_engine(mut engine: Box<dyn Executor>, rows: [usize; 2], events: &[Transfer], block: usize, what: &str) {
    let (mut a, mut s) = (vec![50_i64; rows[0]], vec![60_i64; rows[1]]);
    engine.load_table(0, &Keys::None, bytes(&a)).unwrap();
    engine.load_table(1, &Keys::None, bytes(&s)).unwrap();
    let sizes = rows;
    let mut rows = Vec::new();
    for block in events.chunks(block) {
        process(&mut *engine, sizes, block).unwrap();
        let (more, subs) = engine.take_outputs();
        assert!(subs.iter().all(|&sub| sub == 0));
        rows.extend(more);
    }
    engine.finish(events.len() as i64).unwrap();
    let wanted = sequential(events, &mut a, &mut s);
    let got = verdicts(&rows);
    if let Some(i) = (0..wanted.len().min(got.len())).find(|&i| wanted[i] != got[i]) {
        panic!("{what}: output {i} of {events} events: {:?}, not {:?}", got[i], wanted[i], events = events.len());
    }
    assert_eq!(got.len(), wanted.len(), "{what}");
    assert_eq!(engine.table(0).unwrap().states, bytes(&a), "{what}");
    assert_eq!(engine.table(1).unwrap().states, bytes(&s), "{what}");
    let metrics = engine.metrics();
    assert!(metrics.in_order);
    assert_eq!(metrics.events, events.len() as u64);
    assert_eq!(metrics.digest.rows, wanted.len() as u64);
    let dropped = events.iter().filter(|event| event.kind == 2).count() as u64;
    let rejected = wanted.iter().filter(|verdict| verdict.ok == 0).count() as u64;
    assert_eq!((metrics.counters.dropped, metrics.counters.rejected), (dropped, rejected), "{what}: counts");
}

/// Events by a fixed pseudo-random sequence; `skew` maps uniform draws to low numbers.
pub fn events(n: usize, accounts: usize, stocks: usize, skew: i32, seed: u64) -> Vec<Transfer> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    };
    (0..n)
        .map(|seq| {
            let mut pick = |rows: usize| {
                let unit = (draw() >> 11) as f64 / (1_u64 << 53) as f64;
                (unit.powi(skew) * rows as f64) as u32
            };
            let (from, to, item) = (pick(accounts), pick(accounts), pick(stocks));
            let kind = match draw() % 20 {
                0 => 2,
                n if n < 8 => 1,
                n if n < 12 => 3,
                n if n < 16 => 4,
                _ => 0,
            };
            Transfer { seq: seq as i64, kind, from, to, item, amount: (draw() % 40) as i64 }
        })
        .collect()
}
