//! The transactional executor against a sequential loop.
//!
//! A small bank has conditions on one row and over two rows. Its kernels are written by hand against ABI.md.

pub mod comparison;
mod faults;
pub mod kernels;
#[cfg(shuttle)]
mod schedules;

use crate::error::RunError;
use crate::memory::placement::Placement;
use crate::output::sink::SinkKind;
use crate::program::Program;
use crate::program::options::Options;
use crate::state::states::Keys;
use crate::threads::testing::{cases, pairs};
use crate::threads::topology::Topology;
use crate::transactions::executor::{self, make};
use crate::transactions::scheme;
use crate::transactions::testing::bank::comparison::{
    bytes, check, check_program, events, flat, options, process, verdicts,
};
use crate::transactions::testing::bank::kernels::{RAISED, Transfer, program};
use proptest::prelude::*;

/// The schemes that work by batch and not by punctuation.
const BY_BATCH: [&str; 4] = ["serial", "lock", "mvlk", "pat"];

/// Those that work by punctuation.
const BY_PUNCTUATION: [&str; 1] = ["tstream"];

const POOLS: [&str; 5] = [
    "",
    r#", "pool": "shared_everything""#,
    r#", "pool": "shared_everything", "stealing": true"#,
    r#", "pool": "shared_per_socket""#,
    r#", "pool": "shared_per_socket", "stealing": true"#,
];

/// The pools of a scheme, as options: only `tstream` takes tasks from pools.
pub fn pools(scheme: &str) -> &'static [&'static str] {
    if scheme == "tstream" { &POOLS } else { &POOLS[..1] }
}

#[test]
fn every_scheme_and_shape_equals_the_sequential_loop() {
    for (accounts, stocks, skew) in [(1, 1, 1), (2, 1, 1), (7, 3, 1), (1000, 500, 1), (1000, 500, 4)] {
        let events = events(6000, accounts, stocks, skew, 7);
        for (threads, punctuation) in pairs(&[1, 2, 3, 8], &[1, 7, 500, 100_000]) {
            let n = if punctuation == 1 { 600 } else { events.len() };
            check(&events[..n], accounts, stocks, options("owners", threads, punctuation, ""), 2500);
            for pool in POOLS {
                // All threads meet once a round, and few rows take many.
                let n = n.min(800 / threads);
                check(&events[..n], accounts, stocks, options("tstream", threads, punctuation, pool), n * 2 / 3);
            }
        }
        for (threads, batch) in pairs(&[1, 2, 3, 8], &[1, 64, 4096]) {
            let more = format!(r#", "batch": {batch}"#);
            let n = if batch == 1 { 600 } else { events.len() };
            for scheme in BY_BATCH {
                check(&events[..n], accounts, stocks, options(scheme, threads, 500, &more), 2500);
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
            for scheme in ["owners", "tstream", "serial", "lock", "mvlk", "pat", "auto"] {
                for pool in pools(scheme) {
                    let more = format!(r#", "idle": "{idle}", "batch": 100 {pool}"#);
                    let events = if scheme == "tstream" { &events[..1000] } else { &events[..] };
                    check(events, 100, 50, options(scheme, threads, 100, &more), 5000);
                }
            }
        }
    }
}

#[test]
fn an_interval_is_executed_as_one_however_long() {
    let events = events(100_700, 1000, 500, 1, 7);
    for (scheme, threads) in BY_PUNCTUATION.into_iter().flat_map(|scheme| [(scheme, 1), (scheme, 2)]) {
        let mut engine = make(program(1000, 500), options(scheme, threads, 100_000, "")).unwrap();
        engine.load_table(0, &Keys::None, bytes(&[50_i64; 1000])).unwrap();
        process(&mut *engine, [1000, 500], &events).unwrap();
        let counts = engine.metrics().processing.counts();
        assert_eq!(counts.iter().map(|(_, batches)| batches).sum::<u64>(), 2, "{scheme} {threads}");
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
    for (scheme, threads) in [("serial", 3), ("owners", 1), ("owners", 3), ("tstream", 1), ("tstream", 3)] {
        assert_eq!(digest(scheme, threads, SinkKind::Digest), wanted);
    }
}

#[test]
fn an_open_loop_run_waits_for_its_events() {
    let events = events(2000, 100, 50, 1, 5);
    let ways = [
        ("serial", 1),
        ("serial", 2),
        ("lock", 2),
        ("owners", 1),
        ("owners", 2),
        ("tstream", 1),
        ("tstream", 2),
        ("no_lock", 2),
    ];
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
        let ways =
            [("serial", 1), ("serial", 3), ("owners", 1), ("owners", 2), ("owners", 8), ("tstream", 1), ("tstream", 3)];
        for (scheme, threads) in ways.into_iter().chain([("lock", 2), ("lock", 8), ("mvlk", 3), ("pat", 3)]) {
            let mut events = events(4000, 10, 5, 1, 11);
            events[2345] = Transfer { kind: 0, amount, ..events[2345] };
            let mut engine = make(program(10, 5), options(scheme, threads, 500, "")).unwrap();
            engine.load_table(0, &Keys::None, bytes(&[1000_i64; 10])).unwrap();
            let outcome = process(&mut *engine, [10, 5], &events);
            let exception = RAISED.to_vec();
            assert_eq!(
                outcome,
                Err(RunError::Kernel { operator: "transfer".into(), seq: 2345, window: None, order: 0, exception })
            );
            assert!(matches!(process(&mut *engine, [10, 5], &events), Err(RunError::Engine(_))));
        }
    }
}

/// Two threads on two fictitious nodes: the breakdown separates their fetches from their work.
#[test]
fn what_is_fetched_from_another_node_is_part_of_the_breakdown() {
    let events = events(6000, 100, 50, 1, 5);
    let two_nodes = || {
        let latencies = || Ok(vec![vec![100.0, 110.0], vec![110.0, 100.0]]);
        Placement::on(&Topology::mock(2, 1), 2, latencies)
    };
    let schemes = ["owners", "tstream", "serial", "lock", "mvlk", "pat", "auto"];
    for (scheme, pool) in schemes.into_iter().flat_map(|scheme| pools(scheme).iter().map(move |pool| (scheme, pool))) {
        let run = |placement| {
            let options = options(scheme, 2, 500, pool);
            let mut engine = executor::make_with(scheme::make, placement, program(100, 50), options).unwrap();
            process(&mut *engine, [100, 50], &events).unwrap();
            let metrics = engine.metrics();
            let made_up = metrics.memory["sockets"] == "made up";
            assert_eq!(made_up, pool.contains("socket") && Topology::probe().is_mock, "{scheme}{pool}");
            assert_eq!(metrics.memory["pools"].is_array(), scheme == "tstream", "{scheme}{pool}");
            let remote = metrics.memory["remote"].clone();
            (metrics.digest, metrics.counters.time, metrics.memory["why"].clone(), remote)
        };
        let (digest, near, _, none) = run(flat(2));
        assert_eq!((near.remote, none.is_null()), (0, true), "{scheme}{pool}");
        let (same, far, why, remote) = run(two_nodes());
        assert_eq!(same, digest);
        // Half of what is handed over, or half of the rows, lie with the other thread. The useful time may be nothing, because
        // the share of the fetches is estimated.
        assert!(far.remote > 0, "{scheme}{pool}: {far:?}");
        assert_eq!((why, remote), ("the topology is a mock".into(), "estimated".into()));
    }
}

/// Other threads learn of a failure after a moment. In some of many runs they pass it within that moment.
#[test]
fn nobody_is_caught_in_a_run_that_fails() {
    let mut events = events(40, 10, 5, 1, 11);
    events[2] = Transfer { kind: 0, amount: 666, ..events[2] };
    for scheme in ["serial", "owners", "tstream", "lock", "mvlk", "pat"] {
        for _ in 0..if scheme == "serial" { 1500 } else { 100 } {
            let mut engine = make(program(10, 5), options(scheme, 8, 4, r#", "batch": 4"#)).unwrap();
            engine.load_table(0, &Keys::None, bytes(&[1000_i64; 10])).unwrap();
            let outcome = process(&mut *engine, [10, 5], &events);
            let exception = RAISED.to_vec();
            assert_eq!(
                outcome,
                Err(RunError::Kernel { operator: "transfer".into(), seq: 2, window: None, order: 0, exception })
            );
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
    assert_eq!(
        message,
        "unknown scheme \"pessimistic\"; known: owners, tstream, serial, lock, mvlk, pat, auto, no_lock"
    );
    let message = refused(program(1, 1), options("tstream", 1, 500, r#", "pool": "puddle""#));
    assert_eq!(message, "unknown pool \"puddle\"; known: shared_nothing, shared_everything, shared_per_socket");
    let message = refused(program(1, 1), options("tstream", 1, 500, r#", "stealing": true"#));
    assert_eq!(message, "stealing needs a shared pool");
    let mut engine = make(program(4, 1), options("owners", 1, 500, "")).unwrap();
    assert!(engine.load_table(0, &Keys::None, &[0; 31]).is_err());
    assert!(engine.load_table(2, &Keys::None, &[]).is_err());
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

/// Every event changes the same row. If its table holds containers, a latch makes each of the changes whole.
#[test]
fn without_locks_each_access_to_a_row_with_containers_is_whole() {
    let event = |i: u32| Transfer { seq: i64::from(i), kind: 1, from: 2 * i, to: 2 * i + 1, item: 0, amount: 10 };
    let events: Vec<Transfer> = (0..20_000).map(event).collect();
    for threads in [2, 3, 8] {
        let mut program = program(40_000, 1);
        program.tables[1].containers = true;
        let mut engine = make(program, options("no_lock", threads, 500, "")).unwrap();
        engine.load_table(0, &Keys::None, bytes(&[1000_i64; 40_000])).unwrap();
        process(&mut *engine, [40_000, 1], &events).unwrap();
        assert_eq!(engine.table(1).unwrap().states, bytes(&[events.len() as i64]));
    }
}

#[test]
fn where_no_two_events_conflict_no_locks_are_needed() {
    let event = |i: u32| Transfer { seq: i64::from(i), kind: 0, from: 2 * i, to: 2 * i + 1, item: 0, amount: 10 };
    let events: Vec<Transfer> = (0..5_000).map(event).collect();
    for threads in [2, 3] {
        check(&events, 10_000, 1, options("no_lock", threads, 500, ""), 2500);
    }
}

fn any_events() -> impl Strategy<Value = Vec<Transfer>> {
    let event = (0_u32..5, 0_u32..6, 0_u32..6, 0_u32..3, 0_i64..60);
    proptest::collection::vec(event, 1..120).prop_map(|events| {
        let event = |(seq, (kind, from, to, item, amount)): (usize, _)| Transfer {
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
    #![proptest_config(cases(500))]

    #[test]
    fn random_transactions_equal_the_sequential_loop(
        events in any_events(),
        threads in 1_usize..5,
        punctuation in 1_usize..50,
        block in 1_usize..100,
        scheme in prop::sample::select(vec!["owners", "owners", "tstream", "tstream", "serial", "lock", "mvlk", "pat", "auto"]),
        pool in prop::sample::select(POOLS.to_vec()),
    ) {
        let pool = if scheme == "tstream" { pool } else { "" };
        let more = format!(r#", "batch": {punctuation} {pool}"#);
        check(&events, 6, 3, options(scheme, threads, punctuation, &more), block);
    }
}
