//! Chains as tasks (TStream, section IV-E): a pool holds the chains of its threads' partitions, and hands out each once a round.

use crate::error::RunError;
use crate::program::options::Options;
use crate::threads::own::Own;
use crate::transactions::scheme::pool::{Pools, Taking};

/// A chain, by its partition and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub partition: u32,
    pub chain: u32,
}

pub(super) struct Tasks {
    pools: Pools,
    /// For even and odd rounds, per thread: what its pool has of it. Written by it before the round, read by all in the round.
    lists: [Own<Vec<Task>>; 2],
}

impl Tasks {
    pub fn new(options: &Options) -> Result<Self, RunError> {
        Ok(Self::of(Pools::new(options)?, options.threads))
    }

    fn of(pools: Pools, threads: usize) -> Self {
        Self { pools, lists: [Own::new(threads, Vec::new), Own::new(threads, Vec::new)] }
    }

    pub fn made_up(&self) -> bool {
        self.pools.made_up
    }

    /// Whether several threads take tasks from the thread's pool.
    pub fn is_shared(&self, thread: usize) -> bool {
        self.members(thread).len() > 1
    }

    /// Whether several threads take tasks from any pool.
    pub fn has_shared(&self) -> bool {
        self.pools.threads().any(|members| members.len() > 1)
    }

    fn members(&self, thread: usize) -> &[usize] {
        self.pools.threads().nth(self.pools.pool(thread)).expect("every thread has a pool")
    }

    /// Whether any thread that is free takes the next task.
    pub fn stealing(&self) -> bool {
        self.pools.stealing()
    }

    fn list(&self, round: u32) -> &Own<Vec<Task>> {
        &self.lists[round as usize % 2]
    }

    /// Replaces what a thread has for a round.
    ///
    /// # Safety
    /// The list is the calling thread's, and it is neither that round nor the one of two before it.
    pub unsafe fn set(&self, thread: usize, round: u32, tasks: impl Iterator<Item = Task>) {
        // SAFETY: as the caller says.
        unsafe {
            self.list(round).with_mut(thread, |list| {
                list.clear();
                list.extend(tasks);
            });
        }
    }

    /// Adds to what a thread has for a round.
    ///
    /// # Safety
    /// As for `set`.
    pub unsafe fn put_off(&self, thread: usize, round: u32, task: Task) {
        // SAFETY: as the caller says.
        unsafe { self.list(round).with_mut(thread, |list| list.push(task)) };
    }

    /// How many a thread has for a round.
    ///
    /// # Safety
    /// As for `set`.
    pub unsafe fn len(&self, thread: usize, round: u32) -> usize {
        // SAFETY: as the caller says.
        unsafe { self.list(round).with(thread, Vec::len) }
    }

    /// How many there are in a round, in all pools.
    ///
    /// # Safety
    /// All threads have made theirs of that round, and none those of the one after the next.
    pub unsafe fn count(&self, round: u32) -> usize {
        // SAFETY: as the caller says.
        unsafe { self.list(round).sum(Vec::len) }
    }

    /// What a thread takes in a round; `number` counts rounds of all batches.
    ///
    /// # Safety
    /// As for `count`, as long as the result is used.
    pub unsafe fn take(&self, thread: usize, round: u32, number: usize) -> TakenTasks<'_> {
        let members = self.members(thread);
        let list = self.list(round);
        // SAFETY: as the caller says.
        let tasks = members.iter().map(|&member| unsafe { list.with(member, Vec::len) }).sum();
        TakenTasks { list, members, before: 0, numbers: self.pools.round(thread, number, tasks) }
    }
}

/// Those of a pool's tasks that a thread takes in a round.
pub(super) struct TakenTasks<'a> {
    list: &'a Own<Vec<Task>>,
    /// The pool's threads, whose lists lie behind each other, from the one on that the last task was in.
    members: &'a [usize],
    /// How many tasks the lists before have.
    before: usize,
    /// Ascending.
    numbers: Taking<'a>,
}

impl Iterator for TakenTasks<'_> {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        let number = self.numbers.next()?;
        loop {
            let (&member, others) = self.members.split_first()?;
            // SAFETY: as the creator of this guarantees.
            let (task, len) =
                unsafe { self.list.with(member, |tasks| (tasks.get(number - self.before).copied(), tasks.len())) };
            if task.is_some() {
                return task;
            }
            self.before += len;
            self.members = others;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Chains by tens of their partition, of a round in which partition 0 has three, 1 none, 2 one and 3 two.
    fn taken(pools: &[usize], stealing: bool, order: &[usize]) -> Vec<Vec<u32>> {
        let tasks = Tasks::of(Pools::of(pools, stealing), 4);
        // SAFETY: there is no other thread.
        unsafe {
            for (thread, chains) in [3, 0, 1, 2].into_iter().enumerate() {
                tasks.set(thread, 4, std::iter::once(Task { partition: 9, chain: 9 }));
                tasks.set(thread, 4, (0..chains).map(|chain| Task { partition: thread as u32, chain }));
            }
            assert_eq!((tasks.count(4), tasks.count(5)), (6, 0));
            let mut taken = vec![Vec::new(); 4];
            let mut takers: Vec<_> = (0..4).map(|thread| tasks.take(thread, 4, 7)).collect();
            for &thread in order {
                taken[thread].extend(takers[thread].next().map(|task| 10 * task.partition + task.chain));
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
        assert_eq!(taken(&[0, 0, 0, 0], false, &TURNS), [vec![0, 30], vec![1, 31], vec![2], vec![20]]);
    }

    #[test]
    fn a_socket_s_pool_is_dealt_to_its_threads() {
        assert_eq!(taken(&[0, 0, 1, 1], false, &TURNS), [vec![0, 2], vec![1], vec![20, 31], vec![30]]);
    }

    #[test]
    fn with_stealing_whoever_comes_takes_the_next_chain() {
        let order = [1, 1, 0, 1, 3, 2, 0, 2, 1, 2, 3];
        assert_eq!(taken(&[0, 0, 0, 0], true, &order), [vec![2], vec![0, 1, 20], vec![31], vec![30]]);
        assert_eq!(taken(&[0, 0, 1, 1], true, &order), [vec![2], vec![0, 1], vec![30, 31], vec![20]]);
    }
}
