use super::*;
use crate::threads::sync::Arc;
use crate::transactions::executor;
use crate::transactions::run::Candidate;
use crate::transactions::scheme::tstream::decomposed::entries;
use crate::transactions::testing::bank::comparison::{check_engine, flat, options, process};
use crate::transactions::testing::bank::kernels::{Transfer, program};

/// The scheme; a test keeps a reference while it runs.
struct Kept(Arc<Tstream>);

impl Scheme for Kept {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        self.0.block(thread, run)
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

/// Runs transfers between accounts as one interval.
fn ran(transfers: &[(u32, u32)], threads: usize, pool: &str) -> Arc<Tstream> {
    let event = |(seq, &(from, to))| Transfer { seq: seq as i64, kind: 0, from, to, item: 0, amount: 10 };
    let events: Vec<Transfer> = transfers.iter().enumerate().map(event).collect();
    let mut kept = None;
    let make = |program: &Program, options: &Options| -> Result<_, RunError> {
        let scheme = kept.insert(Arc::new(tstream(program, options)?)).clone();
        Ok(Candidate::only(threads, Box::new(Kept(scheme))))
    };
    let options = options("tstream", threads, 100_000, pool);
    let engine = executor::make_with(make, flat(threads), program(64, 1), options).unwrap();
    check_engine(engine, [64, 1], &events, events.len(), "rounds");
    kept.unwrap()
}

/// How many rounds transfers between accounts take as one interval, however many threads have which pools.
fn rounds(transfers: &[(u32, u32)]) -> usize {
    let ways = [(1, ""), (2, ""), (3, r#", "pool": "shared_everything", "stealing": true"#)];
    let rounds_of = ways.map(|(threads, pool)| {
        // SAFETY: no thread is in `block`.
        unsafe { ran(transfers, threads, pool).threads.with(0, |own| own.round) }
    });
    assert!(rounds_of.iter().all(|&rounds| rounds == rounds_of[0]), "{rounds_of:?}");
    rounds_of[0]
}

#[test]
fn chains_without_dependencies_take_one_round() {
    assert_eq!(rounds(&[(3, 3), (4, 4), (3, 3)]), 1);
}

#[test]
fn a_chain_that_depends_on_chains_that_depend_on_none_is_walked_in_the_second_round() {
    let apart: Vec<(u32, u32)> = (0..20).map(|i| (2 * i, 2 * i + 1)).collect();
    assert_eq!(rounds(&apart), 2);
}

#[test]
fn each_link_of_a_chain_of_dependencies_takes_a_round() {
    let links: Vec<(u32, u32)> = (0..40).map(|i| (i, i + 1)).collect();
    assert_eq!(rounds(&links), 41);
    // The other way round every transfer is from an account that nothing has gone to yet.
    let apart: Vec<(u32, u32)> = (0..40).rev().map(|i| (i, i + 1)).collect();
    assert_eq!(rounds(&apart), 2);
}

#[test]
fn chains_that_depend_on_each_other_are_walked_in_turns() {
    // The first round finds no chain that depends on none; in the second both events that write one account are come to.
    assert_eq!(rounds(&[(0, 1), (1, 0)]), 3);
    assert_eq!(rounds(&[(0, 1), (1, 0), (0, 1), (1, 0), (0, 1)]), 6);
}

/// Takes an interval up to the first barrier: first the second thread's events, then the first one's.
struct Open(Tstream);

impl Scheme for Open {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        if thread == 1 {
            return Ok(());
        }
        let Self(scheme) = self;
        let batch = batches(run, scheme.punctuation).next().unwrap();
        for (thread, wanted) in [(1, vec![2, 2, 3, 3]), (0, vec![0, 0, 2, 2, 3, 3])] {
            let task = Assignment { thread, threads: 2, run, batch: &batch, outcome: &scheme.outcomes[0] };
            let (slice, mut watch) = (batch.slice(thread, 2), Stopwatch::start());
            // SAFETY: the other thread is not in here.
            unsafe { scheme.threads.with_mut(thread, |own| scheme.compute(task, own, slice, &mut watch))? };
            let chain = entries(scheme.directory.chain(&scheme.layout, RowName { table: 0, row: 7 }));
            assert_eq!(chain.iter().map(|entry| entry.0.event).collect::<Vec<_>>(), wanted);
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

#[test]
fn operations_are_in_their_chains_before_the_interval_closes() {
    let make = |program: &Program, options: &Options| -> Result<_, RunError> {
        Ok(Candidate::only(2, Box::new(Open(tstream(program, options)?))))
    };
    let mut engine = executor::make_with(make, flat(2), program(64, 1), options("tstream", 2, 4, "")).unwrap();
    // Each transfer to another account writes and reads there.
    let event = |(seq, from)| Transfer { seq, kind: 0, from, to: 7, item: 0, amount: 10 };
    let mut events: Vec<Transfer> = (0..).zip([1, 2, 3, 4]).map(event).collect();
    events[1].to = 8;
    process(&mut *engine, [64, 1], &events).unwrap();
}

#[test]
fn threads_meet_twice_an_interval_and_once_more_for_each_further_round() {
    let (plain, apart) = ([(3, 3), (4, 4)], [(0, 1), (2, 3)]);
    let meetings = |transfers, pool| ran(transfers, 2, pool).barrier.meetings();
    assert_eq!((meetings(&plain, ""), meetings(&apart, "")), (2, 3));
    let shared = r#", "pool": "shared_everything""#;
    assert_eq!((meetings(&plain, shared), meetings(&apart, shared)), (2, 3));
}

#[test]
fn costs_count_what_an_interval_is_made_of() {
    for threads in [1, 2, 3] {
        let counts = |transfers| {
            let costs = ran(transfers, threads, "").costs();
            ["intervals", "rounds", "operations", "chains", "dependent_chains"].map(|name| costs[name])
        };
        // A transfer on one row: a condition, two modifications, two reads. On two rows its condition is evaluated on a
        // version.
        assert_eq!(counts(&[(3, 3), (4, 4), (3, 3)]), [1, 1, 15, 2, 0], "{threads}");
        // The chain of each account that another transfer's condition reads has a modification and a read of its own.
        assert_eq!(counts(&[(0, 1), (2, 3)]), [1, 2, 8, 4, 2], "{threads}");
    }
}

#[test]
fn times_of_the_breakdown_are_those_of_the_parts() {
    let scheme = ran(&[(0, 1), (2, 3)], 2, "");
    let (costs, time) = (scheme.costs(), scheme.counters().time);
    let sum: u64 = costs.iter().filter(|(name, _)| name.ends_with("_ns")).map(|(_, nanoseconds)| nanoseconds).sum();
    assert_eq!(time.useful + time.sync + time.other, sum);
    assert!(costs["rounds_ns"] > 0 && time.sync >= costs["barriers_ns"]);
}
