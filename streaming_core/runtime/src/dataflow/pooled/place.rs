//! Places: where a worker may be, and how it gets to the next one.
//!
//! Step `k` is place `2k`, stage `k` place `2k + 1`: topological order from the source to the sink. A worker stays at a
//! place for a slice of work, or until there is none, and then chooses anew.

use crate::dataflow::frame::Job;
use crate::dataflow::pooled::heuristic::places::Places;
use crate::dataflow::pooled::pool::{Pool, Worker};
use crate::dataflow::pooled::worklist::list::Reach;
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::threads::sync::Ordering;

/// Nanoseconds of work after which a worker chooses anew: long against choosing, short against the time that what is in
/// flight takes.
const SLICE: u64 = 5_000;

/// The places of a chain, as worker `me` sees them.
struct View<'a> {
    pool: &'a Pool,
    job: &'a Job<'a>,
    me: usize,
}

impl Places for View<'_> {
    fn count(&self) -> usize {
        2 * self.pool.stages.len() + 1
    }

    fn has_work(&self, place: usize) -> bool {
        match (place / 2, place % 2) {
            (0, 0) => self.pool.source_is_open(self.job),
            (step, 0) => self.pool.stages[step - 1].done.is_waiting(),
            (stage, _) => self.pool.stages[stage].is_waiting(self.me, Reach::Own),
        }
    }

    fn queue(&self, place: usize) -> u64 {
        match (place / 2, place % 2) {
            (0, 0) => self.pool.startable(self.job),
            (step, 0) => self.pool.stages[step - 1].done.waiting(),
            (stage, _) => self.pool.stages[stage].queued(),
        }
    }

    fn workers(&self, place: usize) -> usize {
        let at = self.pool.at.iter().enumerate();
        // ORDERING: Relaxed: a hint.
        at.filter(|(worker, at)| *worker != self.me && at.load(Ordering::Relaxed) == place).count()
    }

    fn cost(&self, place: usize) -> f64 {
        self.pool.estimates.per_event(self.me, place)
    }
}

impl Pool {
    /// Does a slice of work where the heuristic says; false: there was none after all.
    pub fn go_on(&self, me: usize, worker: &mut Worker, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        let Some(place) = self.heuristic.choose(&View { pool: self, job, me }) else { return Ok(false) };
        let began = worker.spent();
        let mut did = false;
        while self.run(place, me, worker, job, clock)? {
            did = true;
            if worker.spent() - began >= SLICE {
                break;
            }
        }
        Ok(did)
    }

    /// What others look after, from the end of the chain: the last resort.
    pub fn help(&self, me: usize, worker: &mut Worker, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        for stage in (0..self.stages.len()).rev() {
            if self.run_lanes(stage, Reach::Others, me, worker, job, clock)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does one piece of work at `place`; false: somebody else was faster.
    fn run(
        &self,
        place: usize,
        me: usize,
        worker: &mut Worker,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        if place % 2 == 1 {
            return self.run_lanes(place / 2, Reach::Own, me, worker, job, clock);
        }
        let serial = if place == 0 { self.start(job) } else { self.stages[place / 2 - 1].done.take() };
        let Some(serial) = serial else { return Ok(false) };
        self.move_to(me, place);
        let before = worker.spent();
        let (rows_in, rows_out) = self.run_step(place / 2, serial, worker, job, clock)?;
        self.estimates.record(me, place, worker.spent() - before, rows_in, rows_out);
        Ok(true)
    }
}
