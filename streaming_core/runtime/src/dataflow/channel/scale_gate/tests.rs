use proptest::prelude::*;

use super::*;
use crate::dataflow::channel::outlet::Jumbo;
use crate::dataflow::channel::rank::Rank;
use crate::rows::view::Rows;

const SLOTS: usize = 3;

/// A source per outlet, one reader, and what that has taken.
struct World {
    outlets: Vec<Outlet>,
    feeds: Vec<Feed>,
    reader: Reader,
    taken: Taken,
}

/// Event, and which source's.
type Row = [i64; 2];

impl World {
    /// Of as many sources; `stream(i)` is that of the i-th.
    fn new(sources: usize, stream: impl Fn(usize) -> u64) -> Self {
        let outlets = (0..sources).map(|_| Outlet::new(SLOTS, 1, || Jumbo::new(16, 1, 0))).collect();
        let of = (0..sources).map(|i| Source::new(i, 0, stream(i), None)).collect();
        let (feeds, reader) = scale_gate(of, true);
        Self { outlets, feeds, reader, taken: Taken::new(16) }
    }

    /// Puts out rows, each with its event and rank, up to event `upto`, and a watermark.
    fn put_out(&mut self, source: usize, rows: &[(i64, Rank)], upto: i64, last: bool) {
        self.put_out_alone(source, rows, upto, last);
        // SAFETY: there is no other thread.
        unsafe { self.feeds[source].add_watermark(&self.outlets[source]) };
    }

    fn put_out_alone(&mut self, source: usize, rows: &[(i64, Rank)], upto: i64, last: bool) {
        let outlet = &self.outlets[source];
        assert!(outlet.has_room());
        let fill = |jumbo: &mut Jumbo| {
            jumbo.clear();
            for (seq, rank) in rows {
                // SAFETY: 16 bytes.
                unsafe { jumbo.buffer.push([*seq, source as i64].as_ptr().cast(), 0).unwrap() };
                jumbo.ranks.push(*rank);
            }
            jumbo.rows = Rows::of(&jumbo.buffer, Text::empty());
            jumbo.shares[0].whole = true;
            (jumbo.upto, jumbo.last) = (upto, last);
        };
        // SAFETY: there is no other thread, and room.
        unsafe {
            outlet.fill(fill);
            outlet.publish();
            self.feeds[source].add(outlet);
        }
    }

    fn say(&mut self, source: usize, seqs: &[i64], upto: i64) {
        let rows: Vec<_> = seqs.iter().map(|&seq| (seq, Rank::ONLY)).collect();
        self.put_out(source, &rows, upto, false);
    }

    /// What is ready, and up to which event that is all; None: nothing new.
    fn take(&mut self) -> Option<(Vec<Row>, i64)> {
        // SAFETY: there is no other thread; what was taken has been released.
        let new = unsafe { self.reader.take(Text::empty(), &mut self.taken) }.unwrap();
        let rows = self.taken.rows;
        // SAFETY: rows of 16 bytes, just taken.
        let row = |i: usize| unsafe { rows.row(i).cast::<Row>().read_unaligned() };
        let rows = (0..rows.n).map(row).collect();
        self.reader.release(&self.outlets);
        new.then_some((rows, self.taken.upto))
    }
}

#[test]
fn what_is_not_after_the_latest_of_all_sources_is_ready() {
    let mut world = World::new(3, |_| 0);
    assert_eq!(world.take(), None);
    world.say(0, &[0, 3, 6], 6);
    world.say(1, &[1, 4], 5);
    // The third has said nothing: nothing is ready.
    assert!(!world.reader.has_news());
    assert_eq!(world.take(), None);
    // A watermark alone: it has nothing up to event 3, and 3 is the least of 6, 5 and 3.
    world.say(2, &[], 3);
    assert!(world.reader.has_news());
    assert_eq!(world.take(), Some((vec![[0, 0], [1, 1], [3, 0]], 3)));
    assert_eq!(world.take(), None);
    // The least of 6, 5 and 9: its own row is not ready yet, the other sources may still have something before it.
    world.say(2, &[8], 9);
    assert_eq!(world.take(), Some((vec![[4, 1]], 5)));
    world.say(1, &[], 7);
    assert_eq!(world.take(), Some((vec![[6, 0]], 6)));
    world.put_out(0, &[], 9, true);
    assert_eq!(world.take(), Some((vec![], 7)));
    assert!(!world.taken.last);
    world.put_out(1, &[(9, Rank::ONLY)], 10, true);
    assert_eq!(world.take(), Some((vec![[8, 2], [9, 1]], 9)));
    world.put_out(2, &[], 10, true);
    world.put_out(0, &[], 10, true);
    assert_eq!(world.take(), Some((vec![], 10)));
    assert!(world.taken.last);
}

/// Of one event those of the first stream come first, and rows of one stream are ordered by rank, in any order of arrival.
#[test]
fn equal_events_are_ordered_by_stream_and_rank() {
    let rank = |number| Rank::ONLY.output(number).unwrap();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = World::new(3, |source| (source / 2) as u64);
        for source in order {
            let rows = [vec![(5, rank(0)), (5, rank(3))], vec![(5, rank(1))], vec![(4, rank(0)), (5, rank(0))]];
            world.put_out(source, &rows[source], 5, false);
        }
        assert_eq!(world.take(), Some((vec![[4, 2], [5, 0], [5, 1], [5, 0], [5, 2]], 5)), "{order:?}");
        let wanted = [(0, 1), (0, 0), (1, 0), (3, 0), (0, 1)].map(|(n, stream)| rank(n).through(stream).unwrap());
        assert_eq!(world.taken.ranks, wanted);
    }
}

/// A source that is ahead stops when readers have not acknowledged as many watermarks as there are slots. It goes on when the
/// slow source has caught up.
#[test]
fn watermarks_hold_up_a_source_that_is_ahead() {
    let mut world = World::new(2, |_| 0);
    for seq in 0..SLOTS as i64 {
        world.say(0, &[2 * seq], 2 * seq);
        assert_eq!(world.take(), None);
    }
    assert!(!world.outlets[0].has_room());
    world.say(1, &[1], 1);
    assert_eq!(world.take(), Some((vec![[0, 0], [1, 1]], 1)));
    // One was acknowledged.
    world.say(0, &[6], 6);
    assert!(!world.outlets[0].has_room());
}

/// The reader stands at the last watermark of an acknowledged batch, while its source goes on as far as it may.
#[test]
fn the_node_where_the_reader_stands_is_not_filled_again() {
    let mut world = World::new(2, |_| 0);
    world.say(1, &[], 0);
    world.say(0, &[], 0);
    assert_eq!(world.take(), Some((vec![], 0)));
    (1..=SLOTS as i64).for_each(|seq| world.say(0, &[seq], seq));
    world.say(1, &[], SLOTS as i64);
    assert_eq!(world.take(), Some(((1..=SLOTS as i64).map(|seq| [seq, 0]).collect(), SLOTS as i64)));
}

/// A source linked its last watermark behind the node of another source. It stands at its own node when that node gets a new
/// tuple.
#[test]
fn a_watermark_takes_its_source_away_from_what_is_before() {
    let mut world = World::new(2, |_| 0);
    world.say(1, &[], 0);
    world.say(0, &[], 0);
    assert_eq!(world.take(), Some((vec![], 0)));
    world.say(1, &[], 100);
    (1..=SLOTS as i64).for_each(|upto| world.say(0, &[], upto));
    assert_eq!(world.take(), Some((vec![], SLOTS as i64)));
    world.say(0, &[150], 200);
    world.say(1, &[101], 101);
    assert_eq!(world.take(), Some((vec![[101, 1]], 101)));
    world.say(1, &[], 200);
    assert_eq!(world.take(), Some((vec![[150, 0]], 200)));
}

/// A row is its source's latest tuple: earlier events are ready without a watermark. Only a watermark gives back slots.
#[test]
fn rows_are_ready_before_the_watermark() {
    let mut world = World::new(2, |_| 0);
    let say = |world: &mut World, source: usize, seq: i64| {
        world.put_out_alone(source, &[(seq, Rank::ONLY)], seq, false);
    };
    say(&mut world, 0, 0);
    say(&mut world, 1, 1);
    assert_eq!(world.take(), Some((vec![], -1)));
    say(&mut world, 0, 2);
    assert_eq!(world.take(), Some((vec![[0, 0]], 0)));
    say(&mut world, 1, 3);
    assert_eq!(world.take(), Some((vec![[1, 1]], 1)));
    assert_eq!(world.outlets.iter().map(|outlet| outlet.waiting(0)).collect::<Vec<_>>(), [2, 2]);
    // SAFETY: there is no other thread.
    (0..2).for_each(|source| unsafe { world.feeds[source].add_watermark(&world.outlets[source]) });
    assert_eq!(world.take(), Some((vec![[2, 0]], 2)));
    assert_eq!(world.outlets.iter().map(|outlet| outlet.waiting(0)).collect::<Vec<_>>(), [0, 2]);
    assert!(world.feeds.iter().all(|feed| feed.added == (2, 1)));
}

/// On the upper levels, source 1 may stand at nodes of source 0 until it adds a watermark behind them.
#[test]
fn nodes_wait_for_the_watermarks_of_other_sources() {
    let mut world = World::new(2, |_| 0);
    let say = |world: &mut World, from: i64| {
        let seqs: Vec<i64> = (from..from + 20).collect();
        world.say(0, &seqs, from + 19);
        world.feeds[0].nodes.chunks.len()
    };
    for from in [0, 100, 200] {
        say(&mut world, from);
        world.put_out_alone(1, &[(from + 50, Rank::ONLY)], from + 50, false);
        world.take();
    }
    assert_eq!(world.outlets[0].waiting(0), 0);
    assert_eq!(say(&mut world, 300), 3);
    // SAFETY: there is no other thread.
    unsafe { world.feeds[1].add_watermark(&world.outlets[1]) };
    world.take();
    assert_eq!(say(&mut world, 400), 3);
}

/// However long a run is, there are nodes for all tuples that are not acknowledged, and for one batch more.
#[test]
fn nodes_are_used_again() {
    let mut world = World::new(2, |_| 0);
    for batch in 0..100_i64 {
        let seqs: Vec<i64> = (0..20).map(|i| 40 * batch + 2 * i).collect();
        world.say(0, &seqs, 40 * batch + 39);
        world.say(1, &seqs.iter().map(|seq| seq + 1).collect::<Vec<_>>(), 40 * batch + 39);
        let (rows, upto) = world.take().unwrap();
        assert_eq!(rows, (0..40).map(|i| [40 * batch + i, i % 2]).collect::<Vec<_>>());
        assert_eq!(upto, 40 * batch + 39);
    }
    // Two batches of 21 nodes are not acknowledged.
    assert!(world.feeds.iter().all(|feed| feed.nodes.chunks.len() <= 3));
}

/// More than is worth a turn comes in several, each of whole events.
#[test]
fn much_is_taken_event_by_event() {
    let mut world = World::new(2, |_| 0);
    let rank = |number| Rank::ONLY.output(number).unwrap();
    let rows: Vec<_> = (0..2 * MOST as u64).map(|i| ((i / 700) as i64, rank(i % 700))).collect();
    world.put_out(0, &rows, 50, false);
    world.say(1, &[40], 50);
    let lengths = |(rows, upto): (Vec<Row>, i64)| (rows.len(), upto);
    assert_eq!(world.take().map(lengths), Some((1400, 1)));
    assert!(world.reader.has_news());
    assert_eq!(world.take().map(lengths), Some((2 * MOST - 1400 + 1, 50)));
    assert_eq!(world.take(), None);
}

#[test]
#[should_panic = "the progress of a source must ascend"]
fn a_source_that_goes_back_is_caught() {
    let mut world = World::new(2, |_| 0);
    world.say(0, &[3], 3);
    world.say(0, &[3], 3);
}

#[test]
fn half_of_the_nodes_have_a_level_more() {
    let mut handles = Handles::new(std::ptr::null(), 1);
    let mut at_least = [0; LEVELS];
    for _ in 0..10_000 {
        at_least[..handles.draw()].iter_mut().for_each(|n| *n += 1);
    }
    assert_eq!(at_least[0], 10_000);
    for level in at_least[..5].windows(2) {
        assert!((0.45..0.55).contains(&(f64::from(level[1]) / f64::from(level[0]))), "{at_least:?}");
    }
}

proptest! {
    /// In any order of puts and takes, all rows come once, in order, as soon as they are ready.
    #[test]
    fn any_sources_are_merged(
        scripts in proptest::collection::vec(proptest::collection::vec((0_i64..4, 1_i64..6), 1..20), 2..5),
        turns in proptest::collection::vec(any::<prop::sample::Index>(), 0..100),
    ) {
        let n = scripts.len();
        let mut world = World::new(n, |source| source as u64);
        let (mut at, mut upto) = (vec![0; n], vec![-1_i64; n]);
        let (mut all, mut seen) = (Vec::<Row>::new(), Vec::new());
        let mut turns = turns.into_iter();
        // At last all tasks in turn, until none can do anything.
        for i in 0.. {
            let turn = turns.next().map_or(i % (n + 1), |turn| turn.index(n + 1));
            if turn == n {
                let ready = upto.iter().min().copied().unwrap();
                if let Some((rows, known)) = world.take() {
                    prop_assert_eq!(known, ready);
                    seen.extend(rows);
                }
                prop_assert!(seen.iter().all(|[seq, _]| *seq <= ready));
                prop_assert_eq!(seen.len(), all.iter().filter(|[seq, _]| *seq <= ready).count());
            } else if at[turn] < scripts[turn].len() && world.outlets[turn].has_room() {
                let (rows, step) = scripts[turn][at[turn]];
                let seqs: Vec<i64> = (0..rows.min(step)).map(|i| upto[turn] + 1 + i).collect();
                at[turn] += 1;
                upto[turn] += step;
                if at[turn] == scripts[turn].len() {
                    upto[turn] = 1000;
                }
                world.say(turn, &seqs, upto[turn]);
                all.extend(seqs.iter().map(|&seq| [seq, turn as i64]));
            }
            if upto.iter().all(|&upto| upto == 1000) && world.taken.upto == 1000 {
                break;
            }
            prop_assert!(i < 2000, "no task can go on");
        }
        all.sort_unstable();
        prop_assert_eq!(seen, all);
    }
}
