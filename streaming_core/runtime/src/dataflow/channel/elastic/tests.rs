use proptest::prelude::*;

use super::*;

const SLOTS: usize = 3;

/// Sources, readers, and the events and sources of the rows that each reader has got.
struct World {
    feeds: Vec<Feed>,
    readers: Vec<Reader>,
}

/// Event and source.
type Row = (i64, usize);

impl World {
    /// The first `sources` of `most` sources are members, and so are the readers.
    fn new(sources: usize, readers: usize, most: usize) -> Self {
        let members = |n: usize| (0..most).map(|number| number < n).collect::<Vec<_>>();
        let (feeds, readers) = elastic_scale_gate(&members(sources), &members(readers), SLOTS);
        Self { feeds, readers }
    }

    fn add(&mut self, source: usize, seqs: &[i64], upto: i64) {
        let row =
            |&seq: &i64| (Order { seq, ..Order::FIRST }, What::Row { place: std::ptr::null(), hash: 0, reader: 0 });
        self.feeds[source].join();
        assert!(self.feeds[source].is_present() && self.feeds[source].has_room());
        // SAFETY: it is a source with room, and there is no other thread.
        unsafe { self.feeds[source].add(&seqs.iter().map(row).collect::<Vec<_>>(), upto, 0, false) };
    }

    /// The ready rows of a reader, without acknowledgement.
    fn get(&mut self, reader: usize) -> Vec<Row> {
        let reader = &mut self.readers[reader];
        reader.join();
        let ready = reader.ready();
        let mut rows = Vec::new();
        // SAFETY: it is present, and there is no other thread.
        while let Some(tuple) = unsafe { reader.peek(ready) } {
            if let What::Row { .. } = tuple.what {
                rows.push((tuple.order.seq, tuple.source));
            }
            assert!(!matches!(tuple.what, What::Dummy | What::Flush));
            // SAFETY: as above.
            unsafe { reader.advance(&tuple) };
        }
        rows
    }

    fn take(&mut self, reader: usize) -> Vec<Row> {
        let rows = self.get(reader);
        self.readers[reader].release();
        rows
    }

    fn remove_readers(&self, by: usize, numbers: &[usize]) -> bool {
        // SAFETY: there is no other thread.
        unsafe { self.readers[by].remove_readers(numbers) }
    }

    fn remove_sources(&mut self, by: usize, numbers: &[usize]) -> bool {
        // SAFETY: as above.
        unsafe { self.feeds[by].remove_sources(numbers) }
    }
}

#[test]
fn all_readers_get_the_ready_rows_of_all_sources_in_order() {
    let mut world = World::new(2, 2, 2);
    world.add(0, &[0, 3], 4);
    assert!(world.take(0).is_empty());
    world.add(1, &[1, 2], 3);
    for reader in 0..2 {
        assert_eq!(world.take(reader), [(0, 0), (1, 1), (2, 1), (3, 0)]);
    }
}

#[test]
fn a_new_reader_starts_where_the_caller_released_last() {
    let mut world = World::new(1, 1, 3);
    world.add(0, &[0, 1], 1);
    assert_eq!(world.take(0), [(0, 0), (1, 0)]);
    world.add(0, &[2, 3], 3);
    // The caller has taken it, and uses it still.
    assert_eq!(world.get(0), [(2, 0), (3, 0)]);
    assert!(!world.readers[1].is_invited());
    assert!(world.readers[0].add_readers(&[1, 2]));
    assert!(world.readers[1].is_invited() && !world.readers[1].is_present());
    assert!(!world.readers[0].add_readers(&[1, 2]) && !world.readers[0].add_readers(&[0, 1]));
    world.readers[0].release();
    world.add(0, &[4], 4);
    assert_eq!(world.take(1), [(2, 0), (3, 0), (4, 0)]);
    assert_eq!((world.take(0), world.take(2)), (vec![(4, 0)], vec![(2, 0), (3, 0), (4, 0)]));
}

#[test]
fn sources_wait_for_the_readers_that_are_present() {
    let mut world = World::new(1, 2, 3);
    (0..SLOTS as i64).for_each(|seq| world.add(0, &[seq], seq));
    assert!(!world.feeds[0].has_room());
    world.take(0);
    assert!(!world.feeds[0].has_room());
    assert!(world.remove_readers(0, &[1, 2]) && !world.remove_readers(0, &[1]));
    assert!(world.feeds[0].has_room());
    // A new reader is waited for too, from where it starts.
    assert!(world.readers[0].add_readers(&[1]));
    (3..3 + SLOTS as i64).for_each(|seq| world.add(0, &[seq], seq));
    world.take(0);
    assert!(!world.feeds[0].has_room());
    assert_eq!(world.take(1), [(3, 0), (4, 0), (5, 0)]);
    assert!(world.feeds[0].has_room());
}

#[test]
fn a_caller_that_was_removed_changes_nothing_even_if_it_was_added_again() {
    let mut world = World::new(1, 2, 3);
    assert!(world.remove_readers(0, &[1]));
    assert!(!world.readers[1].is_present() && !world.readers[1].add_readers(&[2]));
    assert!(world.readers[0].add_readers(&[1]));
    // It does not know of its new term yet.
    assert!(!world.readers[1].add_readers(&[2]) && !world.remove_readers(1, &[0]));
    assert!(world.readers[1].join() && !world.readers[1].join());
    assert!(world.readers[1].add_readers(&[2]) && world.remove_readers(1, &[0]));
    assert!(!world.remove_readers(0, &[1]));
    assert!(world.remove_sources(0, &[0]) && !world.remove_sources(0, &[0]) && !world.feeds[0].add_sources(&[1]));
}

#[test]
fn a_new_source_starts_at_the_event_of_the_caller_and_holds_back_what_is_behind() {
    let mut world = World::new(1, 1, 2);
    world.add(0, &[0, 1], 2);
    assert!(world.feeds[0].add_sources(&[0, 1]) && !world.feeds[0].add_sources(&[1]));
    assert_eq!(world.take(0), [(0, 0), (1, 0)]);
    world.add(0, &[3, 5], 6);
    // The dummy is no row, and the new source may still have event 3.
    assert!(world.take(0).is_empty());
    world.add(1, &[3, 4], 5);
    assert_eq!(world.take(0), [(3, 0), (3, 1), (4, 1), (5, 0)]);
}

#[test]
fn what_a_removed_source_has_added_becomes_ready() {
    let mut world = World::new(2, 1, 2);
    world.add(0, &[0, 4], 4);
    world.add(1, &[1, 2], 2);
    assert_eq!(world.take(0), [(0, 0), (1, 1), (2, 1)]);
    assert!(world.remove_sources(0, &[1]) && !world.remove_sources(0, &[1]));
    assert_eq!(world.take(0), [(4, 0)]);
    // The flush was passed too.
    assert_eq!(world.feeds[1].acknowledged(), 2);
}

#[test]
fn a_source_that_was_removed_changes_nothing_even_if_it_was_added_again() {
    let mut world = World::new(2, 1, 4);
    world.add(0, &[0], 1);
    world.add(1, &[1], 1);
    assert!(world.remove_sources(0, &[1]));
    assert!(!world.feeds[1].is_present() && !world.feeds[1].add_sources(&[2]));
    world.add(0, &[2], 3);
    assert!(world.feeds[0].add_sources(&[1]));
    // It does not know of its new term yet.
    assert!(!world.feeds[1].add_sources(&[2]) && !world.remove_sources(1, &[0]));
    assert_eq!((world.feeds[1].join(), world.feeds[1].join()), (Some(3), None));
    assert!(world.feeds[1].add_sources(&[2]) && world.remove_sources(1, &[0]));
    assert_eq!(world.take(0), [(0, 0), (1, 1), (2, 0)]);
    world.add(1, &[4], 5);
    world.add(2, &[5], 5);
    assert_eq!(world.take(0), [(4, 1), (5, 2)]);
    assert_eq!(world.feeds[0].changes(), 4);
}

#[test]
fn a_source_whose_nodes_are_in_use_is_not_added() {
    let mut world = World::new(1, 1, 2);
    world.add(0, &[], 0);
    let added = (0..10).filter(|_| world.feeds[0].add_sources(&[1]) && world.remove_sources(0, &[1])).count();
    // A dummy and a flush each, and the reader has passed none.
    assert_eq!(added, (SLOTS + 4) / 2);
    world.take(0);
    assert!(!world.feeds[0].add_sources(&[1]) && !world.remove_sources(0, &[1]));
    // Behind a later event they are free.
    world.remove_sources(0, &[1]);
    world.add(0, &[], 1);
    world.take(0);
    let is_source = world.feeds[0].has(1);
    assert!(if is_source { world.remove_sources(0, &[1]) } else { world.feeds[0].add_sources(&[1]) });
}

#[test]
fn nodes_are_used_again_while_members_come_and_go() {
    let mut world = World::new(1, 1, 2);
    for batch in 0..100_i64 {
        let seqs: Vec<i64> = (0..20).map(|i| 20 * batch + i).collect();
        assert!(world.feeds[0].add_sources(&[1]) && world.readers[0].add_readers(&[1]));
        world.add(0, &seqs, 20 * batch + 19);
        world.add(1, &seqs, 20 * batch + 19);
        assert_eq!((world.take(0).len(), world.take(1).len()), (40, 40));
        assert!(world.remove_readers(1, &[0]) && world.readers[1].add_readers(&[0]) && world.remove_readers(1, &[1]));
        world.take(0);
        assert!(world.remove_sources(0, &[1]));
        world.take(0);
    }
    for feed in &world.feeds {
        // SAFETY: there is no other thread.
        let most = feed.gate.sources[feed.number].line.with(|line| unsafe { (*line).nodes.iter().map(Vec::len).max() });
        assert_eq!(most, Some(32));
    }
}

#[test]
fn one_of_many_callers_wins() {
    for _ in 0..200 {
        let mut world = World::new(1, 4, 8);
        let mut wins = |work: &(dyn Fn(&mut Reader) -> bool + Sync)| {
            std::thread::scope(|scope| {
                let callers: Vec<_> =
                    world.readers[..4].iter_mut().map(|reader| scope.spawn(move || work(reader))).collect();
                callers.into_iter().map(|caller| usize::from(caller.join().unwrap())).sum::<usize>()
            })
        };
        assert_eq!(wins(&|reader| reader.add_readers(&[4, 5])), 1);
        // SAFETY: the two are in no call.
        assert_eq!(wins(&|reader| unsafe { reader.remove_readers(&[5, 4]) }), 1);
    }
}

proptest! {
    /// Whatever comes and goes: each reader gets all rows behind its start once, in order, as soon as they are ready.
    #[test]
    fn any_members_come_and_go(steps in proptest::collection::vec((0_usize..8, 0_usize..3, 0_i64..4), 0..200)) {
        let mut world = World::new(2, 1, 3);
        let (mut clocks, mut latest) = ([Some(-1), Some(-1), None], [-1; 3]);
        let mut rows: Vec<Row> = Vec::new();
        // Per reader the ready events that it has taken, if it is one.
        let mut read = [Some(-1), None, None];
        for (step, member, number) in steps {
            let other = (member + 1) % 3;
            match step {
                0..3 => if let Some(clock) = clocks[member].filter(|_| world.feeds[member].has_room()) {
                    let seqs: Vec<i64> = (0..number).map(|i| clock + 1 + i).collect();
                    world.add(member, &seqs, clock + 1 + number);
                    rows.extend(seqs.iter().map(|&seq| (seq, member)));
                    (clocks[member], latest[member]) = (Some(clock + 1 + number), clock + 1 + number);
                },
                3 => if let Some(from) = read[member] {
                    let ready = clocks.into_iter().flatten().min().unwrap();
                    let mut wanted: Vec<Row> = rows.iter().copied().filter(|row| from < row.0 && row.0 <= ready).collect();
                    let mut taken = world.take(member);
                    prop_assert!(taken.is_sorted_by_key(|row| row.0));
                    taken.sort_unstable();
                    wanted.sort_unstable();
                    prop_assert_eq!(taken, wanted);
                    read[member] = Some(ready);
                },
                4 => {
                    let expected = read[member].is_some() && read[other].is_none();
                    prop_assert_eq!(world.readers[member].add_readers(&[other]), expected);
                    if expected {
                        read[other] = read[member];
                        world.readers[other].join();
                    }
                },
                5 => {
                    let expected = read[member].is_some() && read[other].is_some();
                    prop_assert_eq!(world.remove_readers(member, &[other]), expected);
                    if expected {
                        read[other] = None;
                    }
                },
                // Nodes may be in use.
                6 => if world.feeds[member].add_sources(&[other]) {
                    prop_assert!(clocks[member].is_some() && clocks[other].is_none());
                    latest[other] = latest[other].max(clocks[member].unwrap());
                    clocks[other] = Some(latest[other]);
                    prop_assert!(world.feeds[other].join().is_some());
                },
                _ => if world.remove_sources(member, &[other]) {
                    prop_assert!(clocks[member].is_some() && clocks[other].is_some());
                    clocks[other] = None;
                },
            }
        }
    }
}
