//! Engine time: the active clock, the arrivals of an open loop, laps.

use std::time::{Duration, Instant};

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
        Running { before: self.before.as_nanos() as u64, started: Instant::now() }
    }

    pub fn stop(&mut self, running: Running) {
        self.before += running.started.elapsed();
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
        self.before + self.started.elapsed().as_nanos() as u64
    }
}

/// The open-loop source: event `i` of the run arrives at `i / rate`, whatever the engine is doing.
#[derive(Debug, Clone, Copy)]
pub struct Arrivals {
    nanoseconds: f64,
}

impl Arrivals {
    /// `rate` in events per second; 0: everything is there at once.
    pub fn new(rate: f64) -> Self {
        Self { nanoseconds: if rate > 0.0 { 1e9 / rate } else { 0.0 } }
    }

    pub fn is_open_loop(&self) -> bool {
        self.nanoseconds > 0.0
    }

    /// Engine time at which event number `index` (of the run, from 0) arrives.
    pub fn at(&self, index: u64) -> u64 {
        (index as f64 * self.nanoseconds) as u64
    }

    /// How many events have arrived by `now`.
    pub fn until(&self, now: u64) -> u64 {
        (now as f64 / self.nanoseconds) as u64 + 1
    }

    /// Waits until event number `index` has arrived, or `stop` says to leave.
    pub fn wait(&self, index: u64, clock: &Running, mut stop: impl FnMut() -> bool) {
        if !self.is_open_loop() {
            return;
        }
        let at = self.at(index);
        loop {
            let now = clock.now();
            if now >= at || stop() {
                return;
            }
            // Sleeping overshoots by tens of microseconds: only for waits that are long against that.
            if at - now > 500_000 {
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
        Self(Instant::now())
    }

    /// Adds the time since the last lap to `part` of a breakdown.
    #[inline]
    pub fn lap(&mut self, part: &mut u64) {
        let now = Instant::now();
        *part += (now - self.0).as_nanos() as u64;
        self.0 = now;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_spaced_by_the_rate() {
        let arrivals = Arrivals::new(1e6);
        assert_eq!((arrivals.at(0), arrivals.at(1_000)), (0, 1_000_000));
        assert_eq!([0, 999, 1_000, 1_500].map(|now| arrivals.until(now)), [1, 1, 2, 2]);
        assert!(!Arrivals::new(0.0).is_open_loop());
    }
}
