//! Epochs (STRETCH, section 6): from an event on, who owns which cells, while rows flow.
//!
//! An epoch begins at an event that is known before any replica comes to it. Every replica goes over to it by itself, when
//! it has taken all rows of earlier events: it *leaves* the epoch before, then goes over. Nobody waits for all: a replica that
//! gains cells waits until those who lose them have left, and for nobody else; no state moves. So every cell has one owner at
//! any time (theorem 3): its old one until that has left, its new one after it has seen that. Epochs of one event are gone
//! through one after the other, for those in between own cells too, if no rows.
//!
//! A replica that owns nothing is absent: it gets no rows, what does not concern it at all is passed over by those who put
//! rows out (`concerns`, `takes`), and of it itself it is known that it puts out nothing, without its saying so (`silent`).
//! Both follow from the epochs and from how far events have come, so that nobody has to be told. What it has missed and
//! must know is the watermark, which those who leave an epoch write down.
//!
//! Who writes what: `left` its replica; `watermark` whoever leaves, all the same; `gone_over` its replica, once; `posted` the
//! source that deals the epoch's event.
//! ORDERING: `left` is stored with Release after a replica's last touch of the cells it loses, and the watermark, and loaded with Acquire
//! before the first touch of the cells gained: what was done to a cell comes before what its next owner does.
//!
//! No circle of waiting: a replica waits only for such that have rows of earlier events than its own to take, of which one
//! has the earliest; that one waits for nobody, and has all it needs: what the one waiting has taken has been published for
//! all, and what has been put out for earlier events is taken by the sink, whom nobody holds up.

use crate::state::windows::CELLS;
use crate::threads::sync::{AtomicI64, AtomicU64, CachePadded, Ordering};

/// An epoch of one operator.
#[derive(Debug)]
pub struct Epoch {
    /// It begins with this event.
    pub event: i64,
    /// Per cell the number of the replica that owns it.
    owners: Box<[u16; CELLS]>,
    /// Those that own any.
    pub replicas: Vec<usize>,
    /// Per replica those that lose cells to it; and who loses or gains any.
    from: Box<[Vec<usize>]>,
    concerned: Vec<usize>,
    moved: usize,
    /// The watermark before its first row, once a replica with cells has left the epoch before; `i64::MIN`: there was no row.
    watermark: AtomicI64,
    /// When its event was dealt, in engine time; 0: not yet.
    posted: AtomicU64,
    /// State that was copied from replica to replica for it; added to by who loses some.
    bytes: AtomicU64,
    /// Per replica when it went over, and for how long it had waited; 0: not yet, or not at all.
    gone_over: Box<[(AtomicU64, AtomicU64)]>,
}

/// All epochs of an operator.
#[derive(Debug)]
pub struct Epochs {
    /// In the order of their events; the first one begins before all events.
    epochs: Vec<Epoch>,
    /// Per replica how many epochs it has left: it touches nothing any more that it owned in these alone.
    left: Box<[CachePadded<AtomicU64>]>,
}

impl Epoch {
    /// The epoch behind `before`, if there is one, of an operator with `of` replicas.
    fn new(event: i64, replicas: &[usize], of: usize, before: Option<&Self>) -> Self {
        let mut owners = Box::new([0; CELLS]);
        for (cell, owner) in owners.iter_mut().enumerate() {
            *owner = replicas[cell * replicas.len() / CELLS] as u16;
        }
        let moves = || {
            let pairs = before.into_iter().flat_map(|before| before.owners.iter().zip(owners.iter()));
            pairs.filter(|(old, new)| old != new).map(|(&old, &new)| (usize::from(old), usize::from(new)))
        };
        let from = |replica| (0..of).filter(|&other| moves().any(|one| one == (other, replica))).collect::<Vec<_>>();
        let concerned = (0..of).filter(|&replica| moves().any(|(old, new)| [old, new].contains(&replica))).collect();
        let (from, moved) = ((0..of).map(from).collect(), moves().count());
        let gone_over = (0..of).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
        Self {
            event,
            from,
            concerned,
            moved,
            owners,
            replicas: replicas.to_vec(),
            watermark: AtomicI64::new(i64::MIN),
            posted: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            gone_over,
        }
    }

    fn has(&self, replica: usize) -> bool {
        self.replicas.contains(&replica)
    }

    #[inline]
    pub fn owner(&self, cell: usize) -> usize {
        usize::from(self.owners[cell])
    }
}

/// What became of a reconfiguration.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reconfiguration {
    pub operator: String,
    pub event: i64,
    pub replicas: Vec<usize>,
    /// Cells that changed their owner, of all.
    pub moved: usize,
    pub cells: usize,
    /// Of state that was copied for it; state that is shared stays where it is.
    pub bytes: u64,
    /// When its event was dealt, in nanoseconds of engine time; None: it was not reached.
    pub posted: Option<u64>,
    /// Replicas that lost or gained cells.
    pub gone_over: Vec<GoneOver>,
}

/// A replica that lost or gained cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct GoneOver {
    pub replica: usize,
    /// In nanoseconds of engine time.
    pub at: u64,
    /// For those who lost cells to it, within that.
    pub waited: u64,
}

impl Epochs {
    /// Before all events `replicas` replicas share the cells, and from each event of `schedule` on those that it names.
    pub fn new(replicas: usize, schedule: &[(i64, Vec<usize>)]) -> Self {
        let all: Vec<usize> = (0..replicas).collect();
        let mut epochs = vec![Epoch::new(i64::MIN, &all, replicas, None)];
        for (event, share) in schedule {
            let next = Epoch::new(*event, share, replicas, epochs.last());
            epochs.push(next);
        }
        Self { epochs, left: (0..replicas).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    pub fn get(&self, index: usize) -> Option<&Epoch> {
        self.epochs.get(index)
    }

    /// A replica leaves all epochs before number `index`: it has taken all rows of events before that one's; the watermark
    /// then, of one that had cells.
    #[inline]
    pub fn leave(&self, replica: usize, index: usize, watermark: Option<i64>) {
        if let (Some(epoch), Some(watermark)) = (self.epochs.get(index), watermark) {
            // ORDERING: Relaxed; handed on by `left`.
            epoch.watermark.store(watermark, Ordering::Relaxed);
        }
        // ORDERING: Release; see the module.
        self.left[replica].store(index as u64, Ordering::Release);
    }

    /// The watermark before the first row of epoch `index`, for who may go over to it and gains cells.
    pub fn watermark(&self, index: usize) -> Option<i64> {
        // ORDERING: Relaxed; `may_go_over` has acquired it.
        Some(self.epochs[index].watermark.load(Ordering::Relaxed)).filter(|&watermark| watermark > i64::MIN)
    }

    /// Whether what is put out of events behind `after` up to `upto` concerns a replica: it owns cells in an epoch that has
    /// one of them, or begins behind them.
    pub fn concerns(&self, replica: usize, after: i64, upto: i64) -> bool {
        if self.epochs.len() == 1 {
            return true;
        }
        let begin = self.of(after.saturating_add(1));
        let reached = self.epochs[begin + 1..].iter().take_while(|epoch| epoch.event <= upto.saturating_add(1));
        std::iter::once(&self.epochs[begin]).chain(reached).any(|epoch| epoch.has(replica))
    }

    /// The epoch that an event belongs to.
    #[inline]
    fn of(&self, event: i64) -> usize {
        self.epochs.partition_point(|epoch| epoch.event <= event) - 1
    }

    /// Whether a replica owns cells in the epochs of the events behind `after` up to `upto`; None: in some of them.
    pub fn takes(&self, replica: usize, after: i64, upto: i64) -> Option<bool> {
        let (begin, end) = (self.of(after.saturating_add(1)), self.of(upto));
        let has = self.epochs[begin].has(replica);
        self.epochs[begin..=end.max(begin)].iter().all(|epoch| epoch.has(replica) == has).then_some(has)
    }

    /// The epoch of an event, and the first event of the next one.
    pub fn at(&self, event: i64) -> (&Epoch, i64) {
        let at = self.of(event);
        (&self.epochs[at], self.epochs.get(at + 1).map_or(i64::MAX, |next| next.event))
    }

    /// Whether a replica owns cells in the epoch of an event.
    pub fn takes_event(&self, replica: usize, event: i64) -> bool {
        self.epochs[self.of(event)].has(replica)
    }

    /// Up to which event a replica puts out nothing, when it has put out all of events up to `upto`.
    pub fn silent(&self, replica: usize, upto: i64) -> i64 {
        let at = self.of(upto.saturating_add(1));
        if self.epochs[at].has(replica) {
            return upto;
        }
        self.epochs[at + 1..].iter().find(|epoch| epoch.has(replica)).map_or(i64::MAX, |epoch| epoch.event - 1)
    }

    /// Whether a replica may go over to epoch `index`: those who lose cells to it have left the one before.
    #[inline]
    pub fn may_go_over(&self, replica: usize, index: usize) -> bool {
        self.epochs[index].from[replica].iter().all(|&other| self.has_left(other, index))
    }

    /// Whether a replica has left all epochs before number `index`.
    #[inline]
    pub fn has_left(&self, replica: usize, index: usize) -> bool {
        // ORDERING: Acquire; see the module.
        self.left[replica].load(Ordering::Acquire) >= index as u64
    }

    /// Those who own cells in epoch `index` or in the one before it, some perhaps twice.
    pub fn members(&self, index: usize) -> impl Iterator<Item = usize> {
        self.epochs[index - 1..=index].iter().flat_map(|epoch| epoch.replicas.iter().copied())
    }

    /// So many bytes of state have been copied for epoch `index`.
    pub fn copied(&self, index: usize, bytes: usize) {
        // ORDERING: Relaxed; read when nobody is at work.
        self.epochs[index].bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A replica has gone over to epoch `index`, at `now`, after it had waited since `since` if at all.
    pub fn note(&self, replica: usize, index: usize, now: u64, since: Option<u64>) {
        let (at, waited) = &self.epochs[index].gone_over[replica];
        // ORDERING: Relaxed; read when nobody is at work.
        at.store(now.max(1), Ordering::Relaxed);
        waited.store(since.map_or(0, |since| now.saturating_sub(since)), Ordering::Relaxed);
    }

    /// Events up to `event` are dealt at `now`.
    #[inline]
    pub fn post(&self, event: i64, now: u64) {
        let dealt = self.epochs.partition_point(|epoch| epoch.event <= event);
        for epoch in self.epochs[1..dealt.max(1)].iter().rev() {
            // ORDERING: Relaxed; read when nobody is at work. Of several sources any says when.
            if epoch.posted.load(Ordering::Relaxed) != 0 {
                break;
            }
            epoch.posted.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// What became of the reconfigurations; nobody is at work.
    pub fn report(&self, operator: &str) -> Vec<Reconfiguration> {
        // ORDERING: Relaxed; nobody is at work.
        let read = |number: &AtomicU64| Some(number.load(Ordering::Relaxed)).filter(|&number| number > 0);
        let report = |epoch: &Epoch| Reconfiguration {
            operator: operator.to_owned(),
            event: epoch.event,
            replicas: epoch.replicas.clone(),
            moved: epoch.moved,
            cells: CELLS,
            // ORDERING: Relaxed, as above.
            bytes: epoch.bytes.load(Ordering::Relaxed),
            posted: read(&epoch.posted),
            gone_over: (epoch.concerned.iter())
                .filter_map(|&replica| {
                    let (at, waited) = &epoch.gone_over[replica];
                    read(at).map(|at| GoneOver { replica, at, waited: read(waited).unwrap_or(0) })
                })
                .collect(),
        };
        self.epochs[1..].iter().map(report).collect()
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::threads::sync::{Arc, UnsafeCell, thread};

    /// Two replicas, cells that go to and fro: each is touched by its owner of the event, alone, and in the order of events.
    /// Without the waiting loom finds two at a cell.
    #[test]
    fn loom_a_cell_has_one_owner() {
        loom::model(|| {
            struct Shared {
                epochs: Epochs,
                cell: UnsafeCell<i64>,
            }
            // SAFETY: what is tested: the cell is its owner's.
            unsafe impl Sync for Shared {}
            let epochs = Epochs::new(2, &[(1, vec![1]), (2, vec![0]), (2, vec![1, 0])]);
            let shared = Arc::new(Shared { epochs, cell: UnsafeCell::new(0) });
            let work = |replica: usize, shared: &Shared| {
                let mut epoch = 0;
                for event in 0..3 {
                    while let Some(next) = shared.epochs.get(epoch + 1)
                        && next.event <= event
                    {
                        shared.epochs.leave(replica, epoch + 1, None);
                        while !shared.epochs.may_go_over(replica, epoch + 1) {
                            thread::yield_now();
                        }
                        epoch += 1;
                    }
                    // The last cell is replica 1's in the beginning.
                    if shared.epochs.get(epoch).unwrap().owner(CELLS - 1) == replica {
                        // SAFETY: as above; loom looks whether it is so.
                        shared.cell.with_mut(|cell| unsafe {
                            assert_eq!(*cell, event);
                            *cell += 1;
                        });
                    }
                }
            };
            let other = shared.clone();
            let thread = thread::spawn(move || work(1, &other));
            work(0, &shared);
            thread.join().unwrap();
            shared.cell.with(|cell| assert_eq!(unsafe { *cell }, 3));
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn who_gains_waits_for_who_loses_and_for_nobody_else() {
        // 0 and 1 share; then 0 has all; then 1 and 2 have all.
        let epochs = Epochs::new(3, &[(10, vec![0]), (20, vec![1, 2])]);
        epochs.leave(2, 1, None);
        assert!(!epochs.may_go_over(0, 1) && epochs.may_go_over(2, 1));
        epochs.leave(1, 1, Some(77));
        assert!(epochs.may_go_over(0, 1) && epochs.may_go_over(1, 1));
        assert_eq!((epochs.watermark(1), epochs.watermark(2)), (Some(77), None));
        epochs.leave(0, 1, Some(77));
        assert!(!epochs.may_go_over(1, 2) && !epochs.may_go_over(2, 2) && epochs.may_go_over(0, 2));
        epochs.leave(0, 2, None);
        assert!(epochs.may_go_over(1, 2) && epochs.may_go_over(2, 2));
        // Who has cells is concerned, and who gets some with the next event.
        assert!(epochs.concerns(1, i64::MIN, 3) && epochs.concerns(1, 3, 9) && !epochs.concerns(1, 9, 18));
        assert!(epochs.concerns(1, 9, 19) && epochs.concerns(0, 9, 19) && !epochs.concerns(0, 19, i64::MAX));
        assert_eq!(
            [epochs.takes(1, 3, 9), epochs.takes(1, 3, 10), epochs.takes(1, 10, 19)],
            [Some(true), None, Some(false)]
        );
        assert!(epochs.takes_event(1, 9) && !epochs.takes_event(1, 10) && epochs.takes_event(1, 20));
        // Of who has none nothing comes until he gets some.
        assert_eq!([8, 9, 15, 19, 30].map(|upto| epochs.silent(1, upto)), [8, 19, 19, 19, 30]);
        assert_eq!([18, 19].map(|upto| epochs.silent(0, upto)), [18, i64::MAX]);
        epochs.post(12, 500);
        epochs.note(0, 1, 700, Some(600));
        let [first, second] = &epochs.report("count")[..] else { panic!("two") };
        assert_eq!((first.event, first.posted, &first.replicas), (10, Some(500), &vec![0]));
        assert_eq!(first.gone_over, [GoneOver { replica: 0, at: 700, waited: 100 }]);
        assert_eq!((second.posted, second.moved), (None, CELLS));
    }
}
