//! The costs of the steps of a batch, measured while it runs.
//!
//! They decide whether a single writer runs a batch all by itself, or leaves planning and post-processing to other threads.
//! Which is faster depends on the application and the number of threads.

use crate::threads::sync::{AtomicU64, Ordering};

/// Least cost seen of each step of a block's batches, in nanoseconds per `UNIT` events. The least, because what a step
/// takes longer than that is due to other programs.
#[derive(Debug)]
pub(crate) struct Costs {
    pub plan: Cost,
    pub apply: Cost,
    /// Post-processing, and examining the outputs.
    pub post: Cost,
    pub execute: Cost,
    /// Examining the outputs of what was executed at once.
    pub prepare: Cost,
}

#[derive(Debug)]
pub(crate) struct Cost(AtomicU64);

const UNIT: u64 = 1024;
const UNKNOWN: u64 = u64::MAX;

impl Cost {
    fn unknown() -> Self {
        Self(AtomicU64::new(UNKNOWN))
    }

    /// A batch of `events` took `nanoseconds`.
    pub fn note(&self, events: usize, nanoseconds: u64) {
        // ORDERING: Relaxed, here and below; a number that any thread may be late to see.
        self.0.fetch_min(nanoseconds * UNIT / events as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Costs {
    pub fn unknown() -> Self {
        let cost = Cost::unknown;
        Self { plan: cost(), apply: cost(), post: cost(), execute: cost(), prepare: cost() }
    }

    /// Before a block: it is measured anew.
    pub fn forget(&self) {
        for cost in [&self.plan, &self.apply, &self.post, &self.execute, &self.prepare] {
            cost.0.store(UNKNOWN, Ordering::Relaxed);
        }
    }

    /// Whether `threads` threads are faster when the writer executes batches at once than when it only applies them.
    /// Either way they are as fast as the writer, or as all of them together, whichever is slower.
    pub fn favour_execute(&self, threads: usize) -> bool {
        let [plan, apply, post] = [&self.plan, &self.apply, &self.post].map(Cost::get);
        let [execute, prepare] = [&self.execute, &self.prepare].map(Cost::get);
        if [plan, apply, post].contains(&UNKNOWN) {
            return true;
        }
        let all = |sum: u64| sum / threads as u64;
        execute.max(all(execute.saturating_add(prepare))) <= apply.max(all(plan + apply + post))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_the_writer_and_the_team_decides() {
        let costs = Costs::unknown();
        assert!(costs.favour_execute(2), "nothing is known to be faster");
        for (cost, nanoseconds) in
            [(&costs.plan, 24), (&costs.apply, 22), (&costs.post, 11), (&costs.execute, 28), (&costs.prepare, 5)]
        {
            cost.note(1, nanoseconds + 7);
            cost.note(1, nanoseconds);
        }
        assert!(costs.favour_execute(2), "28 against 57 / 2");
        assert!(!costs.favour_execute(16), "28 against 22");
        costs.forget();
        assert!(costs.favour_execute(16));
    }
}
