//! Chain pools: which thread takes which share of a batch's operation chains (TStream, section IV).
//!
//! A *share* is all chains of some rows. `shared_nothing` gives every thread one share, always the same one. The shared
//! pools cut finer: all threads have one pool (`shared_everything`), or those of a socket (`shared_per_socket`). What a
//! pool holds is dealt to its threads beforehand, or, with stealing, whoever comes takes the next share.
//!
//! Shares of a pool are neighbours, so that a socket's pool holds one range of the tables where ranges are dealt.

use crate::error::RunError;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::threads::sync::{AtomicUsize, CachePadded, Ordering};
use crate::threads::topology::Topology;

/// Shares per thread of a shared pool: enough that the last one taken does not make others wait for long, few enough
/// that most events lie in one.
const SHARES: usize = 2;

const PER_SOCKET: &str = "shared_per_socket";

/// The registry: adding a pool touches this table and `RunSpec`'s.
const POOLS: &[(&str, Sockets)] = &[
    ("shared_nothing", |threads| (0..threads).collect()),
    ("shared_everything", |threads| vec![0; threads]),
    (PER_SOCKET, sockets),
];

/// Number of the pool of each of so many threads, ascending from 0.
type Sockets = fn(usize) -> Vec<usize>;

pub(super) struct Pools {
    pools: Vec<SharePool>,
    /// Per thread: its pool, and its rank in it.
    members: Vec<(usize, usize)>,
    stealing: bool,
    /// The pools are those of sockets that this machine does not have.
    pub made_up: bool,
}

struct SharePool {
    first: usize,
    shares: usize,
    threads: usize,
    /// Shares taken in a round, for even and odd rounds.
    taken: [CachePadded<AtomicUsize>; 2],
}

impl Pools {
    pub fn new(options: &Options) -> Result<Self, RunError> {
        let pools = find("pool", "", options.pool.as_deref(), POOLS)?;
        let shared = options.pool.as_deref().is_some_and(|name| name != POOLS[0].0);
        if options.stealing && !shared {
            return Err(RunError::Invalid("stealing needs a shared pool".into()));
        }
        let made_up = options.pool.as_deref() == Some(PER_SOCKET) && Topology::probe().is_mock;
        Ok(Self { made_up, ..Self::of(&pools(options.threads), if shared { SHARES } else { 1 }, options.stealing) })
    }

    /// `pools`: number of each thread's pool; `shares`: per thread.
    fn of(pools: &[usize], shares: usize, stealing: bool) -> Self {
        let mut made: Vec<SharePool> = Vec::new();
        let mut members = vec![(0, 0); pools.len()];
        for pool in 0..=pools.iter().copied().max().unwrap_or(0) {
            let mut threads = 0;
            for (thread, _) in pools.iter().enumerate().filter(|&(_, &of)| of == pool) {
                members[thread] = (pool, threads);
                threads += 1;
            }
            let first = made.last().map_or(0, |last| last.first + last.shares);
            made.push(SharePool { first, shares: threads * shares, threads, taken: Default::default() });
        }
        Self { pools: made, members, stealing, made_up: false }
    }

    /// How many shares a batch is dealt to.
    pub fn shares(&self) -> usize {
        self.pools.iter().map(|pool| pool.shares).sum()
    }

    /// The thread of every share; None if the shares are of all threads' only pool.
    pub fn homes(&self) -> Option<Vec<usize>> {
        if matches!(&self.pools[..], [pool] if pool.shares > pool.threads) {
            return None;
        }
        let thread = |pool, rank| self.members.iter().position(|&member| member == (pool, rank));
        let shares = |(number, pool): (usize, &SharePool)| {
            let threads = pool.threads;
            (0..pool.shares).map(move |share| thread(number, share % threads))
        };
        self.pools.iter().enumerate().flat_map(shares).collect()
    }

    pub fn stealing(&self) -> bool {
        self.stealing
    }

    /// A thread's shares in a round; each share is taken once in every round. Without stealing they are the same ones in
    /// all rounds. Rounds are numbered without a gap, and between two of them all threads meet at a barrier.
    pub fn round(&self, thread: usize, number: usize) -> Taking<'_> {
        let (pool, rank) = self.members[thread];
        let pool = &self.pools[pool];
        if !self.stealing {
            return Taking { pool, next: Some(rank), taken: None };
        }
        if rank == 0 {
            // ORDERING: Relaxed; the last round is over for all, and the barrier before the next publishes it.
            pool.taken[(number + 1) % 2].store(0, Ordering::Relaxed);
        }
        Taking { pool, next: None, taken: Some(&pool.taken[number % 2]) }
    }
}

/// The shares that a thread takes in a round.
pub(super) struct Taking<'a> {
    pool: &'a SharePool,
    /// Dealt beforehand: the thread's next one.
    next: Option<usize>,
    /// Taken by who comes.
    taken: Option<&'a AtomicUsize>,
}

impl Iterator for Taking<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let share = match (self.taken, self.next) {
            // ORDERING: Relaxed; only the number matters: what a share holds was published by a barrier.
            (Some(taken), _) => taken.fetch_add(1, Ordering::Relaxed),
            (None, Some(next)) => next,
            (None, None) => return None,
        };
        if share >= self.pool.shares {
            self.next = None;
            return None;
        }
        self.next = self.next.map(|next| next + self.pool.threads);
        Some(self.pool.first + share)
    }
}

/// The sockets of threads, where thread i is bound to core i. Without NUMA, two made-up ones.
fn sockets(threads: usize) -> Vec<usize> {
    let mut topology = Topology::probe();
    if topology.is_mock {
        topology = Topology::mock(2, threads.div_ceil(2));
    }
    let cores = &topology.cores;
    let mut used: Vec<usize> = (0..threads).map(|thread| cores[thread % cores.len()].socket).collect();
    let mut known = used.clone();
    known.sort_unstable();
    known.dedup();
    for socket in &mut used {
        *socket = known.partition_point(|other| other < socket);
    }
    used
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(pools: &Pools, thread: usize, round: usize) -> Vec<usize> {
        pools.round(thread, round).collect()
    }

    #[test]
    fn shared_nothing_is_one_share_per_thread() {
        let pools = Pools::of(&[0, 1, 2], 1, false);
        assert_eq!(pools.shares(), 3);
        assert_eq!((taken(&pools, 0, 0), taken(&pools, 2, 5)), (vec![0], vec![2]));
    }

    #[test]
    fn a_pool_is_dealt_to_its_threads() {
        let pools = Pools::of(&[0, 1, 0, 1, 1], 2, false);
        assert_eq!(pools.shares(), 10);
        assert_eq!((taken(&pools, 0, 1), taken(&pools, 2, 1)), (vec![0, 2], vec![1, 3]));
        assert_eq!((taken(&pools, 1, 1), taken(&pools, 4, 1)), (vec![4, 7], vec![6, 9]));
    }

    #[test]
    fn shares_are_at_home_with_the_threads_they_are_dealt_to() {
        assert_eq!(Pools::of(&[0, 1, 2], 1, false).homes(), Some(vec![0, 1, 2]));
        assert_eq!(Pools::of(&[0, 1, 0, 1, 1], 2, true).homes(), Some(vec![0, 2, 0, 2, 1, 3, 4, 1, 3, 4]));
        assert_eq!(Pools::of(&[0, 0], 2, false).homes(), None, "anybody's");
    }

    #[test]
    fn with_stealing_the_first_may_take_all_but_only_of_its_pool() {
        let pools = Pools::of(&[0, 0, 1], 2, true);
        for round in 0..5 {
            assert_eq!(taken(&pools, 0, round), [0, 1, 2, 3]);
            assert!(taken(&pools, 1, round).is_empty());
            assert_eq!(taken(&pools, 2, round), [4, 5]);
        }
    }

    #[test]
    fn every_thread_has_a_socket_with_a_number_from_0() {
        for threads in [1, 2, 3, 8, 1024] {
            let sockets = sockets(threads);
            assert_eq!(sockets.len(), threads);
            let most = *sockets.iter().max().unwrap();
            assert!((0..=most).all(|socket| sockets.contains(&socket)));
            assert_eq!(most > 0, threads > 1, "two made-up sockets where there is one");
        }
    }

    #[test]
    fn unknown_pools_and_stealing_from_nobody_are_refused() {
        let options = |pool: &str, stealing| Options { pool: Some(pool.into()), stealing, ..Options::default() };
        assert!(Pools::new(&options("puddle", false)).is_err());
        assert!(Pools::new(&options("shared_nothing", true)).is_err());
        assert!(Pools::new(&options("shared_per_socket", true)).is_ok());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::barrier::Barrier;
    use crate::threads::idle::{Idle, Strategy};
    use crate::threads::sync::{Arc, AtomicBool, UnsafeCell, thread};

    /// Two threads take shares in three rounds, the first and the third of which count in one place, and write to what they
    /// take: loom fails if two are at one share.
    #[test]
    fn loom_every_share_is_taken_once_a_round() {
        let mut model = loom::model::Builder::new();
        // Every schedule with up to this many involuntary switches; all of them would take hours.
        model.preemption_bound = Some(3);
        model.check(|| {
            let shared = Arc::new((
                Pools::of(&[0, 0], 1, true),
                Barrier::new(2),
                Idle::new(Strategy::Yield, 2, 2),
                AtomicBool::new(false),
                [UnsafeCell::new(0), UnsafeCell::new(0)],
            ));
            let work = |shared: &(Pools, Barrier, Idle, AtomicBool, [UnsafeCell<usize>; 2]), me: usize| {
                for round in 0..3 {
                    for share in shared.0.round(me, round) {
                        // SAFETY: loom checks that nobody else is at the share.
                        shared.4[share].with_mut(|times| unsafe { *times += 1 });
                    }
                    shared.1.wait(me, &shared.2, &shared.3).unwrap();
                }
            };
            let other = {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, 1))
            };
            work(&shared, 0);
            other.join().unwrap();
            for share in &shared.4 {
                // SAFETY: the other thread has ended.
                assert_eq!(share.with(|times| unsafe { *times }), 3);
            }
        });
    }
}
