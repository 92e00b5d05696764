//! The number of threads that work: an executor offers several ways to do the same work, and the fastest one goes on.
//! That depends on the operators, on the events and on the machine, and all of them may change during a run. The other
//! threads are idle. No result depends on the choice.
//!
//! A block runs in segments, each in one way. A run begins with the last way, which uses the most threads. From time to
//! time another way is tried for a short while. The more a trial is expected to cost, the later it comes. The last
//! trial of the way gives that cost. Before the first one, a way with fewer threads is expected to be slower.
//! So trials take a small part of the time, however slow the other ways are, and the nearest ways are tried first.
//!
//! Times say nothing while threads wait for events to arrive. Such segments decide nothing, and begin no trial.

use std::ops::Range;

use serde_json::{Value, json};

/// Segments of a trial. The lowest cost counts, because other programs may slow down any segment; but the highest one with
/// fewer threads than before.
const PARTS: usize = 2;
/// By how much the cost of the fastest way may grow from segment to segment.
const DRIFT: f64 = 1.1;
/// The share of the time that trials of a way may cost, as measured. The change to the way and back is not measured,
/// and costs about as much again.
const BUDGET: f64 = 0.005;
/// The same before the first trial, which may show that all went the slow way so far.
const FIRST_BUDGET: f64 = 0.1;
/// The least number of events between two trials, at any cost.
const WAIT: usize = 1 << 17;
/// The least number of events before a first trial: the first block finds cold caches and touches new memory.
const WARM: usize = 3 << 15;
/// How much faster a way with more threads must be: threads that gain nothing are left to others.
const MARGIN: f64 = 1.02;
/// The least factor by which a way that was never tried is expected to be slower.
const SLOWER: f64 = 2.0;

/// A way to do the work.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    pub threads: usize,
    /// Events of a segment of a trial. Several threads need more of them, because they wake up first.
    pub part: usize,
}

/// The choice between the ways of an executor; see the module.
#[derive(Debug)]
pub struct Choice {
    ways: Vec<Measured>,
    /// The way of the segment.
    way: usize,
    /// The way outside of trials.
    fastest: usize,
    /// Remaining segments of the trial.
    parts: usize,
    /// The number of trials since the fastest way changed; none before the first change.
    confirmed: u32,
    /// Segments end at multiples of it within their block.
    interval: usize,
    /// The number of threads that the user allows, and the reason if no way has so many.
    allowed: usize,
    limit: String,
    #[cfg(test)]
    in_turn: bool,
}

#[derive(Debug)]
struct Measured {
    way: Way,
    /// Nanoseconds per event.
    cost: f64,
    /// Events until its next trial.
    wait: usize,
    /// The number of events that it has run.
    events: u64,
}

/// 1, 2, 4, ... threads, and `most` itself.
pub fn widths(most: usize) -> impl Iterator<Item = usize> {
    (0..usize::BITS).map(|power| 1 << power).take_while(move |&threads| threads < most).chain([most])
}

impl Choice {
    /// A choice between `ways`, where the user allows so many threads. Of ways that are as good as equal, the first one
    /// is taken.
    pub fn new(ways: impl IntoIterator<Item = Way>, interval: usize, allowed: usize) -> Self {
        let measured = |way| Measured { way, cost: f64::INFINITY, wait: usize::MAX, events: 0 };
        let ways: Vec<Measured> = ways.into_iter().map(measured).collect();
        let last = ways.len() - 1;
        let most = ways.iter().map(|way| way.way.threads).max().unwrap_or(1);
        let mut choice = Self {
            ways,
            way: last,
            fastest: last,
            parts: 0,
            confirmed: u32::MAX / 2,
            interval,
            allowed,
            limit: if most == 1 { "1 core".to_owned() } else { format!("{most} cores") },
            #[cfg(test)]
            in_turn: false,
        };
        choice.expect();
        choice
    }

    /// All threads work.
    pub fn fixed(threads: usize) -> Self {
        Self::new([Way { threads, part: 1 }], 1, threads)
    }

    /// Not the cores are the reason that no way has more threads.
    pub fn limited_by(self, limit: &str) -> Self {
        Self { limit: limit.to_owned(), ..self }
    }

    /// One way after the other, in short segments, so that every change is tested.
    #[cfg(test)]
    pub fn take_turns(&mut self) {
        self.in_turn = !self.is_fixed();
    }

    /// The number of the way of the next segment.
    pub fn way(&self) -> usize {
        self.way
    }

    /// The number of threads of the next segment.
    pub fn threads(&self) -> usize {
        self.ways[self.way].way.threads
    }

    /// Whether there is only one way.
    pub fn is_fixed(&self) -> bool {
        self.ways.len() == 1
    }

    /// Whether the next segment belongs to a trial.
    pub fn is_trial(&self) -> bool {
        self.parts > 0
    }

    /// Events by way.
    pub fn events(&self) -> impl Iterator<Item = u64> {
        self.ways.iter().map(|way| way.events)
    }

    /// The end of the segment that begins with `events`.
    pub fn end(&self, events: Range<usize>) -> usize {
        let wait = self.ways.iter().map(|way| way.wait).min().unwrap_or(usize::MAX);
        #[cfg(test)]
        if self.in_turn {
            return (events.start + 1).next_multiple_of(2 * self.interval).min(events.end);
        }
        let n = if self.is_trial() { self.ways[self.way].way.part } else { wait };
        if n >= events.len() {
            return events.end;
        }
        (events.start + n.max(1)).next_multiple_of(self.interval).min(events.end)
    }

    /// Notes that the segment had a number of events and took a number of nanoseconds. None: its threads may have
    /// waited for events.
    pub fn note(&mut self, events: usize, nanoseconds: Option<u64>) {
        let tried = self.way;
        let has_fewer = self.threads() < self.ways[self.fastest].way.threads;
        let way = &mut self.ways[tried];
        way.events += events as u64;
        #[cfg(test)]
        if self.in_turn {
            (self.way, self.parts) = ((tried + 1) % self.ways.len(), tried % 2);
            return;
        }
        let Some(nanoseconds) = nanoseconds else {
            (self.way, self.parts) = (self.fastest, 0);
            return;
        };
        let cost = nanoseconds.max(1) as f64 / events as f64;
        // Other programs slow segments down. They must not make fewer threads look faster.
        way.cost = match self.parts {
            0 => cost.min(way.cost * DRIFT),
            PARTS => cost,
            _ if has_fewer => cost.max(way.cost),
            _ => cost.min(way.cost),
        };
        if self.parts == 0 {
            self.ways.iter_mut().for_each(|way| way.wait = way.wait.saturating_sub(events));
            self.start_trial();
            return;
        }
        self.parts -= 1;
        if self.parts > 0 {
            return;
        }
        let is_faster = |way: usize, best: usize| self.ways[way].cost * MARGIN < self.ways[best].cost;
        let fastest = (1..self.ways.len()).fold(0, |best, way| if is_faster(way, best) { way } else { best });
        let before = std::mem::replace(&mut self.fastest, fastest);
        self.way = fastest;
        self.confirmed = if fastest == before { self.confirmed + 1 } else { 0 };
        for other in [tried, before] {
            self.ways[other].wait = self.until_trial(other);
        }
        self.expect();
        self.start_trial();
    }

    /// Starts the trial of a way that has waited long enough.
    fn start_trial(&mut self) {
        if let Some(due) = self.ways.iter().position(|way| way.wait == 0) {
            (self.way, self.parts) = (due, PARTS);
        }
    }

    /// Ways that were never tried wait by their threads, and the fastest way waits for nothing.
    fn expect(&mut self) {
        for number in 0..self.ways.len() {
            if self.ways[number].cost.is_infinite() {
                self.ways[number].wait = self.ways[number].wait.min(self.until_first(number));
            }
        }
        self.ways[self.fastest].wait = usize::MAX;
    }

    fn trial(&self, way: usize) -> f64 {
        (PARTS * self.ways[way].way.part.next_multiple_of(self.interval)) as f64
    }

    /// Events until the next trial of a way, by the cost of the last one.
    fn until_trial(&self, way: usize) -> usize {
        // The cost of the trial, in events that could run instead.
        let loss = self.trial(way) * (self.ways[way].cost / self.ways[self.fastest].cost - 1.0);
        let wait = WAIT.max((loss / BUDGET) as usize);
        // A change may be a mistake, unless the ways are far apart.
        let is_close = self.ways[way].cost < SLOWER * self.ways[self.fastest].cost;
        let soon = (self.trial(way) as usize * 2) << (2 * self.confirmed.min(8));
        if is_close { wait.min(soon) } else { wait }
    }

    /// Events until the first trial of a way, by its threads. What is far away is also less likely to be faster.
    fn until_first(&self, way: usize) -> usize {
        let threads = |way: usize| self.ways[way].way.threads as f64;
        let slower = (threads(self.fastest) / threads(way)).max(SLOWER) - 1.0;
        WARM.max((self.trial(way) * slower * slower / FIRST_BUDGET) as usize)
    }

    /// How many threads worked on most events, of how many, and the reason if it was not all of them.
    pub fn to_json(&self) -> Value {
        let most = self.ways.iter().enumerate().max_by_key(|(number, way)| (way.events, *number));
        let worked = most.map_or(self.allowed, |(_, way)| way.way.threads);
        let is_most = self.ways.iter().all(|way| way.way.threads <= worked);
        let why = match is_most {
            _ if worked == self.allowed => None,
            true => Some(&*self.limit),
            false => Some("fewer threads were faster"),
        };
        json!({"worked": worked, "of": self.allowed, "why": why})
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn choice(most: usize, interval: usize) -> Choice {
        Choice::new(widths(most).map(|threads| Way { threads, part: 2048 }), interval, most)
    }

    /// Runs blocks of events, at costs per event that depend on the way and the block. Returns the events of each way,
    /// and how much longer the run took than with the fastest way in every block.
    fn run(most: usize, blocks: usize, block: usize, cost: impl Fn(usize, usize) -> u64) -> (Vec<u64>, f64) {
        let (mut choice, mut took, mut least) = (choice(most, 500), 0, 0);
        let ways = choice.ways.len();
        for number in 0..blocks {
            let mut begin = 0;
            while begin < block {
                let end = choice.end(begin..block);
                assert!(begin < end && end <= block);
                let events = end - begin;
                let nanoseconds = cost(choice.way(), number) * events as u64;
                choice.note(events, Some(nanoseconds));
                (took, begin) = (took + nanoseconds, end);
            }
            least += block as u64 * (0..ways).map(|way| cost(way, number)).min().unwrap();
        }
        let events: Vec<u64> = choice.events().collect();
        assert_eq!(events.iter().sum::<u64>(), (blocks * block) as u64);
        (events, took as f64 / least as f64)
    }

    #[test]
    fn widths_are_powers_of_two_and_the_most() {
        let all = |most| widths(most).collect::<Vec<_>>();
        assert_eq!([all(1), all(2), all(3), all(16)], [vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 2, 4, 8, 16]]);
    }

    #[test]
    fn the_fastest_way_gets_nearly_everything() {
        for (most, ways) in [(2, 2), (4, 3), (16, 5)] {
            for fastest in 0..ways {
                let cost = |way: usize, _| 30 * (1 + way.abs_diff(fastest) as u64);
                let (events, _) = run(most, 100, 1 << 17, cost);
                assert!(events[fastest] > 9 * (events.iter().sum::<u64>() - events[fastest]), "{fastest}: {events:?}");
            }
        }
    }

    #[test]
    fn trials_cost_little_however_slow_the_other_ways_are() {
        for cost in [[22, 30, 250], [220, 90, 22], [250, 44, 20], [300, 25, 90], [30, 40, 50]] {
            for block in [500, 5000, 65_536] {
                let (_, longer) = run(4, 60_000_000 / block, block, |way, _| cost[way]);
                assert!(longer < 1.0 + 8.0 * BUDGET, "{cost:?} {block}: {longer}");
            }
        }
    }

    #[test]
    fn trials_cost_little_where_every_thread_pays() {
        for (events, most) in [(1_000_000, 1.04), (10_000_000, 1.02)] {
            let (_, longer) = run(16, events / 65_536, 65_536, |way, _| 160 >> way);
            assert!(longer < most, "{events}: {longer}");
        }
    }

    #[test]
    fn as_good_as_equal_leaves_threads_to_others() {
        let (events, _) = run(4, 20, 1 << 17, |way, _| [101, 100, 100][way]);
        assert!(events[0] > 5 * (events[1] + events[2]), "{events:?}");
    }

    #[test]
    fn a_change_is_noticed() {
        for block in [5000, 1 << 17] {
            let half = 10_000_000 / block;
            let changed = |way: usize, number: usize| if number < half { [30, 90, 60][way] } else { [90, 30, 60][way] };
            let (_, longer) = run(4, 2 * half, block, changed);
            assert!(longer < 1.3, "{block}: {longer}");
        }
    }

    #[test]
    fn a_disturbed_segment_decides_nothing() {
        let mut choice = choice(4, 500);
        for number in 0..200 {
            let events = choice.end(0..5000);
            let disturbance = if number % 3 == 0 { 5_000_000 } else { 0 };
            choice.note(events, Some(events as u64 * [60, 40, 30][choice.way()] + disturbance));
            assert_eq!(choice.fastest, 2, "{number}");
        }
        assert!(choice.events().all(|events| events > 0));
    }

    #[test]
    fn a_segment_that_waits_for_events_begins_no_trial_and_ends_one() {
        let mut choice = choice(2, 500);
        for _ in 0..100 {
            choice.note(1 << 16, None);
            assert_eq!((choice.way(), choice.is_trial()), (1, false));
        }
        choice.note(1 << 17, Some(1 << 20));
        assert_eq!((choice.way(), choice.is_trial()), (0, true));
        choice.note(2048, None);
        assert_eq!((choice.way(), choice.is_trial()), (1, false));
    }

    #[test]
    fn one_way_is_never_cut() {
        let mut choice = choice(1, 500);
        for _ in 0..5 {
            assert_eq!((choice.way(), choice.end(0..1 << 20)), (0, 1 << 20));
            choice.note(1 << 20, Some(1 << 24));
        }
    }

    #[test]
    fn the_reason_for_idle_threads_is_told() {
        let reason = |most, allowed, segments: &[usize]| {
            let mut choice = Choice::new(widths(most).map(|threads| Way { threads, part: 1 }), 1, allowed);
            for (way, &events) in segments.iter().enumerate() {
                choice.ways[way].events = events as u64;
            }
            choice.to_json()
        };
        assert_eq!(reason(2, 16, &[10, 90]), json!({"worked": 2, "of": 16, "why": "2 cores"}));
        assert_eq!(reason(2, 16, &[90, 10]), json!({"worked": 1, "of": 16, "why": "fewer threads were faster"}));
        assert_eq!(reason(1, 2, &[5]), json!({"worked": 1, "of": 2, "why": "1 core"}));
        assert_eq!(reason(4, 4, &[]), json!({"worked": 4, "of": 4, "why": null}));
    }
}
