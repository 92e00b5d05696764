//! Sources and readers under loom, by gate and by ScaleGate: every order in which they may see what the others do.

use crate::dataflow::channel::gate::{Gate, Source};
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::merge_sort::MergeSort;
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::scale_gate::{Feed, scale_gate};
use crate::dataflow::channel::taken::Taken;
use crate::rows::block::Text;
use crate::rows::view::Rows;
use crate::threads::bells::{Bells, INPUT, ROOM};
use crate::threads::idle::Strategy;
use crate::threads::sync::{Arc, AtomicU64, Ordering, thread};
use crate::threads::testing::interleave;

/// What a source puts out, jumbo tuple by jumbo tuple: the events of its rows, and up to which event those are all.
type Puts = &'static [(&'static [i64], i64)];

/// Event and source.
type Row = [i64; 2];

/// What readers take their input by.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Gate,
    /// Without order.
    Turn,
    ScaleGate,
    /// A ScaleGate with a watermark behind every other batch.
    SeldomWatermarks,
    MergeSort,
}

/// Sources, each of a stream of its own, and inlets that read them all.
struct Script {
    puts: &'static [Puts],
    readers: usize,
    /// Every reader gets all rows; otherwise each has its share of the events.
    to_all: bool,
    slots: usize,
    by: By,
}

impl Script {
    fn takes(&self, reader: usize, seq: i64) -> bool {
        self.to_all || seq as usize % self.readers == reader
    }

    /// What a reader must see.
    fn expected(&self, reader: usize) -> Vec<Row> {
        let rows = |(source, puts): (usize, &Puts)| {
            let seqs: Vec<i64> = puts.iter().flat_map(|(seqs, _)| seqs.iter().copied()).collect();
            seqs.into_iter().map(move |seq| [seq, source as i64])
        };
        let mut all: Vec<Row> = self.puts.iter().enumerate().flat_map(rows).collect();
        all.retain(|&[seq, _]| self.takes(reader, seq));
        all.sort_unstable();
        all
    }
}

struct Scene {
    plan: &'static Script,
    /// Per source.
    outlets: Vec<Outlet>,
    sources: Vec<usize>,
    readers: Vec<usize>,
    /// Sources come first, then readers.
    bells: Bells,
    /// None: no slot is used again, so a release tells nothing.
    crossings: Option<AtomicU64>,
}

impl Scene {
    /// A point at which threads may overtake each other. Loom looks for races between a store and the last access before it.
    /// It forgets the loads of other threads when a thread loads the value that it stores next. Writer and readers of an
    /// outlet do so with their counters. All threads add to this counter, so loom tries every order. It orders nothing else.
    fn cross(&self) {
        if let Some(crossings) = &self.crossings {
            // ORDERING: Relaxed; nothing is published.
            crossings.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts out jumbo tuple `number` of a source; false: there is no room.
    fn put_out(&self, ends: &mut Ends, number: usize) -> bool {
        let source = ends.source;
        let (plan, outlet, puts) = (self.plan, &self.outlets[source], self.plan.puts[source]);
        self.cross();
        if !outlet.has_room() {
            return false;
        }
        let (seqs, upto) = puts[number];
        // SAFETY: one thread after the other is this writer, and there is room.
        unsafe {
            outlet.fill(|jumbo| {
                jumbo.clear();
                seqs.iter().for_each(|seq| jumbo.buffer.push([*seq, source as i64].as_ptr().cast(), 0).unwrap());
                jumbo.rows = Rows::of(&jumbo.buffer, Text::empty());
                for (reader, share) in jumbo.shares.iter_mut().enumerate() {
                    share.whole = plan.to_all;
                    let mine = |&i: &u32| plan.takes(reader, seqs[i as usize]);
                    share.positions.extend((0..seqs.len() as u32).filter(mine));
                }
                (jumbo.upto, jumbo.last) = (upto, number + 1 == puts.len());
            });
        }
        self.cross();
        outlet.publish();
        for feed in &mut ends.feeds {
            // SAFETY: that is what was published last, and a watermark follows in time.
            unsafe { feed.add(outlet) };
            if plan.by == By::ScaleGate || number % 2 == 1 || number + 1 == puts.len() {
                // SAFETY: as above.
                unsafe { feed.add_watermark(outlet) };
            }
        }
        self.bells.ring(&[(&self.readers, INPUT)]);
        true
    }

    /// Puts out what there is room for, from jumbo tuple `next` on; the next one then.
    fn put_out_some(&self, ends: &mut Ends, mut next: usize) -> usize {
        while next < self.plan.puts[ends.source].len() && self.put_out(ends, next) {
            next += 1;
        }
        next
    }
}

/// What a source has of the ScaleGates of its readers.
struct Ends {
    source: usize,
    feeds: Vec<Feed>,
}

/// An inlet, and what came through it.
struct Reader {
    number: usize,
    inlet: Inlet,
    taken: Taken,
    seen: Vec<Row>,
}

// SAFETY: the rows that were taken are used by the thread that took them only.
unsafe impl Send for Reader {}

impl Reader {
    fn new(plan: &Script, number: usize, ends: &mut [Ends]) -> Self {
        let source = |outlet| Source::new(outlet, number, outlet as u64, None);
        let sources = (0..plan.puts.len()).map(source).collect();
        let inlet = match plan.by {
            By::ScaleGate | By::SeldomWatermarks => {
                let (feeds, reader) = scale_gate(sources, false);
                ends.iter_mut().zip(feeds).for_each(|(ends, feed)| ends.feeds.push(feed));
                Inlet::ScaleGate(reader)
            }
            By::MergeSort => Inlet::MergeSort(MergeSort::new(sources, false)),
            By::Gate | By::Turn => Inlet::Gate(Gate::new(sources, plan.by == By::Gate, false, false)),
        };
        Self { number, inlet, taken: Taken::new(16), seen: Vec::new() }
    }

    /// Takes what is ready; false: there was nothing new.
    fn take(&mut self, shared: &Scene) -> bool {
        shared.cross();
        // SAFETY: one thread after the other is this reader.
        let new = unsafe { self.inlet.take(&shared.outlets, Text::empty(), &mut self.taken) }.unwrap();
        // A writer that finds room now must not write where these rows lie.
        shared.cross();
        let rows = self.taken.rows;
        // SAFETY: rows of 16 bytes.
        let row = |i: usize| unsafe { rows.row(i).cast::<Row>().read_unaligned() };
        self.seen.extend((0..rows.n).map(row));
        shared.cross();
        self.inlet.release(&shared.outlets);
        shared.bells.ring(&[(&shared.sources, ROOM)]);
        // Nothing early, nothing twice, and nothing left out that `upto` promises.
        let expected = shared.plan.expected(self.number);
        assert!(expected.starts_with(&self.seen), "reader {} saw {:?}", self.number, self.seen);
        let promised = expected.iter().filter(|[seq, _]| *seq <= self.taken.upto).count();
        assert!(self.seen.len() >= promised, "reader {} was promised more than {:?}", self.number, self.seen);
        new
    }
}

fn start(plan: &'static Script, idle: Strategy, crossings: Option<AtomicU64>) -> (Arc<Scene>, Vec<Ends>, Vec<Reader>) {
    let outlet = |_| Outlet::new(plan.slots, plan.readers, || Jumbo::new(16, plan.readers, 0));
    let outlets = (0..plan.puts.len()).map(outlet).collect();
    let (sources, threads) = (plan.puts.len(), plan.puts.len() + plan.readers);
    let shared = Scene {
        plan,
        outlets,
        sources: (0..sources).collect(),
        readers: (sources..threads).collect(),
        bells: Bells::new(idle, threads, threads),
        crossings,
    };
    let mut ends: Vec<Ends> = (0..plan.puts.len()).map(|source| Ends { source, feeds: Vec::new() }).collect();
    let readers = (0..plan.readers).map(|number| Reader::new(plan, number, &mut ends)).collect();
    (Arc::new(shared), ends, readers)
}

/// A thread per source and reader, the last reader here; each looks a few times. Whatever is left is there to be taken.
fn everybody(preemptions: usize, plan: &'static Script) {
    interleave(preemptions, move || {
        let (shared, ends, mut readers) = start(plan, Strategy::Yield, Some(AtomicU64::new(0)));
        let mut here = readers.pop().unwrap();
        let sources: Vec<_> = ends
            .into_iter()
            .map(|mut ends| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let next = shared.put_out_some(&mut ends, 0);
                    (shared.put_out_some(&mut ends, next), ends)
                })
            })
            .collect();
        let others: Vec<_> = readers
            .into_iter()
            .map(|mut reader| {
                let shared = shared.clone();
                thread::spawn(move || {
                    (0..2).for_each(|_| _ = reader.take(&shared));
                    reader
                })
            })
            .collect();
        (0..2).for_each(|_| _ = here.take(&shared));
        let mut nexts: Vec<(usize, Ends)> = sources.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut readers: Vec<Reader> = others.into_iter().map(|thread| thread.join().unwrap()).collect();
        readers.push(here);
        let most = plan.puts.iter().map(|puts| puts.len()).max().unwrap();
        for _ in 0..=most {
            nexts.iter_mut().for_each(|(next, ends)| *next = shared.put_out_some(ends, *next));
            readers.iter_mut().for_each(|reader| while reader.take(&shared) {});
        }
        for reader in &readers {
            assert_eq!(reader.seen, plan.expected(reader.number));
            assert!(reader.taken.last);
        }
    });
}

/// Ties of two streams; the slots are used again while the other source is behind.
#[test]
fn loom_two_sources_one_reader() {
    everybody(
        3,
        &Script {
            puts: &[&[(&[0, 1], 1), (&[2], 2)], &[(&[], 0), (&[1, 2], 2)]],
            readers: 1,
            to_all: true,
            slots: 1,
            by: By::Gate,
        },
    );
}

/// Nothing but heartbeats from the second source: they let the rows of the first one through.
#[test]
fn loom_a_silent_source() {
    everybody(
        3,
        &Script {
            puts: &[&[(&[0, 2], 2)], &[(&[], 0), (&[], 1), (&[], 2)]],
            readers: 1,
            to_all: true,
            slots: 1,
            by: By::Gate,
        },
    );
}

/// Each reader has its share of the rows, and none of some jumbo tuples.
#[test]
fn loom_one_source_two_readers_share() {
    everybody(2, &Script { puts: &[&[(&[0, 1], 1), (&[3], 3)]], readers: 2, to_all: false, slots: 2, by: By::Gate });
}

/// Everybody reads the same rows in place.
#[test]
fn loom_one_source_two_readers_of_everything() {
    everybody(
        3,
        &Script { puts: &[&[(&[0], 0), (&[1], 1), (&[2], 2)]], readers: 2, to_all: true, slots: 1, by: By::Gate },
    );
}

#[test]
fn loom_two_sources_two_readers() {
    everybody(2, &Script { puts: &[&[(&[0, 1], 1)], &[(&[1], 1)]], readers: 2, to_all: false, slots: 1, by: By::Gate });
}

/// The sources wait for room and the reader for rows, asleep: everybody is woken, until all has been taken.
fn flow_control(preemptions: usize, plan: &'static Script) {
    interleave(preemptions, move || {
        let (shared, ends, mut readers) = start(plan, Strategy::Park, Some(AtomicU64::new(0)));
        let mut reader = readers.pop().unwrap();
        let sources: Vec<_> = ends
            .into_iter()
            .map(|mut ends| {
                let shared = shared.clone();
                thread::spawn(move || {
                    for number in 0..plan.puts[ends.source].len() {
                        shared.bells.wait(ends.source, ROOM, || shared.outlets[ends.source].has_room());
                        assert!(shared.put_out(&mut ends, number));
                    }
                    ends
                })
            })
            .collect();
        while !reader.taken.last {
            if !reader.take(&shared) {
                shared.bells.wait(plan.puts.len(), INPUT, || reader.inlet.has_news(&shared.outlets));
            }
        }
        let ends: Vec<Ends> = sources.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(reader.seen, plan.expected(0));
        drop(ends);
    });
}

#[test]
fn loom_flow_control_forgets_nobody() {
    const PUTS: &[Puts] = &[&[(&[0], 0), (&[1], 1)], &[(&[1], 1)]];
    flow_control(2, &Script { puts: PUTS, readers: 1, to_all: true, slots: 1, by: By::Gate });
}

#[test]
#[should_panic = "reader 0"]
fn loom_a_gate_that_does_not_wait_is_caught() {
    everybody(2, &Script { puts: &[&[(&[1], 1)], &[(&[0], 1)]], readers: 1, to_all: true, slots: 1, by: By::Turn });
}

/// Ties, rows on either side of what the other source adds meanwhile, and nodes that are used again.
const fn two_sources(by: By) -> Script {
    const PUTS: &[Puts] = &[&[(&[0, 2], 2), (&[4], 4)], &[(&[1], 1), (&[2, 3], 4)]];
    Script { puts: PUTS, readers: 1, to_all: true, slots: 1, by }
}

#[test]
fn loom_two_sources_share_the_sorting() {
    everybody(2, const { &two_sources(By::ScaleGate) });
}

/// A watermark behind every other batch: rows become ready without one, and slots are given back by twos.
#[test]
fn loom_watermarks_are_periodic() {
    everybody(
        2,
        &Script {
            puts: &[&[(&[0], 0), (&[2], 2), (&[4], 4)], &[(&[1], 1), (&[3], 4)]],
            readers: 1,
            to_all: true,
            slots: 2,
            by: By::SeldomWatermarks,
        },
    );
}

#[test]
fn loom_two_sources_are_merged_by_an_operator() {
    everybody(2, const { &two_sources(By::MergeSort) });
}

/// Nothing but watermarks from the second source, and all nodes used again and again.
#[test]
fn loom_watermarks_of_a_silent_source() {
    everybody(
        2,
        &Script {
            puts: &[&[(&[0], 0), (&[1], 1), (&[2], 2)], &[(&[], 0), (&[], 1), (&[], 2)]],
            readers: 1,
            to_all: true,
            slots: 1,
            by: By::ScaleGate,
        },
    );
}

/// Sources insert at the same time, and the last reader looks once meanwhile. All slots are free, so no thread waits for
/// another, and threads need no crossings. Afterwards the readers find all that is left.
fn side_by_side(preemptions: usize, plan: &'static Script) {
    interleave(preemptions, move || {
        let (shared, ends, mut readers) = start(plan, Strategy::Yield, None);
        let mut here = readers.pop().unwrap();
        let sources: Vec<_> = ends
            .into_iter()
            .map(|mut ends| {
                let shared = shared.clone();
                thread::spawn(move || {
                    assert_eq!(shared.put_out_some(&mut ends, 0), plan.puts[ends.source].len());
                    ends
                })
            })
            .collect();
        here.take(&shared);
        let _ends: Vec<Ends> = sources.into_iter().map(|thread| thread.join().unwrap()).collect();
        readers.push(here);
        for reader in &mut readers {
            while reader.take(&shared) {}
            assert_eq!(reader.seen, plan.expected(reader.number));
            assert!(reader.taken.last);
        }
    });
}

/// A tie of two sources, and a source that only adds watermarks.
#[test]
#[ignore = "takes a minute"]
fn loom_three_sources_share_the_sorting() {
    side_by_side(
        1,
        &Script {
            puts: &[&[(&[0], 0)], &[(&[0], 0)], &[(&[], 0)]],
            readers: 1,
            to_all: true,
            slots: 1,
            by: By::ScaleGate,
        },
    );
}

/// Each reader has a ScaleGate of its own, and all sources insert into both. No thread is preempted, but each load may return
/// any value that the memory model allows.
#[test]
#[ignore = "takes a minute"]
fn loom_three_sources_insert_for_two_readers() {
    side_by_side(
        0,
        &Script {
            puts: &[&[(&[0], 1)], &[(&[1], 1)], &[(&[], 1)]],
            readers: 2,
            to_all: false,
            slots: 1,
            by: By::ScaleGate,
        },
    );
}

/// The readers release slots and nodes at different times, and the sources use both again.
#[test]
#[ignore = "takes a minute"]
fn loom_two_readers_have_a_scale_gate_each() {
    everybody(
        1,
        &Script {
            puts: &[&[(&[0], 0), (&[1], 1)], &[(&[0, 1], 1)]],
            readers: 2,
            to_all: false,
            slots: 1,
            by: By::ScaleGate,
        },
    );
}

#[test]
#[ignore = "ten seconds"]
fn loom_whoever_waits_for_a_watermark_is_woken() {
    const PUTS: &[Puts] = &[&[(&[0], 0), (&[1], 1)], &[(&[1], 1)]];
    flow_control(1, &Script { puts: PUTS, readers: 1, to_all: true, slots: 1, by: By::ScaleGate });
}
