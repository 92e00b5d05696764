//! The transactional executor against a sequential loop: a small bank with conditions on one row and over two rows,
//! in kernels written by hand against the ABI of README.md.
#![cfg(not(loom))]

use _runtime::batch::{Block, RowBuffer, TEXT_PADDING, Text};
use _runtime::executor::{Executor, make, transactional};
use _runtime::kernel::{
    Access, ApplyContext, Emitter, ExecuteContext, PlaceContext, PlanContext, PostContext, RunError,
    decision::{self, DROPPED},
    kind,
};
use _runtime::metrics::Counters;
use _runtime::placement::Placement;
use _runtime::program::{Options, Program};
use _runtime::scheme::{self, Run, Scheme};
use _runtime::sink::SinkKind;
use _runtime::topology::Topology;
use _runtime::transaction::{Batch, Outcome, Planner};
use proptest::prelude::*;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An event moves `amount` from account `from` to account `to` if `from` holds more than that, and, but for `kind` 0, if
/// `from` and stock `item` together hold more than 100; then the stock gains one. It reads all rows it named.
/// Kind 2 is invalid. Kind 3 changes nothing, kind 4 the account `to` only: what else they name they only read.
/// Amount 666 makes the condition raise, 667 the plan, 668 the post-processing.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    seq: i64,
    kind: u32,
    from: u32,
    to: u32,
    item: u32,
    amount: i64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    seq: i64,
    ok: i64,
    from: i64,
    to: i64,
    item: i64,
}

const EVENT: usize = size_of::<Event>();
const VERDICT: usize = size_of::<Verdict>();
const RESULT: usize = 8;

/// What a READ brings back for an event that names the row.
fn sequential(events: &[Event], accounts: &mut [i64], stocks: &mut [i64]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for event in events {
        let (from, to, item) = (event.from as usize, event.to as usize, event.item as usize);
        if event.kind == 2 {
            continue;
        }
        let mut ok = accounts[from] > event.amount;
        if event.kind != 0 {
            ok &= accounts[from] + stocks[item] > 100;
        }
        if ok {
            accounts[from] -= if event.kind < 3 { event.amount } else { 0 };
            accounts[to] += if event.kind != 3 { event.amount } else { 0 };
            stocks[item] += i64::from(event.kind == 1);
        }
        let stock = if event.kind != 0 { stocks[item] } else { 0 };
        let (from, to) = (accounts[from], accounts[to]);
        verdicts.push(Verdict { seq: event.seq, ok: i64::from(ok), from, to, item: stock });
    }
    verdicts
}

static RAISED: &[u8] = b"raised";

// The kernels below follow README.md: pointers are those of a context that the runtime filled in.

extern "C" fn plan(context: *mut PlanContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for i in c.begin as usize..c.end as usize {
            let event = c.rows.cast::<Event>().add(i).read();
            c.first.add(i).write(c.len as u32);
            c.captures.add(i).write(0);
            if event.amount == 667 {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            if event.kind == 2 {
                c.decisions.add(i).write(DROPPED);
                c.dropped += 1;
                continue;
            }
            let slots = 3 * RESULT;
            let group = 8 + 2 * RESULT;
            if (c.limit as usize) - (c.next as usize) < slots + group && (c.more)(c, (slots + group) as i64) != 0 {
                return 1;
            }
            c.results.add(i).write(c.next as u64);
            c.next = c.next.add(slots);
            let both = event.kind != 0;
            if both {
                c.captures.add(i).write(c.next as u64);
                c.next.cast::<u64>().write(2);
                c.next = c.next.add(group);
            }
            c.decisions.add(i).write(if both { 2 } else { 1 });
            let mut put = |row, table, function, slot, kind| {
                if c.len == c.cap {
                    assert_eq!((c.grow)(c), 0);
                }
                let access = Access { event: i as u32, row, slot, function, table, kind };
                c.accesses.add(c.len as usize).write(access);
                c.len += 1;
            };
            put(event.from, 0, 0, 0, kind::CONDITION);
            if both {
                put(event.from, 0, 1, 0, kind::CAPTURE);
                put(event.item, 1, 1, 0, kind::CAPTURE + 1);
            }
            if event.kind < 3 {
                put(event.from, 0, 0, 0, kind::MODIFY);
            }
            if event.kind != 3 {
                put(event.to, 0, 1, 0, kind::MODIFY);
            }
            if event.kind == 1 {
                put(event.item, 1, 2, 0, kind::MODIFY);
            }
            put(event.from, 0, 0, 0, kind::READ);
            put(event.to, 0, 0, 1, kind::READ);
            if both {
                put(event.item, 1, 0, 2, kind::READ);
            }
        }
        0
    }
}

extern "C" fn apply(context: *mut ApplyContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for n in 0..c.n as usize {
            let access = c.accesses.add(n).read();
            let event = &*c.rows.cast::<Event>().add(access.event as usize);
            let row = (*c.tables.add(usize::from(access.table))).cast::<i64>().add(access.row as usize);
            let word = AtomicU32::from_ptr(c.decisions.add(access.event as usize));
            let decide = |holds: bool| {
                // One condition fewer to evaluate; one more that failed.
                let change = if holds { 0_u32 } else { 1 << 16 }.wrapping_sub(1);
                if c.shared == 1 {
                    word.fetch_add(change, Ordering::AcqRel);
                } else {
                    word.store(word.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed);
                }
            };
            match access.kind {
                kind::CONDITION => {
                    if event.amount == 666 {
                        (c.error_at, c.error, c.error_len) =
                            (i64::from(access.event), RAISED.as_ptr(), RAISED.len() as i64);
                        return 1;
                    }
                    decide(*row > event.amount);
                }
                kind::MODIFY | kind::READ => {
                    let decision = word.load(Ordering::Acquire);
                    if !decision::is_decided(decision) {
                        c.done = n as i64;
                        return 0;
                    }
                    if access.kind == kind::READ {
                        let slot = (*c.results.add(access.event as usize) as *mut i64).add(access.slot as usize);
                        slot.write(*row);
                    } else if decision & decision::FAILED == 0 {
                        match access.function {
                            0 => *row -= event.amount,
                            1 => *row += event.amount,
                            _ => *row += 1,
                        }
                    }
                }
                capture => {
                    let group = *c.captures.add(access.event as usize) as *mut u64;
                    let j = usize::from(capture - kind::CAPTURE);
                    group.add(1 + j).write(*row as u64);
                    if AtomicU64::from_ptr(group).fetch_sub(1, Ordering::AcqRel) == 1 {
                        decide(group.add(1).read() as i64 + group.add(2).read() as i64 > 100);
                    }
                }
            }
        }
        c.done = c.n;
        0
    }
}

extern "C" fn post(context: *mut PostContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for i in c.begin as usize..c.end as usize {
            let event = c.rows.cast::<Event>().add(i).read();
            let word = c.decisions.add(i).read();
            if word & DROPPED != 0 {
                continue;
            }
            if event.amount == 668 {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            let ok = word & decision::FAILED == 0;
            c.rejected += i64::from(!ok);
            let results = *c.results.add(i) as *const i64;
            let item = if event.kind != 0 { results.add(2).read() } else { 0 };
            let verdict =
                Verdict { seq: event.seq, ok: i64::from(ok), from: results.read(), to: results.add(1).read(), item };
            let emitter: &mut Emitter = &mut *c.emitter;
            if emitter.len == emitter.cap && (emitter.grow)(emitter) != 0 {
                return 1;
            }
            emitter.rows.cast::<Verdict>().add(emitter.len as usize).write(verdict);
            emitter.len += 1;
        }
        0
    }
}

extern "C" fn execute(context: *mut ExecuteContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        for i in c.begin as usize..c.end as usize {
            let i = if c.selection.is_null() { i } else { c.selection.add(i).read() as usize };
            let event = c.rows.cast::<Event>().add(i).read();
            if (666..=668).contains(&event.amount) {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            if event.kind == 2 {
                c.dropped += 1;
                continue;
            }
            let tables = c.tables;
            let account = |row: u32| (*tables).cast::<i64>().add(row as usize);
            let stock = (*tables.add(1)).cast::<i64>().add(event.item as usize);
            let both = event.kind != 0;
            let ok = *account(event.from) > event.amount && (!both || *account(event.from) + *stock > 100);
            if ok {
                *account(event.from) -= if event.kind < 3 { event.amount } else { 0 };
                *account(event.to) += if event.kind != 3 { event.amount } else { 0 };
                // Of kind 0 the stock is none of its rows, and not this thread's to write.
                if event.kind == 1 {
                    *stock += 1;
                }
            }
            c.rejected += i64::from(!ok);
            if c.capacity < 3 * RESULT as i64 && (c.more)(c, 3 * RESULT as i64) != 0 {
                return 1;
            }
            let results = c.results.cast::<i64>();
            results.write(*account(event.from));
            results.add(1).write(*account(event.to));
            results.add(2).write(if both { *stock } else { 0 });
            let verdict = Verdict {
                seq: event.seq,
                ok: i64::from(ok),
                from: results.read(),
                to: results.add(1).read(),
                item: results.add(2).read(),
            };
            let emitter: &mut Emitter = &mut *c.emitter;
            if emitter.len == emitter.cap && (emitter.grow)(emitter) != 0 {
                return 1;
            }
            emitter.rows.cast::<Verdict>().add(emitter.len as usize).write(verdict);
            if !emitter.origin.is_null() {
                emitter.origin.add(emitter.len as usize).write(i as u32);
            }
            emitter.len += 1;
        }
        0
    }
}

extern "C" fn place(context: *mut PlaceContext) -> i64 {
    // SAFETY: see above.
    unsafe {
        let c = &mut *context;
        let rows = c.text.cast::<u64>();
        for i in c.begin as usize..c.end as usize {
            let event = c.rows.cast::<Event>().add(i).read();
            if event.amount == 667 {
                (c.error_at, c.error, c.error_len) = (i as i64, RAISED.as_ptr(), RAISED.len() as i64);
                return 1;
            }
            let at = |row: u32, rows: u64| ((u64::from(row) * ((1 << 48) / rows)) >> 32) as u32;
            let places = [event.from, event.to].map(|row| at(row, rows.read()));
            let item = at(event.item, rows.add(1).read());
            let (mut low, mut high) = (places[0].min(places[1]), places[0].max(places[1]));
            if event.kind != 0 {
                (low, high) = (low.min(item), high.max(item));
            }
            c.places.add(i).write(low | high << 16);
        }
        0
    }
}

fn program(accounts: usize, stocks: usize) -> Program {
    let kernels = [
        plan as extern "C" fn(*mut PlanContext) -> i64 as usize,
        apply as extern "C" fn(*mut ApplyContext) -> i64 as usize,
        post as extern "C" fn(*mut PostContext) -> i64 as usize,
        execute as extern "C" fn(*mut ExecuteContext) -> i64 as usize,
        place as extern "C" fn(*mut PlaceContext) -> i64 as usize,
    ];
    Program::parse(&format!(
        r#"{{"kind": "transaction", "event": {{"stride": {EVENT}}},
            "tables": [{{"name": "accounts", "rows": {accounts}, "stride": 8, "containers": false, "read": [0, 8]}},
                       {{"name": "stocks", "rows": {stocks}, "stride": 8, "read": [0, 8]}}],
            "transaction": {{"name": "transfer", "plan": {}, "apply": {}, "post": {}, "execute": {}, "place": {}, "stride": {VERDICT},
                             "result_stride": {RESULT}}},
            "columns": [{{"kind": "i64", "offset": 8, "count": 1}}, {{"kind": "i64", "offset": 16, "count": 3}}]}}"#,
        kernels[0], kernels[1], kernels[2], kernels[3], kernels[4]
    ))
    .unwrap()
}

fn options(scheme: &str, threads: usize, punctuation: usize, more: &str) -> Options {
    Options::parse(&format!(
        r#"{{"executor": "transactional", "scheme": "{scheme}", "threads": {threads}, "punctuation": {punctuation},
            "sink": "parquet" {more}}}"#
    ))
    .unwrap()
}

fn flat(threads: usize) -> Placement {
    Placement::flat(threads, "a test")
}

fn bytes<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: plain integers without padding, read as bytes.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// `rows`: of accounts and stocks. The place kernel finds them in the text, as a compiled one has them built in.
fn process(engine: &mut dyn Executor, rows: [usize; 2], events: &[Event]) -> Result<(), RunError> {
    let mut padding = [0_u64; TEXT_PADDING / 8];
    (padding[0], padding[1]) = (rows[0] as u64, rows[1] as u64);
    // SAFETY: both outlive the call.
    let block = unsafe {
        let text = Text::new(padding.as_ptr().cast(), 0);
        Block::new(events.as_ptr().cast(), events.len(), EVENT, text)
    };
    engine.process(&block)
}

fn verdicts(rows: &[u8]) -> Vec<Verdict> {
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
fn check(events: &[Event], accounts: usize, stocks: usize, options: Options, block: usize) {
    check_program(program(accounts, stocks), events, options, block);
}

fn check_program(program: Program, events: &[Event], options: Options, block: usize) {
    let rows = [program.tables[0].rows, program.tables[1].rows];
    let what = format!("{options:?}");
    check_engine(make(program, options).unwrap(), rows, events, block, &what);
}

fn check_engine(mut engine: Box<dyn Executor>, rows: [usize; 2], events: &[Event], block: usize, what: &str) {
    let (mut a, mut s) = (vec![50_i64; rows[0]], vec![60_i64; rows[1]]);
    engine.load_table(0, bytes(&a)).unwrap();
    engine.load_table(1, bytes(&s)).unwrap();
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
    assert_eq!(engine.table(0).unwrap(), bytes(&a), "{what}");
    assert_eq!(engine.table(1).unwrap(), bytes(&s), "{what}");
    let metrics = engine.metrics();
    assert!(metrics.in_order);
    assert_eq!(metrics.events, events.len() as u64);
    assert_eq!(metrics.digest.rows, wanted.len() as u64);
    let dropped = events.iter().filter(|event| event.kind == 2).count() as u64;
    let rejected = wanted.iter().filter(|verdict| verdict.ok == 0).count() as u64;
    assert_eq!((metrics.counters.dropped, metrics.counters.rejected), (dropped, rejected), "{what}: counts");
}

/// Events by a fixed pseudo-random sequence; `skew` maps uniform draws to low numbers.
fn events(n: usize, accounts: usize, stocks: usize, skew: i32, seed: u64) -> Vec<Event> {
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
            Event { seq: seq as i64, kind, from, to, item, amount: (draw() % 40) as i64 }
        })
        .collect()
}

/// The schemes that work by batch and not by punctuation.
const BY_BATCH: [&str; 4] = ["serial", "lock", "mvlk", "pat"];

const POOLS: [&str; 5] = [
    "",
    r#", "pool": "shared_everything""#,
    r#", "pool": "shared_everything", "stealing": true"#,
    r#", "pool": "shared_per_socket""#,
    r#", "pool": "shared_per_socket", "stealing": true"#,
];

#[test]
fn every_scheme_and_shape_equals_the_sequential_loop() {
    for (accounts, stocks, skew) in [(1, 1, 1), (2, 1, 1), (7, 3, 1), (1000, 500, 1), (1000, 500, 4)] {
        let events = events(6000, accounts, stocks, skew, 7);
        for threads in [1, 2, 3, 8] {
            for punctuation in [1, 7, 500, 100_000] {
                let n = if punctuation == 1 { 600 } else { events.len() };
                for pool in POOLS {
                    check(&events[..n], accounts, stocks, options("tstream", threads, punctuation, pool), 2500);
                }
            }
            for batch in [1, 64, 4096] {
                let more = format!(r#", "batch": {batch}"#);
                let n = if batch == 1 { 600 } else { events.len() };
                for scheme in BY_BATCH {
                    check(&events[..n], accounts, stocks, options(scheme, threads, 500, &more), 2500);
                }
            }
        }
        check(&events, accounts, stocks, options("no_lock", 1, 500, ""), 2500);
    }
}

/// More events in flight on the same few rows than threads can hide, in batches that groups of events do not divide.
#[test]
fn containers_and_partitions_change_nothing() {
    for (accounts, stocks) in [(3, 2), (100, 40)] {
        let events = events(4000, accounts, stocks, 1, 17);
        for (scheme, threads, batch) in [("mvlk", 3, 61), ("mvlk", 8, 256), ("pat", 3, 61), ("pat", 8, 256)] {
            for (containers, partitions) in [([false, true], 1), ([true, false], 2), ([true, true], 1000)] {
                let mut program = program(accounts, stocks);
                program.partitions = partitions;
                for (table, containers) in program.tables.iter_mut().zip(containers) {
                    table.containers = containers;
                }
                let more = format!(r#", "batch": {batch}"#);
                check_program(program, &events, options(scheme, threads, 500, &more), 1999);
            }
        }
    }
}

#[test]
fn every_idle_strategy_ends() {
    let events = events(5000, 100, 50, 2, 3);
    for idle in ["spin", "yield", "park"] {
        for threads in [2, 5] {
            for scheme in ["tstream", "serial", "lock", "mvlk", "pat", "auto"] {
                for pool in if scheme == "tstream" { &POOLS[..] } else { &POOLS[..1] } {
                    let more = format!(r#", "idle": "{idle}", "batch": 100 {pool}"#);
                    check(&events, 100, 50, options(scheme, threads, 100, &more), 5000);
                }
            }
        }
    }
}

#[test]
fn the_digest_sink_agrees_with_the_kept_rows() {
    let events = events(3000, 100, 50, 1, 5);
    let digest = |scheme: &str, threads: usize, sink: SinkKind| {
        let options = Options { sink, ..options(scheme, threads, 500, "") };
        let mut engine = make(program(100, 50), options).unwrap();
        process(&mut *engine, [100, 50], &events).unwrap();
        engine.metrics().digest
    };
    let wanted = digest("serial", 1, SinkKind::Parquet);
    assert_ne!(wanted.sum, 0);
    for (scheme, threads) in [("serial", 3), ("tstream", 1), ("tstream", 3)] {
        assert_eq!(digest(scheme, threads, SinkKind::Digest), wanted);
    }
}

#[test]
fn an_open_loop_run_waits_for_its_events() {
    let events = events(2000, 100, 50, 1, 5);
    let ways = [("serial", 1), ("serial", 2), ("lock", 2), ("tstream", 1), ("tstream", 2), ("no_lock", 2)];
    for (scheme, threads) in ways {
        let mut engine = make(program(100, 50), options(scheme, threads, 100, r#", "rate": 100000"#)).unwrap();
        process(&mut *engine, [100, 50], &events).unwrap();
        let metrics = engine.metrics();
        // The last event arrives 20 ms after the first: nothing may be done before.
        assert!(metrics.seconds >= 0.019_99, "{scheme} {threads}: {}", metrics.seconds);
        // A batch's first event waits for its last one.
        assert!(!metrics.end_to_end.is_empty());
        assert_eq!(metrics.digest.rows, events.iter().filter(|event| event.kind != 2).count() as u64);
    }
}

#[test]
fn a_failing_kernel_stops_the_run_with_operator_and_event() {
    for amount in [666, 667, 668] {
        let ways = [("serial", 1), ("serial", 3), ("tstream", 1), ("tstream", 2), ("tstream", 8)];
        for (scheme, threads) in ways.into_iter().chain([("lock", 2), ("lock", 8), ("mvlk", 3), ("pat", 3)]) {
            let mut events = events(4000, 10, 5, 1, 11);
            events[2345] = Event { kind: 0, amount, ..events[2345] };
            let mut engine = make(program(10, 5), options(scheme, threads, 500, "")).unwrap();
            engine.load_table(0, bytes(&[1000_i64; 10])).unwrap();
            let outcome = process(&mut *engine, [10, 5], &events);
            let exception = RAISED.to_vec();
            assert_eq!(outcome, Err(RunError::Kernel { operator: "transfer".into(), seq: 2345, exception }));
            assert!(matches!(process(&mut *engine, [10, 5], &events), Err(RunError::Engine(_))));
        }
    }
}

/// Two threads on two made-up nodes: what they fetch from each other is told apart from what they do.
#[test]
fn what_is_fetched_from_another_node_is_part_of_the_breakdown() {
    let events = events(6000, 100, 50, 1, 5);
    let two_nodes = || {
        let latencies = || Ok(vec![vec![100.0, 110.0], vec![110.0, 100.0]]);
        Placement::on(&Topology::mock(2, 1), 2, latencies)
    };
    let pools = POOLS.map(|pool| ("tstream", pool));
    for (scheme, pool) in pools.into_iter().chain(["serial", "lock", "mvlk", "pat", "auto"].map(|scheme| (scheme, "")))
    {
        let run = |placement| {
            let options = options(scheme, 2, 500, pool);
            let mut engine = transactional::make_with(scheme::make, placement, program(100, 50), options).unwrap();
            process(&mut *engine, [100, 50], &events).unwrap();
            let metrics = engine.metrics();
            (metrics.digest, metrics.counters.time, metrics.memory["why"].clone())
        };
        let (digest, near, _) = run(flat(2));
        assert_eq!(near.remote, 0, "{scheme}{pool}");
        let (same, far, why) = run(two_nodes());
        assert_eq!(same, digest);
        // Half of what is handed over, or half of the rows, lie with the other thread.
        assert!(far.remote > 0 && far.useful > 0, "{scheme}{pool}: {far:?}");
        assert_eq!(why, "the topology is a mock");
    }
}

/// The moment between a failure and its being known is short: of many runs some have others come by in it.
#[test]
fn nobody_is_caught_in_a_run_that_fails() {
    let mut events = events(40, 10, 5, 1, 11);
    events[2] = Event { kind: 0, amount: 666, ..events[2] };
    for scheme in ["serial", "tstream", "lock", "mvlk", "pat"] {
        for _ in 0..if scheme == "serial" { 1500 } else { 100 } {
            let mut engine = make(program(10, 5), options(scheme, 8, 4, r#", "batch": 4"#)).unwrap();
            engine.load_table(0, bytes(&[1000_i64; 10])).unwrap();
            let outcome = process(&mut *engine, [10, 5], &events);
            let exception = RAISED.to_vec();
            assert_eq!(outcome, Err(RunError::Kernel { operator: "transfer".into(), seq: 2, exception }));
        }
    }
}

#[test]
fn what_cannot_run_is_refused() {
    let refused = |program: Program, options: Options| match make(program, options) {
        Err(RunError::Invalid(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("accepted"),
    };
    let message = refused(program(1, 1), options("pessimistic", 1, 500, ""));
    assert_eq!(message, "unknown scheme \"pessimistic\"; known: tstream, serial, lock, mvlk, pat, auto, no_lock");
    let message = refused(program(1, 1), options("tstream", 1, 500, r#", "pool": "puddle""#));
    assert_eq!(message, "unknown pool \"puddle\"; known: shared_nothing, shared_everything, shared_per_socket");
    let message = refused(program(1, 1), options("tstream", 1, 500, r#", "stealing": true"#));
    assert_eq!(message, "stealing needs a shared pool");
    let mut containers = program(1, 1);
    containers.tables[1].containers = true;
    assert_eq!(
        refused(containers, options("no_lock", 1, 500, "")),
        "no_lock cannot run table stocks: its rows hold containers"
    );
    let mut engine = make(program(4, 1), options("tstream", 1, 500, "")).unwrap();
    assert!(engine.load_table(0, &[0; 31]).is_err());
    assert!(engine.load_table(2, &[]).is_err());
    assert!(engine.table(2).is_err());
    assert!(engine.states(0).is_err());
}

#[test]
fn racing_without_locks_delivers_everything_in_order() {
    let events = events(20_000, 50, 20, 2, 1);
    let mut engine = make(program(50, 20), options("no_lock", 4, 500, "")).unwrap();
    process(&mut *engine, [50, 20], &events).unwrap();
    let seqs: Vec<i64> = verdicts(&engine.take_outputs().0).iter().map(|verdict| verdict.seq).collect();
    let wanted: Vec<i64> = events.iter().filter(|event| event.kind != 2).map(|event| event.seq).collect();
    assert_eq!(seqs, wanted);
}

/// What may be wrong with a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// An event runs before the one it depends on.
    LostDependency,
    /// A condition sees what its own event writes.
    PostState,
    /// One write of a rejected event stays.
    HalfAbort,
    /// The outputs of two events are delivered in the wrong order.
    Disorder,
}

/// One thread that takes a block's events one after the other, but for one fault, in one event of sixteen.
struct Faulty(Fault);

impl Scheme for Faulty {
    fn block(&self, _thread: usize, run: &Run) -> Result<(), RunError> {
        let batch = Batch { block: run.block, begin: 0, end: run.block.n };
        let (mut planner, outcome) = (Planner::new(), Outcome::new(batch.len()));
        run.transaction.plan(&batch, 0..batch.len(), &mut planner, &outcome)?;
        let mut events: Vec<&[Access]> = planner.accesses().chunk_by(|a, b| a.event == b.event).collect();
        if self.0 == Fault::LostDependency {
            events.chunks_mut(16).filter(|some| some.len() > 1).for_each(|some| some.swap(0, 1));
        }
        // SAFETY: the only thread.
        let arena = unsafe { run.tables.arena(0) };
        let mut context = outcome.apply_context(&batch, run.tables.bases(), arena, false);
        for (number, accesses) in events.into_iter().enumerate() {
            let fault = if number % 16 == 0 { self.0 } else { Fault::None };
            let mut apply = |accesses: &[Access]| {
                // SAFETY: the only thread, and conditions stand before what waits for them.
                unsafe { run.transaction.apply(&batch, &mut context, accesses.as_ptr(), accesses.len()) }
            };
            // SAFETY: the event's word, which nobody else uses.
            let word = unsafe {
                &mut *outcome
                    .apply_context(&batch, run.tables.bases(), arena, false)
                    .decisions
                    .add(accesses[0].event as usize)
            };
            let (conditions, others) = accesses.split_at(accesses.iter().filter(|access| !access.waits()).count());
            if fault == Fault::PostState {
                let pending = std::mem::replace(word, 0);
                let writes: Vec<Access> = others.iter().filter(|access| access.kind == kind::MODIFY).copied().collect();
                apply(&writes)?;
                *word = pending;
                apply(conditions)?;
                let reads: Vec<Access> = others.iter().filter(|access| access.kind == kind::READ).copied().collect();
                apply(&reads)?;
                continue;
            }
            apply(conditions)?;
            if fault == Fault::HalfAbort && *word & decision::FAILED != 0 {
                let rejected = std::mem::replace(word, 0);
                apply(&others[..1])?;
                *word = rejected;
            }
            apply(others)?;
        }
        let mut order: Vec<usize> = (0..batch.len()).collect();
        if self.0 == Fault::Disorder {
            order.chunks_mut(16).filter(|some| some.len() > 1).for_each(|some| some.swap(0, 1));
        }
        for (ticket, event) in (run.first_ticket..).zip(order) {
            let mut rows = RowBuffer::new(VERDICT, false);
            run.transaction.post(&batch, event..event + 1, &outcome, &mut rows)?;
            let prepared = run.delivery.prepare(&rows, run)?;
            run.delivery.deliver(ticket, &rows, &prepared, None, run)?;
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// The test of the tests: what `check` compares finds out every fault, and a scheme without any passes but for its counts.
#[test]
fn a_faulty_scheme_is_found_out() {
    let events = events(2000, 6, 3, 1, 23);
    let found = |fault| {
        let make_scheme =
            |_: &Program, _: &Options| -> Result<Box<dyn Scheme>, RunError> { Ok(Box::new(Faulty(fault))) };
        let engine =
            transactional::make_with(make_scheme, flat(1), program(6, 3), options("tstream", 1, 500, "")).unwrap();
        let checked =
            std::panic::catch_unwind(AssertUnwindSafe(|| check_engine(engine, [6, 3], &events, 640, "faulty")));
        checked.err().map(|payload| payload.downcast::<String>().map_or_else(|_| "?".into(), |message| *message))
    };
    // It counts neither rejected nor dropped events, so even without a fault the comparison ends there, and not before.
    let message = found(Fault::None).unwrap();
    assert!(message.contains("counts"), "{message}");
    for fault in [Fault::LostDependency, Fault::PostState, Fault::HalfAbort, Fault::Disorder] {
        let message = found(fault).unwrap_or_else(|| panic!("{fault:?} was not found"));
        assert!(message.contains("faulty: output"), "{fault:?}: {message}");
    }
}

fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0_u32..5, 0_u32..6, 0_u32..6, 0_u32..3, 0_i64..60);
    proptest::collection::vec(event, 1..120).prop_map(|events| {
        let event = |(seq, (kind, from, to, item, amount)): (usize, _)| Event {
            seq: seq as i64 * 3,
            kind,
            from,
            to,
            item,
            amount,
        };
        events.into_iter().enumerate().map(event).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn random_transactions_equal_the_sequential_loop(
        events in any_events(),
        threads in 1_usize..5,
        punctuation in 1_usize..50,
        block in 1_usize..100,
        scheme in prop::sample::select(vec!["tstream", "tstream", "serial", "lock", "mvlk", "pat", "auto"]),
        pool in prop::sample::select(POOLS.to_vec()),
    ) {
        let more = format!(r#", "batch": {punctuation} {pool}"#);
        check(&events, 6, 3, options(scheme, threads, punctuation, &more), block);
    }
}

/// Whole executors under many schedules of their threads: at every access of what threads share, shuttle draws who goes
/// on. Kernels are single steps to it.
#[cfg(shuttle)]
mod shuttle {
    use super::*;
    use _runtime::sync::AtomicUsize;
    use ::shuttle::scheduler::RandomScheduler;
    use ::shuttle::{Config, Runner};

    const SCHEDULES: usize = 150;

    /// Runs random events under random schedules, the same ones every time.
    fn explore(run: impl Fn(&[Event]) + Send + Sync + 'static) {
        let mut config = Config::default();
        config.stack_size = 1 << 20;
        let round = AtomicU64::new(0);
        Runner::new(RandomScheduler::new_from_seed(7, SCHEDULES), config).run(move || {
            let seed = round.fetch_add(1, Ordering::Relaxed);
            run(&events(40, 5, 3, 1 + (seed % 3) as i32, seed));
        });
    }

    #[test]
    fn shuttle_every_schedule_equals_the_sequential_loop() {
        for idle in ["yield", "park"] {
            for scheme in ["tstream", "serial", "lock", "mvlk", "pat", "auto"] {
                for pool in if scheme == "tstream" { &POOLS[..] } else { &POOLS[..1] } {
                    for threads in [2, 3] {
                        let more = format!(r#", "idle": "{idle}", "batch": 4 {pool}"#);
                        explore(move |events| check(events, 5, 3, options(scheme, threads, 10, &more), 25));
                    }
                }
            }
        }
    }

    /// Threads take events in turn, but run them when they come to it.
    struct Unordered(AtomicUsize);

    impl Scheme for Unordered {
        fn block(&self, _thread: usize, run: &Run) -> Result<(), RunError> {
            loop {
                let event = self.0.fetch_add(1, Ordering::Relaxed);
                if event >= run.block.n {
                    return Ok(());
                }
                let batch = Batch { block: run.block, begin: event, end: event + 1 };
                let (mut planner, outcome) = (Planner::new(), Outcome::new(1));
                run.transaction.plan(&batch, 0..1, &mut planner, &outcome)?;
                // SAFETY: kernels are single steps here, and containers there are none.
                unsafe {
                    let arena = run.tables.arena(0);
                    let mut context = outcome.apply_context(&batch, run.tables.bases(), arena, false);
                    let accesses = planner.accesses();
                    run.transaction.apply(&batch, &mut context, accesses.as_ptr(), accesses.len())?;
                }
                let mut rows = RowBuffer::new(VERDICT, false);
                run.transaction.post(&batch, 0..1, &outcome, &mut rows)?;
                let prepared = run.delivery.prepare(&rows, run)?;
                run.delivery.deliver(run.first_ticket + event as u64, &rows, &prepared, None, run)?;
            }
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    /// The test of the test: on one core, or with luck, this scheme would pass.
    #[test]
    fn shuttle_a_race_is_found_out() {
        static EQUAL: AtomicU64 = AtomicU64::new(0);
        static DIFFERENT: AtomicU64 = AtomicU64::new(0);
        explore(|events| {
            let make_scheme = |_: &Program, _: &Options| -> Result<Box<dyn Scheme>, RunError> {
                Ok(Box::new(Unordered(AtomicUsize::new(0))))
            };
            let mut engine =
                transactional::make_with(make_scheme, flat(2), program(5, 3), options("tstream", 2, 500, "")).unwrap();
            let (mut a, mut s) = (vec![50_i64; 5], vec![60_i64; 3]);
            engine.load_table(0, bytes(&a)).unwrap();
            engine.load_table(1, bytes(&s)).unwrap();
            process(&mut *engine, [5, 3], events).unwrap();
            let equal = verdicts(&engine.take_outputs().0) == sequential(events, &mut a, &mut s);
            if equal { &EQUAL } else { &DIFFERENT }.fetch_add(1, Ordering::Relaxed);
        });
        let [equal, different] = [&EQUAL, &DIFFERENT].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(equal + different, SCHEDULES as u64);
        assert!(different > 10, "{different} of {SCHEDULES} schedules were found to be different");
    }
}
