//! How a thread waits: it spins, yields or parks.
//!
//! With more threads than cores, a spinning thread could keep the awaited thread off its core. So it yields then.

use serde::Deserialize;

use crate::threads::sync::{AtomicUsize, CachePadded, Condvar, Mutex, Ordering, fence, hint, lock, thread};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Never leaves the core.
    Spin,
    /// Spins for a moment, then offers the core to others.
    #[default]
    Yield,
    /// Spins, yields, then sleeps until it is woken.
    Park,
}

const SPINS: u32 = 64;
const YIELDS: u32 = 64;

/// A place to wait at. A thread that changes what others may wait for here calls `notify` afterwards.
#[derive(Debug)]
pub struct Idle {
    strategy: Strategy,
    /// Sleepers write it; notifying threads read it.
    sleepers: CachePadded<AtomicUsize>,
    gate: Mutex<()>,
    bell: Condvar,
}

impl Idle {
    /// For `threads` threads on `cores` cores.
    pub fn new(strategy: Strategy, threads: usize, cores: usize) -> Self {
        let strategy = if strategy == Strategy::Spin && threads > cores { Strategy::Yield } else { strategy };
        Self { strategy, sleepers: CachePadded::new(AtomicUsize::new(0)), gate: Mutex::new(()), bell: Condvar::new() }
    }

    /// Returns once `ready` does. `ready` reads with Acquire what others write with Release before they notify.
    #[inline]
    pub fn wait(&self, mut ready: impl FnMut() -> bool) {
        if !ready() {
            self.wait_long(&mut ready);
        }
    }

    fn wait_long(&self, ready: &mut dyn FnMut() -> bool) {
        let mut patience = self.patience();
        while !ready() {
            if !patience.pass() {
                return self.sleep(ready);
            }
        }
    }

    /// For loops that do something else between looks: `pass` waits a little and says whether to go on looking.
    pub fn patience(&self) -> Patience {
        Patience::new(self.strategy)
    }

    fn sleep(&self, ready: &mut dyn FnMut() -> bool) {
        let mut gate = lock(&self.gate);
        // ORDERING: Relaxed; the fences below order it against what `ready` reads.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // ORDERING: SeqCst fence, paired with the one in `notify`. Either `ready` sees the change, or the notifier sees this
        // sleeper. It then waits for the gate, which is free only after we listen to the bell.
        fence(Ordering::SeqCst);
        while !ready() {
            gate = match self.bell.wait(gate) {
                Ok(gate) => gate,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        // ORDERING: Relaxed; a notifier that still counts us only rings in vain.
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes the sleeping threads, after a change of what they wait for.
    #[inline]
    pub fn notify(&self) {
        if self.strategy == Strategy::Park {
            self.ring();
        }
    }

    fn ring(&self) {
        // ORDERING: SeqCst fence, see `sleep`.
        fence(Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the sleeping threads, after a change and a SeqCst fence.
    pub fn wake(&self) {
        // ORDERING: Relaxed, ordered by the fence.
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(lock(&self.gate));
            self.bell.notify_all();
        }
    }
}

/// One wait's progress through its strategy.
#[derive(Debug)]
pub struct Patience {
    strategy: Strategy,
    rounds: u32,
}

impl Patience {
    pub fn new(strategy: Strategy) -> Self {
        Self { strategy, rounds: 0 }
    }

    /// Waits a little. False: sleep now. Only `Strategy::Park` returns false; a caller that cannot sleep just goes on.
    #[inline]
    pub fn pass(&mut self) -> bool {
        if cfg!(any(loom, shuttle)) {
            // Every schedule is explored: one look per turn is enough, and sleeping must be reached.
            thread::yield_now();
            return self.strategy != Strategy::Park;
        }
        self.rounds = self.rounds.saturating_add(1);
        if self.strategy == Strategy::Spin || self.rounds <= SPINS {
            hint::spin_loop();
            return true;
        }
        thread::yield_now();
        self.strategy != Strategy::Park || self.rounds <= SPINS + YIELDS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::threads::sync::{Arc, AtomicBool};

    #[test]
    fn every_strategy_sees_the_change() {
        for strategy in [Strategy::Spin, Strategy::Yield, Strategy::Park] {
            let shared = Arc::new((Idle::new(strategy, 2, 2), AtomicBool::new(false)));
            let waiter = {
                let shared = shared.clone();
                thread::spawn(move || shared.0.wait(|| shared.1.load(Ordering::Acquire)))
            };
            shared.1.store(true, Ordering::Release);
            shared.0.notify();
            waiter.join().unwrap();
        }
    }

    #[test]
    fn spinning_needs_a_core_per_thread() {
        assert_eq!(Idle::new(Strategy::Spin, 3, 2).strategy, Strategy::Yield);
        assert_eq!(Idle::new(Strategy::Spin, 2, 2).strategy, Strategy::Spin);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, AtomicBool};
    use crate::threads::testing::interleave;

    #[test]
    fn loom_a_sleeper_is_never_forgotten() {
        interleave(3, || {
            let shared = Arc::new((Idle::new(Strategy::Park, 2, 2), AtomicBool::new(false)));
            let waiter = {
                let shared = shared.clone();
                thread::spawn(move || shared.0.wait(|| shared.1.load(Ordering::Acquire)))
            };
            shared.1.store(true, Ordering::Release);
            shared.0.notify();
            waiter.join().unwrap();
        });
    }
}
