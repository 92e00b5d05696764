//! Epochs (STRETCH, section 6): which replica owns which cells, from which event on, while rows flow.
//!
//! An epoch begins at an event that is not dealt yet when the epoch is appended (`control.rs`). So every replica that comes
//! to that event knows the epoch. A replica switches over alone, after it has taken all rows of earlier events: it *leaves*
//! the epoch before, then goes over. A replica that gains cells waits only until their former owners have left; no state
//! moves. So a cell has one owner at any time (theorem 3): the old one until it has left, and then the new one. A replica goes through several epochs of one event one after the other, because replicas in between own cells too.
//!
//! A replica without cells is absent. It gets no rows. Producers pass over batches that do not concern it (`concerns`,
//! `takes`). Readers know that it puts out nothing (`silent`), although it does not say so. They know this only up to the
//! last dealt event, because a later event may start an epoch that is not known yet. An absent replica misses the watermark, so replicas that leave an epoch write it
//! down.
//!
//! Between two blocks, `forget` drops the epochs that all replicas have left.
//!
//! Writers: the holder of the control's lock writes `known` and `dealt`. A replica writes its own `left`, and its own
//! `gone_over` once. Replicas that leave an epoch write watermarks that leave the same windows open. Those of the baseline may have seen
//! other rows, but they all have seen the rows that decide about windows.
//! ORDERING: an epoch is appended, and `dealt` stored with Release, before its event is put out. A thread that takes a row or
//! a heartbeat of that event, passed on with Release and Acquire, therefore sees the epoch. A thread that reads `dealt` with
//! Acquire sees all epochs that begin up to there. A replica stores `left` with Release after it last touches the cells that
//! it loses, and after the watermark. The next owner loads `left` with Acquire before it touches these cells. So all work on
//! a cell comes before the work of its next owner.
//!
//! A failed replica touches no cell any more, and no replica waits for it. A replica that would gain one of its cells stops
//! at the first event of the epoch. The failure is earlier, and is what the run reports.
//!
//! No deadlock: a replica waits only for replicas that still have rows of earlier events to take. One of these has the
//! earliest event. It waits for no replica, and has everything that it needs. The rows that the waiting replica took are
//! published to all, and nothing blocks the sink, which takes all outputs of earlier events.

use std::ops::Index;

use crate::dataflow::windowed::owners::Owners;
use crate::dataflow::windowed::watermark::{NONE, Watermark};
use crate::state::windows::CELLS;
use crate::threads::sync::{AtomicI64, AtomicU64, CachePadded, Ordering, UnsafeCell};

/// A flag in the number of epochs that a replica has left: the replica has failed.
const FAILED: u64 = 1 << 63;

/// An epoch of one operator.
#[derive(Debug)]
pub struct Epoch {
    /// The event that it begins with.
    pub event: i64,
    pub owners: Owners,
    /// Per replica, the replicas that lose cells to it; and all replicas that lose or gain cells.
    from: Box<[Vec<usize>]>,
    concerned: Vec<usize>,
    moved: usize,
    request: Request,
    /// The words of the watermark before its first row, set when a replica with cells leaves the epoch before.
    watermark: Box<[AtomicI64]>,
    /// Bytes of state that were copied between replicas for it; replicas that lose state add to it.
    bytes: AtomicU64,
    /// Per replica, the time when it went over, and how long it had waited; 0: not yet, or not at all.
    gone_over: Box<[(AtomicU64, AtomicU64)]>,
}

/// The requester of an epoch, and the times of the request.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Request {
    /// `schedule`, `request`, or the controller's name.
    pub by: &'static str,
    /// The reason of a controller.
    pub cause: Option<String>,
    /// In nanoseconds of engine time.
    #[serde(rename = "asked")]
    pub asked_at: Option<u64>,
    /// When its event was dealt, in nanoseconds of engine time; None: it was not reached.
    pub posted: Option<u64>,
}

/// Epochs in the order of their events, numbered from the first of the run.
#[derive(Debug, Default)]
struct Known {
    /// The number of the first epoch in `list`; those before it are forgotten.
    first: usize,
    list: boxcar::Vec<Epoch>,
    /// The results of forgotten epochs, up to `REPORTED`.
    reported: Vec<Reconfiguration>,
}

impl Known {
    /// The number of epochs, with the forgotten ones.
    fn count(&self) -> usize {
        self.first + self.list.count()
    }

    fn get(&self, index: usize) -> Option<&Epoch> {
        self.list.get(index.checked_sub(self.first)?)
    }
}

impl Index<usize> for Known {
    type Output = Epoch;

    #[inline]
    fn index(&self, index: usize) -> &Epoch {
        &self.list[index - self.first]
    }
}

/// The number of reconfigurations, and of loads, that the report lists per operator: the first ones.
pub const REPORTED: usize = if cfg!(test) { 8 } else { 20_000 };

/// All epochs of an operator.
#[derive(Debug)]
pub struct Epochs {
    known: UnsafeCell<Known>,
    /// Events up to this one are dealt, or are about to be. No later epoch begins with one of them.
    dealt: AtomicI64,
    /// Per replica, the number of epochs that it has left: it no longer touches what it owned only in these. With `FAILED`,
    /// it leaves no more epochs, and touches nothing.
    left: Box<[CachePadded<AtomicU64>]>,
    streams: usize,
}

impl Epoch {
    /// The epoch after `before` (or the first one), of an operator with `of` replicas and `streams` streams.
    fn new(event: i64, owners: Owners, (of, streams): (usize, usize), before: Option<&Self>, request: Request) -> Self {
        let mut from = vec![Vec::new(); of];
        let (mut concerned, mut moved) = (Vec::new(), 0);
        for cell in 0..CELLS {
            let new = owners.of(cell);
            let Some(old) = before.map(|before| before.owner(cell)).filter(|&old| old != new) else { continue };
            moved += 1;
            let note = |list: &mut Vec<usize>, replica| {
                if !list.contains(&replica) {
                    list.push(replica);
                }
            };
            note(&mut from[new], old);
            note(&mut concerned, old);
            note(&mut concerned, new);
        }
        concerned.sort_unstable();
        Self {
            event,
            owners,
            from: from.into(),
            concerned,
            moved,
            request,
            watermark: (0..Watermark::words_of(streams)).map(|_| AtomicI64::new(NONE)).collect(),
            bytes: AtomicU64::new(0),
            gone_over: (0..of).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect(),
        }
    }

    fn has(&self, replica: usize) -> bool {
        self.owners.has(replica)
    }

    /// The result of the epoch, without the name of the operator; no replica is at work.
    fn report(&self) -> Reconfiguration {
        // ORDERING: Relaxed; no replica is at work.
        let read = |number: &AtomicU64| Some(number.load(Ordering::Relaxed)).filter(|&number| number > 0);
        let gone_over = self.concerned.iter().filter_map(|&replica| {
            let (at, waited) = &self.gone_over[replica];
            read(at).map(|at| GoneOver { replica, at, waited: read(waited).unwrap_or(0) })
        });
        Reconfiguration {
            operator: String::new(),
            event: self.event,
            owners: self.owners.pattern().to_vec(),
            request: self.request.clone(),
            moved: self.moved,
            cells: CELLS,
            // ORDERING: Relaxed, as above.
            bytes: self.bytes.load(Ordering::Relaxed),
            gone_over: gone_over.collect(),
        }
    }

    #[inline]
    pub fn owner(&self, cell: usize) -> usize {
        self.owners.of(cell)
    }
}

/// The result of a reconfiguration.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Reconfiguration {
    pub operator: String,
    pub event: i64,
    /// Their pattern (`owners.rs`).
    pub owners: Vec<usize>,
    #[serde(flatten)]
    pub request: Request,
    /// The number of cells that changed their owner, and of all cells.
    pub moved: usize,
    pub cells: usize,
    /// Bytes of state that were copied; shared state stays where it is.
    pub bytes: u64,
    /// Replicas that lost or gained cells.
    pub gone_over: Vec<GoneOver>,
}

/// A replica that lost or gained cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct GoneOver {
    pub replica: usize,
    /// In nanoseconds of engine time.
    pub at: u64,
    /// How long it waited for the former owners of its cells.
    pub waited: u64,
}

// SAFETY: all methods but `forget` only append to `known`, and the caller of `forget` rules out other threads.
unsafe impl Sync for Epochs {}

impl Epochs {
    fn known(&self) -> &Known {
        // SAFETY: as above.
        self.known.with(|known| unsafe { &*known })
    }

    /// Forgets the epochs that all replicas have left, except their results. So there are never more epochs than a block has
    /// batches.
    ///
    /// # Safety
    /// No other thread is at the epochs, none has a reference to one, and all events of earlier epochs have been delivered.
    pub unsafe fn forget(&self) {
        // ORDERING: Relaxed; no replica is at work, and what the last block wrote is visible.
        let left = self.left.iter().map(|left| left.load(Ordering::Relaxed) & !FAILED).min().unwrap_or(0) as usize;
        self.known.with_mut(|known| {
            // SAFETY: as the caller says.
            let known = unsafe { &mut *known };
            if left <= known.first {
                return;
            }
            for epoch in std::mem::take(&mut known.list) {
                if known.first == left {
                    known.list.push(epoch);
                    continue;
                }
                // The first one of all is no reconfiguration.
                if known.first > 0 && known.reported.len() < REPORTED {
                    known.reported.push(epoch.report());
                }
                known.first += 1;
            }
        });
    }

    /// Of an operator that takes `streams` streams. In the first epoch, all `replicas` replicas share the cells.
    pub fn new(replicas: usize, streams: usize) -> Self {
        let all: Vec<usize> = (0..replicas).collect();
        Self {
            known: UnsafeCell::new(Known {
                list: [Epoch::new(i64::MIN, Owners::new(&all), (replicas, streams), None, Request::default())]
                    .into_iter()
                    .collect(),
                ..Known::default()
            }),
            dealt: AtomicI64::new(i64::MIN),
            left: (0..replicas).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            streams,
        }
    }

    /// The number of replicas, with or without cells.
    pub fn replicas(&self) -> usize {
        self.left.len()
    }

    /// Appends an epoch: from `event` on, which is not dealt yet, the cells have these owners. One thread at a time.
    pub fn append(&self, event: i64, owners: Owners, request: Request) {
        debug_assert!(event > self.dealt() && event >= self.last().event);
        let of = (self.left.len(), self.streams);
        self.known().list.push(Epoch::new(event, owners, of, Some(self.last()), request));
    }

    /// Announces that events up to `upto` are being dealt. One thread at a time.
    pub fn deal(&self, upto: i64) {
        // ORDERING: Release; see the module.
        self.dealt.store(upto, Ordering::Release);
    }

    /// The last event that is dealt, or about to be.
    pub fn dealt(&self) -> i64 {
        // ORDERING: Acquire; see the module.
        self.dealt.load(Ordering::Acquire)
    }

    /// The last known epoch.
    pub fn last(&self) -> &Epoch {
        &self.known()[self.known().count() - 1]
    }

    /// Whether all replicas that the last epoch concerns have gone over to it. No epoch may be appended meanwhile.
    pub fn is_settled(&self) -> bool {
        let last = self.last();
        // ORDERING: Relaxed; it only decides when the next request is made.
        last.concerned.iter().all(|&replica| last.gone_over[replica].0.load(Ordering::Relaxed) > 0)
    }

    pub fn get(&self, index: usize) -> Option<&Epoch> {
        self.known().get(index)
    }

    /// The number of the first epoch that is not forgotten.
    pub fn first(&self) -> usize {
        self.known().first
    }

    /// A replica leaves all epochs before number `index`, because it has taken all rows of earlier events. `watermark`: that
    /// of a replica with cells.
    #[inline]
    pub fn leave(&self, replica: usize, index: usize, watermark: Option<&Watermark>) {
        if let (Some(epoch), Some(watermark)) = (self.known().get(index), watermark) {
            // ORDERING: Relaxed; `left` publishes it.
            epoch
                .watermark
                .iter()
                .zip(watermark.words())
                .for_each(|(word, known)| word.store(known, Ordering::Relaxed));
        }
        // ORDERING: Release; see the module.
        self.left[replica].store(index as u64, Ordering::Release);
    }

    /// A replica has failed: no replica waits for it any more, and none takes up what it has not left.
    pub fn fail(&self, replica: usize) {
        let left = &self.left[replica];
        // ORDERING: Relaxed, as the replica alone writes this; Release for its last touch of cells, see the module.
        left.store(left.load(Ordering::Relaxed) | FAILED, Ordering::Release);
    }

    /// Whether a replica would gain cells with epoch `index` from a replica that failed before it left the epoch before. Every
    /// event of epoch `index` comes after the failure.
    pub fn gains_from_failed(&self, replica: usize, index: usize) -> bool {
        self.known()[index].from[replica].iter().any(|&other| self.has_failed(other, index))
    }

    /// Whether a replica has failed before it left the epoch before number `index`.
    pub fn has_failed(&self, replica: usize, index: usize) -> bool {
        // ORDERING: Relaxed; `has_left` has acquired it, and what it saw then stays so.
        let left = self.left[replica].load(Ordering::Relaxed);
        left & FAILED != 0 && left & !FAILED < index as u64
    }

    /// The number of the last epoch, when no epoch is appended.
    pub fn latest(&self) -> usize {
        self.known().count() - 1
    }

    /// Raises the watermark of a replica, which may go over to epoch `index` and gains cells, to that before its first row.
    pub fn raise(&self, index: usize, watermark: &mut Watermark) {
        for (word, known) in watermark.words_mut().zip(&self.known()[index].watermark) {
            // ORDERING: Relaxed; `may_go_over` has acquired it.
            *word = known.load(Ordering::Relaxed).max(*word);
        }
    }

    /// The epoch of an event. Events of forgotten epochs give the first epoch that is left.
    #[inline]
    fn of(&self, event: i64) -> usize {
        let first = self.known().first;
        let (mut from, mut to) = (first, self.known().count());
        while from < to {
            let middle = from.midpoint(to);
            match self.known()[middle].event <= event {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from.saturating_sub(1).max(first)
    }

    /// The epochs from number `index` on.
    fn since(&self, index: usize) -> impl Iterator<Item = &Epoch> {
        let known = self.known();
        (index..known.count()).map(|index| &known[index])
    }

    /// Whether the outputs of events after `after` up to `upto` concern a replica. They do if it owns cells in an epoch of
    /// these events, in a known epoch right after them, or in that of `after`. In the last case, it may not
    /// know yet that it loses its cells with the next event. Other replicas wait until it leaves.
    pub fn concerns(&self, replica: usize, after: i64, upto: i64) -> bool {
        let begin = self.of(after);
        let reached = self.since(begin + 1).take_while(|epoch| epoch.event <= upto.saturating_add(1));
        std::iter::once(&self.known()[begin]).chain(reached).any(|epoch| epoch.has(replica))
    }

    /// Whether a replica owns cells in the epochs of the events behind `after` up to `upto`; None: in some of them.
    pub fn takes(&self, replica: usize, after: i64, upto: i64) -> Option<bool> {
        let (begin, end) = (self.of(after.saturating_add(1)), self.of(upto));
        let has = self.known()[begin].has(replica);
        (begin..=end.max(begin)).all(|index| self.known()[index].has(replica) == has).then_some(has)
    }

    /// The epoch of an event, and the first event of the next one.
    pub fn at(&self, event: i64) -> (&Epoch, i64) {
        let at = self.of(event);
        (&self.known()[at], self.known().get(at + 1).map_or(i64::MAX, |next| next.event))
    }

    /// Whether a replica owns cells in the epoch of an event.
    pub fn takes_event(&self, replica: usize, event: i64) -> bool {
        self.known()[self.of(event)].has(replica)
    }

    /// The replica whose turn it is, among those that own cells at `event`.
    pub fn in_turn(&self, event: i64, turn: u64) -> usize {
        let present = self.known()[self.of(event)].owners.replicas();
        present[turn as usize % present.len()]
    }

    /// The last event up to which a replica certainly emits nothing, after it has emitted all outputs up to `upto`.
    pub fn silent(&self, replica: usize, upto: i64) -> i64 {
        let dealt = self.dealt();
        let at = self.of(upto.saturating_add(1));
        if self.known()[at].has(replica) {
            return upto;
        }
        let next = self.since(at + 1).find(|epoch| epoch.has(replica)).map_or(i64::MAX, |epoch| epoch.event - 1);
        next.min(dealt).max(upto)
    }

    /// Whether a replica may go over to epoch `index`: the former owners of its cells have left the epoch before.
    #[inline]
    pub fn may_go_over(&self, replica: usize, index: usize) -> bool {
        self.known()[index].from[replica].iter().all(|&other| self.has_left(other, index))
    }

    /// Whether a replica has left all epochs before number `index`, or has failed.
    #[inline]
    pub fn has_left(&self, replica: usize, index: usize) -> bool {
        // ORDERING: Acquire; see the module.
        self.left[replica].load(Ordering::Acquire) >= index as u64
    }

    /// The replicas that own cells in epoch `index` or in the one before; some may occur twice.
    pub fn members(&self, index: usize) -> impl Iterator<Item = usize> {
        [index - 1, index].into_iter().flat_map(|index| self.known()[index].owners.replicas().iter().copied())
    }

    /// Adds bytes of state that were copied for epoch `index`.
    pub fn copied(&self, index: usize, bytes: usize) {
        // ORDERING: Relaxed; read when no replica is at work.
        self.known()[index].bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that a replica has gone over to epoch `index` at `now`, and that it waited since `since`, if it did.
    pub fn note(&self, replica: usize, index: usize, now: u64, since: Option<u64>) {
        let (at, waited) = &self.known()[index].gone_over[replica];
        // ORDERING: Relaxed; read when no replica is at work.
        at.store(now.max(1), Ordering::Relaxed);
        waited.store(since.map_or(0, |since| now.saturating_sub(since)), Ordering::Relaxed);
    }

    /// The results of the first reconfigurations; no replica is at work.
    pub fn report(&self, operator: &str) -> Vec<Reconfiguration> {
        let known = self.known();
        let kept = self.since(known.first.max(1)).map(Epoch::report);
        let mut all: Vec<Reconfiguration> = known.reported.iter().cloned().chain(kept).take(REPORTED).collect();
        all.iter_mut().for_each(|change| operator.clone_into(&mut change.operator));
        all
    }

    /// The number of reconfigurations that the report omits.
    pub fn omitted(&self) -> usize {
        (self.known().count() - 1).saturating_sub(REPORTED)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;

    /// Cells move back and forth between two replicas: only a cell's owner at an event touches it, in the order of events.
    /// Epochs are appended while they are at work, each before its event is dealt. Without the waiting loom finds two at a
    /// cell.
    #[test]
    fn loom_a_cell_has_one_owner() {
        interleave(3, || {
            struct Shared {
                epochs: Epochs,
                cell: UnsafeCell<i64>,
            }
            // SAFETY: what is tested: the cell is its owner's.
            unsafe impl Sync for Shared {}
            let shared = Arc::new(Shared { epochs: Epochs::new(2, 1), cell: UnsafeCell::new(0) });
            let work = |replica: usize, shared: &Shared| {
                let mut epoch = 0;
                for event in 0..3 {
                    while shared.epochs.dealt() < event {
                        thread::yield_now();
                    }
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
            for (event, shares) in [(0, &[][..]), (1, &[&[1][..]]), (2, &[&[0][..], &[1, 0]])] {
                for share in shares {
                    shared.epochs.append(event, Owners::new(share), Request::default());
                }
                shared.epochs.deal(event);
            }
            work(0, &shared);
            thread.join().unwrap();
            // SAFETY: the other thread has ended.
            shared.cell.with(|cell| assert_eq!(unsafe { *cell }, 3));
        });
    }

    /// Replica 1 fails before it leaves a cell, or after. Replica 0 touches the cell only if replica 1 has left it.
    #[test]
    fn loom_a_cell_of_a_failed_replica_stays_as_it_is() {
        for fails_at in [1, 2] {
            interleave(3, move || {
                struct Shared {
                    epochs: Epochs,
                    cell: UnsafeCell<i64>,
                }
                // SAFETY: what is tested: the cell is its owner's.
                unsafe impl Sync for Shared {}
                let shared = Arc::new(Shared { epochs: Epochs::new(2, 1), cell: UnsafeCell::new(0) });
                shared.epochs.append(2, Owners::new(&[0]), Request::default());
                let other = shared.clone();
                let thread = thread::spawn(move || {
                    for event in 0..3 {
                        if event == 2 {
                            other.epochs.leave(1, 1, None);
                        }
                        if event == fails_at {
                            return other.epochs.fail(1);
                        }
                        // SAFETY: as above; loom looks whether it is so.
                        other.cell.with_mut(|cell| unsafe { *cell += 1 });
                    }
                });
                shared.epochs.leave(0, 1, None);
                while !shared.epochs.may_go_over(0, 1) {
                    thread::yield_now();
                }
                assert_eq!(shared.epochs.gains_from_failed(0, 1), fails_at == 1);
                if fails_at == 2 {
                    // SAFETY: as above.
                    shared.cell.with_mut(|cell| assert_eq!(unsafe { *cell }, 2));
                }
                thread.join().unwrap();
            });
        }
    }

    /// Between two blocks epochs are forgotten while another thread may ask for a reconfiguration, or whether it is settled: as
    /// `Control` does, under its lock.
    #[test]
    fn loom_epochs_are_forgotten_between_blocks() {
        use crate::threads::sync::{Mutex, lock};
        interleave(3, || {
            let shared = Arc::new((Epochs::new(2, 1), Mutex::new(())));
            let other = shared.clone();
            let asking = thread::spawn(move || {
                let _held = lock(&other.1);
                other.0.is_settled()
            });
            for event in 1..3 {
                let work = shared.clone();
                {
                    let _held = lock(&shared.1);
                    // SAFETY: what is tested: threads of blocks have been joined, others hold the lock.
                    unsafe { shared.0.forget() };
                }
                {
                    let _held = lock(&shared.1);
                    shared.0.append(event, Owners::new(&[event as usize % 2]), Request::default());
                    shared.0.deal(event);
                }
                let replica = thread::spawn(move || {
                    let (epochs, index) = (&work.0, event as usize);
                    assert_eq!(epochs.get(index).unwrap().event, event);
                    epochs.leave(1, index, None);
                });
                shared.0.leave(0, event as usize, None);
                assert!(shared.0.takes_event(event as usize % 2, event));
                replica.join().unwrap();
            }
            asking.join().unwrap();
        });
    }

    /// A reader never takes a replica for silent that an epoch, unknown at that time, makes speak.
    #[test]
    fn loom_a_silent_replica_emits_nothing() {
        interleave(3, || {
            let epochs = Arc::new(Epochs::new(2, 1));
            epochs.append(1, Owners::new(&[0]), Request::default());
            epochs.deal(1);
            let shared = epochs.clone();
            let reader = thread::spawn(move || [1, 2].map(|_| shared.silent(1, 0)));
            epochs.deal(2);
            epochs.append(3, Owners::new(&[1]), Request::default());
            epochs.deal(4);
            for silent in reader.join().unwrap() {
                assert!((1..=2).contains(&silent) && (1..=silent).all(|event| !epochs.takes_event(1, event)));
            }
            assert_eq!(epochs.silent(1, 0), 2);
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_gains_cells_waits_only_for_their_former_owners() {
        // 0 and 1 share; then 0 has all; then 1 and 2 have all.
        let epochs = Epochs::new(3, 1);
        epochs.append(10, Owners::new(&[0]), Request { by: "request", posted: Some(500), ..Request::default() });
        epochs.append(20, Owners::new(&[1, 2]), Request::default());
        epochs.leave(2, 1, None);
        assert!(!epochs.may_go_over(0, 1) && epochs.may_go_over(2, 1));
        let mut watermark = Watermark::new(1);
        watermark.advance(0, 77, 5);
        epochs.leave(1, 1, Some(&watermark));
        assert!(epochs.may_go_over(0, 1) && epochs.may_go_over(1, 1));
        let [first, second] = [1, 2].map(|index| {
            let mut raised = Watermark::new(1);
            epochs.raise(index, &mut raised);
            raised
        });
        assert_eq!((first, second), (watermark.clone(), Watermark::new(1)));
        epochs.leave(0, 1, Some(&watermark));
        assert!(!epochs.may_go_over(1, 2) && !epochs.may_go_over(2, 2) && epochs.may_go_over(0, 2));
        epochs.leave(0, 2, None);
        assert!(epochs.may_go_over(1, 2) && epochs.may_go_over(2, 2));
        // A batch concerns replicas that have cells, that just had some, or that get some with the next event.
        assert!(epochs.concerns(1, i64::MIN, 3) && epochs.concerns(1, 3, 9) && epochs.concerns(1, 9, 18));
        assert!(!epochs.concerns(1, 10, 18));
        assert!(epochs.concerns(1, 9, 19) && epochs.concerns(0, 9, 19) && !epochs.concerns(0, 20, i64::MAX));
        assert_eq!(
            [epochs.takes(1, 3, 9), epochs.takes(1, 3, 10), epochs.takes(1, 10, 19)],
            [Some(true), None, Some(false)]
        );
        assert!(epochs.takes_event(1, 9) && !epochs.takes_event(1, 10) && epochs.takes_event(1, 20));
        assert_eq!([9, 10, 19, 20].map(|event| epochs.in_turn(event, 4)), [1, 0, 0, 1]);
        epochs.note(0, 1, 700, Some(600));
        let [first, second] = &epochs.report("count")[..] else { panic!("two") };
        assert_eq!((first.event, first.request.by, &first.owners), (10, "request", &vec![0]));
        assert_eq!(first.gone_over, [GoneOver { replica: 0, at: 700, waited: 100 }]);
        assert_eq!((second.request.posted, second.moved), (None, CELLS));
    }

    #[test]
    fn a_replica_without_cells_is_silent_until_it_gets_some_or_up_to_the_last_dealt_event() {
        let epochs = Epochs::new(3, 1);
        epochs.append(10, Owners::new(&[0]), Request::default());
        epochs.append(20, Owners::new(&[1, 2]), Request::default());
        epochs.deal(100);
        assert_eq!([8, 9, 15, 19, 30].map(|upto| epochs.silent(1, upto)), [8, 19, 19, 19, 30]);
        assert_eq!([18, 19, 100, 101].map(|upto| epochs.silent(0, upto)), [18, 100, 100, 101]);
        epochs.append(101, Owners::new(&[0]), Request::default());
        epochs.deal(200);
        assert_eq!([19, 100].map(|upto| epochs.silent(0, upto)), [100, 100]);
    }

    #[test]
    fn epochs_that_all_have_left_are_forgotten_and_the_first_ones_reported() {
        let epochs = Epochs::new(2, 1);
        for number in 1..=3 * REPORTED {
            let event = 10 * number as i64;
            epochs.append(event, Owners::new(&[number % 2]), Request::default());
            epochs.deal(event + 9);
            // Of the last two replicas do not know yet.
            let at = number.saturating_sub(2);
            epochs.leave(0, at, None);
            epochs.leave(1, at + 1, None);
            epochs.note(0, number, event as u64, None);
            // SAFETY: there is no other thread.
            unsafe { epochs.forget() };
            assert!(epochs.known().list.count() <= 3);
            let known: Vec<i64> = (at..=number).map(|index| epochs.get(index).unwrap().event).collect();
            assert!(known.is_sorted() && epochs.get(number + 1).is_none() && epochs.last().event == event);
            assert!(number < 3 || epochs.get(at - 1).is_none());
            assert_eq!((epochs.at(event + 1).0.event, epochs.in_turn(event, 7)), (event, number % 2));
            let reported = epochs.report("count");
            let events: Vec<i64> = reported.iter().map(|change| change.event).collect();
            assert_eq!(events, (1..=number.min(REPORTED) as i64).map(|number| 10 * number).collect::<Vec<_>>());
            assert_eq!(epochs.omitted(), number - reported.len());
            assert!(
                reported
                    .iter()
                    .all(|change| change.operator == "count" && change.gone_over[0].at == change.event as u64)
            );
        }
    }
}
