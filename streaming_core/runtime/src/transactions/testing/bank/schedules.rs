//! Whole executors under many schedules of their threads: at every access of what threads share, shuttle draws who goes
//! on. Kernels are single steps to it.

use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::rows::buffer::RowBuffer;
use crate::state::states::Keys;
use crate::threads::sync::AtomicUsize;
use crate::transactions::batch::Batch;
use crate::transactions::executor;
use crate::transactions::outcome::Outcome;
use crate::transactions::planner::Planner;
use crate::transactions::run::{Candidate, Run, Scheme};
use crate::transactions::testing::bank::comparison::{bytes, check, events, flat, options, process, verdicts};
use crate::transactions::testing::bank::kernels::{Transfer, VERDICT, program, sequential};
use crate::transactions::testing::bank::pools;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};
use std::sync::atomic::{AtomicU64, Ordering};

const SCHEDULES: usize = 150;

/// Runs random events under random schedules, the same ones every time.
fn explore(run: impl Fn(&[Transfer]) + Send + Sync + 'static) {
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
        for scheme in ["owners", "tstream", "serial", "lock", "mvlk", "pat", "auto"] {
            for pool in pools(scheme) {
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
            let prepared = run.prepare(&rows)?;
            run.deliver(run.first_ticket + event as u64, &rows, &prepared, None)?;
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
        let make_scheme = |_: &Program, _: &Options| -> Result<_, RunError> {
            Ok(Candidate::only(2, Box::new(Unordered(AtomicUsize::new(0)))))
        };
        let mut engine =
            executor::make_with(make_scheme, flat(2), program(5, 3), options("owners", 2, 500, "")).unwrap();
        let (mut a, mut s) = (vec![50_i64; 5], vec![60_i64; 3]);
        engine.load_table(0, &Keys::None, bytes(&a)).unwrap();
        engine.load_table(1, &Keys::None, bytes(&s)).unwrap();
        process(&mut *engine, [5, 3], events).unwrap();
        let equal = verdicts(&engine.take_outputs().0) == sequential(events, &mut a, &mut s);
        if equal { &EQUAL } else { &DIFFERENT }.fetch_add(1, Ordering::Relaxed);
    });
    let [equal, different] = [&EQUAL, &DIFFERENT].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(equal + different, SCHEDULES as u64);
    assert!(different > 10, "{different} of {SCHEDULES} schedules were found to be different");
}
