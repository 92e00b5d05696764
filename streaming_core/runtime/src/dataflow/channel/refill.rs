//! The producer's end of a queue between two replicas, whose jumbo tuples are refilled (BriskStream, section 5.2).
//!
//! The queue is an outlet with one reader. The producer copies the rows for its consumer into the open jumbo tuple, batch
//! after batch. It publishes the tuple under one header when the tuple is full, and at the end of a block. The open tuple is
//! the slot that is published next: once there is room for it, it belongs to the producer until it is published.

use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::error::RunError;
use crate::planted::{self, Fault};
use crate::rows::block::Text;
use crate::rows::view::Rows;

#[derive(Debug)]
pub struct Refill {
    /// Rows of a full jumbo tuple.
    size: usize,
    /// Where the producer's outputs keep the hashes of the keys, if the consumer is chosen by key.
    hashes: Option<usize>,
    /// The rows in the open jumbo tuple.
    open: usize,
    /// The number of rows that were copied of the outputs at hand.
    copied: usize,
    /// All rows of the outputs at hand are in the queue or in the open tuple.
    is_done: bool,
    /// All rows of events up to this one are in the queue or in the open tuple.
    upto: i64,
}

impl Refill {
    pub fn new(size: usize, hashes: Option<usize>) -> Self {
        Self { size, hashes, open: 0, copied: 0, is_done: true, upto: i64::MIN }
    }

    /// There are new outputs.
    pub fn start(&mut self) {
        (self.copied, self.is_done) = (0, false);
    }

    /// Whether rows, or the end of the block, wait for room.
    pub fn is_waiting(&self) -> bool {
        !self.is_done
    }

    /// Copies the rows of `outputs` that belong to `reader` there, as far as there is room in the queue. Returns whether
    /// something was published.
    ///
    /// # Safety
    /// The caller is the queue's writer. The outputs are the same since `start`.
    pub unsafe fn pour(&mut self, queue: &Outlet, outputs: &Jumbo, reader: usize) -> Result<bool, RunError> {
        let (share, mut has_published) = (&outputs.shares[reader], false);
        let n = share.len(outputs.rows.n);
        while !self.is_done {
            if self.copied == n && !outputs.last {
                (self.is_done, self.upto) = (true, outputs.upto);
                break;
            }
            if !queue.has_room() {
                break;
            }
            let from = self.copied;
            let to = n.min(from + self.size - self.open);
            let copy = |jumbo: &mut Jumbo| {
                if self.open == 0 {
                    jumbo.clear();
                    if !planted::has(Fault::StaleHashes) {
                        jumbo.hashes.iter_mut().for_each(Vec::clear);
                    }
                    jumbo.started = outputs.started;
                }
                if let Some(place) = self.hashes {
                    let hashes = &outputs.hashes[place];
                    jumbo.hashes[0].extend((from..to).map(|i| hashes[share.position(i)]));
                }
                // SAFETY: the outputs have these rows.
                unsafe { jumbo.buffer.gather(to - from, |i| outputs.rows.row(share.position(from + i))) }
            };
            // SAFETY: the caller is the writer, and there is room.
            unsafe { queue.fill(copy) }?;
            self.open += to - from;
            self.copied = to;
            self.is_done = to == n;
            if self.is_done {
                self.upto = outputs.upto;
            }
            let is_last = self.is_done && outputs.last;
            if is_last || self.open == self.size {
                // SAFETY: as above.
                unsafe { self.publish(queue, outputs.rows.text, is_last) };
                has_published = true;
            }
        }
        Ok(has_published)
    }

    /// Publishes the open jumbo tuple, if it has rows. Returns whether it has.
    ///
    /// # Safety
    /// The caller is the queue's writer.
    pub unsafe fn flush(&mut self, queue: &Outlet, text: Text) -> bool {
        let has_rows = self.open > 0;
        if has_rows {
            // SAFETY: the slot is open, so there was room.
            unsafe { self.publish(queue, text, false) };
        }
        has_rows
    }

    /// # Safety
    /// The caller is the queue's writer, and there is room.
    unsafe fn publish(&mut self, queue: &Outlet, text: Text, is_last: bool) {
        let close = |jumbo: &mut Jumbo| {
            jumbo.rows = Rows::of(&jumbo.buffer, text);
            jumbo.shares[0].whole = true;
            (jumbo.upto, jumbo.last) = (self.upto, is_last);
        };
        // SAFETY: as the caller says.
        unsafe { queue.fill(close) };
        queue.publish();
        self.open = 0;
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::dataflow::channel::gate::{Gate, Source};
    use crate::dataflow::channel::taken::Taken;
    use crate::threads::bells::{Bells, INPUT, ROOM};
    use crate::threads::idle::Strategy;
    use crate::threads::sync::{Arc, AtomicU64, Ordering, thread};
    use crate::threads::testing::interleave;

    /// Event and producer.
    type Row = [i64; 2];

    /// The batches of each producer, which refills a queue of one slot with jumbo tuples of two rows.
    type Batches = [&'static [&'static [i64]]; 2];

    /// Producers and a consumer, with a queue for each producer.
    struct Pairs {
        queues: Vec<Outlet>,
        /// Of the producers, then of the consumer.
        bells: Bells,
        crossings: AtomicU64,
    }

    impl Pairs {
        /// See `Scene::cross` in `models.rs`.
        fn cross(&self) {
            // ORDERING: Relaxed; nothing is published.
            self.crossings.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Producer {
        number: usize,
        batches: &'static [&'static [i64]],
        next: usize,
        outputs: Jumbo,
        end: Refill,
    }

    // SAFETY: the rows of the outputs are the producer's own.
    unsafe impl Send for Producer {}

    impl Producer {
        fn new(number: usize, batches: &'static [&'static [i64]]) -> Self {
            Self { number, batches, next: 0, outputs: Jumbo::new(16, 1, 0), end: Refill::new(2, None) }
        }

        fn is_done(&self) -> bool {
            self.next == self.batches.len() && !self.end.is_waiting()
        }

        /// Copies what waits into the queue, or else the next batch.
        fn go_on(&mut self, pairs: &Pairs) {
            if self.is_done() {
                return;
            }
            if !self.end.is_waiting() {
                let outputs = &mut self.outputs;
                outputs.clear();
                for seq in self.batches[self.next] {
                    // SAFETY: a row of 16 bytes.
                    unsafe { outputs.buffer.push([*seq, self.number as i64].as_ptr().cast(), 0) }.unwrap();
                }
                outputs.rows = Rows::of(&outputs.buffer, Text::empty());
                outputs.shares[0].whole = true;
                outputs.upto = self.batches[self.next].iter().copied().max().unwrap_or(outputs.upto);
                self.next += 1;
                outputs.last = self.next == self.batches.len();
                self.end.start();
            }
            pairs.cross();
            // SAFETY: one thread after the other is this writer.
            unsafe { self.end.pour(&pairs.queues[self.number], &self.outputs, 0) }.unwrap();
            pairs.cross();
            pairs.bells.ring(&[(&[2], INPUT)]);
        }
    }

    /// The consumer, and what it saw of each producer.
    struct Consumer {
        gate: Gate,
        taken: Taken,
        seen: [Vec<i64>; 2],
    }

    // SAFETY: the rows that were taken are used by the thread that took them only.
    unsafe impl Send for Consumer {}

    impl Consumer {
        fn new() -> Self {
            let sources = (0..2).map(|queue| Source::new(queue, 0, 0, None)).collect();
            Self {
                gate: Gate::new(sources, false, false, false),
                taken: Taken::new(16),
                seen: [Vec::new(), Vec::new()],
            }
        }

        fn take(&mut self, pairs: &Pairs) -> bool {
            pairs.cross();
            // SAFETY: one thread after the other is this reader.
            let new = unsafe { self.gate.take(&pairs.queues, Text::empty(), &mut self.taken) }.unwrap();
            // A producer that finds room now must not write where these rows lie.
            pairs.cross();
            for i in 0..self.taken.rows.n {
                // SAFETY: rows of 16 bytes.
                let [seq, producer] = unsafe { self.taken.rows.row(i).cast::<Row>().read_unaligned() };
                self.seen[producer as usize].push(seq);
            }
            pairs.cross();
            self.gate.release(&pairs.queues);
            pairs.bells.ring(&[(&[0, 1], ROOM)]);
            new
        }

        /// Each producer's rows, all of them, in its order.
        fn check(&self, batches: Batches) {
            assert_eq!(self.seen, batches.map(<[&[i64]]>::concat));
            assert!(self.taken.last);
        }
    }

    fn start_pairs(batches: Batches, idle: Strategy) -> (Arc<Pairs>, [Producer; 2], Consumer) {
        let queues = (0..2).map(|_| Outlet::new(1, 1, || Jumbo::new(16, 1, 0))).collect();
        let pairs = Pairs { queues, bells: Bells::new(idle, 3, 3), crossings: AtomicU64::new(0) };
        let [first, second] = batches;
        (Arc::new(pairs), [Producer::new(0, first), Producer::new(1, second)], Consumer::new())
    }

    /// A tuple that takes rows of two batches, batches that do not fit in a tuple, and last tuples that are partly full or empty.
    #[test]
    fn loom_two_producers_refill_their_queues() {
        const BATCHES: [Batches; 2] = [[&[&[0], &[2, 4]], &[&[1, 3, 5]]], [&[&[0, 2], &[]], &[&[1], &[3]]]];
        for batches in BATCHES {
            interleave(2, move || {
                let (pairs, producers, mut consumer) = start_pairs(batches, Strategy::Yield);
                let threads = producers.map(|mut producer| {
                    let pairs = pairs.clone();
                    thread::spawn(move || {
                        (0..2).for_each(|_| producer.go_on(&pairs));
                        producer
                    })
                });
                (0..2).for_each(|_| _ = consumer.take(&pairs));
                let mut producers = threads.map(|thread| thread.join().unwrap());
                while producers.iter().any(|producer| !producer.is_done()) {
                    producers.iter_mut().for_each(|producer| producer.go_on(&pairs));
                    while consumer.take(&pairs) {}
                }
                while consumer.take(&pairs) {}
                consumer.check(batches);
            });
        }
    }

    /// The producers wait for room and the consumer for rows, asleep, until all has been taken.
    #[test]
    fn loom_refilled_queues_wake_all_who_wait() {
        const BATCHES: Batches = [&[&[0, 2, 4]], &[&[1]]];
        interleave(2, move || {
            let (pairs, producers, mut consumer) = start_pairs(BATCHES, Strategy::Park);
            let threads = producers.map(|mut producer| {
                let pairs = pairs.clone();
                thread::spawn(move || {
                    while !producer.is_done() {
                        producer.go_on(&pairs);
                        if producer.end.is_waiting() {
                            pairs.bells.wait(producer.number, ROOM, || pairs.queues[producer.number].has_room());
                        }
                    }
                    producer
                })
            });
            while !consumer.taken.last {
                if !consumer.take(&pairs) {
                    pairs.bells.wait(2, INPUT, || consumer.gate.has_news(&pairs.queues));
                }
            }
            // The outputs live until all has been taken.
            drop(threads.map(|thread| thread.join().unwrap()));
            consumer.check(BATCHES);
        });
    }
}
