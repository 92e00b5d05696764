//! Parts: the lanes that hold rows of each batch, and the number of lanes that are not done.
//!
//! Cost: a store per 32 lanes and batch, a decrement per part.

use crate::threads::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};

/// Lanes whose flags share a word with the batch's tag.
const FLAGS: usize = 32;

/// The parts of all batches in flight.
#[derive(Debug)]
pub struct Parts {
    /// Per slot and 32 lanes: low half of the serial, flags of the lanes that hold rows. The batch's owner writes it before the
    /// release. Workers read it, possibly when the slot already belongs to a later batch.
    flags: Box<[AtomicU64]>,
    /// Per slot: the number of lanes with a part to do. The batch's owner sets it; a worker that does a part counts it down.
    open: Box<[CachePadded<AtomicU32>]>,
    lanes: usize,
    words: usize,
    window: u64,
}

impl Parts {
    /// For `lanes` lanes and at most `window` (a power of two) batches in flight.
    pub fn new(lanes: usize, window: usize) -> Self {
        assert!(lanes > 0 && window.is_power_of_two(), "there must be a lane, and the window must be a power of two");
        let words = lanes.div_ceil(FLAGS);
        Self {
            flags: (0..words * window).map(|_| AtomicU64::new(0)).collect(),
            open: (0..window).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            lanes,
            words,
            window: window as u64,
        }
    }

    /// `Worklist::offer`.
    pub fn offer(&self, serial: u64, has_rows: &dyn Fn(usize) -> bool) {
        let slot = self.slot(serial);
        let mut open = 0;
        for word in 0..self.words {
            let first = word * FLAGS;
            let last = self.lanes.min(first + FLAGS);
            let flags = (first..last).fold(0, |flags, lane| flags | u64::from(has_rows(lane)) << (lane - first));
            open += flags.count_ones();
            // ORDERING: Relaxed: the release publishes the batch. A worker that is behind may read this early. It sees the
            // tag of another batch, and leaves the slot alone.
            self.flags[slot * self.words + word].store(serial << FLAGS | flags, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: the batch's release publishes it, and no worker counts down before.
        self.open[slot].store(open, Ordering::Relaxed);
    }

    /// Whether no lane holds rows of `serial`, for the worker that is releasing it.
    pub fn is_empty(&self, serial: u64) -> bool {
        // ORDERING: Relaxed: the releaser has seen the batch complete, and no worker counts down before the release.
        self.open[self.slot(serial)].load(Ordering::Relaxed) == 0
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
        self.flags(serial, lane / FLAGS) >> (lane % FLAGS) & 1 == 1
    }

    /// The first lane from `from` on that holds rows of `serial`, which was released, if none of these lanes has done
    /// its part.
    pub fn next_lane(&self, serial: u64, from: usize) -> Option<usize> {
        (from / FLAGS..self.words).find_map(|word| {
            let below = if word == from / FLAGS { (1 << (from % FLAGS)) - 1 } else { 0 };
            let flags = self.flags(serial, word) & !below;
            (flags != 0).then(|| word * FLAGS + flags.trailing_zeros() as usize)
        })
    }

    /// The flags of 32 lanes for `serial`, in the low half; none if the slot belongs to another batch.
    #[inline(always)]
    fn flags(&self, serial: u64, word: usize) -> u64 {
        // ORDERING: Relaxed: the release that the caller acquired happened after the word was written for this serial.
        // A later value, which the tag shows, means that the slot was reused. Then the caller had no row of `serial` to do,
        // because the batch could not have left without it.
        let flags = self.flags[self.slot(serial) * self.words + word].load(Ordering::Relaxed);
        let low = u64::from(u32::MAX);
        if flags >> FLAGS == serial & low { flags & low } else { 0 }
    }

    /// Declares a lane's part of `serial` done; true: it was the last, and the caller owns the batch now.
    #[inline]
    pub fn done(&self, serial: u64) -> bool {
        // ORDERING: Release publishes this lane's outputs, Acquire lets the last one see those of all others.
        self.open[self.slot(serial)].fetch_sub(1, Ordering::AcqRel) == 1
    }

    #[inline(always)]
    fn slot(&self, serial: u64) -> usize {
        (serial & (self.window - 1)) as usize
    }
}
