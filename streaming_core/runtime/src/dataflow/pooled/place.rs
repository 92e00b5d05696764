//! Places: where a worker may be, and how it gets to the next one.
//!
//! Step `k` is place `2k`, stage `k` place `2k + 1`: topological order from the source to the sink. A worker stays at a
//! place for a slice of time, or until there is no work, and then chooses anew.

use crate::dataflow::frame::Job;
use crate::dataflow::pooled::estimates::Averages;
use crate::dataflow::pooled::heuristic::places::Places;
use crate::dataflow::pooled::pool::{NOWHERE, Pool, Worker};
use crate::dataflow::pooled::worklist::list::Reach;
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::threads::sync::{Ordering, lock};

/// The places of a chain, as worker `me` sees them.
struct View<'a> {
    pool: &'a Pool,
    job: &'a Job<'a>,
    me: usize,
    /// Whether `me` looks at lanes of its own only.
    reach: Reach,
    /// Per place, within the window of time; empty: nothing is known of that.
    spent: &'a [u64],
}

impl Places for View<'_> {
    fn count(&self) -> usize {
        2 * self.pool.stages.len() + 1
    }

    fn is_schedulable(&self, place: usize) -> bool {
        let has_work = match (place / 2, place % 2) {
            (0, 0) => self.pool.source_is_open(self.job),
            (step, 0) => self.pool.stages[step - 1].done.is_waiting(),
            (stage, _) => self.pool.stages[stage].is_waiting(self.me, self.reach),
        };
        // A worker that looks only at its own lanes finds those free that no other worker is at.
        has_work && (self.reach == Reach::Own || self.workers(place) < self.pool.degree(place))
    }

    /// Batches, by the rows that one has there.
    fn queue(&self, place: usize) -> f64 {
        let rows = |averages: Averages, rows: f64| if averages.cost().is_some() { rows } else { 1.0 };
        let averages = |place| self.pool.estimates.averages(place);
        match (place / 2, place % 2) {
            (0, 0) => (self.pool.startable(self.job) * self.job.frame.batch as u64) as f64,
            (step, 0) => {
                let here = averages(place);
                self.pool.stages[step - 1].done.waiting() as f64 * rows(here, here.rows_in)
            }
            (stage, _) => {
                let before = averages(place - 1);
                self.pool.stages[stage].queued() as f64 * rows(before, before.rows_out)
            }
        }
    }

    fn workers(&self, place: usize) -> usize {
        let at = self.pool.at.iter().enumerate();
        // ORDERING: Relaxed: a hint.
        at.filter(|(worker, at)| *worker != self.me && at.load(Ordering::Relaxed) == place).count()
    }

    fn cost(&self, place: usize) -> Option<f64> {
        self.pool.estimates.averages(place).cost()
    }

    fn selectivity(&self, place: usize) -> f64 {
        self.pool.estimates.averages(place).selectivity()
    }

    fn spent(&self, place: usize) -> u64 {
        self.spent.get(place).copied().unwrap_or(0)
    }

    fn per_event(&self, place: usize) -> f64 {
        self.pool.estimates.per_event(self.me, place)
    }
}

impl Pool {
    /// Does a slice of work where the heuristic says; false: there was none after all.
    pub fn go_on(&self, me: usize, worker: &mut Worker, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        let (place, reach) = if self.heuristic.is_central() {
            (self.allot(me, worker, job), Reach::All)
        } else {
            (self.heuristic.choose(&View { pool: self, job, me, reach: Reach::Own, spent: &[] }), Reach::Own)
        };
        let Some(place) = place else { return Ok(false) };
        let began = worker.spent();
        let mut did = false;
        while self.run(place, reach, me, worker, job, clock)? {
            did = true;
            if worker.spent() - began >= self.slice {
                break;
            }
        }
        worker.slice = (place, worker.spent() - began);
        Ok(did)
    }

    /// Tells the scheduler what the worker has spent where, and asks it where to go: one worker after the other, so that
    /// each sees where the others have been sent.
    fn allot(&self, me: usize, worker: &mut Worker, job: &Job) -> Option<usize> {
        let place = {
            let mut times = lock(&self.times);
            let (place, spent) = std::mem::take(&mut worker.slice);
            times.add(job.clock.now(), place, spent);
            let place = self.heuristic.choose(&View { pool: self, job, me, reach: Reach::All, spent: times.spent() });
            self.move_to(me, place.unwrap_or(NOWHERE));
            place
        };
        // Where the worker was, there may be room for another one.
        job.frame.signals.idle.notify();
        place
    }

    /// Whether there is a place to go to for worker `me`, perhaps: a hint.
    pub fn has_place(&self, me: usize, job: &Job) -> bool {
        self.heuristic.choose(&View { pool: self, job, me, reach: Reach::All, spent: &[] }).is_some()
    }

    /// M: workers that may be at a place at the same time.
    fn degree(&self, place: usize) -> usize {
        if place % 2 == 1 { self.stages[place / 2].lanes } else { self.workers.len() }
    }

    /// What others look after, from the end of the chain: the last resort.
    pub fn help(&self, me: usize, worker: &mut Worker, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        for stage in (0..self.stages.len()).rev() {
            if self.run_lanes(stage, Reach::All, me, worker, job, clock)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does one piece of work at `place`; false: another worker was faster.
    fn run(
        &self,
        place: usize,
        reach: Reach,
        me: usize,
        worker: &mut Worker,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        if place % 2 == 1 {
            return self.run_lanes(place / 2, reach, me, worker, job, clock);
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
