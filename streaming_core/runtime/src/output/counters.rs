//! What threads count: the time breakdown, and events that came to nothing.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Nanoseconds of one thread, or summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breakdown {
    /// In kernels and in digesting their outputs. The schemes of TStream count only accesses to state (section VI-D).
    pub useful: u64,
    /// Waiting for other threads, also for locks that they hold.
    pub sync: u64,
    /// Inserting locks; measured in samples, because reading the clock takes as long.
    pub lock: u64,
    /// Fetching from other nodes' memory, by an estimate (`placement.rs`).
    pub remote: u64,
    /// The rest: distributing, queueing, delivering, waiting for arrivals, looking rows up in indexes.
    pub other: u64,
}

impl Breakdown {
    /// Kernels are what fetches from other nodes: takes the estimate out of the time spent in them, which it is part of.
    pub fn take_out_remote(&mut self) {
        self.remote = self.remote.min(self.useful);
        self.useful -= self.remote;
    }

    /// Kernels also look rows up. Moves this estimate from the time spent in them to the rest, as TStream does (section VI-D).
    pub fn take_out_lookups(&mut self, nanoseconds: u64) {
        let spent = nanoseconds.min(self.useful);
        self.useful -= spent;
        self.other += spent;
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

/// The counters of one thread; merged on request.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn look_ups_are_no_more_than_the_time_in_kernels() {
        let mut time = Breakdown { useful: 100, sync: 7, other: 1, ..Breakdown::default() };
        time.take_out_lookups(30);
        assert_eq!((time.useful, time.sync, time.other), (70, 7, 31));
        time.take_out_lookups(1000);
        assert_eq!((time.useful, time.sync, time.other), (0, 7, 101));
    }
}
