//! Chains as tasks (TStream, section IV-E): a pool holds the chains of its threads' partitions, and hands out each once a round.
//!
//! Threads fill the pools while they insert operations. Each has lists of its own for this, so it meets no other thread there.

use crate::error::RunError;
use crate::program::options::Options;
use crate::state::index;
use crate::threads::own::Own;
use crate::transactions::scheme::pool::{Pools, Taking};
use crate::transactions::scheme::tstream::chains::Chain;

/// So many tasks before a chain is walked, its first node is fetched.
const AHEAD: usize = 4;

/// A chain of this interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task(pub *const Chain);

// SAFETY: chains are shared.
unsafe impl Send for Task {}

/// Per thread and pool: what the thread has put into the pool.
type Lists = Own<Vec<Vec<Task>>>;

pub(super) struct Tasks {
    pools: Pools,
    /// For the first round. Apart from the other rounds, because a thread may insert into the next interval while another
    /// looks whether there is one more round.
    first: Lists,
    /// For odd and even rounds after it. Written in the round before, read by all in the round.
    later: [Lists; 2],
}

impl Tasks {
    pub fn new(options: &Options) -> Result<Self, RunError> {
        Ok(Self::of(Pools::new(options)?, options.threads))
    }

    fn of(pools: Pools, threads: usize) -> Self {
        let number = pools.threads().len();
        let lists = || Own::new(threads, || vec![Vec::new(); number]);
        Self { pools, first: lists(), later: [lists(), lists()] }
    }

    pub fn made_up(&self) -> bool {
        self.pools.made_up
    }

    /// The number of each thread's pool.
    pub fn pools(&self) -> Vec<usize> {
        self.pools.numbers()
    }

    /// Whether any thread that is free takes the next task.
    pub fn stealing(&self) -> bool {
        self.pools.stealing()
    }

    fn lists(&self, round: u32) -> &Lists {
        if round == 0 { &self.first } else { &self.later[round as usize % 2] }
    }

    /// Forgets what a thread has put into the pools for a round.
    ///
    /// # Safety
    /// `thread` is the calling one. For the first round, it is compute mode; for others, the round before.
    pub unsafe fn clear(&self, thread: usize, round: u32) {
        // SAFETY: as the caller says; others use the list in its round only.
        unsafe { self.lists(round).with_mut(thread, |lists| lists.iter_mut().for_each(Vec::clear)) };
    }

    /// Adds a chain of a partition to the first round's.
    ///
    /// # Safety
    /// It is compute mode, and `thread` is the calling one.
    #[inline(always)]
    pub unsafe fn add(&self, thread: usize, partition: usize, task: Task) {
        // SAFETY: as the caller says.
        unsafe { self.first.with_mut(thread, |lists| lists[self.pools.pool(partition)].push(task)) };
    }

    /// Puts a task of its pool off to a round.
    ///
    /// # Safety
    /// `thread` is the calling one, and it is the round before.
    pub unsafe fn put_off(&self, thread: usize, round: u32, task: Task) {
        // SAFETY: as the caller says.
        unsafe { self.lists(round).with_mut(thread, |lists| lists[self.pools.pool(thread)].push(task)) };
    }

    /// How many there are in a round, in all pools.
    ///
    /// # Safety
    /// All threads have made theirs of that round, and none those of the one after the next.
    pub unsafe fn count(&self, round: u32) -> usize {
        // SAFETY: as the caller says.
        unsafe { self.lists(round).sum(|lists| lists.iter().map(Vec::len).sum::<usize>()) }
    }

    /// What a thread takes in a round; `number` counts rounds of all batches.
    ///
    /// # Safety
    /// As for `count`, as long as the result is used.
    pub unsafe fn take(&self, thread: usize, round: u32, number: usize) -> TakenTasks<'_> {
        let (lists, pool) = (self.lists(round), self.pools.pool(thread));
        // SAFETY: as the caller says.
        let tasks = unsafe { lists.sum(|lists| lists[pool].len()) };
        TakenTasks { lists, pool, from: 0, before: 0, numbers: self.pools.round(thread, number, tasks) }
    }
}

/// Those of a pool's tasks that a thread takes in a round.
pub(super) struct TakenTasks<'a> {
    lists: &'a Lists,
    pool: usize,
    /// The thread whose list the last task was in; the lists lie behind each other.
    from: usize,
    /// How many tasks the lists before have.
    before: usize,
    /// Ascending.
    numbers: Taking<'a>,
}

impl Iterator for TakenTasks<'_> {
    type Item = Task;

    #[inline]
    fn next(&mut self) -> Option<Task> {
        let number = self.numbers.next()?;
        while self.from < self.lists.len() {
            // SAFETY: as the creator of this guarantees.
            let (task, len) = unsafe {
                self.lists.with(self.from, |lists| {
                    let (list, at) = (&lists[self.pool], number - self.before);
                    if let Some(ahead) = list.get(at + 2 * AHEAD) {
                        index::prefetch(ahead.0);
                    }
                    if let Some(ahead) = list.get(at + AHEAD) {
                        (*ahead.0).prefetch();
                    }
                    (list.get(at).copied(), list.len())
                })
            };
            if task.is_some() {
                return task;
            }
            self.before += len;
            self.from += 1;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Chains by tens of their partition, where partition 0 has three, 1 none, 2 one and 3 two. Threads 1 and 2 made them.
    fn taken(pools: &[usize], stealing: bool, order: &[usize]) -> Vec<Vec<usize>> {
        let tasks = Tasks::of(Pools::of(pools, stealing), 4);
        let chains: Vec<Chain> = (0..40).map(|_| Chain::default()).collect();
        let task = |partition: usize, chain: usize| Task(&raw const chains[10 * partition + chain]);
        // SAFETY: there is no other thread.
        unsafe {
            tasks.add(1, 3, task(3, 9));
            tasks.clear(1, 0);
            for (maker, partition, chain) in [(1, 0, 0), (1, 2, 0), (1, 0, 1), (2, 3, 0), (2, 0, 2), (2, 3, 1)] {
                tasks.add(maker, partition, task(partition, chain));
            }
            assert_eq!((tasks.count(0), tasks.count(1), tasks.count(2)), (6, 0, 0));
            let mut taken = vec![Vec::new(); 4];
            let mut takers: Vec<_> = (0..4).map(|thread| tasks.take(thread, 0, 7)).collect();
            for &thread in order {
                taken[thread].extend(takers[thread].next().map(|task| task.0.offset_from_unsigned(chains.as_ptr())));
            }
            assert!(takers.iter_mut().all(|taker| taker.next().is_none()));
            taken
        }
    }

    const TURNS: [usize; 16] = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];

    #[test]
    fn who_shares_nothing_walks_the_chains_of_its_partition() {
        assert_eq!(taken(&[0, 1, 2, 3], false, &TURNS), [vec![0, 1, 2], vec![], vec![20], vec![30, 31]]);
    }

    #[test]
    fn a_pool_of_all_is_dealt_to_all_chain_by_chain() {
        assert_eq!(taken(&[0, 0, 0, 0], false, &TURNS), [vec![0, 2], vec![20, 31], vec![1], vec![30]]);
    }

    #[test]
    fn a_socket_s_pool_is_dealt_to_its_threads() {
        assert_eq!(taken(&[0, 0, 1, 1], false, &TURNS), [vec![0, 2], vec![1], vec![20, 31], vec![30]]);
    }

    #[test]
    fn with_stealing_whoever_comes_takes_the_next_chain() {
        let order = [1, 1, 0, 1, 3, 2, 0, 2, 1, 2, 3];
        assert_eq!(taken(&[0, 0, 0, 0], true, &order), [vec![1], vec![0, 20, 30], vec![31], vec![2]]);
        assert_eq!(taken(&[0, 0, 1, 1], true, &order), [vec![2], vec![0, 1], vec![30, 31], vec![20]]);
    }
}
