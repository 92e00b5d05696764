//! The operator that merges and sorts before an instance with several sources. It is Viper's determinism at the operator layer
//! (section 2.1 and figure 1B; section 3.1 and figure 2).
//!
//! As published, a task of its own buffers the tuples of each source. It forwards a tuple as soon as it is *ready*: not after
//! the least of all sources' latest tuples (definition 1). Tuples leave one by one, in the order of (seq, stream, rank).
//! A heap has the first buffered tuple of each source, so a tuple costs the logarithm of their number (section 3.1).
//!
//! A buffered tuple is the address of its row in the outlet of its source. The operator gives back a batch when it has
//! forwarded all of its tuples, and a full outlet holds up its source. So "No circular waiting" in `README.md` holds: the
//! latest tuple of a source is as far as its outlet is published.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::gate::key::Order;
use crate::dataflow::channel::outlet::Outlet;
use crate::dataflow::channel::taken::{MOST, Taken};
use crate::error::RunError;
use crate::rows::block::Text;

/// See the module.
#[derive(Debug)]
pub struct MergeSort {
    buffers: Vec<Buffer>,
    /// The first tuple of each source that has any, and the number of the source.
    first: BinaryHeap<Reverse<(Order, usize)>>,
    /// All events up to this one were forwarded.
    upto: i64,
    /// The start of processing of the earliest event that has no rows here.
    heard: u64,
    ranked: bool,
    united: bool,
}

/// What came from a source.
#[derive(Debug)]
struct Buffer {
    source: Source,
    tuples: VecDeque<Tuple>,
    /// For each batch that was not given back, the number of tuples so far up to its end.
    batches: VecDeque<u64>,
    received: u64,
    forwarded: u64,
    /// The event of its latest tuple or heartbeat.
    latest: i64,
    done: bool,
}

#[derive(Debug)]
struct Tuple {
    order: Order,
    place: *const u8,
    hash: u64,
    started: u64,
}

// SAFETY: the addresses are those of rows in outlets, which stay there until the operator gives them back.
unsafe impl Send for MergeSort {}

impl MergeSort {
    /// Of these sources, which put out whole events; `ranked`: its consumer needs ranks.
    pub fn new(sources: Vec<Source>, ranked: bool) -> Self {
        let united = sources.iter().any(|source| source.stream > 0);
        let buffer = |source| Buffer {
            source,
            tuples: VecDeque::new(),
            batches: VecDeque::new(),
            received: 0,
            forwarded: 0,
            latest: i64::MIN,
            done: false,
        };
        let buffers = sources.into_iter().map(buffer).collect();
        Self { buffers, first: BinaryHeap::new(), upto: i64::MIN, heard: u64::MAX, ranked, united }
    }

    /// The outlets of its sources.
    pub fn outlets(&self) -> Vec<usize> {
        self.buffers.iter().map(|buffer| buffer.source.outlet).collect()
    }

    /// Resets it for a new block.
    pub fn begin(&mut self) {
        self.buffers.iter_mut().for_each(|buffer| buffer.done = false);
    }

    /// The event up to which tuples are ready.
    fn ready(&self) -> i64 {
        self.buffers.iter().map(|buffer| buffer.latest).min().unwrap_or(i64::MIN)
    }

    /// Whether a batch has come, or tuples are ready that were not forwarded.
    pub fn has_news(&self, outlets: &[Outlet]) -> bool {
        let has_more =
            |buffer: &Buffer| outlets[buffer.source.outlet].waiting(buffer.source.reader) > buffer.batches.len();
        self.ready() > self.upto || self.buffers.iter().any(has_more)
    }

    /// Receives what came, and forwards what is ready, about as many tuples as are worth a turn. Returns false if there are
    /// none. They are valid until `release`.
    ///
    /// # Safety
    /// The caller is the reader of every source, and has released what it took before.
    pub unsafe fn take(&mut self, outlets: &[Outlet], text: Text, taken: &mut Taken) -> Result<bool, RunError> {
        taken.clear();
        taken.rows.text = text;
        for number in 0..self.buffers.len() {
            // SAFETY: as the caller says.
            unsafe { self.receive(number, outlets) };
        }
        let ready = self.ready();
        if ready <= self.upto {
            self.release(outlets);
            return Ok(false);
        }
        let mut seq = self.upto;
        self.upto = ready;
        while let Some(&Reverse((order, number))) = self.first.peek().filter(|Reverse((order, _))| order.seq <= ready) {
            if taken.places.len() >= MOST && order.seq > seq {
                // This is another event, and events are forwarded whole.
                self.upto = order.seq - 1;
                break;
            }
            seq = order.seq;
            self.first.pop();
            let buffer = &mut self.buffers[number];
            let Some(tuple) = buffer.tuples.pop_front() else { break };
            self.first.extend(buffer.tuples.front().map(|next| Reverse((next.order, number))));
            buffer.forwarded += 1;
            let rank = if self.ranked { Some(order.rank_behind(self.united)?) } else { None };
            taken.add(tuple.place, tuple.started, buffer.source.hashes.map(|_| tuple.hash), rank);
        }
        taken.end(self.united);
        taken.started = taken.started.min(std::mem::replace(&mut self.heard, u64::MAX));
        taken.upto = self.upto;
        taken.last = self.upto == ready && self.buffers.iter().all(|buffer| buffer.done);
        Ok(true)
    }

    /// Buffers the tuples of the batches that came from a source.
    ///
    /// # Safety
    /// The caller is the reader of every source.
    unsafe fn receive(&mut self, number: usize, outlets: &[Outlet]) {
        let buffer = &mut self.buffers[number];
        let (outlet, reader) = (&outlets[buffer.source.outlet], buffer.source.reader);
        let had_none = buffer.tuples.is_empty();
        for index in buffer.batches.len()..outlet.waiting(reader) {
            // SAFETY: as the caller says; so many are waiting.
            let jumbo = unsafe { outlet.ahead(reader, index) };
            let (n, source, started) = (buffer.source.rows_of(jumbo), &buffer.source, jumbo.started);
            let tuple = |i| {
                let (order, place) = (source.key(jumbo, i), source.place(jumbo, i));
                Tuple { order, place, hash: source.hash(jumbo, i), started }
            };
            buffer.tuples.extend((0..n).map(tuple));
            if n == 0 {
                self.heard = self.heard.min(started);
            }
            buffer.received += n as u64;
            buffer.batches.push_back(buffer.received);
            (buffer.latest, buffer.done) = (jumbo.upto, jumbo.last);
        }
        if had_none {
            self.first.extend(buffer.tuples.front().map(|first| Reverse((first.order, number))));
        }
    }

    /// Gives back the batches that were forwarded, after the use of their tuples.
    pub fn release(&mut self, outlets: &[Outlet]) {
        for Buffer { source, batches, forwarded, .. } in &mut self.buffers {
            while batches.pop_front_if(|end| *end <= *forwarded).is_some() {
                outlets[source.outlet].release(source.reader);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::dataflow::channel::outlet::Jumbo;
    use crate::rows::view::Rows;

    const SLOTS: usize = 4;

    /// The outlets of some sources, and what was forwarded: events and sources.
    struct World {
        outlets: Vec<Outlet>,
        merger: MergeSort,
        taken: Taken,
    }

    impl World {
        fn new(sources: usize) -> Self {
            let outlets = (0..sources).map(|_| Outlet::new(SLOTS, 1, || Jumbo::new(16, 1, 0))).collect();
            let sources = (0..sources).map(|at| Source::new(at, 0, 0, None)).collect();
            Self { outlets, merger: MergeSort::new(sources, false), taken: Taken::new(16) }
        }

        fn say(&mut self, source: usize, seqs: &[i64], upto: i64) {
            let outlet = &self.outlets[source];
            assert!(outlet.has_room());
            let fill = |jumbo: &mut Jumbo| {
                jumbo.clear();
                for &seq in seqs {
                    // SAFETY: 16 bytes.
                    unsafe { jumbo.buffer.push([seq, source as i64].as_ptr().cast(), 0).unwrap() };
                }
                jumbo.rows = Rows::of(&jumbo.buffer, Text::empty());
                jumbo.shares[0].whole = true;
                jumbo.upto = upto;
            };
            // SAFETY: there is no other thread, and room.
            unsafe { outlet.fill(fill) };
            outlet.publish();
        }

        fn take(&mut self) -> Option<(Vec<[i64; 2]>, i64)> {
            // SAFETY: there is no other thread; what was taken has been released.
            let new = unsafe { self.merger.take(&self.outlets, Text::empty(), &mut self.taken) }.unwrap();
            let rows = self.taken.rows;
            // SAFETY: rows of 16 bytes, just taken.
            let row = |i: usize| unsafe { rows.row(i).cast::<[i64; 2]>().read_unaligned() };
            let rows = (0..rows.n).map(row).collect();
            self.merger.release(&self.outlets);
            new.then_some((rows, self.taken.upto))
        }
    }

    #[test]
    fn tuples_wait_in_their_buffers_until_they_are_ready() {
        let mut world = World::new(3);
        world.say(0, &[0, 3, 6], 6);
        world.say(1, &[1, 4], 5);
        assert_eq!(world.take(), None);
        // Each tuple was buffered when it came.
        assert_eq!(world.merger.buffers.iter().map(|buffer| buffer.tuples.len()).collect::<Vec<_>>(), [3, 2, 0]);
        assert!(!world.merger.has_news(&world.outlets));
        world.say(2, &[], 3);
        assert!(world.merger.has_news(&world.outlets));
        assert_eq!(world.take(), Some((vec![[0, 0], [1, 1], [3, 0]], 3)));
        world.say(2, &[8], 9);
        assert_eq!(world.take(), Some((vec![[4, 1]], 5)));
        world.say(1, &[], 9);
        assert_eq!(world.take(), Some((vec![[6, 0]], 6)));
        assert_eq!(world.take(), None);
    }

    #[test]
    fn a_batch_is_given_back_when_its_tuples_are_forwarded() {
        let mut world = World::new(2);
        (0..SLOTS as i64).for_each(|seq| world.say(0, &[10 * seq], 10 * seq));
        assert_eq!((world.take(), world.outlets[0].has_room()), (None, false));
        world.say(1, &[], 5);
        assert_eq!(world.take(), Some((vec![[0, 0]], 5)));
        assert_eq!((world.outlets[0].waiting(0), world.outlets[1].waiting(0)), (SLOTS - 1, 0));
    }

    #[test]
    fn much_is_forwarded_event_by_event() {
        let mut world = World::new(2);
        let seqs: Vec<i64> = (0..2 * MOST as i64).map(|i| i / 700).collect();
        world.say(0, &seqs, 50);
        world.say(1, &[40], 50);
        let lengths = |(rows, upto): (Vec<[i64; 2]>, i64)| (rows.len(), upto);
        assert_eq!(world.take().map(lengths), Some((1400, 1)));
        assert!(world.merger.has_news(&world.outlets));
        assert_eq!(world.take().map(lengths), Some((2 * MOST - 1400 + 1, 50)));
    }
}
