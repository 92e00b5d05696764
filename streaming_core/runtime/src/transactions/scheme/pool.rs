//! Pools of tasks: which thread takes which tasks of a batch (TStream, section IV-E). The scheme defines the tasks.
//!
//! With `shared_nothing`, every thread has its own pool. With `shared_per_socket`, the threads of a socket share one. With
//! `shared_everything`, all threads share one. A pool deals its tasks to its threads beforehand. With stealing, any thread of
//! the pool that is free takes the next task.

use crate::error::RunError;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::threads::sync::{AtomicUsize, CachePadded, Ordering};
use crate::threads::topology::Topology;

const PER_SOCKET: &str = "shared_per_socket";

/// The registry: adding a pool touches this table and `RunSpec`'s.
const POOLS: &[(&str, Sockets)] = &[
    ("shared_nothing", |threads| (0..threads).collect()),
    ("shared_everything", |threads| vec![0; threads]),
    (PER_SOCKET, sockets),
];

/// Returns the number of each thread's pool, ascending from 0.
type Sockets = fn(usize) -> Vec<usize>;

/// Returns the number of each thread's pool for pool `name`. The first one if it has no name.
pub(crate) fn pools(name: Option<&str>, threads: usize) -> Result<Vec<usize>, RunError> {
    Ok(find("pool", "", name, POOLS)?(threads))
}

pub(super) struct Pools {
    pools: Vec<Pool>,
    /// Per thread: its pool, and its rank in it.
    members: Vec<(usize, usize)>,
    stealing: bool,
    /// Whether the pools are those of sockets that this machine does not have.
    pub made_up: bool,
}

struct Pool {
    /// Ascending.
    threads: Vec<usize>,
    /// Tasks taken in a round, for even and odd rounds.
    taken: [CachePadded<AtomicUsize>; 2],
}

impl Pools {
    pub fn new(options: &Options) -> Result<Self, RunError> {
        let pools = pools(options.pool.as_deref(), options.threads)?;
        let shared = options.pool.as_deref().is_some_and(|name| name != POOLS[0].0);
        if options.stealing && !shared {
            return Err(RunError::Invalid("stealing needs a shared pool".into()));
        }
        let made_up = options.pool.as_deref() == Some(PER_SOCKET) && Topology::probe().is_mock;
        Ok(Self { made_up, ..Self::of(&pools, options.stealing) })
    }

    /// `pools`: the number of each thread's pool.
    pub fn of(pools: &[usize], stealing: bool) -> Self {
        let mut dealt: Vec<Pool> = Vec::new();
        let mut members = vec![(0, 0); pools.len()];
        for pool in 0..=pools.iter().copied().max().unwrap_or(0) {
            let threads: Vec<usize> = (0..pools.len()).filter(|&thread| pools[thread] == pool).collect();
            for (rank, &thread) in threads.iter().enumerate() {
                members[thread] = (pool, rank);
            }
            dealt.push(Pool { threads, taken: Default::default() });
        }
        Self { pools: dealt, members, stealing, made_up: false }
    }

    pub fn stealing(&self) -> bool {
        self.stealing
    }

    /// The number of a thread's pool.
    pub fn pool(&self, thread: usize) -> usize {
        self.members[thread].0
    }

    /// The number of each thread's pool.
    pub fn numbers(&self) -> Vec<usize> {
        self.members.iter().map(|&(pool, _)| pool).collect()
    }

    /// The threads of each pool, ascending.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = &[usize]> {
        self.pools.iter().map(|pool| &pool.threads[..])
    }

    /// The `tasks` of its pool that a thread takes in a round, ascending. Each task is taken once. Without stealing, the same
    /// number of tasks is always dealt in the same way. Rounds have consecutive numbers, and all threads meet at a barrier
    /// between two rounds.
    pub fn round(&self, thread: usize, number: usize, tasks: usize) -> Taking<'_> {
        let (pool, rank) = self.members[thread];
        let pool = &self.pools[pool];
        if !self.stealing {
            return Taking { tasks, step: pool.threads.len(), next: rank, taken: None };
        }
        if rank == 0 {
            // ORDERING: Relaxed; the last round is over for all threads, and the barrier before the next one publishes it.
            pool.taken[(number + 1) % 2].store(0, Ordering::Relaxed);
        }
        Taking { tasks, step: 0, next: 0, taken: Some(&pool.taken[number % 2]) }
    }
}

/// The tasks that a thread takes in a round, by their numbers in its pool.
pub(super) struct Taking<'a> {
    tasks: usize,
    /// Dealt beforehand: the thread's next task, and the distance to the one after it.
    next: usize,
    step: usize,
    /// Taken by any free thread.
    taken: Option<&'a AtomicUsize>,
}

impl Iterator for Taking<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.next >= self.tasks {
            return None;
        }
        match self.taken {
            // ORDERING: Relaxed; only the number matters, because a barrier published the tasks.
            Some(taken) => self.next = taken.fetch_add(1, Ordering::Relaxed),
            None => {
                self.next += self.step;
                return Some(self.next - self.step);
            }
        }
        (self.next < self.tasks).then_some(self.next)
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

    fn taken(pools: &Pools, thread: usize, round: usize, tasks: usize) -> Vec<usize> {
        pools.round(thread, round, tasks).collect()
    }

    #[test]
    fn a_pool_is_dealt_to_its_threads() {
        let pools = Pools::of(&[0, 1, 0, 1, 1], false);
        assert_eq!(pools.threads().collect::<Vec<_>>(), [&[0, 2][..], &[1, 3, 4]]);
        assert_eq!((taken(&pools, 0, 1, 5), taken(&pools, 2, 1, 5)), (vec![0, 2, 4], vec![1, 3]));
        assert_eq!(
            (taken(&pools, 1, 1, 2), taken(&pools, 3, 1, 2), taken(&pools, 4, 1, 2)),
            (vec![0], vec![1], vec![])
        );
    }

    #[test]
    fn with_stealing_the_first_may_take_all_but_only_of_its_pool() {
        let pools = Pools::of(&[0, 0, 1], true);
        for round in 0..5 {
            assert_eq!(taken(&pools, 0, round, 4 + round), (0..4 + round).collect::<Vec<_>>());
            assert!(taken(&pools, 1, round, 4 + round).is_empty());
            assert_eq!(taken(&pools, 2, round, 2), [0, 1]);
        }
    }

    #[test]
    fn with_stealing_threads_that_come_by_turns_take_by_turns() {
        let pools = Pools::of(&[0, 0], true);
        let (mut first, mut second) = (pools.round(0, 0, 5), pools.round(1, 0, 5));
        assert_eq!([first.next(), second.next(), second.next(), first.next(), first.next()], [0, 1, 2, 3, 4].map(Some));
        assert_eq!((first.next(), second.next()), (None, None));
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
    fn two_threads_on_two_made_up_sockets_share_nothing() {
        let kinds = |threads| ["shared_nothing", "shared_everything"].map(|name| pools(Some(name), threads).unwrap());
        assert_eq!(kinds(3), [vec![0, 1, 2], vec![0, 0, 0]]);
        if Topology::probe().is_mock {
            assert_eq!(pools(Some(PER_SOCKET), 2).unwrap(), [0, 1]);
            assert_eq!(pools(Some(PER_SOCKET), 4).unwrap(), [0, 0, 1, 1]);
        }
        assert!(pools(Some("puddle"), 2).is_err());
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
    use crate::threads::testing::interleave;

    /// Two threads take tasks in three rounds, and write to them. The first and the third round count in one place. loom fails
    /// if both threads are at one task.
    #[test]
    fn loom_every_task_is_taken_once_a_round() {
        interleave(3, || {
            let shared = Arc::new((
                Pools::of(&[0, 0], true),
                Barrier::new(2),
                Idle::new(Strategy::Yield, 2, 2),
                AtomicBool::new(false),
                [UnsafeCell::new(0), UnsafeCell::new(0)],
            ));
            let work = |shared: &(Pools, Barrier, Idle, AtomicBool, [UnsafeCell<usize>; 2]), me: usize| {
                for round in 0..3 {
                    for task in shared.0.round(me, round, 2) {
                        // SAFETY: loom checks that no other thread is at the task.
                        shared.4[task].with_mut(|times| unsafe { *times += 1 });
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
            for task in &shared.4 {
                // SAFETY: the other thread has ended.
                assert_eq!(task.with(|times| unsafe { *times }), 3);
            }
        });
    }
}
