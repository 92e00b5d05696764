use super::*;
use crate::threads::idle::{Idle, Strategy};
use crate::threads::sync::{Arc, AtomicU64, Ordering, thread};

/// What a source puts out, jumbo tuple by jumbo tuple: the events of its rows, and up to which event those are all.
type Said = &'static [(&'static [i64], i64)];

/// Event and source.
type Row = [i64; 2];

/// Sources, each of a stream of its own, and gates that read them all.
struct Script {
    said: &'static [Said],
    readers: usize,
    /// Every reader gets all rows; otherwise each has its share of the events.
    to_all: bool,
    slots: usize,
    ordered: bool,
}

impl Script {
    fn takes(&self, reader: usize, seq: i64) -> bool {
        self.to_all || seq as usize % self.readers == reader
    }

    /// What a reader must see.
    fn expected(&self, reader: usize) -> Vec<Row> {
        let rows = |(source, said): (usize, &Said)| {
            let seqs: Vec<i64> = said.iter().flat_map(|(seqs, _)| seqs.iter().copied()).collect();
            seqs.into_iter().map(move |seq| [seq, source as i64])
        };
        let mut all: Vec<Row> = self.said.iter().enumerate().flat_map(rows).collect();
        all.retain(|&[seq, _]| self.takes(reader, seq));
        all.sort_unstable();
        all
    }
}

struct Scene {
    plan: &'static Script,
    /// Per source.
    outlets: Vec<Outlet>,
    idle: Idle,
    crossings: AtomicU64,
}

impl Scene {
    /// Where threads may get ahead of each other. Loom looks for races between a store and the last access before it, and
    /// forgets the loads of others when a thread loads what it stores next, as writer and readers of an outlet do with
    /// their counters; what all of them add to is in every order. It orders nothing else.
    fn cross(&self) {
        // ORDERING: Relaxed; nothing is published.
        self.crossings.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts out jumbo tuple `number` of a source; false: there is no room.
    fn put_out(&self, source: usize, number: usize) -> bool {
        let (plan, outlet, said) = (self.plan, &self.outlets[source], self.plan.said[source]);
        self.cross();
        if !outlet.has_room() {
            return false;
        }
        let (seqs, upto) = said[number];
        // SAFETY: one thread after the other is this writer, and there is room.
        unsafe {
            outlet.fill(|jumbo| {
                jumbo.clear();
                seqs.iter().for_each(|seq| jumbo.made.push([*seq, source as i64].as_ptr().cast(), 0).unwrap());
                jumbo.rows = Rows::of(&jumbo.made, Text::empty());
                for (reader, share) in jumbo.shares.iter_mut().enumerate() {
                    share.whole = plan.to_all;
                    let mine = |&i: &u32| plan.takes(reader, seqs[i as usize]);
                    share.positions.extend((0..seqs.len() as u32).filter(mine));
                }
                (jumbo.upto, jumbo.last) = (upto, number + 1 == said.len());
            });
        }
        self.cross();
        outlet.publish();
        self.idle.notify();
        true
    }

    /// Puts out what there is room for, from jumbo tuple `next` on; the next one then.
    fn put_out_some(&self, source: usize, mut next: usize) -> usize {
        while next < self.plan.said[source].len() && self.put_out(source, next) {
            next += 1;
        }
        next
    }
}

/// A gate, and what came through it.
struct Reader {
    number: usize,
    gate: Gate,
    taken: Taken,
    seen: Vec<Row>,
}

// SAFETY: the rows that were taken are used by the thread that took them only.
unsafe impl Send for Reader {}

impl Reader {
    fn new(plan: &Script, number: usize) -> Self {
        let source = |outlet| Source::new(outlet, number, outlet as u64, None);
        let sources = (0..plan.said.len()).map(source).collect();
        let gate = Gate::new(sources, plan.ordered, false, false);
        Self { number, gate, taken: Taken::new(16), seen: Vec::new() }
    }

    /// Takes what is ready; false: there was nothing new.
    fn take(&mut self, shared: &Scene) -> bool {
        shared.cross();
        // SAFETY: one thread after the other is this reader.
        let new = unsafe { self.gate.take(&shared.outlets, Text::empty(), &mut self.taken) }.unwrap();
        // Whoever finds room now must not write where these rows lie.
        shared.cross();
        let rows = self.taken.rows;
        // SAFETY: rows of 16 bytes.
        let row = |i: usize| unsafe { rows.row(i).cast::<Row>().read_unaligned() };
        self.seen.extend((0..rows.n).map(row));
        shared.cross();
        self.gate.release(&shared.outlets);
        shared.idle.notify();
        // Nothing early, nothing twice, and nothing left out that `upto` promises.
        let expected = shared.plan.expected(self.number);
        assert!(expected.starts_with(&self.seen), "reader {} saw {:?}", self.number, self.seen);
        let promised = expected.iter().filter(|[seq, _]| *seq <= self.taken.upto).count();
        assert!(self.seen.len() >= promised, "reader {} was promised more than {:?}", self.number, self.seen);
        new
    }
}

fn start(plan: &'static Script, idle: Strategy) -> (Arc<Scene>, Vec<Reader>) {
    let outlet = |_| Outlet::new(plan.slots, plan.readers, || Jumbo::new(16, plan.readers, 0));
    let outlets = (0..plan.said.len()).map(outlet).collect();
    let shared = Scene { plan, outlets, idle: Idle::new(idle, 2, 2), crossings: AtomicU64::new(0) };
    (Arc::new(shared), (0..plan.readers).map(|number| Reader::new(plan, number)).collect())
}

fn check(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// A thread per source and reader, the last reader here; each looks a few times. Whatever is left is there to be taken.
fn everybody(preemptions: usize, plan: &'static Script) {
    check(preemptions, move || {
        let (shared, mut readers) = start(plan, Strategy::Yield);
        let mut here = readers.pop().unwrap();
        let sources: Vec<_> = (0..plan.said.len())
            .map(|source| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let next = shared.put_out_some(source, 0);
                    shared.put_out_some(source, next)
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
        let mut nexts: Vec<usize> = sources.into_iter().map(|thread| thread.join().unwrap()).collect();
        let mut readers: Vec<Reader> = others.into_iter().map(|thread| thread.join().unwrap()).collect();
        readers.push(here);
        let most = plan.said.iter().map(|said| said.len()).max().unwrap();
        for _ in 0..=most {
            nexts.iter_mut().enumerate().for_each(|(source, next)| *next = shared.put_out_some(source, *next));
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
            said: &[&[(&[0, 1], 1), (&[2], 2)], &[(&[], 0), (&[1, 2], 2)]],
            readers: 1,
            to_all: true,
            slots: 1,
            ordered: true,
        },
    );
}

/// Nothing but heartbeats from the second source: they let the rows of the first one through.
#[test]
fn loom_a_silent_source() {
    everybody(
        3,
        &Script {
            said: &[&[(&[0, 2], 2)], &[(&[], 0), (&[], 1), (&[], 2)]],
            readers: 1,
            to_all: true,
            slots: 1,
            ordered: true,
        },
    );
}

/// Each reader has its share of the rows, and none of some jumbo tuples.
#[test]
fn loom_one_source_two_readers_share() {
    everybody(2, &Script { said: &[&[(&[0, 1], 1), (&[3], 3)]], readers: 2, to_all: false, slots: 2, ordered: true });
}

/// Everybody reads the same rows in place.
#[test]
fn loom_one_source_two_readers_of_everything() {
    everybody(
        3,
        &Script { said: &[&[(&[0], 0), (&[1], 1), (&[2], 2)]], readers: 2, to_all: true, slots: 1, ordered: true },
    );
}

#[test]
fn loom_two_sources_two_readers() {
    everybody(
        2,
        &Script { said: &[&[(&[0, 1], 1)], &[(&[1], 1)]], readers: 2, to_all: false, slots: 1, ordered: true },
    );
}

/// The sources wait for room and the reader for rows, asleep: everybody is woken, until all has been taken.
#[test]
fn loom_flow_control_forgets_nobody() {
    static PLAN: Script =
        Script { said: &[&[(&[0], 0), (&[1], 1)], &[(&[1], 1)]], readers: 1, to_all: true, slots: 1, ordered: true };
    check(2, || {
        let (shared, mut readers) = start(&PLAN, Strategy::Park);
        let mut reader = readers.pop().unwrap();
        let sources: Vec<_> = (0..PLAN.said.len())
            .map(|source| {
                let shared = shared.clone();
                thread::spawn(move || {
                    for number in 0..PLAN.said[source].len() {
                        shared.idle.wait(|| shared.outlets[source].has_room());
                        assert!(shared.put_out(source, number));
                    }
                })
            })
            .collect();
        while !reader.taken.last {
            if !reader.take(&shared) {
                shared.idle.wait(|| reader.gate.has_news(&shared.outlets));
            }
        }
        sources.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(reader.seen, PLAN.expected(0));
    });
}

#[test]
#[should_panic = "reader 0"]
fn loom_a_gate_that_does_not_wait_is_caught() {
    everybody(2, &Script { said: &[&[(&[1], 1)], &[(&[0], 1)]], readers: 1, to_all: true, slots: 1, ordered: false });
}
