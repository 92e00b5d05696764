//! Members that come and go under loom: every order in which threads may see what the others do.

use super::*;
use crate::threads::sync::thread;
use crate::threads::testing::interleave;

fn row(seq: i64) -> (Order, What) {
    (Order { seq, ..Order::FIRST }, What::Row { place: std::ptr::null(), hash: 0, reader: 0 })
}

/// Adds rows of these events, up to `upto`, if there is room.
fn add(feed: &mut Feed, seqs: &[i64], upto: i64) -> bool {
    let has_room = feed.has_room();
    if has_room {
        let rows: Vec<_> = seqs.iter().map(|&seq| row(seq)).collect();
        // SAFETY: it is a source with room; one thread after the other is this source.
        unsafe { feed.add(&rows, upto, 0, false) };
    }
    has_room
}

/// The events of the ready rows, acknowledged. None: it is no reader.
fn take(reader: &mut Reader) -> Option<Vec<i64>> {
    if !reader.is_present() && !reader.join() {
        return None;
    }
    let ready = reader.ready();
    let mut seqs = Vec::new();
    // SAFETY: it is present; one thread after the other is this reader.
    while let Some(tuple) = unsafe { reader.peek(ready) } {
        if let What::Row { .. } = tuple.what {
            seqs.push(tuple.order.seq);
        }
        // SAFETY: as above.
        unsafe { reader.advance(&tuple) };
    }
    assert!(seqs.iter().all(|&seq| seq <= ready) && seqs.is_sorted());
    reader.release();
    Some(seqs)
}

/// A reader joins while a source inserts and fills nodes again. The source waits for it too, although it looks at the new
/// reader before it looks at the caller. The new reader gets all that the caller gets afterwards.
#[test]
fn loom_a_reader_joins_during_inserts() {
    interleave(2, || {
        let (mut feeds, mut readers) = elastic_scale_gate(&[true], &[false, true], 1);
        let mut feed = feeds.remove(0);
        let source = thread::spawn(move || {
            let mut next = 0;
            for _ in 0..3 {
                next += i64::from(add(&mut feed, &[next], next));
            }
            (feed, next)
        });
        let (mut caller, mut new) = (readers.remove(1), readers.remove(0));
        let mut seen = take(&mut caller).unwrap();
        assert!(caller.add_readers(&[0]));
        let start = seen.len() as i64;
        seen.extend(take(&mut caller).unwrap());
        let (mut feed, mut next) = source.join().unwrap();
        assert!(next <= start + 1, "{next} batches, but the new reader is at {start}");
        let mut others = take(&mut new).unwrap();
        while next < 5 {
            seen.extend(take(&mut caller).unwrap());
            others.extend(take(&mut new).unwrap());
            next += i64::from(add(&mut feed, &[next], next));
        }
        seen.extend(take(&mut caller).unwrap());
        others.extend(take(&mut new).unwrap());
        assert_eq!(seen, (0..next).collect::<Vec<_>>());
        assert_eq!(others, (start..next).collect::<Vec<_>>());
    });
}

/// A reader removes itself while another one reads. From then on the source waits for that one alone, and fills nodes again.
#[test]
fn loom_a_reader_leaves_while_another_one_reads() {
    interleave(2, || {
        let (mut feeds, mut readers) = elastic_scale_gate(&[true], &[true, true], 1);
        let mut feed = feeds.remove(0);
        let (mut second, mut first) = (readers.remove(1), readers.remove(0));
        assert!(add(&mut feed, &[0], 0));
        let leaves = thread::spawn(move || {
            let seen = take(&mut second).unwrap();
            // SAFETY: it is this reader, in no other call.
            assert!(unsafe { second.remove_readers(&[1]) });
            assert!(seen.is_sorted() && take(&mut second).is_none());
        });
        let source = thread::spawn(move || {
            let mut next = 1;
            for _ in 0..3 {
                next += i64::from(add(&mut feed, &[next], next));
            }
            (feed, next)
        });
        let mut seen = take(&mut first).unwrap();
        seen.extend(take(&mut first).unwrap());
        leaves.join().unwrap();
        let (mut feed, mut next) = source.join().unwrap();
        while next < 4 {
            seen.extend(take(&mut first).unwrap());
            assert!(add(&mut feed, &[next], next));
            next += 1;
        }
        seen.extend(take(&mut first).unwrap());
        assert_eq!(seen, (0..next).collect::<Vec<_>>());
    });
}

/// A source adds another one, and goes on. No reader goes past what the new source may still add, although it looks at the
/// new source before it looks at the caller.
#[test]
#[ignore = "ten seconds"]
fn loom_a_new_source_holds_back_what_is_behind() {
    interleave(1, || {
        let (mut feeds, mut readers) = elastic_scale_gate(&[false, true], &[true], 2);
        let (mut caller, mut new) = (feeds.remove(1), feeds.remove(0));
        let mut reader = readers.remove(0);
        let adds = thread::spawn(move || {
            assert!(add(&mut caller, &[0], 0));
            assert!(caller.add_sources(&[0]));
            let other = thread::spawn(move || {
                assert!(new.join() == Some(0) && add(&mut new, &[1], 2));
                new
            });
            assert!(add(&mut caller, &[2], 2));
            (caller, other.join().unwrap())
        });
        let mut seen = take(&mut reader).unwrap();
        seen.extend(take(&mut reader).unwrap());
        let _ends = adds.join().unwrap();
        seen.extend(take(&mut reader).unwrap());
        assert_eq!(seen, [0, 1, 2]);
    });
}

/// A source removes another one. Its rows are ready then, none is lost, and its flush is no row.
#[test]
fn loom_what_a_removed_source_has_added_becomes_ready() {
    interleave(2, || {
        let (mut feeds, mut readers) = elastic_scale_gate(&[true, true], &[true], 2);
        let (mut second, mut first) = (feeds.remove(1), feeds.remove(0));
        let mut reader = readers.remove(0);
        assert!(add(&mut second, &[0, 1], 1));
        let removes = thread::spawn(move || {
            assert!(add(&mut first, &[2], 2));
            // SAFETY: the other source is in no call, and this thread was spawned after its calls.
            assert!(unsafe { first.remove_sources(&[1]) });
            assert!(add(&mut first, &[3], 3));
            first
        });
        let mut seen = take(&mut reader).unwrap();
        seen.extend(take(&mut reader).unwrap());
        let _first = removes.join().unwrap();
        assert!(!second.is_present());
        seen.extend(take(&mut reader).unwrap());
        assert_eq!(seen, [0, 1, 2, 3]);
    });
}

/// At a barrier two sources hand over to a third one: each of them calls both operations. One call of each wins, and a call
/// that comes late changes nothing. All rows come in order, whatever the reader sees meanwhile.
#[test]
fn loom_sources_hand_over() {
    interleave(2, || {
        let (mut feeds, mut readers) = elastic_scale_gate(&[true, true, false], &[true], 2);
        let (mut third, mut second, mut first) = (feeds.remove(2), feeds.remove(1), feeds.remove(0));
        let mut reader = readers.remove(0);
        assert!(add(&mut first, &[0], 1) && add(&mut second, &[1], 1));
        let hand_over = |feed: &Feed| {
            let has_added = feed.add_sources(&[2]);
            // SAFETY: this source calls nothing else, and the first one is at the barrier, where it only calls this.
            let has_removed = feed.has(2) && unsafe { feed.remove_sources(&[0]) };
            (has_added, has_removed)
        };
        let caller = thread::spawn(move || {
            let won = hand_over(&first);
            (first, won)
        });
        let mut seen = take(&mut reader).unwrap();
        let won = hand_over(&second);
        let (first, also) = caller.join().unwrap();
        // A call may fail because the other one is at it. Then no caller has come since.
        let again = hand_over(&second);
        assert_eq!([won.0, also.0, again.0].iter().filter(|&&won| won).count(), 1);
        assert_eq!([won.1, also.1, again.1].iter().filter(|&&won| won).count(), 1);
        assert!(!first.is_present() && !first.add_sources(&[0]) && first.changes() == 2);
        assert_eq!(third.join(), Some(1));
        assert!(add(&mut third, &[2], 3) && add(&mut second, &[3], 3));
        seen.extend(take(&mut reader).unwrap());
        assert_eq!(seen, [0, 1, 2, 3]);
    });
}

/// Two readers add the same one, and a reader that was removed meanwhile comes late. One caller wins.
#[test]
fn loom_one_caller_wins() {
    interleave(3, || {
        let (_feeds, mut readers) = elastic_scale_gate(&[true], &[true, true, false], 1);
        let (mut third, second, first) = (readers.remove(2), readers.remove(1), readers.remove(0));
        let other = thread::spawn(move || second.add_readers(&[2]));
        let has_added = first.add_readers(&[2]);
        let other = other.join().unwrap();
        assert!(has_added != other, "{has_added} {other}");
        assert!(third.join() && !first.add_readers(&[2]));
    });
}
