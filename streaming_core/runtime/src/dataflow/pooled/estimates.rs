//! Estimates: the cost of a row at each place, and the number of rows that it becomes there. They are moving averages, made
//! during the run.
//!
//! Cost: a worker writes three words of its own per piece of work.

use crate::threads::sync::{AtomicU64, CachePadded, Ordering};

/// Weight of the newest observation.
const NEWEST: f64 = 0.125;

/// The estimates of all places of a chain.
#[derive(Debug)]
pub struct Estimates {
    /// Per worker and place. That worker writes it; others read it as a hint.
    workers: Box<[Box<[CachePadded<Estimate>]>]>,
}

/// Averages over pieces of work, as bits of doubles: 0 until there was one.
#[derive(Debug, Default)]
struct Estimate {
    nanoseconds: AtomicU64,
    rows_in: AtomicU64,
    rows_out: AtomicU64,
}

/// Averages of one place over pieces of work. In a step, a piece is a batch; in a stage, it is all that was there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Averages {
    nanoseconds: f64,
    pub rows_in: f64,
    pub rows_out: f64,
}

impl Averages {
    /// Nanoseconds per row; None: no worker has been there yet.
    pub fn cost(&self) -> Option<f64> {
        (self.rows_in > 0.0).then(|| self.nanoseconds / self.rows_in)
    }

    /// The number of rows that a row becomes; 1 while no worker has been there.
    pub fn selectivity(&self) -> f64 {
        if self.rows_in > 0.0 { self.rows_out / self.rows_in } else { 1.0 }
    }
}

impl Estimates {
    pub fn new(workers: usize, places: usize) -> Self {
        let of_worker = || (0..places).map(|_| CachePadded::default()).collect();
        Self { workers: (0..workers).map(|_| of_worker()).collect() }
    }

    /// Notes that `worker` spent a time at `place` on `rows_in` rows, which became `rows_out`.
    pub fn record(&self, worker: usize, place: usize, nanoseconds: u64, rows_in: usize, rows_out: usize) {
        if rows_in == 0 {
            return;
        }
        let Estimate { nanoseconds: time, rows_in: into, rows_out: out } = &*self.workers[worker][place];
        // ORDERING: Relaxed: written by this worker only.
        let is_first = time.load(Ordering::Relaxed) == 0;
        for (mean, value) in [(time, nanoseconds as f64), (into, rows_in as f64), (out, rows_out as f64)] {
            // ORDERING: Relaxed: written by this worker only, a hint for others.
            let before = f64::from_bits(mean.load(Ordering::Relaxed));
            let after = if is_first { value } else { before + (value - before) * NEWEST };
            // ORDERING: as above.
            mean.store(after.to_bits(), Ordering::Relaxed);
        }
    }

    /// Forgets what `worker` knows of `place`, so that the next record alone counts.
    #[cfg(all(test, not(loom)))]
    pub fn forget(&self, worker: usize, place: usize) {
        let Estimate { nanoseconds, rows_in, rows_out } = &*self.workers[worker][place];
        // ORDERING: Relaxed: there is one thread.
        [nanoseconds, rows_in, rows_out].into_iter().for_each(|mean| mean.store(0, Ordering::Relaxed));
    }

    /// The cost of an event of the source at `place`, in nanoseconds, as far as `worker` knows. If it has not been there, the
    /// estimates of other workers count. 0 if no worker has been there.
    pub fn per_event(&self, worker: usize, place: usize) -> f64 {
        let known = |place: usize| {
            let own = self.workers[worker][place].averages();
            if own.rows_in > 0.0 {
                return own;
            }
            let others = self.workers.iter().map(|places| places[place].averages());
            others.into_iter().find(|averages| averages.rows_in > 0.0).unwrap_or_default()
        };
        per_event(place, known)
    }

    /// The estimates of a place: the mean over the workers that have been there.
    pub fn averages(&self, place: usize) -> Averages {
        let (mut sum, mut count) = (Averages::default(), 0.0_f64);
        for averages in
            self.workers.iter().map(|places| places[place].averages()).filter(|averages| averages.rows_in > 0.0)
        {
            count += 1.0;
            sum.nanoseconds += averages.nanoseconds;
            sum.rows_in += averages.rows_in;
            sum.rows_out += averages.rows_out;
        }
        let [nanoseconds, rows_in, rows_out] =
            [sum.nanoseconds, sum.rows_in, sum.rows_out].map(|sum| sum / count.max(1.0));
        Averages { nanoseconds, rows_in, rows_out }
    }

    /// `per_event` of each place, over all workers.
    pub fn all(&self) -> Vec<f64> {
        let places = self.workers.first().map_or(0, |places| places.len());
        (0..places).map(|place| per_event(place, |place| self.averages(place))).collect()
    }
}

impl Estimate {
    fn averages(&self) -> Averages {
        // ORDERING: Relaxed: hints.
        let load = |mean: &AtomicU64| f64::from_bits(mean.load(Ordering::Relaxed));
        Averages { nanoseconds: load(&self.nanoseconds), rows_in: load(&self.rows_in), rows_out: load(&self.rows_out) }
    }
}

/// The number of rows that an event becomes before `place`, times the cost of a row there.
fn per_event(place: usize, averages: impl Fn(usize) -> Averages) -> f64 {
    let Some(cost) = averages(place).cost() else { return 0.0 };
    let rows: f64 = (0..place).map(|place| averages(place).selectivity()).product();
    rows * cost
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn costs_are_per_event_of_the_source() {
        let estimates = Estimates::new(2, 3);
        assert_eq!(estimates.per_event(0, 2), 0.0);
        // An event becomes ten rows. The next place keeps every fifth; a row costs 7 ns at the last one.
        estimates.record(0, 0, 1000, 100, 1000);
        estimates.record(1, 1, 3000, 1000, 200);
        estimates.record(0, 2, 1400, 200, 200);
        for worker in [0, 1] {
            assert_eq!([0, 1, 2].map(|place| estimates.per_event(worker, place)), [10.0, 30.0, 14.0]);
        }
        assert_eq!(estimates.all(), [10.0, 30.0, 14.0]);
        assert_eq!([0, 1, 2].map(|place| estimates.averages(place).selectivity()), [10.0, 0.2, 1.0]);
        assert_eq!([0, 1, 2].map(|place| estimates.averages(place).cost()), [Some(10.0), Some(3.0), Some(7.0)]);
        // No rows, no news.
        estimates.record(0, 2, 1400, 0, 0);
        assert_eq!(estimates.per_event(0, 2), 14.0);
    }

    #[test]
    fn averages_move() {
        let estimates = Estimates::new(1, 1);
        estimates.record(0, 0, 100, 10, 10);
        estimates.record(0, 0, 900, 10, 10);
        assert_eq!(estimates.per_event(0, 0), 20.0);
        (0..100).for_each(|_| estimates.record(0, 0, 900, 10, 10));
        assert!((estimates.per_event(0, 0) - 90.0).abs() < 0.01);
    }
}
