use proptest::prelude::*;

use super::*;
use crate::output::digest::{Digest, Hasher};
use crate::output::sink::{Sink, SinkKind};
use crate::rows::view::Rows;

fn fill(jumbo: &mut Jumbo, seqs: &[i64], upto: i64, last: bool) {
    jumbo.clear();
    for seq in seqs {
        // SAFETY: 16 bytes.
        unsafe { jumbo.buffer.push([*seq, 0].as_ptr().cast(), 0).unwrap() };
    }
    jumbo.rows = Rows::of(&jumbo.buffer, Text::empty());
    jumbo.shares[0].whole = true;
    (jumbo.upto, jumbo.last) = (upto, last);
}

/// Publishes rows of these events for one reader.
fn put_out(outlet: &Outlet, seqs: &[i64], upto: i64, last: bool) {
    assert!(outlet.has_room());
    // SAFETY: there is no other thread, and room.
    unsafe {
        outlet.fill(|jumbo| fill(jumbo, seqs, upto, last));
    }
    outlet.publish();
}

#[test]
fn rows_wait_until_no_earlier_one_can_come() {
    let outlets: Vec<Outlet> = (0..3).map(|_| Outlet::new(4, 1, || Jumbo::new(16, 1, 0))).collect();
    let sources = (0..3).map(|outlet| Source::new(outlet, 0, 0, None)).collect();
    let mut gate = Gate::new(sources, true, false, false);
    let mut taken = Taken::new(16);
    let mut take = || {
        // SAFETY: there is no other thread.
        let new = unsafe { gate.take(&outlets, Text::empty(), &mut taken) }.unwrap();
        // SAFETY: they have just been taken.
        let seqs: Vec<i64> = (0..taken.rows.n).map(|i| unsafe { taken.rows.seq(i) }).collect();
        gate.release(&outlets);
        (new, seqs, taken.upto, taken.last)
    };
    assert_eq!(take(), (false, vec![], i64::MIN, false));
    put_out(&outlets[0], &[0, 3, 6], 6, false);
    put_out(&outlets[1], &[1, 4], 5, false);
    // The third has said nothing: nothing is ready.
    assert_eq!(take(), (false, vec![], i64::MIN, false));
    // A heartbeat: it has nothing up to event 3.
    put_out(&outlets[2], &[], 3, false);
    assert_eq!(take(), (true, vec![0, 1, 3], 3, false));
    put_out(&outlets[2], &[5], 5, true);
    assert_eq!(take(), (true, vec![4, 5], 5, false));
    put_out(&outlets[1], &[], 9, true);
    // The second has ended with event 9, the third with event 5: both are silent for good.
    assert_eq!(take(), (false, vec![], 5, false));
    put_out(&outlets[2], &[], 9, true);
    assert_eq!(take(), (true, vec![6], 6, false));
    put_out(&outlets[0], &[9], 9, true);
    assert_eq!(take(), (true, vec![9], 9, true));
    assert_eq!(take(), (false, vec![], 9, true));
}

/// Of one source, a gate takes a batch after the other, or all that are there.
#[test]
fn small_batches_of_one_source_may_come_together() {
    for joins in [false, true] {
        let outlets = [Outlet::new(3, 1, || Jumbo::new(16, 1, 0))];
        let mut gate = Gate::new(vec![Source::new(0, 0, 0, None)], true, false, false).that_joins(joins);
        let mut taken = Taken::new(16);
        (0..3).for_each(|seq| put_out(&outlets[0], &[seq], seq, seq == 2));
        // SAFETY: there is no other thread.
        assert!(unsafe { gate.take(&outlets, Text::empty(), &mut taken) }.unwrap());
        assert_eq!((taken.rows.n, taken.last), if joins { (3, true) } else { (1, false) });
    }
}

/// A batch worth it is handed on as it lies and its slot given back only when that is over; small ones come together.
#[test]
fn rows_are_read_where_they_were_put_out() {
    let outlets: Vec<Outlet> = (0..2).map(|_| Outlet::new(3, 1, || Jumbo::new(16, 1, 0))).collect();
    let sources = (0..2).map(|outlet| Source::new(outlet, 0, 0, None)).collect();
    let mut gate = Gate::new(sources, true, false, false);
    put_out(&outlets[1], &[], 3000, true);
    let mut taken = Taken::new(16);
    let large: Vec<i64> = (10..10 + IN_PLACE as i64).collect();
    put_out(&outlets[0], &large, 1000, false);
    put_out(&outlets[0], &[2000, 2001], 2001, false);
    put_out(&outlets[0], &[2002], 2002, true);
    for (n, places, last) in [(IN_PLACE, 0, false), (3, 3, true)] {
        assert!(!outlets[0].has_room());
        // SAFETY: there is no other thread.
        assert!(unsafe { gate.take(&outlets, Text::empty(), &mut taken) }.unwrap());
        assert_eq!((taken.rows.n, taken.places.len(), taken.last), (n, places, last));
        assert!(taken.rows.places.is_null() == (places == 0));
        assert!(!outlets[0].has_room());
        gate.release(&outlets);
        assert!(outlets[0].has_room());
        put_out(&outlets[0], &[], 3000, true);
    }
}

/// Batches summed before they part; then an event with two outputs, and what is left of such a batch has to be examined.
#[test]
fn sums_of_batches_that_part_are_those_of_their_rows() {
    let outlets: Vec<Outlet> = (0..2).map(|_| Outlet::new(4, 1, || Jumbo::new(16, 1, 0))).collect();
    let sources = (0..2).map(|outlet| Source::new(outlet, 0, 0, None)).collect();
    let mut gate = Gate::new(sources, true, false, true);
    let mut taken = Taken::new(16);
    let sink = || Sink::new(SinkKind::Parquet, Hasher::new(&[], 16).unwrap());
    let (mut parted, mut whole) = (sink(), sink());
    let put_out = |outlet: usize, seqs: &[i64], ranks: &[Rank], upto: i64| {
        // SAFETY: there is no other thread, and room.
        unsafe {
            outlets[outlet].fill(|jumbo| {
                fill(jumbo, seqs, upto, false);
                jumbo.ranks.extend_from_slice(ranks);
                if ranks.is_empty() && !seqs.is_empty() {
                    jumbo.shares[0].prepared = Some(whole.preparer().prepare_rows(jumbo.rows, None).unwrap());
                }
            });
        }
        outlets[outlet].publish();
    };
    let mut take = || {
        // SAFETY: there is no other thread.
        unsafe {
            gate.take(&outlets, Text::empty(), &mut taken).unwrap();
            taken.deliver(&mut parted).unwrap();
        }
        gate.release(&outlets);
        ((0..taken.rows.n).count(), parted.digest())
    };
    let two = [0, 1].map(|number| Rank::ONLY.output(number).unwrap());
    put_out(0, &[0, 2, 4, 7], &[], 7);
    put_out(0, &[8, 11], &[], 11);
    put_out(1, &[1, 3], &[], 3);
    let (n, digest) = take();
    // Of the first source's first batch two rows are still to come.
    assert_eq!((n, digest.rows), (4, 6));
    put_out(1, &[5], &[], 5);
    let (n, digest) = take();
    // And one still is.
    assert_eq!((n, digest.rows), (2, 7));
    put_out(1, &[6, 6], &two, 6);
    assert_eq!(take().0, 2);
    put_out(1, &[9, 10], &[], 12);
    let (n, digest) = take();
    assert_eq!(n, 5);
    let rows: Vec<[i64; 2]> = [0, 1, 2, 3, 4, 5, 6, 6, 7, 8, 9, 10, 11].map(|seq| [seq, 0]).into();
    let rows = Rows::new(rows.as_ptr().cast(), rows.len(), 16, Text::empty());
    // SAFETY: the rows are above.
    unsafe {
        let prepared = whole.preparer().prepare_rows(rows, None).unwrap();
        whole.deliver_rows(rows, &prepared).unwrap();
    }
    assert_eq!(digest, whole.digest());
    assert_eq!(parted.take(), whole.take());
    assert!(parted.in_order());
}

/// Two outputs of one event that both came as its only one: a fault of the ranking task, which must be found.
#[test]
fn an_event_that_is_not_alone_is_out_of_order() {
    let rows = [[3_i64, 0], [3, 0]];
    let rows = Rows::new(rows.as_ptr().cast(), 2, 16, Text::empty());
    let mut sink = Sink::new(SinkKind::Digest, Hasher::new(&[], 16).unwrap());
    // SAFETY: the rows are above.
    unsafe { sink.deliver_rows(rows, &Prepared::alone(rows, Digest::default())).unwrap() };
    assert!(!sink.in_order());
}

proptest! {
    #[test]
    fn lists_are_merged_as_a_stable_sort_would(
        mut lists in proptest::collection::vec(proptest::collection::vec(0_i64..40, 0..60), 2..7), bound in 0_i64..40,
    ) {
        let mut merging = Lists::default();
        let mut wanted = Vec::new();
        for (number, list) in lists.iter_mut().enumerate() {
            list.sort_unstable();
            let entry = |(i, &key): (usize, &i64)| {
                Entry { key, row: std::ptr::without_provenance(i), hash: number as u64 }
            };
            merging.add(|entries| entries.extend(list.iter().enumerate().map(entry)));
            let ready = list.iter().enumerate().filter(|(_, key)| **key <= bound);
            wanted.extend(ready.map(|(i, &key)| (key, number as u64, i)));
        }
        wanted.sort_unstable();
        prop_assert_eq!(merging.cut(bound).sum::<usize>(), wanted.len());
        let mut merged = Vec::new();
        merging.merge(|entry| merged.push((entry.key, entry.hash, entry.row.addr())));
        prop_assert_eq!(merged, wanted);
    }
}
