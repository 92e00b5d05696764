//! A sink's inlet where the rows of its sources come examined and numbered: it adds results, and takes no row.
//!
//! Every source has numbered the outputs of its events (`sub`) and digested them. What is left for the sink is integers: sums
//! of digests, whether each source kept the order, and how far all sources are. It takes a jumbo tuple once all sources are as
//! far as that tuple. So an output counts as delivered when all outputs of earlier events are there, as in a gate.
//!
//! *No deadlock.* A source announces progress only after all of its own sources did, and those announce it to all of their
//! readers. So each source can come as far as any other one, whether or not the sink takes that one's jumbo tuples.

use crate::dataflow::channel::gate::Source;
use crate::dataflow::channel::outlet::Outlet;
use crate::dataflow::channel::taken::Taken;
use crate::output::sink::Prepared;

#[derive(Debug)]
pub struct Results {
    sources: Vec<Progress>,
}

#[derive(Debug)]
struct Progress {
    outlet: usize,
    reader: usize,
    /// All outputs of events up to this one were taken.
    upto: i64,
    /// The event of the last row.
    last: i64,
    /// Jumbo tuples that were taken and not released, and that were seen and not taken.
    taken: usize,
    seen: usize,
    /// Nothing comes any more in this block.
    done: bool,
}

impl Results {
    /// The results of these sources.
    pub fn new(sources: &[Source]) -> Self {
        let progress = |&Source { outlet, reader, .. }: &Source| Progress {
            outlet,
            reader,
            upto: i64::MIN,
            last: i64::MIN,
            taken: 0,
            seen: 0,
            done: false,
        };
        Self { sources: sources.iter().map(progress).collect() }
    }

    /// The numbers of the outlets of its sources.
    pub fn outlets(&self) -> Vec<usize> {
        self.sources.iter().map(|source| source.outlet).collect()
    }

    /// Resets the inlet for a new block.
    pub fn begin(&mut self) {
        self.sources.iter_mut().for_each(|source| source.done = false);
    }

    /// Whether a source has published something since the last look.
    pub fn has_news(&self, outlets: &[Outlet]) -> bool {
        self.sources.iter().any(|source| outlets[source.outlet].waiting(source.reader) > source.seen)
    }

    /// Takes the results of all jumbo tuples that are ready. Returns false if there are none.
    ///
    /// # Safety
    /// The caller is the reader of every source, and has released what it took before.
    pub unsafe fn take(&mut self, outlets: &[Outlet], taken: &mut Taken) -> bool {
        taken.clear();
        let mut ready = i64::MAX;
        for source in &mut self.sources {
            source.seen = outlets[source.outlet].waiting(source.reader);
            // SAFETY: as the caller says; so many are waiting.
            let latest =
                (source.seen > 0).then(|| unsafe { outlets[source.outlet].ahead(source.reader, source.seen - 1) }.upto);
            ready = ready.min(latest.unwrap_or(source.upto));
        }
        let mut sum = Prepared::nothing();
        let mut news = false;
        for source in &mut self.sources {
            for index in 0..source.seen {
                // SAFETY: as above.
                let jumbo = unsafe { outlets[source.outlet].ahead(source.reader, index) };
                if jumbo.upto > ready {
                    break;
                }
                (source.upto, source.done, news) = (jumbo.upto, jumbo.last, true);
                source.taken += 1;
                taken.started = taken.started.min(jumbo.started);
                if let Some(prepared) = &jumbo.shares[source.reader].prepared {
                    sum.add(prepared, &mut source.last);
                }
            }
            source.seen -= source.taken;
        }
        taken.results = Some(sum);
        taken.upto = self.sources.iter().map(|source| source.upto).min().unwrap_or(i64::MAX);
        taken.last = self.sources.iter().all(|source| source.done);
        news
    }

    /// Releases what was taken.
    pub fn release(&mut self, outlets: &[Outlet]) {
        for source in &mut self.sources {
            (0..std::mem::take(&mut source.taken)).for_each(|_| outlets[source.outlet].release(source.reader));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::dataflow::channel::outlet::Jumbo;
    use crate::output::digest::Hasher;
    use crate::output::ranges::sink_of;
    use crate::output::sink::{Sink, SinkKind};
    use crate::rows::block::Text;
    use crate::rows::view::Rows;
    use crate::threads::sync::{Arc, AtomicU64, Ordering, thread};
    use crate::threads::testing::interleave;

    const SINKS: usize = 2;

    /// Per source, its jumbo tuples: the events of the rows, and up to which event those are all. Ranges have four events.
    const SOURCES: [&[(&[i64], i64)]; 2] = [&[(&[0, 4], 4), (&[5], 5)], &[(&[1], 3), (&[4], 5)]];

    struct Scene {
        outlets: Vec<Outlet>,
        /// See `channel/models.rs`.
        crossings: AtomicU64,
    }

    impl Scene {
        fn cross(&self) {
            // ORDERING: Relaxed; nothing is published.
            self.crossings.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn sink() -> Sink {
        Sink::new(SinkKind::Digest, Hasher::new(&[], 8).unwrap())
    }

    /// The number of the sink's rows of events up to `upto`.
    fn rows(sink: usize, upto: i64) -> u64 {
        let events = SOURCES.iter().flat_map(|batches| batches.iter().flat_map(|(events, _)| events.iter()));
        events.filter(|&&event| sink_of(event, SINKS) == sink && event <= upto).count() as u64
    }

    fn put_out(scene: &Scene, source: usize, mut next: usize) -> usize {
        let (outlet, preparer) = (&scene.outlets[source], sink().preparer().clone());
        while let Some(&(events, upto)) = SOURCES[source].get(next) {
            scene.cross();
            if !outlet.has_room() {
                break;
            }
            // SAFETY: one thread after the other is this writer, and there is room.
            unsafe {
                outlet.fill(|jumbo| {
                    jumbo.clear();
                    (jumbo.upto, jumbo.last) = (upto, next + 1 == SOURCES[source].len());
                    for event in events {
                        let row = Rows::new(std::ptr::from_ref(event).cast(), 1, 8, Text::empty());
                        let prepared = preparer.prepare_numbered(row, &[source as u32]).unwrap();
                        let share = &mut jumbo.shares[sink_of(*event, SINKS)];
                        share.prepared.get_or_insert(Prepared::nothing()).add(&prepared, &mut i64::MIN.clone());
                    }
                });
            }
            scene.cross();
            outlet.publish();
            next += 1;
        }
        next
    }

    struct Reader {
        number: usize,
        results: Results,
        taken: Taken,
        sink: Sink,
    }

    impl Reader {
        fn take(&mut self, scene: &Scene) -> bool {
            scene.cross();
            // SAFETY: one thread after the other is this reader.
            let news = unsafe { self.results.take(&scene.outlets, &mut self.taken) };
            scene.cross();
            // SAFETY: nothing was released.
            unsafe { self.taken.deliver(&mut self.sink) }.unwrap();
            self.results.release(&scene.outlets);
            let seen = self.sink.digest().rows;
            assert!(seen >= rows(self.number, self.taken.upto) && seen <= rows(self.number, i64::MAX));
            news
        }
    }

    // SAFETY: no row leaves its source.
    unsafe impl Send for Reader {}

    /// Two replicas, two sinks by event range, one slot: digests add up to those of a single sink that takes all rows in order.
    #[test]
    fn loom_two_sinks_share_the_events_by_range() {
        interleave(2, || {
            let outlets = (0..SOURCES.len()).map(|_| Outlet::new(1, SINKS, || Jumbo::new(8, SINKS, 0))).collect();
            let scene = Arc::new(Scene { outlets, crossings: AtomicU64::new(0) });
            let mut readers: Vec<Reader> = (0..SINKS)
                .map(|number| {
                    let sources: Vec<_> = (0..SOURCES.len()).map(|at| Source::new(at, number, 0, None)).collect();
                    Reader { number, results: Results::new(&sources), taken: Taken::new(8), sink: sink() }
                })
                .collect();
            let mut here = readers.pop().unwrap();
            let other = readers.pop().map(|mut reader| {
                let scene = scene.clone();
                thread::spawn(move || {
                    (0..2).for_each(|_| _ = reader.take(&scene));
                    reader
                })
            });
            let sources: Vec<_> = (0..SOURCES.len())
                .map(|source| {
                    let scene = scene.clone();
                    thread::spawn(move || put_out(&scene, source, 0))
                })
                .collect();
            (0..2).for_each(|_| _ = here.take(&scene));
            let mut nexts: Vec<usize> = sources.into_iter().map(|thread| thread.join().unwrap()).collect();
            let mut readers = vec![other.unwrap().join().unwrap(), here];
            for _ in 0..4 {
                nexts.iter_mut().enumerate().for_each(|(source, next)| *next = put_out(&scene, source, *next));
                readers.iter_mut().for_each(|reader| while reader.take(&scene) {});
            }
            let mut whole = sink();
            for (event, sub) in [(0_i64, 0), (1, 1), (4, 0), (4, 1), (5, 0)] {
                let row = Rows::new((&raw const event).cast(), 1, 8, Text::empty());
                // SAFETY: the row is above.
                whole.add(&unsafe { whole.preparer().prepare_numbered(row, &[sub]) }.unwrap());
            }
            let mut sum = crate::output::digest::Digest::default();
            for reader in &readers {
                sum += reader.sink.digest();
                assert!(reader.taken.last && reader.sink.in_order());
            }
            assert_eq!(sum, whole.digest());
        });
    }
}
