//! `auto`: `serial` or `tstream`, whichever is measured to be faster. Which of them that is depends on the cost of
//! operators, on how many events span several threads' rows and on the machine, and all of it may change on the way.
//!
//! Blocks are run in segments, each by one scheme. At first both are tried in turn; then the faster one goes on, and now
//! and then the other is tried again. Any choice gives the same results.

use super::{PerThread, Run, Scheme, serial, tstream};
use crate::executor::team::Barrier;
use crate::kernel::RunError;
use crate::metrics::Counters;
use crate::program::{Options, Program};

/// Events of a segment in which a scheme is tried.
const TRIAL: usize = 8192;
/// Trials of each scheme at the start: the first warms up.
const TRIALS: usize = 2;
/// Events after which the other scheme is tried again.
const EPOCH: usize = 1 << 19;
/// How much faster `tstream` has to be: it takes all threads, `serial` leaves the others time.
const MARGIN: f64 = 1.05;

struct Auto {
    ways: [(&'static str, Box<dyn Scheme>); 2],
    barrier: Barrier,
    /// Element 0. Written by thread 0 between segments, read by all in them, with a barrier before and after.
    state: PerThread<State>,
    threads: usize,
}

// SAFETY: see `state`.
unsafe impl Sync for Auto {}

struct State {
    /// Of the segment: who runs it, its end, and its first ticket.
    way: usize,
    end: usize,
    ticket: u64,
    /// Per way: nanoseconds per event when it was run last.
    cost: [f64; 2],
    /// Per way: how many segments and events it has run.
    segments: [usize; 2],
    events: [u64; 2],
    /// Events since both were tried.
    since: usize,
}

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    Ok(Box::new(Auto {
        ways: [("serial", serial::make(program, options)?), ("tstream", tstream::make(program, options)?)],
        barrier: Barrier::new(options.threads),
        state: PerThread::new(1, State::new),
        threads: options.threads,
    }))
}

impl Scheme for Auto {
    fn block(&self, thread: usize, run: &Run) -> Result<(), RunError> {
        let mut begin = run.events.start;
        while begin < run.events.end {
            if thread == 0 {
                // SAFETY: the others wait at the barrier below, or have not yet come to it.
                let state = unsafe { &mut *self.state.get(0) };
                state.choose(begin..run.events.end, self.threads);
                state.ticket = run.delivery.next_ticket();
                self.ways[state.way].1.rewind();
            }
            self.barrier.wait(thread, run.idle, run.stopped)?;
            // SAFETY: nobody writes it until all have left the segment.
            let state = unsafe { &*self.state.get(0) };
            let (way, end) = (state.way, state.end);
            let segment = Run { events: begin..end, first_ticket: state.ticket, ..run.clone() };
            let started = run.clock.now();
            self.ways[way].1.block(thread, &segment)?;
            self.barrier.wait(thread, run.idle, run.stopped)?;
            if thread == 0 {
                // SAFETY: as above.
                unsafe { (*self.state.get(0)).note(end - begin, run.clock.now() - started) };
            }
            begin = end;
        }
        Ok(())
    }

    fn chosen(&self) -> Vec<(&'static str, u64)> {
        // SAFETY: no thread is in `block`.
        let events = unsafe { (*self.state.get(0)).events };
        self.ways.iter().map(|(name, _)| *name).zip(events).collect()
    }

    fn counters(&self) -> Counters {
        let mut sum = self.ways[0].1.counters();
        sum += self.ways[1].1.counters();
        sum
    }
}

impl State {
    fn new() -> Self {
        Self { way: 0, end: 0, ticket: 0, cost: [f64::INFINITY; 2], segments: [0; 2], events: [0; 2], since: 0 }
    }

    /// Who runs the next of `events`, and how many.
    fn choose(&mut self, events: std::ops::Range<usize>, threads: usize) {
        let tried = self.segments.iter().copied().min().unwrap_or(0);
        let faster = usize::from(self.cost[1] * MARGIN < self.cost[0]);
        let trial = if threads == 1 {
            // Nobody to share the work with: then all schemes are the same.
            Some((0, events.len()))
        } else if tried < TRIALS {
            Some((usize::from(self.segments[1] < self.segments[0]), TRIAL))
        } else if self.since >= EPOCH {
            self.since = 0;
            Some((1 - faster, TRIAL))
        } else {
            None
        };
        let (way, n) = trial.unwrap_or((faster, EPOCH - self.since.min(EPOCH - 1)));
        self.way = way;
        self.end = events.end.min(events.start + n);
    }

    /// So many events were run in so many nanoseconds.
    fn note(&mut self, events: usize, nanoseconds: u64) {
        self.cost[self.way] = nanoseconds as f64 / events as f64;
        self.segments[self.way] += 1;
        self.events[self.way] += events as u64;
        self.since += events;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs so many events in blocks, at costs per event that depend on the way and the event; returns the events of
    /// each way.
    fn run(blocks: usize, cost: impl Fn(usize, usize) -> u64) -> [u64; 2] {
        let (mut state, block) = (State::new(), 1 << 17);
        for number in 0..blocks {
            let mut begin = 0;
            while begin < block {
                state.choose(begin..block, 2);
                assert!(begin < state.end && state.end <= block);
                state.note(state.end - begin, cost(state.way, number) * (state.end - begin) as u64);
                begin = state.end;
            }
        }
        assert_eq!(state.events.iter().sum::<u64>(), (blocks * block) as u64);
        state.events
    }

    #[test]
    fn the_faster_way_gets_nearly_everything() {
        let [serial, tstream] = run(20, |way, _| [30, 60][way]);
        assert!(serial > 30 * tstream, "{serial} {tstream}");
        let [serial, tstream] = run(20, |way, _| [60, 30][way]);
        assert!(tstream > 30 * serial, "{serial} {tstream}");
    }

    #[test]
    fn as_good_as_equal_is_left_to_one_writer() {
        let [serial, tstream] = run(20, |way, _| [101, 100][way]);
        assert!(serial > 30 * tstream);
    }

    #[test]
    fn a_change_is_noticed() {
        let [serial, tstream] = run(40, |way, number| if number < 20 { [30, 60][way] } else { [90, 60][way] });
        assert!((0.35..0.65).contains(&(serial as f64 / (serial + tstream) as f64)), "{serial} {tstream}");
    }

    #[test]
    fn one_thread_is_never_cut() {
        let mut state = State::new();
        state.choose(0..1 << 20, 1);
        assert_eq!((state.way, state.end), (0, 1 << 20));
    }
}
