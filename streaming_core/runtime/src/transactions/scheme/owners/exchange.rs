//! What a share leaves of a batch for other shares: verdicts, captured rows, and results of reads.

use crate::threads::sync::{AtomicU64, Ordering};

/// What a share tells the others of an event. The share writes it, all read it.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// The address of the event's captures, with those of the share's rows.
    captures: AtomicU64,
    /// The ticket of the batch, then whether a condition failed, then 1.
    verdict: AtomicU64,
}

impl Note {
    pub fn write(&self, ticket: u64, captures: u64, failed: bool) {
        // ORDERING: Relaxed; published by the next store.
        self.captures.store(captures, Ordering::Relaxed);
        // ORDERING: Release passes on the captured rows.
        self.verdict.store(ticket << 2 | u64::from(failed) << 1 | 1, Ordering::Release);
    }

    /// Whether a condition failed, and the captures; None: not written yet.
    pub fn read(&self, ticket: u64) -> Option<(bool, u64)> {
        // ORDERING: Acquire takes over the captured rows.
        let verdict = self.verdict.load(Ordering::Acquire);
        // ORDERING: Relaxed; written before the verdict, and not again while the batch is in flight.
        (verdict >> 2 == ticket && verdict & 1 == 1).then(|| (verdict & 2 != 0, self.captures.load(Ordering::Relaxed)))
    }
}

/// What became of a batch in a share. Others read it.
pub(super) struct Part {
    /// Per planned event with conditions.
    pub fates: Vec<Fate>,
    /// The rows that the share has captured, or taken over, at the offsets of the deal.
    pub captures: Vec<u64>,
    /// Results of the share's reads, in the order of events.
    results: Vec<u8>,
    /// The address of `results`.
    pub base: u64,
}

/// A planned event in a share: its decision, as far as the share knows it, and the address of its captures.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate {
    pub decision: u32,
    pub captures: u64,
}

impl Part {
    pub fn new() -> Self {
        Self { fates: Vec::new(), captures: Vec::new(), results: Vec::new(), base: 0 }
    }

    /// Makes room for a batch: so many planned events, words of captures, and bytes of results.
    pub fn begin(&mut self, planned: usize, captured: usize, results: usize) {
        self.fates.resize(planned.max(self.fates.len()), Fate::default());
        self.captures.resize(captured.max(self.captures.len()), 0);
        self.results.resize(results.max(self.results.len()), 0);
        self.base = self.results.as_ptr() as u64;
    }
}
