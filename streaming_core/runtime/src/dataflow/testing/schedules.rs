//! Whole runs under many schedules of their threads: at every access of what threads share, shuttle draws who goes on.
//! Kernels are single steps to it.

use std::sync::atomic::{AtomicU64, Ordering};

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};

use crate::dataflow::testing::pipelines::{Events, some};

/// Runs a number of random schedules, the same ones every time; `run` gets the number of the round.
pub fn explore(schedules: usize, run: impl Fn(u64) + Send + Sync + 'static) {
    let mut config = Config::default();
    config.stack_size = 1 << 20;
    let round = AtomicU64::new(0);
    Runner::new(RandomScheduler::new_from_seed(7, schedules), config).run(move || {
        run(round.fetch_add(1, Ordering::Relaxed));
    });
}

/// Two blocks of few events, others from round to round.
pub fn events(round: u64) -> Vec<Events> {
    let all = some(40 + round as usize % 7, 1 + round % 9);
    let (a, b) = all.split_at(all.len() / 2);
    vec![Events::integers(0, a), Events::integers(a.len() as i64, b)]
}
