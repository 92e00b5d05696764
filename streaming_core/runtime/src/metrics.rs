//! What a run says about itself: the active clock, latencies, the time breakdown, counters.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use crate::digest::Digest;
use crate::sink::Tally;

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

/// Latencies in nanoseconds, to three digits, up to an hour.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    const LONGEST: u64 = 3_600_000_000_000;

    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, Self::LONGEST, 3).expect("constant bounds"))
    }

    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.max(1));
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("same bounds");
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How often each value was recorded, to the digits kept.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// What gives these counts.
    pub fn of(counts: &[(u64, u64)]) -> Self {
        let mut latencies = Self::new();
        for &(nanoseconds, count) in counts {
            latencies.0.saturating_record_n(nanoseconds.max(1), count);
        }
        latencies
    }

    /// Percentiles in microseconds, named as in the run report.
    pub fn to_json(&self) -> Value {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        json!({"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999), "max": self.0.max() as f64 / 1e3})
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// Nanoseconds of one thread, or summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breakdown {
    /// In kernels and in digesting their outputs.
    pub useful: u64,
    /// Waiting for other threads, also for locks that they hold.
    pub sync: u64,
    /// Asking for locks, seeing whether they are granted, and giving them back; measured in samples, because the clock
    /// costs as much as they do.
    pub lock: u64,
    /// Fetching from other nodes' memory, by an estimate (`placement.rs`).
    pub remote: u64,
    /// The rest: distributing, queueing, delivering, waiting for arrivals.
    pub other: u64,
}

impl Breakdown {
    /// Kernels are what fetches from other nodes: takes the estimate out of the time spent in them, which it is part of.
    pub fn take_out_remote(&mut self) {
        self.remote = self.remote.min(self.useful);
        self.useful -= self.remote;
    }
}

impl AddAssign for Breakdown {
    fn add_assign(&mut self, more: Self) {
        self.useful += more.useful;
        self.sync += more.sync;
        self.lock += more.lock;
        self.remote += more.remote;
        self.other += more.other;
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

/// What one thread counts; merged when somebody asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    pub time: Breakdown,
    pub cpu_nanoseconds: u64,
    pub dropped: u64,
    pub rejected: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, more: Self) {
        self.time += more.time;
        self.cpu_nanoseconds += more.cpu_nanoseconds;
        self.dropped += more.dropped;
        self.rejected += more.rejected;
    }
}

/// What a checkpoint keeps beside the tables: where the run stands, and what its figures go on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    pub events: u64,
    /// Engine time.
    pub nanoseconds: u64,
    pub counters: Counters,
    /// As in `Metrics`.
    pub chosen: BTreeMap<String, u64>,
    pub delivered: Tally,
    /// `Latencies::counts`.
    pub processing: Vec<(u64, u64)>,
    pub end_to_end: Vec<(u64, u64)>,
}

/// A run's figures; README.md names what the JSON holds.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub events: u64,
    pub counters: Counters,
    pub seconds: f64,
    pub digest: Digest,
    pub in_order: bool,
    /// Per batch: from the start of its processing to its delivery.
    pub processing: Latencies,
    /// Per batch, open loop: from the intended arrival of its first event to its delivery.
    pub end_to_end: Latencies,
    /// Core of each thread as it really took effect, if threads are pinned.
    pub binding: Option<Vec<usize>>,
    /// Where memory lies (`Placement::to_json`), of an executor that sees to that.
    pub memory: Value,
    /// Events by the scheme that ran them, where one chooses between several.
    pub chosen: BTreeMap<String, u64>,
}

impl Metrics {
    pub fn to_json(&self) -> Value {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let time = &self.counters.time;
        json!({
            "events": self.events,
            "outputs": self.digest.rows,
            "digest": self.digest.sum,
            "in_order": self.in_order,
            "seconds": self.seconds,
            "events_per_s": if self.seconds > 0.0 { self.events as f64 / self.seconds } else { 0.0 },
            "processing": self.processing.to_json(),
            "end_to_end": if self.end_to_end.is_empty() { Value::Null } else { self.end_to_end.to_json() },
            "breakdown": {
                "useful": seconds(time.useful),
                "sync": seconds(time.sync),
                "lock": seconds(time.lock),
                "remote": seconds(time.remote),
                "other": seconds(time.other),
            },
            "cpu_seconds": seconds(self.counters.cpu_nanoseconds),
            "dropped": self.counters.dropped,
            "rejected": self.counters.rejected,
            "binding": self.binding,
            "memory": self.memory,
            "chosen": self.chosen,
        })
    }
}

/// CPU time of the calling thread in nanoseconds.
pub fn thread_cpu_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    if failed != 0 {
        return 0;
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn json_has_microseconds_and_seconds() {
        let mut metrics = Metrics { events: 3, ..Metrics::default() };
        metrics.processing.record(5_000);
        let json = metrics.to_json();
        assert_eq!(json["processing"]["max"].as_f64().unwrap().round(), 5.0);
        assert!(json["end_to_end"].is_null());
        assert_eq!((&json["digest"], &json["outputs"]), (&json!(0), &json!(0)));
    }

    #[test]
    fn arrivals_are_spaced_by_the_rate() {
        let arrivals = Arrivals::new(1e6);
        assert_eq!((arrivals.at(0), arrivals.at(1_000)), (0, 1_000_000));
        assert!(!Arrivals::new(0.0).is_open_loop());
    }
}
