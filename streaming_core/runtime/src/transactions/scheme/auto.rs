//! `auto`: `serial`, `owners`, or one thread alone, whichever is measured to be fastest. That depends on the cost of
//! operators, on the number of events that span several threads' rows, and on the machine. All of these may change during
//! a run. With one thread alone, the others are idle.
//!
//! A block runs in segments of whole intervals, each in one way. At first all ways are tried. Then the fastest one goes on,
//! and from time to time another one is tried again. A trial is short. The more it is expected to cost, by the last trial
//! of the way, the later it comes. So trials take a small part of the time, however slow the other ways are. If the costs
//! are close, a change is noticed soon. The choice does not affect results.

use std::ops::Range;

use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::barrier::Barrier;
use crate::threads::own::Own;
use crate::threads::sync::UnsafeCell;
use crate::transactions::run::{Run, Scheme, batches};
use crate::transactions::scheme::{owners, serial};
use crate::transactions::workbench::{Workbench, alone};

/// Segments of a trial. The lowest cost counts: the first segment may warm up, and other programs may slow down any
/// segment.
const PARTS: usize = 2;
/// The number of ways: `alone`, `serial` and `owners`. If costs are as good as equal, the first one is taken: it leaves time to
/// others.
const WAYS: usize = 3;
/// Events of such a segment, per way. `serial` starts every segment with trials of its own.
const PART: [usize; WAYS] = [2048, 4096, 2048];
/// The share of the time that trials of a way may cost, as measured. The change to the way and back is not measured, and costs
/// about as much again.
const BUDGET: f64 = 0.005;
/// The least number of events between two trials, at any cost.
const WAIT: usize = 1 << 17;
/// How much faster a later way must be.
const MARGIN: f64 = 1.02;

struct Auto {
    ways: [(&'static str, Box<dyn Scheme>); WAYS],
    barrier: Barrier,
    /// All threads read it in segments. It is written between blocks, and by thread 0 between two barriers.
    state: UnsafeCell<State>,
    /// Events and nanoseconds of the last segment, until `state` takes them in. Thread 0 writes them, under the same rules as
    /// `state`.
    ended: UnsafeCell<Option<(usize, u64)>>,
}

// SAFETY: see `state` and `ended`.
unsafe impl Sync for Auto {}

struct State {
    /// The way of the segment, and the first ticket of all segments of a block but the first.
    way: usize,
    ticket: u64,
    /// The way outside of trials.
    fastest: usize,
    /// Per way: nanoseconds per event of its last segment, and the lower one of the last two.
    last: [f64; WAYS],
    cost: [f64; WAYS],
    /// Remaining segments of the trial.
    parts: usize,
    /// Per way: events until its next trial.
    wait: [usize; WAYS],
    /// Per way: the number of events that it has run.
    events: [u64; WAYS],
    interval: usize,
}

/// One thread takes batch after batch from plan to outputs, and the others do nothing.
struct Alone {
    punctuation: usize,
    /// Of thread 0.
    bench: Own<Workbench>,
}

impl Scheme for Alone {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        if thread > 0 {
            return Ok(());
        }
        for (number, batch) in batches(run, self.punctuation).enumerate() {
            run.check()?;
            run.await_arrival(batch.end);
            // SAFETY: no other thread works.
            unsafe {
                self.bench.with_mut(0, |bench| {
                    // The rows lie with the owners of shares.
                    bench.counters.time.remote += run.placement.scattered(batch.len());
                    alone(bench, 0, run, &batch, run.first_ticket + number as u64)
                })?;
            }
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        // SAFETY: no thread is in `block`.
        unsafe { self.bench.with(0, |bench| bench.counters) }
    }
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    let alone =
        Alone { punctuation: options.punctuation, bench: Own::new(1, || Workbench::new(program.output_stride())) };
    Ok(Box::new(Auto {
        ways: [
            ("alone", Box::new(alone)),
            ("serial", serial::make(program, options)?),
            ("owners", owners::make(program, options)?),
        ],
        barrier: Barrier::new(options.threads),
        state: UnsafeCell::new(State::new(options.punctuation, options.threads)),
        ended: UnsafeCell::new(None),
    }))
}

impl Scheme for Auto {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        let (mut begin, mut ticket) = (run.events.start, run.first_ticket);
        loop {
            // SAFETY: no thread writes it while a thread is in a segment.
            let (way, end) = self.state.with(|state| unsafe { ((*state).way, (*state).end(begin..run.events.end)) });
            let segment = Run { events: begin..end, first_ticket: ticket, ..run.clone() };
            let started = run.clock.now();
            self.ways[way].1.block(thread, &segment)?;
            if thread == 0 {
                // SAFETY: as it says.
                self.ended.with_mut(|ended| unsafe { *ended = Some((end - begin, run.clock.now() - started)) });
            }
            // Most blocks are one segment and cost no barrier: a thread that comes late finds the state unchanged.
            if end == run.events.end {
                return Ok(());
            }
            self.barrier.wait(thread, run.idle, run.stopped)?;
            if thread == 0 {
                self.rewind();
                // SAFETY: the other threads wait at the next barrier, or come to it.
                self.state.with_mut(|state| unsafe { (*state).ticket = run.delivery.next_ticket() });
            }
            self.barrier.wait(thread, run.idle, run.stopped)?;
            // SAFETY: as above.
            (begin, ticket) = (end, self.state.with(|state| unsafe { (*state).ticket }));
        }
    }

    fn rewind(&self) {
        // SAFETY: no thread is in a segment.
        let ended = self.ended.with_mut(|ended| unsafe { (*ended).take() });
        let way = self.state.with_mut(|state| {
            // SAFETY: as above.
            let state = unsafe { &mut *state };
            if let Some((events, nanoseconds)) = ended {
                state.note(events, nanoseconds);
            }
            state.way
        });
        self.ways[way].1.rewind();
    }

    fn homes(&self) -> Option<Vec<usize>> {
        self.ways[WAYS - 1].1.homes()
    }

    fn chosen(&self) -> Vec<(&'static str, u64)> {
        // SAFETY: no thread is in `block`.
        let ended = self.ended.with(|ended| unsafe { *ended });
        // SAFETY: as above.
        let (mut events, way) = self.state.with(|state| unsafe { ((*state).events, (*state).way) });
        events[way] += ended.map_or(0, |(events, _)| events as u64);
        self.ways.iter().map(|(name, _)| *name).zip(events).collect()
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.ways.iter().for_each(|(_, way)| sum += way.counters());
        sum
    }
}

impl State {
    /// Begins with trials of all ways, in their order.
    fn new(interval: usize, threads: usize) -> Self {
        let unknown = [f64::INFINITY; WAYS];
        Self {
            way: 0,
            ticket: 0,
            fastest: 0,
            last: unknown,
            cost: unknown,
            // With one thread, all ways do the same.
            parts: if threads == 1 { 0 } else { PARTS },
            wait: [usize::MAX; WAYS],
            events: [0; WAYS],
            interval,
        }
    }

    /// The end of the segment that begins with `events`.
    fn end(&self, events: Range<usize>) -> usize {
        let wait = self.wait.into_iter().min().unwrap_or(usize::MAX);
        let n = if self.parts > 0 { PART[self.way] } else { wait };
        (events.start + n.min(events.len())).next_multiple_of(self.interval).min(events.end)
    }

    /// Notes that a number of events took a number of nanoseconds.
    fn note(&mut self, events: usize, nanoseconds: u64) {
        let (way, cost) = (self.way, nanoseconds.max(1) as f64 / events as f64);
        self.cost[way] = cost.min(self.last[way]);
        self.last[way] = cost;
        self.events[way] += events as u64;
        if self.parts == 0 {
            self.wait.iter_mut().for_each(|wait| *wait = wait.saturating_sub(events));
            self.start_trial();
            return;
        }
        self.parts -= 1;
        if self.parts > 0 {
            return;
        }
        if let Some(unknown) = self.cost.iter().position(|cost| cost.is_infinite()) {
            (self.way, self.parts) = (unknown, PARTS);
            return;
        }
        self.fastest =
            (1..WAYS).fold(0, |best, way| if self.cost[way] * MARGIN < self.cost[best] { way } else { best });
        self.way = self.fastest;
        for other in 0..WAYS {
            // Way `way` was tried now; others that wait go on waiting, unless they have no time to wait for.
            if other == way || self.wait[other] == usize::MAX {
                self.wait[other] = self.until_trial(other);
            }
        }
        self.wait[self.fastest] = usize::MAX;
        self.start_trial();
    }

    /// Starts the trial of a way that has waited long enough.
    fn start_trial(&mut self) {
        if let Some(due) = self.wait.iter().position(|&wait| wait == 0) {
            (self.way, self.parts) = (due, PARTS);
        }
    }

    /// Events until the next trial of a way, by the cost of the last one.
    fn until_trial(&self, way: usize) -> usize {
        let trial = PARTS * PART[way].next_multiple_of(self.interval);
        // The cost of the trial, in events that could run instead.
        let loss = trial as f64 * (self.cost[way] / self.cost[self.fastest] - 1.0);
        WAIT.max((loss / BUDGET) as usize)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs blocks of events, at costs per event that depend on the way and the block. Returns the events of each way, and how
    /// much longer the run took than with the fastest way in every block.
    fn run(blocks: usize, block: usize, cost: impl Fn(usize, usize) -> u64) -> ([u64; WAYS], f64) {
        let (mut state, mut took, mut least) = (State::new(500, 2), 0, 0);
        for number in 0..blocks {
            let mut begin = 0;
            while begin < block {
                let end = state.end(begin..block);
                assert!(begin < end && end <= block);
                let events = end - begin;
                let nanoseconds = cost(state.way, number) * events as u64;
                state.note(events, nanoseconds);
                (took, begin) = (took + nanoseconds, end);
            }
            least += block as u64 * (0..WAYS).map(|way| cost(way, number)).min().unwrap();
        }
        assert_eq!(state.events.iter().sum::<u64>(), (blocks * block) as u64);
        (state.events, took as f64 / least as f64)
    }

    #[test]
    fn the_fastest_way_gets_nearly_everything() {
        for fastest in 0..WAYS {
            let (events, _) = run(20, 1 << 17, |way, _| if way == fastest { 30 } else { 60 });
            assert!(events[fastest] > 15 * (events.iter().sum::<u64>() - events[fastest]), "{events:?}");
        }
    }

    #[test]
    fn trials_cost_little_however_slow_the_other_ways_are() {
        for cost in [[22, 30, 250], [220, 22, 250], [15, 44, 20], [300, 25, 90], [30, 40, 50]] {
            for block in [500, 5000, 65_536] {
                let (_, longer) = run(30_000_000 / block, block, |way, _| cost[way]);
                assert!(longer < 1.0 + 4.0 * BUDGET, "{cost:?} {block}: {longer}");
            }
        }
    }

    #[test]
    fn as_good_as_equal_is_left_to_the_first_way() {
        let (events, _) = run(20, 1 << 17, |way, _| [101, 100, 100][way]);
        assert!(events[0] > 8 * (events[1] + events[2]), "{events:?}");
    }

    #[test]
    fn a_change_is_noticed() {
        for block in [5000, 1 << 17] {
            let half = 10_000_000 / block;
            let changed = |way: usize, number: usize| if number < half { [30, 90, 60][way] } else { [90, 30, 60][way] };
            let (_, longer) = run(2 * half, block, changed);
            assert!(longer < 1.3, "{block}: {longer}");
        }
    }

    #[test]
    fn a_disturbed_segment_decides_nothing() {
        let mut state = State::new(500, 2);
        for number in 0..200 {
            let events = state.end(0..5000);
            let disturbance = if number % 3 == 0 { 5_000_000 } else { 0 };
            state.note(events, events as u64 * [30, 40, 60][state.way] + disturbance);
            assert_eq!(state.fastest, 0, "{number}");
        }
        assert!(state.events[1] > 0 && state.events[2] > 0);
    }

    #[test]
    fn one_thread_is_never_cut() {
        let mut state = State::new(500, 1);
        for _ in 0..5 {
            assert_eq!((state.way, state.end(0..1 << 20)), (0, 1 << 20));
            state.note(1 << 20, 1 << 24);
        }
    }
}
