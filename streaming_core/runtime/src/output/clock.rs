//! Engine time: the active clock, the arrivals of an open loop, laps.

use std::sync::OnceLock;
// Not the shim's atomics: a static has to be made without a model, and the clock orders nothing.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Empty laps that find the cost of a lap.
const TRIALS: usize = 1000;

/// Nanoseconds by which the clock has jumped ahead.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// The time. The engine reads no other clock.
#[inline]
pub fn now() -> Instant {
    // ORDERING: Relaxed; the number is all there is.
    Instant::now() + Duration::from_nanos(AHEAD.load(Ordering::Relaxed))
}

/// Lets the clock jump ahead, as that of a machine that was suspended: a fault that a run injects into itself.
#[cfg(feature = "pyo3")]
pub fn jump(by: Duration) {
    // ORDERING: Relaxed; the number is all there is.
    AHEAD.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
}

/// Engine time: runs while a block is processed, stands still between blocks.
#[derive(Debug, Default)]
pub struct Clock {
    before: Duration,
}

/// The clock while a block is processed; every thread may read a copy.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    before: u64,
    started: Instant,
}

impl Clock {
    pub fn start(&self) -> Running {
        Running { before: self.before.as_nanos() as u64, started: now() }
    }

    pub fn stop(&mut self, running: Running) {
        self.before += now().saturating_duration_since(running.started);
    }

    pub fn seconds(&self) -> f64 {
        self.before.as_secs_f64()
    }

    pub fn nanoseconds(&self) -> u64 {
        self.before.as_nanos() as u64
    }

    /// A clock that has run for a while already.
    pub fn after(nanoseconds: u64) -> Self {
        Self { before: Duration::from_nanos(nanoseconds) }
    }
}

impl Running {
    /// Nanoseconds of engine time since the engine was made.
    #[inline]
    pub fn now(&self) -> u64 {
        self.at(now())
    }

    /// What it was at some time since the block began, and at any before that.
    #[inline]
    pub fn at(&self, time: Instant) -> u64 {
        self.before + time.saturating_duration_since(self.started).as_nanos() as u64
    }

    /// What it was when the block began.
    pub fn began(&self) -> u64 {
        self.before
    }
}

/// The open-loop source: events of a phase arrive 1 / rate apart, whatever the engine is doing.
#[derive(Debug, Clone)]
pub struct Arrivals {
    /// In order; none: everything is there at once.
    phases: Vec<Phase>,
    /// Whether a source sleeps until the next arrival, and never spins.
    sleeps: bool,
}

/// Events from number `first` (of the run, from 0) on: that one arrives at `at`, the others `apart`, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Phase {
    first: u64,
    at: f64,
    apart: f64,
}

impl Arrivals {
    /// From event number (of the run) on, events per second; the first from 0 on. None: everything is there at once.
    pub fn new(rates: &[(u64, f64)]) -> Self {
        let mut phases: Vec<Phase> = Vec::new();
        for &(first, rate) in rates {
            let at = phases.last().map_or(0.0, |before| before.at + (first - before.first) as f64 * before.apart);
            phases.push(Phase { first, at, apart: 1e9 / rate });
        }
        Self { phases, sleeps: false }
    }

    /// With `sleeps`, a source that waits takes no processor time. The system may wake it tens of microseconds late.
    pub fn sleeping(self, sleeps: bool) -> Self {
        Self { sleeps, ..self }
    }

    pub fn is_open_loop(&self) -> bool {
        !self.phases.is_empty()
    }

    /// Engine time at which event number `index` arrives.
    pub fn at(&self, index: u64) -> u64 {
        let phase = self.phases.partition_point(|phase| phase.first <= index).checked_sub(1);
        phase.map_or(0, |phase| {
            let Phase { first, at, apart } = self.phases[phase];
            (at + (index - first) as f64 * apart) as u64
        })
    }

    /// How many events have arrived by `now`, of an open loop.
    pub fn until(&self, now: u64) -> u64 {
        let now = now as f64;
        let index = self.phases.partition_point(|phase| phase.at <= now) - 1;
        let Phase { first, at, apart } = self.phases[index];
        let arrived = first + ((now - at) / apart) as u64 + 1;
        self.phases.get(index + 1).map_or(arrived, |next| arrived.min(next.first))
    }

    /// Waits until event number `index` has arrived, or `stop` says to leave.
    pub fn wait(&self, index: u64, clock: &Running, stop: impl FnMut() -> bool) {
        if self.is_open_loop() {
            self.wait_until(self.at(index), clock, stop);
        }
    }

    /// Waits until `at`, in engine time, or until `stop` says to leave.
    pub fn wait_until(&self, at: u64, clock: &Running, mut stop: impl FnMut() -> bool) {
        loop {
            let now = clock.now();
            if now >= at || stop() {
                return;
            }
            if self.sleeps {
                std::thread::sleep(Duration::from_nanos((at - now).min(10_000_000)));
            // Sleeping overshoots by tens of microseconds: only for waits that are long against that.
            } else if at - now > 500_000 {
                std::thread::sleep(Duration::from_nanos((at - now - 300_000).min(10_000_000)));
            } else if at - now > 20_000 {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Splits a thread's time into laps.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(now())
    }

    /// Adds the time since the last lap to `part` of a breakdown.
    #[inline]
    pub fn lap(&mut self, part: &mut u64) {
        let now = now();
        *part += (now - self.0).as_nanos() as u64;
        self.0 = now;
    }

    /// Nanoseconds that every lap contains because it reads the clock: the shortest of many empty laps.
    pub fn cost() -> u64 {
        static COST: OnceLock<u64> = OnceLock::new();
        *COST.get_or_init(|| {
            let mut watch = Self::start();
            let empty_lap = |_| {
                let mut spent = 0;
                watch.lap(&mut spent);
                spent
            };
            (0..TRIALS).map(empty_lap).min().unwrap_or(0)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_spaced_by_the_rate() {
        let arrivals = Arrivals::new(&[(0, 1e6)]);
        assert_eq!((arrivals.at(0), arrivals.at(1_000)), (0, 1_000_000));
        assert_eq!([0, 999, 1_000, 1_500].map(|now| arrivals.until(now)), [1, 1, 2, 2]);
        assert!(!Arrivals::new(&[]).is_open_loop());
    }

    #[test]
    fn rates_change_with_phases() {
        let arrivals = Arrivals::new(&[(0, 1e6), (4, 1e3), (6, 1e6)]);
        assert_eq!([3, 4, 5, 6, 7].map(|index| arrivals.at(index)), [3_000, 4_000, 1_004_000, 2_004_000, 2_005_000]);
        let until = [3_999, 4_000, 1_003_999, 1_004_000, 2_003_999, 2_004_000, 2_005_000];
        assert_eq!(until.map(|now| arrivals.until(now)), [4, 5, 5, 6, 6, 7, 8]);
    }
}
