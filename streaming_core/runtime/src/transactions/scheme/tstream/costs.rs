//! What the parts of the algorithm cost: times of the breakdown in finer parts (TStream, section VI-D), and what a batch is
//! made of.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use crate::output::counters::Breakdown;

/// Nanoseconds and counts of one thread, or summed over threads. Threads take the time per round and per some
/// events, not per operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Costs {
    /// The plan kernel: pre-processing, and the registration of accesses.
    pub planning: u64,
    /// Decomposing transactions, and inserting their operations into chains.
    pub insertion: u64,
    /// Walking chains, in all rounds.
    pub evaluation: u64,
    /// Waiting at barriers.
    pub barriers: u64,
    pub post_processing: u64,
    /// Delivery, and waiting for the turn to deliver.
    pub delivery: u64,
    pub intervals: u64,
    pub rounds: u64,
    pub operations: u64,
    pub chains: u64,
    pub dependent_chains: u64,
}

impl Costs {
    /// The times by the paper's components (section VI-D): only accesses to state are useful.
    pub fn breakdown(&self) -> Breakdown {
        Breakdown {
            useful: self.evaluation,
            sync: self.barriers + self.delivery,
            other: self.planning + self.insertion + self.post_processing,
            ..Breakdown::default()
        }
    }

    /// All of it by name. Times end in `_ns`.
    pub fn named(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("planning_ns", self.planning),
            ("insertion_ns", self.insertion),
            ("rounds_ns", self.evaluation),
            ("barriers_ns", self.barriers),
            ("post_processing_ns", self.post_processing),
            ("delivery_ns", self.delivery),
            ("intervals", self.intervals),
            ("rounds", self.rounds),
            ("operations", self.operations),
            ("chains", self.chains),
            ("dependent_chains", self.dependent_chains),
        ])
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, more: Self) {
        self.planning += more.planning;
        self.insertion += more.insertion;
        self.evaluation += more.evaluation;
        self.barriers += more.barriers;
        self.post_processing += more.post_processing;
        self.delivery += more.delivery;
        self.intervals += more.intervals;
        self.rounds += more.rounds;
        self.operations += more.operations;
        self.chains += more.chains;
        self.dependent_chains += more.dependent_chains;
    }
}
