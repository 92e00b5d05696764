//! Shares: parts of all rows, each of which a thread has for a batch.
//!
//! A pool of a single thread is one share. Pools that threads have together are cut finer. Shares of a pool are neighbours,
//! so that a socket's pool holds one range of the tables where ranges are dealt.

use crate::error::RunError;
use crate::program::options::Options;
use crate::transactions::scheme::pool::Pools;

/// Shares per thread of a shared pool: enough that the last one taken does not make others wait for long, few enough
/// that most events lie in one.
const EACH: usize = 2;

pub(super) struct Shares {
    pools: Pools,
    /// Per pool, and one more: its first share.
    first: Vec<usize>,
}

impl Shares {
    pub fn new(options: &Options) -> Result<Self, RunError> {
        let pools = Pools::new(options)?;
        let each = if pools.shared { EACH } else { 1 };
        Ok(Self::of(pools, each))
    }

    /// `each`: shares per thread.
    fn of(pools: Pools, each: usize) -> Self {
        let mut first = vec![0];
        for threads in pools.threads() {
            first.push(first[first.len() - 1] + threads.len() * each);
        }
        Self { pools, first }
    }

    /// How many shares a batch is dealt to.
    pub fn count(&self) -> usize {
        self.first[self.first.len() - 1]
    }

    /// The thread of every share; None if the shares are of all threads' only pool.
    pub fn homes(&self) -> Option<Vec<usize>> {
        if self.pools.shared && self.pools.threads().len() == 1 {
            return None;
        }
        let shares = self.first.windows(2).map(|pair| pair[1] - pair[0]);
        let of_pool = |(threads, shares): (&[usize], usize)| -> Vec<usize> {
            threads.iter().copied().cycle().take(shares).collect()
        };
        Some(self.pools.threads().zip(shares).flat_map(of_pool).collect())
    }

    pub fn stealing(&self) -> bool {
        self.pools.stealing()
    }

    pub fn made_up(&self) -> bool {
        self.pools.made_up
    }

    /// A thread's shares in a round; as `Pools::round`.
    pub fn round(&self, thread: usize, number: usize) -> impl Iterator<Item = usize> + '_ {
        let pool = self.pools.pool(thread);
        let (first, end) = (self.first[pool], self.first[pool + 1]);
        self.pools.round(thread, number, end - first).map(move |share| first + share)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(shares: &Shares, thread: usize, round: usize) -> Vec<usize> {
        shares.round(thread, round).collect()
    }

    #[test]
    fn who_shares_nothing_has_one_share() {
        let shares = Shares::new(&Options { threads: 3, ..Options::default() }).unwrap();
        assert_eq!(shares.count(), 3);
        assert_eq!((taken(&shares, 0, 0), taken(&shares, 2, 5)), (vec![0], vec![2]));
        assert_eq!(shares.homes(), Some(vec![0, 1, 2]));
    }

    #[test]
    fn shares_are_at_home_with_the_threads_they_are_dealt_to() {
        let shares = Shares::of(Pools::of(&[0, 1, 0, 1, 1], false), 2);
        assert_eq!(shares.count(), 10);
        assert_eq!((taken(&shares, 0, 1), taken(&shares, 2, 1)), (vec![0, 2], vec![1, 3]));
        assert_eq!((taken(&shares, 1, 1), taken(&shares, 4, 1)), (vec![4, 7], vec![6, 9]));
        assert_eq!(shares.homes(), Some(vec![0, 2, 0, 2, 1, 3, 4, 1, 3, 4]));
        assert_eq!(Shares::of(Pools::of(&[0, 0], true), 2).homes(), None, "anybody's");
    }
}
