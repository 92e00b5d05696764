//! `auto`: `serial` or `owners`, whichever is measured to be faster. That depends on the cost of operators, on the number of
//! events that span several threads' rows, and on the machine. All of these may change during a run.
//!
//! A block runs in segments of whole intervals, each with one scheme. At first both schemes are tried. Then the faster one
//! goes on, and from time to time the other one is tried again. A trial is short. The more it is expected to cost, by the
//! last trial, the later it comes. So trials take a small part of the time, however slow the other scheme is. If the costs
//! are close, a change is noticed soon. The choice does not affect results.

use std::ops::Range;

use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::barrier::Barrier;
use crate::threads::sync::UnsafeCell;
use crate::transactions::run::{Run, Scheme};
use crate::transactions::scheme::{owners, serial};

/// Segments of a trial. The lowest cost counts: the first segment may warm up, and other programs may slow down any
/// segment.
const PARTS: usize = 2;
/// Events of such a segment, per scheme. `serial` starts every segment with trials of its own.
const PART: [usize; 2] = [4096, 500];
/// The share of the time that trials may cost, as measured. The change to the other scheme and back is not measured, and
/// costs about as much again.
const BUDGET: f64 = 0.005;
/// The least number of events between two trials, at any cost.
const WAIT: usize = 1 << 17;
/// How much faster `owners` must be: it keeps all threads busy, while `serial` leaves time to others.
const MARGIN: f64 = 1.05;

struct Auto {
    ways: [(&'static str, Box<dyn Scheme>); 2],
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
    /// The scheme of the segment, and the first ticket of all segments of a block but the first.
    way: usize,
    ticket: u64,
    /// The scheme outside of trials.
    faster: usize,
    /// Per scheme: nanoseconds per event of its last segment, and the lower one of the last two.
    last: [f64; 2],
    cost: [f64; 2],
    /// Remaining segments of the trial.
    parts: usize,
    /// Events until the next trial.
    wait: usize,
    /// Per scheme: the number of events that it has run.
    events: [u64; 2],
    interval: usize,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(Auto {
        ways: [("serial", serial::make(program, options)?), ("owners", owners::make(program, options)?)],
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
        self.ways[1].1.homes()
    }

    fn makes_up_sockets(&self) -> bool {
        self.ways[1].1.makes_up_sockets()
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
        let mut sum = self.ways[0].1.counters();
        sum += self.ways[1].1.counters();
        sum
    }
}

impl State {
    /// Starts as if `serial` were the faster one. Its trial comes first, then that of `owners`.
    fn new(interval: usize, threads: usize) -> Self {
        let unknown = [f64::INFINITY; 2];
        Self {
            way: 0,
            ticket: 0,
            faster: 0,
            last: unknown,
            cost: unknown,
            // With one thread, all schemes do the same.
            parts: if threads == 1 { 0 } else { PARTS },
            wait: usize::MAX,
            events: [0; 2],
            interval,
        }
    }

    /// The end of the segment that begins with `events`.
    fn end(&self, events: Range<usize>) -> usize {
        let n = if self.parts > 0 { PART[self.way] } else { self.wait };
        (events.start + n.min(events.len())).next_multiple_of(self.interval).min(events.end)
    }

    /// Notes that a number of events took a number of nanoseconds.
    fn note(&mut self, events: usize, nanoseconds: u64) {
        let (way, cost) = (self.way, nanoseconds.max(1) as f64 / events as f64);
        self.cost[way] = cost.min(self.last[way]);
        self.last[way] = cost;
        self.events[way] += events as u64;
        if self.parts == 0 {
            self.wait = self.wait.saturating_sub(events);
            if self.wait == 0 {
                (self.way, self.parts) = (1 - self.faster, PARTS);
            }
            return;
        }
        self.parts -= 1;
        if self.parts > 0 {
            return;
        }
        if self.cost[1].is_infinite() {
            // At the start, after the trial of `serial`.
            (self.way, self.parts) = (1, PARTS);
            return;
        }
        self.faster = usize::from(self.cost[1] * MARGIN < self.cost[0]);
        self.way = self.faster;
        let other = 1 - self.faster;
        let trial = PARTS * PART[other].next_multiple_of(self.interval);
        // The cost of the trial, in events that could run instead.
        let loss = trial as f64 * (self.cost[other] / self.cost[self.faster] - 1.0);
        self.wait = WAIT.max((loss / BUDGET) as usize);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs blocks of events, at costs per event that depend on the scheme and the block. Returns the events of each scheme,
    /// and how much longer the run took than with the faster scheme in every block.
    fn run(blocks: usize, block: usize, cost: impl Fn(usize, usize) -> u64) -> ([u64; 2], f64) {
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
            least += block as u64 * cost(0, number).min(cost(1, number));
        }
        assert_eq!(state.events.iter().sum::<u64>(), (blocks * block) as u64);
        (state.events, took as f64 / least as f64)
    }

    #[test]
    fn the_faster_way_gets_nearly_everything() {
        let ([serial, owners], _) = run(20, 1 << 17, |way, _| [30, 60][way]);
        assert!(serial > 30 * owners, "{serial} {owners}");
        let ([serial, owners], _) = run(20, 1 << 17, |way, _| [60, 30][way]);
        assert!(owners > 30 * serial, "{serial} {owners}");
    }

    #[test]
    fn trials_cost_little_however_slow_the_other_way_is() {
        for cost in [[22, 250], [22, 2500], [15, 44], [300, 25], [30, 40]] {
            for block in [500, 5000, 65_536] {
                let (_, longer) = run(20_000_000 / block, block, |way, _| cost[way]);
                assert!(longer < 1.0 + 2.0 * BUDGET, "{cost:?} {block}: {longer}");
            }
        }
    }

    #[test]
    fn as_good_as_equal_is_left_to_one_writer() {
        let ([serial, owners], _) = run(20, 1 << 17, |way, _| [101, 100][way]);
        assert!(serial > 30 * owners, "{serial} {owners}");
    }

    #[test]
    fn a_change_is_noticed() {
        for block in [5000, 1 << 17] {
            let half = 2_500_000 / block;
            let (_, longer) =
                run(2 * half, block, |way, number| if number < half { [30, 60][way] } else { [90, 60][way] });
            assert!(longer < 1.05, "{block}: {longer}");
        }
    }

    #[test]
    fn a_disturbed_segment_decides_nothing() {
        let mut state = State::new(500, 2);
        for number in 0..200 {
            let events = state.end(0..5000);
            let disturbance = if number % 3 == 0 { 5_000_000 } else { 0 };
            state.note(events, events as u64 * [30, 60][state.way] + disturbance);
            assert_eq!(state.faster, 0, "{number}");
        }
        assert!(state.events[1] > 0);
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
