//! How a worker gets from place to place. It stays at a place for a slice of time, or until there is no work, and then
//! chooses anew.

use crate::dataflow::frame::Job;
use crate::dataflow::pooled::heuristic::places::Places;
use crate::dataflow::pooled::places::Place;
use crate::dataflow::pooled::pool::{NOWHERE, Pool, Worker};
use crate::dataflow::pooled::worklist::list::Reach;
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::threads::sync::Ordering;

/// The answer of the central scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allotment {
    Place(usize),
    Nothing(Nothing),
}

/// Why a worker rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nothing {
    /// The changes that the worker had seen.
    seen: u64,
    /// Whether a batch could have been started. In an open loop, an event that arrives is no worker's change.
    source_was_open: bool,
}

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
        self.pool.places.len()
    }

    fn is_schedulable(&self, place: usize) -> bool {
        let stages = &self.pool.stages;
        let has_work = match self.pool.places[place] {
            Place::Step(0) => self.pool.source_is_open(self.job),
            Place::Step(step) => stages[step - 1].done.is_waiting(),
            Place::Stage { index, starts, sends } => {
                stages[index].is_waiting(self.me, self.reach)
                    || sends && stages[index].done.is_waiting()
                    || starts && self.pool.source_is_open(self.job)
            }
        };
        // A worker that looks only at its own lanes finds those free that no other worker is at.
        has_work && (self.reach == Reach::Own || self.workers(place) < self.pool.degree(place))
    }

    /// Rows that no worker has taken. At the source, the events that the window admits. At a step behind a stage, the batches
    /// that wait, times the usual rows of a batch.
    fn queue(&self, place: usize) -> f64 {
        let source = || (self.pool.startable(self.job) * self.job.frame.batch as u64) as f64;
        match self.pool.places[place] {
            Place::Step(0) => source(),
            Place::Step(step) => {
                let here = self.pool.estimates.averages(place);
                let rows = if here.cost().is_some() { here.rows_in } else { 1.0 };
                self.pool.stages[step - 1].done.waiting() as f64 * rows
            }
            Place::Stage { index, starts, .. } => {
                self.pool.stages[index].waiting_rows() as f64 + if starts { source() } else { 0.0 }
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
    /// Does work at `place` for a slice of time. Returns whether there was any.
    pub fn spend_slice(
        &self,
        place: usize,
        reach: Reach,
        me: usize,
        worker: &mut Worker,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        // The time of the choice is not the place's.
        clock.lap(&mut worker.counters.time.other);
        let began = worker.spent();
        let mut did = false;
        while self.run(place, reach, me, worker, job, clock)? {
            did = true;
            self.announce(job);
            if worker.spent() - began >= self.slice {
                break;
            }
        }
        worker.slice = (place, worker.spent() - began);
        Ok(did)
    }

    /// The place that a heuristic without a scheduler chooses, among those where the worker has lanes.
    pub fn choose(&self, me: usize, job: &Job) -> Option<usize> {
        self.heuristic.choose(&View { pool: self, job, me, reach: Reach::Own, spent: &[] })
    }

    /// Reports to the scheduler where the worker has spent its time, and asks it where to go. Workers ask one after the other,
    /// so each sees where the scheduler has sent the others.
    pub fn allot(&self, me: usize, worker: &mut Worker, job: &Job) -> Allotment {
        // ORDERING: Relaxed: written by this worker.
        let has_worked = self.at[me].load(Ordering::Relaxed) != NOWHERE;
        let ((place, source_was_open), seen) = self.scheduler.ask(has_worked, |times| {
            let (place, spent) = std::mem::take(&mut worker.slice);
            times.add(job.clock.now(), place, spent);
            let source_was_open = self.source_is_open(job);
            let place = self.heuristic.choose(&View { pool: self, job, me, reach: Reach::All, spent: times.spent() });
            self.move_to(me, place.unwrap_or(NOWHERE));
            (place, source_was_open)
        });
        if has_worked {
            // Where the worker was, there may be room for another one.
            job.frame.signals.idle.notify();
        }
        place.map_or(Allotment::Nothing(Nothing { seen, source_was_open }), Allotment::Place)
    }

    /// Whether a worker that the scheduler sent nowhere should ask again.
    pub fn should_ask(&self, nothing: &Nothing, job: &Job) -> bool {
        let has_arrival = || job.frame.arrivals.is_open_loop() && !nothing.source_was_open && self.source_is_open(job);
        self.scheduler.has_changed(nothing.seen) || has_arrival()
    }

    /// Tells workers that rest under a central scheduler that there may be work.
    fn announce(&self, job: &Job) {
        if self.heuristic.is_central() {
            self.scheduler.announce();
            job.frame.signals.idle.notify();
        }
    }

    /// M: workers that may be at a place at the same time.
    fn degree(&self, place: usize) -> usize {
        match self.places[place] {
            Place::Step(_) => self.threads,
            Place::Stage { index, .. } => self.stages[index].lanes,
        }
    }

    /// The place of stage `index`.
    pub fn place_of_stage(&self, index: usize) -> usize {
        let is_it = |place: &Place| matches!(place, Place::Stage { index: this, .. } if *this == index);
        self.places.iter().position(is_it).expect("every stage is a place")
    }

    /// What others look after, from the end of the chain: the last resort.
    pub fn help(&self, me: usize, worker: &mut Worker, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        for place in (0..self.places.len()).rev() {
            if let Place::Stage { .. } = self.places[place]
                && self.run_lanes(place, Reach::All, me, worker, job, clock)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Does one piece of work at `place`; false: another worker was faster.
    pub fn run(
        &self,
        place: usize,
        reach: Reach,
        me: usize,
        worker: &mut Worker,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        let (step, serial) = match self.places[place] {
            Place::Step(0) => (0, self.start(job)),
            Place::Step(step) => (step, self.stages[step - 1].done.take()),
            Place::Stage { index, starts, sends } => {
                if self.run_lanes(place, reach, me, worker, job, clock)? {
                    return Ok(true);
                }
                // Batches without rows for any lane, and new ones. They are no rows of this operator.
                let empty = if sends { self.stages[index].done.take() } else { None };
                let serial = empty.or_else(|| if starts { self.start(job) } else { None });
                let step = if empty.is_some() { index + 1 } else { 0 };
                let Some(serial) = serial else { return Ok(false) };
                self.run_step(step, serial, worker, job, clock)?;
                return Ok(true);
            }
        };
        let Some(serial) = serial else { return Ok(false) };
        self.move_to(me, place);
        let before = worker.spent();
        let (rows_in, rows_out) = self.run_step(step, serial, worker, job, clock)?;
        self.estimates.record(me, place, worker.spent() - before, rows_in, rows_out);
        Ok(true)
    }
}
