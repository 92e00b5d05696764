//! A windowed operator, pinned, its replicas reconfigured on the way, against a loop that asks every window.

use super::*;
#[cfg(not(shuttle))]
use crate::dataflow::channel::inlet::Inlet;
#[cfg(not(shuttle))]
use crate::dataflow::pinned::role::{Keys, Role};
use crate::dataflow::testing::windows::{Single, Windows, blocks, outputs, scheduled};
use crate::dataflow::windowed::Replicated;
#[cfg(not(shuttle))]
use crate::dataflow::windowed::{copies, epochs::REPORTED, replica::Faults};
use crate::program::options::Scheduled;
#[cfg(not(shuttle))]
use crate::state::windows::CELLS;
use crate::threads::testing::cases;

/// In each parallelism.
fn check_windows(windows: Windows, rows: &[[i64; 3]], block: usize, options: &Options) {
    let blocks = blocks(rows, block);
    for detour in [false, true] {
        let wanted = windows.model(&blocks, detour);
        let late = windows.late(&blocks, detour);
        for parallelism in ["vsn", "vsn_esg", "sn"] {
            let options = Options { parallelism: Some(parallelism.into()), ..options.clone() };
            let mut executor = pinned(&windows.program(detour), &options).unwrap();
            executor.choice.take_turns();
            let result = outputs(&blocks, &mut executor);
            assert_eq!(result, wanted, "{windows:?} {options:?} {detour}");
            if result.1.is_none() {
                assert_eq!(executor.metrics().late, late, "{windows:?} {options:?} {detour}");
            }
        }
    }
}

/// Single windows, windows with keys that every row has, and of two streams, in each parallelism.
fn check_single(single: Single, rows: &[[i64; 3]], block: usize, options: &Options) {
    let blocks = blocks(rows, block);
    for parallelism in ["vsn", "vsn_esg", "sn"] {
        let options = Options { parallelism: Some(parallelism.into()), ..options.clone() };
        let mut executor = pinned(&single.program(), &options).unwrap();
        executor.choice.take_turns();
        assert_eq!(outputs(&blocks, &mut executor), (single.model(&blocks), None), "{single:?} {options:?}");
    }
}

/// While another thread asks for these shares, again and again, as long as the run lasts.
#[cfg(not(shuttle))]
fn check_asked(windows: Windows, rows: &[[i64; 3]], block: usize, options: &Options, shares: &[Vec<usize>]) {
    use std::sync::atomic::{AtomicBool, Ordering};
    let blocks = blocks(rows, block);
    let mut executor = pinned(&windows.program(true), options).unwrap();
    let (control, over) = (executor.reconfigurable("window").unwrap(), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            for share in shares.iter().cycle().take_while(|_| !over.load(Ordering::Relaxed)) {
                control.request(share).unwrap();
                std::thread::yield_now();
            }
        });
        let result = outputs(&blocks, &mut executor);
        over.store(true, Ordering::Relaxed);
        result
    });
    assert_eq!(result, windows.model(&blocks, true), "{windows:?} {options:?} {shares:?}");
}

fn on(threads: usize, batch: usize, schedule: Vec<Scheduled>) -> Options {
    Options { schedule, ..options(threads, batch, "gate") }
}

#[cfg(not(shuttle))]
proptest! {
    #![proptest_config(cases(60))]
    #[test]
    fn any_windows_and_any_reconfigurations(
        (advance, more, delay) in (1_i64..6, 0_i64..12, 0_i64..8),
        (n, step, keys) in (1_usize..300, 0_i64..5, 1_i64..40),
        (threads, batch, block) in (1_usize..9, 1_usize..40, 1_usize..200),
        (replicas, sources, shift) in (1_usize..9, 1_usize..3, 0_usize..8),
        mut drawn in proptest::collection::vec((0_i64..302, proptest::collection::vec(0_usize..8, 1..5)), 0..12),
    ) {
        let windows = Windows { advance, size: advance + more, delay };
        drawn.sort();
        let schedule = drawn.iter().map(|(event, shares)| {
            let pattern: Vec<usize> = shares.iter().map(|replica| replica % replicas).collect();
            // Events of all kinds: the first one, several at once, the last, some that never come.
            scheduled(if *event < 30 { 0 } else { (*event).min(n as i64 + 1) }, &pattern)
        });
        let plan = [("window", replicas), ("source", sources)].map(|(name, number)| {
            (name.to_string(), (0..number).map(|at| (at + shift) % threads).collect())
        });
        let schedule: Vec<_> = schedule.collect();
        let shares: Vec<_> = schedule.iter().map(|at: &Scheduled| at.owners["window"].clone()).collect();
        let options = Options { plan: plan.into(), ..on(threads, batch, schedule) };
        let rows = windows.events(n, step, keys);
        check_windows(windows, &rows, block, &options);
        let controller = Some(["threshold", "model", "balance"][n % 3].into());
        let parallelism = Some(["vsn", "vsn_esg", "sn"][n / 3 % 3].into());
        check_asked(windows, &rows, block, &Options { controller, parallelism, ..options }, &shares);
    }

    /// ESG_out of the first windowed operator is ESG_in of the next one, or feeds an operator between them.
    #[test]
    fn any_reconfigurations_of_two_windowed_operators_in_a_row(
        (n, step, keys, through) in (1_usize..200, 0_i64..5, 1_i64..40, any::<bool>()),
        (threads, batch, block) in (1_usize..5, 1_usize..40, 1_usize..100),
        mut drawn in proptest::collection::vec(
            (0_i64..202, any::<bool>(), proptest::collection::vec(0_usize..8, 1..5)), 0..24,
        ),
    ) {
        let windows = Windows { advance: 2, size: 5, delay: 3 };
        let blocks = blocks(&windows.events(n, step, keys), block);
        drawn.sort();
        let schedule = drawn.iter().map(|(event, first, owners)| Scheduled {
            event: *event,
            owners: BTreeMap::from([(
                if *first { "window" } else { "again" }.to_string(),
                owners.iter().map(|replica| replica % threads).collect(),
            )]),
        });
        let program = windows.chain(through);
        let wanted = outputs(&blocks, &mut pinned(&program, &on(1, batch, Vec::new())).unwrap());
        let options = Options { parallelism: Some("vsn_esg".into()), ..on(threads, batch, schedule.collect()) };
        prop_assert_eq!(outputs(&blocks, &mut pinned(&program, &options).unwrap()), wanted);
    }

    #[test]
    fn any_single_windows_and_any_reconfigurations(
        (advance, more) in (1_i64..6, 0_i64..12),
        (n, step, keys) in (1_usize..200, 0_i64..5, 1_i64..40),
        (threads, batch, block) in (1_usize..9, 1_usize..40, 1_usize..200),
        (every, joins) in (proptest::option::of(1_i64..20), any::<bool>()),
        mut drawn in proptest::collection::vec((0_i64..202, proptest::collection::vec(0_usize..8, 1..5)), 0..12),
    ) {
        let single = Single { advance, size: advance + more, every, joins };
        drawn.sort();
        let pattern = |owners: &[usize]| owners.iter().map(|replica| replica % threads).collect::<Vec<_>>();
        let schedule = drawn.iter().map(|(event, owners)| scheduled(*event, &pattern(owners))).collect();
        let rows = Windows { advance, size: advance + more, delay: 0 }.events(n, step, keys);
        check_single(single, &rows, block, &on(threads, batch, schedule));
    }
}

#[cfg(not(shuttle))]
#[test]
fn a_failure_ends_a_run_that_is_being_reconfigured() {
    let windows = Windows { advance: 3, size: 8, delay: 0 };
    for at in [0, 1, 40, 99] {
        let mut rows = windows.events(100, 2, 9);
        rows[at][2] = 4242;
        for threads in [1_usize, 2, 3, 8] {
            let half: Vec<usize> = (0..threads.div_ceil(2)).collect();
            let schedule = (0..20).map(|i| scheduled(5 * i, if i % 2 == 0 { &half } else { &[0] })).collect();
            check_windows(windows, &rows, 33, &on(threads, 4, schedule));
        }
    }
}

#[cfg(not(shuttle))]
#[test]
fn what_was_reconfigured_is_reported() {
    let windows = Windows { advance: 3, size: 8, delay: 0 };
    let rows = windows.events(100, 2, 9);
    let schedule = vec![scheduled(0, &[2]), scheduled(50, &[0, 1]), scheduled(50, &[1, 0]), scheduled(101, &[2])];
    let mut executor = pinned(&windows.program(false), &on(3, 4, schedule)).unwrap();
    outputs(&blocks(&rows, 30), &mut executor);
    let report = executor.metrics().reconfigurations;
    let column = |name: &str| report.as_array().unwrap().iter().map(|entry| entry[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("event"), [0, 50, 50, 101]);
    let cells = report[0]["cells"].as_u64().unwrap();
    let third = column("moved")[0].as_u64().unwrap();
    assert!((cells * 3 / 5..cells * 3 / 4).contains(&third));
    assert_eq!(column("moved")[1..], [cells, cells, 0]);
    let over = column("gone_over").iter().map(|over| over.as_array().unwrap().len()).collect::<Vec<_>>();
    assert_eq!(over, [3, 3, 2, 0]);
    assert_eq!(column("bytes"), [0, 0, 0, 0]);
    assert!(column("posted")[..3].iter().all(|posted| posted.as_u64().unwrap() > 0) && column("posted")[3].is_null());
}

#[cfg(not(shuttle))]
#[test]
fn epochs_of_earlier_blocks_are_forgotten() {
    let windows = Windows { advance: 3, size: 8, delay: 0 };
    let blocks = blocks(&windows.events(300, 2, 9), 10);
    for parallelism in ["vsn", "vsn_esg", "sn"] {
        let schedule = (1..60).map(|i| scheduled(5 * i, &[i as usize % 2])).collect();
        let options = Options { parallelism: Some(parallelism.into()), ..on(2, 4, schedule) };
        let mut executor = pinned(&windows.program(false), &options).unwrap();
        for (index, block) in blocks.iter().enumerate() {
            executor.process(&block.block()).unwrap();
            let epochs = &executor.frame.windows[0].as_ref().unwrap().operator.epochs;
            // What the last block began with is there until the next one begins.
            let first = (0..).find(|&number| epochs.get(number).is_some());
            assert_eq!(first, Some((2 * index).saturating_sub(1)), "{parallelism}");
        }
        let metrics = executor.metrics();
        let listed = metrics.reconfigurations.as_array().unwrap().len();
        assert_eq!((listed, metrics.omitted_reconfigurations), (REPORTED, 59 - REPORTED));
    }
}

/// All outputs go through ESG_out. Its sources are the replicas that own cells, at the first event, at the edges of batches and
/// blocks, and at the last event. One caller adds and one removes them, once for each reconfiguration.
#[cfg(not(shuttle))]
#[test]
fn the_sources_of_esg_out_are_the_replicas_that_own_cells() {
    let windows = Windows { advance: 3, size: 8, delay: 0 };
    let blocks = blocks(&windows.events(100, 2, 9), 40);
    let owners: [(i64, &[usize]); 8] = [
        (0, &[2]),
        (4, &[0, 1, 2]),
        (5, &[1]),
        (40, &[0, 2]),
        (44, &[2, 0]),
        (80, &[0, 1]),
        (99, &[2]),
        (200, &[0, 1, 2]),
    ];
    // In this order: -, +, -, +-, none, +-, +-. The last one is not reached.
    let changes = 9;
    for threads in [1, 2, 3] {
        let schedule = owners.iter().map(|(event, owners)| scheduled(*event, owners)).collect();
        let plan = [("window".to_string(), (0..3).map(|replica| replica % threads).collect())];
        let parallelism = Some("vsn_esg".into());
        let options = Options { plan: plan.into(), parallelism, ..on(threads, 4, schedule) };
        for detour in [false, true] {
            let mut executor = pinned(&windows.program(detour), &options).unwrap();
            let result = outputs(&blocks, &mut executor);
            assert_eq!(result, windows.model(&blocks, detour));
            let (mut sources, mut passed) = (vec![None; 3], 0);
            executor.work.tasks.each_mut(|tasks| {
                for task in tasks {
                    match task.role {
                        Role::Operator { lane, .. } if task.finder.is_some() => {
                            let [output] = &task.inserters[..] else { panic!("one gate takes the outputs") };
                            assert_eq!(output.changes(), changes);
                            sources[lane] = Some(output.has(lane));
                            passed += output.rows;
                        }
                        Role::Sink { .. } => assert!(matches!(task.inlet, Inlet::Elastic(_))),
                        _ => (),
                    }
                }
            });
            assert_eq!(sources, [Some(false), Some(false), Some(true)]);
            // The rows of windows that expire at the end of the stream belong to no event.
            let of_events = result.0.iter().filter(|row| row[0] < 100).count();
            assert_eq!(passed, of_events);
            assert!(passed > 0);
        }
    }
}

/// Replicas that share nothing copy what is open: as much whichever of them has it, nothing where nothing is.
#[cfg(not(shuttle))]
#[test]
fn state_that_is_copied_is_counted() {
    let windows = Windows { advance: 3, size: 8, delay: 0 };
    let rows = windows.events(100, 2, 9);
    let schedule = vec![
        scheduled(0, &[2]),
        scheduled(50, &[0]),
        scheduled(50, &[1]),
        scheduled(50, &[0, 1]),
        scheduled(101, &[2]),
    ];
    let options = Options { parallelism: Some("sn".into()), ..on(3, 4, schedule) };
    let mut executor = pinned(&windows.program(false), &options).unwrap();
    outputs(&blocks(&rows, 30), &mut executor);
    let report = executor.metrics().reconfigurations;
    let bytes: Vec<u64> = report.as_array().unwrap().iter().map(|entry| entry["bytes"].as_u64().unwrap()).collect();
    // Each cell has five words of its own, in parts.
    let empty = CELLS as u64 * 5 * 8;
    assert!(bytes[0] < empty && bytes[1] > empty && bytes[1] == bytes[2] && bytes[3] < bytes[2], "{bytes:?}");
    assert!(bytes[3] > empty / 2 && bytes[4] == 0, "{bytes:?}");
}

#[cfg(not(shuttle))]
#[test]
fn schedules_that_make_no_sense_are_refused() {
    let windows = Windows { advance: 3, size: 8, delay: 0 };
    let unknown = Scheduled { event: 1, owners: BTreeMap::from([("door".into(), vec![0])]) };
    for (schedule, why) in [
        (vec![unknown], "door is not a windowed operator"),
        (vec![scheduled(5, &[0]), scheduled(4, &[1])], "events must ascend, but event 4 comes after event 5"),
        (vec![scheduled(5, &[2])], "event 5: window has replicas 0 to 1: name the owners of its cells"),
        (vec![scheduled(5, &[])], "event 5: window has replicas 0 to 1: name the owners of its cells"),
    ] {
        let Err(RunError::Invalid(message)) = pinned(&windows.program(false), &on(2, 4, schedule)) else {
            panic!("{why}")
        };
        assert!(message.contains(why), "{message}");
    }
}

/// Whether a fault in replica 0, or in the finders of keys, shows, while keys move back and forth between two replicas on one
/// thread.
#[cfg(not(shuttle))]
fn shows(parallelism: &str, spoil: impl Fn(&mut Replicated), misdeal: copies::Faults) -> bool {
    let windows = Windows { advance: 3, size: 11, delay: 2 };
    let blocks = blocks(&windows.events(300, 2, 30), 100);
    let schedule = (1..98).map(|i| scheduled(3 * i, [&[0][..], &[1], &[0, 1], &[1, 0]][i as usize % 4])).collect();
    let plan = BTreeMap::from([("window".into(), vec![0, 0])]);
    let options = Options { plan, parallelism: Some(parallelism.into()), ..on(1, 7, schedule) };
    let mut executor = pinned(&windows.program(false), &options).unwrap();
    spoil(executor.frame.windows[0].as_mut().unwrap());
    executor.work.tasks.each_mut(|tasks| {
        for task in tasks {
            if let Role::Keys(Keys { copies: Some(copies), .. }) = &mut task.role {
                copies.faults = misdeal;
            }
        }
    });
    outputs(&blocks, &mut executor) != windows.model(&blocks, false)
}

/// That a replica waits for others is loom's to see (`epochs.rs`): without it, two would free the same memory.
#[cfg(not(shuttle))]
#[test]
fn planted_faults_show() {
    let spoil = |fault: Faults| {
        // SAFETY: no thread is at work.
        move |windowed: &mut Replicated| unsafe { windowed.replicas.with_mut(0, |replica| replica.faults = fault) }
    };
    let none = copies::Faults::default();
    let in_replica = |parallelism: &str, fault: Faults| shows(parallelism, spoil(fault), none);
    for parallelism in ["vsn", "sn"] {
        assert!(!in_replica(parallelism, Faults::default()));
        assert!(in_replica(parallelism, Faults { early: 1, ..Faults::default() }));
        assert!(in_replica(parallelism, Faults { forgets: true, ..Faults::default() }));
        assert!(in_replica(parallelism, Faults { dreams: true, ..Faults::default() }));
        assert!(in_replica(parallelism, Faults { loses: true, ..Faults::default() }));
        assert!(shows(parallelism, |windowed| windowed.operator.bag = true, none));
        for fault in [
            copies::Faults { misdeals: Some(3), ..none },
            copies::Faults { loses: Some(3), ..none },
            copies::Faults { delays: true, ..none },
        ] {
            assert!(shows(parallelism, spoil(Faults::default()), fault), "{parallelism} {fault:?}");
        }
    }
    assert!(!in_replica("vsn_esg", Faults::default()));
    assert!(in_replica("vsn_esg", Faults { forgets: true, ..Faults::default() }));
    assert!(in_replica("vsn_esg", Faults { dreams: true, ..Faults::default() }));
    assert!(shows("vsn_esg", |windowed| windowed.operator.bag = true, none));
}

/// Whole runs under schedules of threads that shuttle draws.
#[cfg(shuttle)]
#[test]
fn shuttle_reconfigured_windows_equal_the_loop() {
    use crate::dataflow::testing::schedules::explore;
    use crate::threads::idle::Strategy;
    use crate::threads::sync::thread;
    for threads in [2, 3] {
        for idle in [Strategy::Yield, Strategy::Park] {
            explore(150, move |round| {
                let windows = Windows { advance: 2, size: 5, delay: (round % 3) as i64 };
                let rows = windows.events(30 + round as usize % 5, 2, 4);
                let all: Vec<usize> = (0..threads).collect();
                let at = (round % 11) as i64;
                let schedule = vec![
                    scheduled(at, &all[1..]),
                    scheduled(at + 3, &all[..1]),
                    scheduled(at + 3, &[1, 0]),
                    scheduled(20, &all),
                ];
                let options = Options { idle, ..on(threads, 2, schedule) };
                check_windows(windows, &rows, 13, &options);
                let (every, joins) = ((round % 2 == 0).then_some(3), round % 4 < 2);
                check_single(Single { advance: 2, size: 5, every, joins }, &rows, 13, &options);
                // And with requests from outside.
                let blocks = blocks(&rows, 13);
                let mut executor = pinned(&windows.program(false), &options).unwrap();
                let control = executor.reconfigurable("window").unwrap();
                let shares = [all[..1].to_vec(), all[1..].to_vec(), vec![1, 0]];
                let asking = thread::spawn(move || {
                    for share in shares.iter().cycle().take(7) {
                        control.request(share).unwrap();
                        thread::yield_now();
                    }
                });
                let result = outputs(&blocks, &mut executor);
                asking.join().unwrap();
                assert_eq!(result, windows.model(&blocks, false), "{windows:?} {options:?}");
            });
        }
    }
}
