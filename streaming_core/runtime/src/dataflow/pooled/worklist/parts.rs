//! Flagged parts: the lanes that hold rows of each batch, for worklists whose workers walk from batch to batch.
//!
//! Cost: a store per 32 lanes and batch.

use crate::dataflow::pooled::input::Part;
use crate::dataflow::pooled::touched::touch;
use crate::dataflow::pooled::worklist::open::OpenParts;
use crate::threads::sync::{AtomicU64, Ordering};

/// Lanes whose flags share a word with the batch's tag.
const FLAGS: usize = 32;

/// The parts of all batches in flight.
#[derive(Debug)]
pub struct FlaggedParts {
    /// Per slot and 32 lanes: low half of the serial, flags of the lanes that hold rows. The releasing worker writes it. Workers
    /// read it, possibly when the slot already belongs to a later batch.
    flags: Box<[AtomicU64]>,
    open: OpenParts,
    words: usize,
    window: u64,
}

impl FlaggedParts {
    /// For `lanes` lanes and at most `window` (a power of two) batches in flight.
    pub fn new(lanes: usize, window: usize) -> Self {
        let words = lanes.div_ceil(FLAGS);
        Self {
            flags: (0..words * window).map(|_| AtomicU64::new(0)).collect(),
            open: OpenParts::new(window),
            words,
            window: window as u64,
        }
    }

    /// `Worklist::add`.
    pub fn add(&self, serial: u64, parts: &[Part]) {
        let first = self.slot(serial) * self.words;
        touch(self.words + parts.len());
        let words = &self.flags[first..first + self.words];
        // ORDERING: Relaxed, all three: the release publishes the batch, and this worker alone writes. A worker that is behind
        // may read this early. It sees the tag of another batch, and leaves the slot alone.
        words.iter().for_each(|word| word.store(serial << FLAGS, Ordering::Relaxed));
        for part in parts {
            let word = &words[part.lane / FLAGS];
            word.store(word.load(Ordering::Relaxed) | 1 << (part.lane % FLAGS), Ordering::Relaxed);
        }
        self.open.set(serial, parts.len());
    }

    /// The first serial that may still be in flight after the release of all serials below `released`. Batches a whole window
    /// back have left the pipeline, so they have no work left.
    #[inline(always)]
    pub fn oldest(&self, released: u64) -> u64 {
        released.saturating_sub(self.window)
    }

    /// Whether `lane` holds rows of `serial`. That batch is released, and the lane has not done its part.
    #[inline(always)]
    pub fn holds(&self, serial: u64, lane: usize) -> bool {
        // ORDERING: Relaxed: the release that the caller acquired happened after the word was written for this serial.
        // A later value, which the tag shows, means that the slot was reused. Then the caller had no row of `serial` to do,
        // because the batch could not have left without it. A batch without parts leaves an older tag.
        let word = self.flags[self.slot(serial) * self.words + lane / FLAGS].load(Ordering::Relaxed);
        word >> FLAGS == serial & u64::from(u32::MAX) && word >> (lane % FLAGS) & 1 == 1
    }

    /// Declares a lane's part of `serial` done; true: it was the last, and the caller owns the batch now.
    #[inline]
    pub fn done(&self, serial: u64) -> bool {
        self.open.done(serial)
    }

    #[inline(always)]
    fn slot(&self, serial: u64) -> usize {
        (serial & (self.window - 1)) as usize
    }
}
