//! Places: where a worker may be, and how it chooses the next one.

use crate::executor::pooled::pool::{Job, Pool, Worker};
use crate::kernel::RunError;
use crate::metrics::Stopwatch;
use crate::sync::Ordering;

/// Worker `i` has nothing to do right now.
pub const NOWHERE: usize = usize::MAX;

impl Pool {
    /// The heuristic `ct`: among the places with work, the one with the lowest current throughput, that is workers
    /// there by the cost of a batch there. Ties, among them all places without a worker, go to this worker's own lanes,
    /// which nobody else should have to do, and then to the end of the chain.
    pub fn choose(&self, index: usize, worker: &Worker, job: &Job<'_>) -> Option<usize> {
        let mut best = None;
        let stages = self.stages.len();
        for place in (0..stages).rev().map(|k| 2 * k + 1).chain((0..=stages).rev().map(|k| 2 * k)) {
            let stage = place / 2;
            let waiting = match place {
                0 => self.source_is_open(job),
                _ if place % 2 == 0 => self.stages[stage - 1].done.is_waiting(),
                _ => self.home(stage, index).any(|lane| self.lane_is_waiting(stage, lane)),
            };
            if !waiting {
                continue;
            }
            let Some((other, throughput)) = best else {
                best = Some((place, None));
                continue;
            };
            // Throughputs are found out only once there is a choice.
            let throughput = throughput.unwrap_or_else(|| self.throughput(other, index, worker));
            if throughput == 0.0 {
                return Some(other);
            }
            let this = self.throughput(place, index, worker);
            best = Some(if this < throughput { (place, Some(this)) } else { (other, Some(throughput)) });
        }
        best.map(|(place, _)| place)
    }

    pub fn throughput(&self, place: usize, index: usize, worker: &Worker) -> f64 {
        // ORDERING: Relaxed: a hint.
        let others = self.at.iter().enumerate().filter(|(i, at)| *i != index && at.load(Ordering::Relaxed) == place);
        others.count() as f64 / worker.costs[place].max(1.0)
    }

    pub fn move_to(&self, index: usize, place: usize) {
        // ORDERING: Relaxed: a hint, written by this worker only.
        if self.at[index].load(Ordering::Relaxed) != place {
            self.at[index].store(place, Ordering::Relaxed);
        }
    }

    /// Does one piece of work at `place`; false: somebody else was faster.
    pub fn run(
        &self,
        place: usize,
        index: usize,
        worker: &mut Worker,
        job: &Job<'_>,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        if place % 2 == 1 {
            let home = self.home(place / 2, index);
            return self.run_lanes(place / 2, home, index, worker, clock);
        }
        let serial = if place == 0 { self.start(job) } else { self.stages[place / 2 - 1].done.take() };
        let Some(serial) = serial else { return Ok(false) };
        self.move_to(index, place);
        let before = worker.counters.time;
        self.run_step(place / 2, serial, worker, job, clock)?;
        let after = worker.counters.time;
        average(&mut worker.costs[place], (after.useful + after.other - before.useful - before.other) as f64);
        Ok(true)
    }
}

/// A moving average that starts with the first value.
pub fn average(mean: &mut f64, value: f64) {
    *mean += (value - *mean) * if *mean == 0.0 { 1.0 } else { 0.125 };
}
