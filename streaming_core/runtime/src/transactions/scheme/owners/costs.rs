//! The time of threads, by what they do.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::output::counters::Breakdown;

/// Nanoseconds and counts of one thread, or summed over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Costs {
    /// Finding the shares of events, and planning events that span shares.
    pub dealing: u64,
    /// Executing events and digesting their outputs, and applying accesses of events that span shares.
    pub executing: u64,
    /// Making and digesting outputs of events that span shares.
    pub posting: u64,
    /// Waiting for a verdict, for other shares, for a deal, or for a free slot.
    pub waiting: u64,
    pub delivery: u64,
    /// Waiting for events to arrive, at a set rate.
    pub arrivals: u64,
    pub batches: u64,
    /// Events that span shares.
    pub spanning: u64,
}

impl Costs {
    pub fn breakdown(&self) -> Breakdown {
        Breakdown {
            useful: self.dealing + self.executing + self.posting,
            sync: self.waiting,
            other: self.delivery + self.arrivals,
            ..Breakdown::default()
        }
    }

    /// All of it by name. Times end in `_ns`.
    pub fn named(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("dealing_ns", self.dealing),
            ("executing_ns", self.executing),
            ("posting_ns", self.posting),
            ("waiting_ns", self.waiting),
            ("delivery_ns", self.delivery),
            ("arrivals_ns", self.arrivals),
            ("batches", self.batches),
            ("spanning", self.spanning),
        ])
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, more: Self) {
        self.dealing += more.dealing;
        self.executing += more.executing;
        self.posting += more.posting;
        self.waiting += more.waiting;
        self.delivery += more.delivery;
        self.arrivals += more.arrivals;
        self.batches += more.batches;
        self.spanning += more.spanning;
    }
}
