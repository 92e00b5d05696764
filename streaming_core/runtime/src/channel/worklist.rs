//! Worklists: what of a batch is to be done next, and by whom.
//!
//! [`HybridQueue`] feeds a partitioned stage. A batch is offered to all its lanes (partitions) at once; a worker takes a
//! free lane and does everything released to it, while work for a taken lane stays with its holder: nobody waits.
//! Invariant: a lane sees the batches that hold rows for it in serial order, each once, one worker at a time.
//! Cost: one exchange to take a lane, one decrement per batch and lane that holds rows; nothing per row.
//!
//! [`InOrder`] feeds a stage that any worker may run on any batch; batches are taken in serial order.
//!
//! Neither can overflow: a batch lives in slot `serial % window`, and serials in flight span less than `window`.
//! README.md, "Hybrid queue", has the protocol.

use crate::sync::{AtomicU32, AtomicU64, CachePadded, Ordering};

/// Set in a lane's word while a worker holds the lane.
const HELD: u64 = 1;
/// Lanes whose flags share a word with the batch's tag.
const FLAGS: usize = 32;

/// Batches of a partitioned stage, by lane.
#[derive(Debug)]
pub struct HybridQueue {
    /// Per lane `cursor << 1 | HELD`: the next serial to look at. Written by the lane's holder.
    lanes: Box<[CachePadded<AtomicU64>]>,
    /// Per slot and 32 lanes: low half of the serial, flags of the lanes that hold rows. Written by the batch's owner
    /// before it is released; read by holders, possibly when the slot belongs to a later batch already.
    flags: Box<[AtomicU64]>,
    /// Per slot: lanes that have not yet done their part. Set by the batch's owner, counted down by holders.
    open: Box<[CachePadded<AtomicU32>]>,
    words: usize,
    window: u64,
}

impl HybridQueue {
    /// A queue for `lanes` lanes and at most `window` (a power of two) batches in flight.
    pub fn new(lanes: usize, window: usize) -> Self {
        assert!(lanes > 0 && window.is_power_of_two(), "at least one lane, and a window that is a power of two");
        let words = lanes.div_ceil(FLAGS);
        Self {
            lanes: (0..lanes).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            flags: (0..words * window).map(|_| AtomicU64::new(0)).collect(),
            open: (0..window).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            words,
            window: window as u64,
        }
    }

    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Announces which lanes hold rows of batch `serial`, before it is released.
    pub fn offer(&self, serial: u64, has_rows: impl Fn(usize) -> bool) {
        let slot = self.slot(serial);
        let mut open = 0;
        for word in 0..self.words {
            let first = word * FLAGS;
            let last = self.lanes.len().min(first + FLAGS);
            let flags = (first..last).fold(0, |flags, lane| flags | u64::from(has_rows(lane)) << (lane - first));
            open += flags.count_ones();
            // ORDERING: Relaxed: the batch is published by its release. A holder that is behind may read this early,
            // sees the tag of another batch and leaves the slot alone.
            self.flags[slot * self.words + word].store(serial << FLAGS | flags, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: published by the batch's release; nobody counts down before.
        self.open[slot].store(open, Ordering::Relaxed);
    }

    /// Whether no lane holds rows of `serial`. For the worker that is just releasing it, who then hands it on: were that
    /// done earlier, the batch could leave, and its slot be reused, before its release.
    pub fn is_empty(&self, serial: u64) -> bool {
        // ORDERING: Relaxed: the releaser has seen the batch complete, and nobody counts down before the release.
        self.open[self.slot(serial)].load(Ordering::Relaxed) == 0
    }

    /// Whether somebody who takes `lane` now would find something, perhaps: a hint.
    #[inline(always)]
    pub fn is_waiting(&self, lane: usize, released: u64) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        let word = self.lanes[lane].load(Ordering::Relaxed);
        word & HELD == 0 && word >> 1 < released
    }

    /// Takes `lane` unless somebody holds it or nothing below `released` is left for it.
    #[inline]
    pub fn take(&self, lane: usize, released: u64) -> Option<Lane<'_>> {
        // ORDERING: Relaxed: the exchange decides.
        let word = self.lanes[lane].load(Ordering::Relaxed);
        if word & HELD != 0 || word >> 1 >= released {
            return None;
        }
        // ORDERING: Acquire pairs with the Release in `put_back`: the new holder sees the state as the last one left it.
        self.lanes[lane].compare_exchange(word, word | HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Lane { queue: self, lane, cursor: word >> 1 })
    }

    #[inline(always)]
    fn slot(&self, serial: u64) -> usize {
        (serial & (self.window - 1)) as usize
    }
}

/// A lane that this worker holds. Forgetting it without `put_back` (a panic) leaves it held: nobody touches its state.
#[derive(Debug)]
#[must_use = "a lane that is not put back is never worked on again"]
pub struct Lane<'a> {
    queue: &'a HybridQueue,
    lane: usize,
    cursor: u64,
}

impl Lane<'_> {
    pub fn index(&self) -> usize {
        self.lane
    }

    /// The next serial below `released` that holds rows for this lane; `released` is what this worker read of the
    /// reorder buffer in front of the stage.
    #[inline]
    pub fn next(&mut self, released: u64) -> Option<u64> {
        // Batches a whole window back have left the pipeline, so nothing of theirs is left to do.
        self.cursor = self.cursor.max(released.saturating_sub(self.queue.window));
        while self.cursor < released {
            let serial = self.cursor;
            self.cursor += 1;
            let word = self.queue.slot(serial) * self.queue.words + self.lane / FLAGS;
            // ORDERING: Relaxed: the release that `released` acquired happened after the word was written for this
            // serial. A later value means that the slot was reused: then no row of `serial` was ours, since the
            // batch could not have left without us; the tag tells.
            let flags = self.queue.flags[word].load(Ordering::Relaxed);
            if flags >> FLAGS == serial & u64::from(u32::MAX) && flags >> (self.lane % FLAGS) & 1 == 1 {
                return Some(serial);
            }
        }
        None
    }

    /// Declares this lane's part of `serial` done; true: it was the last, and the caller owns the batch now.
    #[inline]
    pub fn done(&self, serial: u64) -> bool {
        // ORDERING: Release publishes this lane's outputs, Acquire lets the last one see those of all others.
        self.queue.open[self.queue.slot(serial)].fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Gives the lane back. What is released from now on may be taken by anybody.
    #[inline]
    pub fn put_back(self) {
        // ORDERING: Release pairs with the Acquire in `take`.
        self.queue.lanes[self.lane].store(self.cursor << 1, Ordering::Release);
    }
}

/// Batches that any worker may go on with, taken in serial order.
#[derive(Debug)]
pub struct InOrder {
    /// `stamps[serial % window]` = serial + 1 once offered. Written by the batch's owner.
    stamps: Box<[AtomicU64]>,
    /// The next serial to take. Written by whoever takes it.
    next: CachePadded<AtomicU64>,
    mask: u64,
}

impl InOrder {
    /// A worklist for at most `window` (a power of two) batches in flight.
    pub fn new(window: usize) -> Self {
        assert!(window.is_power_of_two(), "a window is a power of two");
        Self {
            stamps: (0..window).map(|_| AtomicU64::new(0)).collect(),
            next: CachePadded::new(AtomicU64::new(0)),
            mask: window as u64 - 1,
        }
    }

    /// Hands batch `serial` on, once.
    #[inline]
    pub fn offer(&self, serial: u64) {
        // ORDERING: Release pairs with the Acquire in `take`: the taker sees the batch.
        self.stamps[(serial & self.mask) as usize].store(serial + 1, Ordering::Release);
    }

    /// Whether somebody who takes now would get a batch, perhaps: a hint.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        // ORDERING: Relaxed: a hint; `take` decides.
        let next = self.next.load(Ordering::Relaxed);
        self.stamps[(next & self.mask) as usize].load(Ordering::Relaxed) == next + 1
    }

    /// The next batch in serial order, if it was offered; the caller owns it.
    #[inline]
    pub fn take(&self) -> Option<u64> {
        // ORDERING: Relaxed: the stamp publishes the batch, the exchange decides who gets it.
        let next = self.next.load(Ordering::Relaxed);
        // ORDERING: Acquire pairs with `offer`.
        if self.stamps[(next & self.mask) as usize].load(Ordering::Acquire) != next + 1 {
            return None;
        }
        // ORDERING: Relaxed: nothing else is published by the counter.
        self.next.compare_exchange(next, next + 1, Ordering::Relaxed, Ordering::Relaxed).ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::channel::reorder::ReorderBuffer;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// Batches of random subsets of lanes through reorder buffer, lanes, and in-order take; what each lane saw.
    fn run(subsets: &[u64], lanes: usize, workers: usize, window: usize) -> (Vec<Vec<u64>>, Vec<u64>) {
        let (queue, ready) = (HybridQueue::new(lanes, window), InOrder::new(window));
        let (front, back) = (ReorderBuffer::new(window), ReorderBuffer::new(window));
        let source = AtomicU64::new(0);
        let seen: Vec<_> = (0..lanes).map(|_| Mutex::new(Vec::new())).collect();
        let delivered = Mutex::new(Vec::new());
        let total = subsets.len() as u64;
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while back.released() < total {
                        let mut idle = true;
                        let serial = source.load(Ordering::Relaxed);
                        if serial < total.min(back.released() + window as u64)
                            && source.compare_exchange(serial, serial + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
                        {
                            idle = false;
                            queue.offer(serial, |lane| subsets[serial as usize] >> (lane % 64) & 1 == 1);
                            front.complete_and_release(serial, |serial| {
                                if queue.is_empty(serial) {
                                    ready.offer(serial);
                                }
                            });
                        }
                        for (index, seen) in seen.iter().enumerate() {
                            let Some(mut lane) = queue.take(index, front.released()) else { continue };
                            while let Some(serial) = lane.next(front.released()) {
                                idle = false;
                                seen.try_lock().expect("one worker a lane").push(serial);
                                if lane.done(serial) {
                                    ready.offer(serial);
                                }
                            }
                            lane.put_back();
                        }
                        while let Some(serial) = ready.take() {
                            idle = false;
                            back.complete_and_release(serial, |serial| delivered.lock().unwrap().push(serial));
                        }
                        if idle {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        (seen.into_iter().map(|seen| seen.into_inner().unwrap()).collect(), delivered.into_inner().unwrap())
    }

    fn check(subsets: &[u64], lanes: usize, workers: usize, window: usize) {
        let (seen, delivered) = run(subsets, lanes, workers, window);
        for (lane, seen) in seen.iter().enumerate() {
            let expected: Vec<u64> =
                (0..subsets.len() as u64).filter(|&s| subsets[s as usize] >> (lane % 64) & 1 == 1).collect();
            assert_eq!(seen, &expected, "lane {lane}");
        }
        assert_eq!(delivered, (0..subsets.len() as u64).collect::<Vec<_>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn each_lane_sees_its_batches_in_order(
            subsets in proptest::collection::vec(any::<u64>(), 0..200), lanes in 1_usize..70, workers in 1_usize..4,
            log in 0_u32..4,
        ) {
            check(&subsets, lanes, workers, 1 << log);
        }
    }

    #[test]
    fn a_single_hot_lane_and_empty_batches() {
        for workers in [1, 2, 3, 8] {
            check(&[1; 5000], 8, workers, 4);
            check(&[0; 1000], 8, workers, 4);
            check(&(0..5000).map(|s| 1 << (s % 9)).collect::<Vec<_>>(), 8, workers, 2);
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::channel::reorder::ReorderBuffer;
    use crate::sync::{Arc, UnsafeCell, thread};

    /// One partitioned stage of two lanes.
    struct Stage {
        /// Per serial: the lanes that have rows.
        subsets: &'static [u64],
        queue: HybridQueue,
        front: ReorderBuffer,
        ready: InOrder,
        back: ReorderBuffer,
        /// Per slot: the batch. Written by its owner, read by its lanes.
        batch: Vec<UnsafeCell<u64>>,
        /// Per lane: what it saw. Written by its holder.
        seen: Vec<UnsafeCell<Vec<u64>>>,
    }

    // SAFETY: the protocol orders all accesses to the cells; loom checks that.
    unsafe impl Sync for Stage {}
    // SAFETY: as above.
    unsafe impl Send for Stage {}

    impl Stage {
        fn new(subsets: &'static [u64], window: usize) -> Self {
            Self {
                subsets,
                queue: HybridQueue::new(2, window),
                front: ReorderBuffer::new(window),
                ready: InOrder::new(window),
                back: ReorderBuffer::new(window),
                batch: (0..window).map(|_| UnsafeCell::new(0)).collect(),
                seen: (0..2).map(|_| UnsafeCell::new(Vec::new())).collect(),
            }
        }

        /// Starts what fits into the window, from serial `next` on; the next serial then.
        fn source(&self, mut next: u64) -> u64 {
            let window = self.batch.len();
            while next < self.subsets.len() as u64 && next < self.back.released() + window as u64 {
                // SAFETY: the slot's last batch has left.
                self.batch[next as usize % window].with_mut(|batch| unsafe { *batch = next });
                self.queue.offer(next, |lane| self.subsets[next as usize] >> lane & 1 == 1);
                self.front.complete_and_release(next, |serial| {
                    if self.queue.is_empty(serial) {
                        self.ready.offer(serial);
                    }
                });
                next += 1;
            }
            next
        }

        fn work(&self) {
            let window = self.batch.len();
            for index in 0..2 {
                let Some(mut lane) = self.queue.take(index, self.front.released()) else { continue };
                while let Some(serial) = lane.next(self.front.released()) {
                    // SAFETY: the batch was released, and cannot leave before this lane is done.
                    let batch = self.batch[serial as usize % window].with(|batch| unsafe { *batch });
                    // SAFETY: this worker holds the lane.
                    self.seen[index].with_mut(|seen| unsafe { (*seen).push(batch) });
                    if lane.done(serial) {
                        self.ready.offer(serial);
                    }
                }
                lane.put_back();
            }
            while let Some(serial) = self.ready.take() {
                // SAFETY: all lanes are done with it, and one worker takes it.
                self.batch[serial as usize % window].with_mut(|batch| assert_eq!(unsafe { *batch }, serial));
                self.back.complete_and_release(serial, |_| ());
            }
        }
    }

    /// Every lane sees what is meant for it, once, in order; nothing is left behind.
    fn model(subsets: &'static [u64], window: usize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let stage = Arc::new(Stage::new(subsets, window));
            let other = {
                let stage = stage.clone();
                thread::spawn(move || stage.work())
            };
            let next = stage.source(0);
            stage.work();
            let next = stage.source(next);
            stage.work();
            other.join().unwrap();
            // Whatever a holder left behind is still there to be taken.
            stage.work();
            let next = stage.source(next);
            stage.work();
            assert_eq!((next, stage.back.released()), (subsets.len() as u64, subsets.len() as u64));
            for (lane, seen) in stage.seen.iter().enumerate() {
                let expected: Vec<u64> = (0..next).filter(|&s| subsets[s as usize] >> lane & 1 == 1).collect();
                // SAFETY: the other thread has ended.
                assert_eq!(seen.with(|seen| unsafe { (*seen).clone() }), expected);
            }
        });
    }

    #[test]
    fn a_slot_is_reused_while_a_lane_is_behind() {
        model(&[0b01, 0b11], 1);
    }

    #[test]
    fn a_lane_changes_hands_between_batches() {
        model(&[0b01, 0b01], 2);
    }

    #[test]
    fn an_empty_batch_passes() {
        model(&[0b00, 0b01], 1);
    }
}
