//! Single accesses, dealt to the owners of their rows.
//!
//! Threads depend on each other only where an event's writes and reads must wait for conditions that other threads evaluate.
//! Then the row is *blocked*: this access and all later ones of the row form a chain (`chains.rs`), and the thread goes on
//! with other rows, looking at the chains now and then. To make that rare, conditions on rows that the batch has not written
//! before are evaluated ahead of everything else: then most events are decided when the first write comes.

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::program::kernel::Access;
use crate::state::key_group::{OwnerMap, group, hash_i64};
use crate::threads::barrier::Barrier;
use crate::threads::own::Own;
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::scheme::owners::chains::{Chains, UNIT};
use crate::transactions::scheme::owners::shares::Shares;
use crate::transactions::workbench::Workbench;

/// The accesses of a batch, by the shares of their rows.
pub(super) struct Accesses {
    owners: OwnerMap,
    /// Per thread: written by it in compute mode, read by those who take its shares in state access mode, with a barrier
    /// between.
    outboxes: Own<Outbox>,
    /// Per share its accesses but for those applied ahead, in event order; for the thread that takes the share.
    later: Own<Vec<Access>>,
    barrier: Barrier,
}

/// What a thread has planned.
struct Outbox {
    /// Per share: accesses of its rows, in event order.
    accesses: Vec<Vec<Access>>,
    /// How many of all the accesses are conditions or captures.
    conditions: usize,
}

impl Accesses {
    pub fn new(threads: usize, shares: usize) -> Self {
        let outbox = || Outbox { accesses: (0..shares).map(|_| Vec::new()).collect(), conditions: 0 };
        Self {
            owners: OwnerMap::even(shares),
            outboxes: Own::new(threads, outbox),
            later: Own::new(shares, Vec::new),
            barrier: Barrier::new(threads),
        }
    }

    /// Compute mode: plans a slice of the batch, and sorts its accesses by the shares of their rows.
    pub fn deal(
        &self,
        task: Assignment,
        slice: Range<usize>,
        bench: &mut Workbench,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        bench.plan(task.run, task.batch, slice, task.outcome)?;
        watch.lap(&mut bench.counters.time.useful);
        // SAFETY: the others have passed the barrier behind the last state access mode, in which they read it.
        unsafe {
            self.outboxes.with_mut(task.thread, |outbox| {
                outbox.conditions = self.distribute(bench.planner.accesses(), &mut outbox.accesses);
            });
        }
        watch.lap(&mut bench.counters.time.other);
        Ok(())
    }

    /// The share of an access's row.
    #[inline(always)]
    fn share(&self, access: &Access) -> usize {
        let unit = u64::from(access.table) << 32 | u64::from(access.row / UNIT);
        self.owners.owner(group(hash_i64(unit as i64)))
    }

    /// Copies the planned accesses to one buffer per share, each in event order. Returns how many are conditions or
    /// captures.
    fn distribute(&self, accesses: &[Access], outbox: &mut [Vec<Access>]) -> usize {
        let conditions = accesses.iter().map(|access| usize::from(!access.waits())).sum();
        for outbox in outbox.iter_mut() {
            outbox.clear();
            outbox.reserve(accesses.len());
        }
        if let [first, second] = outbox {
            // Two shares, the common case on small machines: written to both, kept by one; no branch to mispredict.
            let (to_first, to_second) = (first.as_mut_ptr(), second.as_mut_ptr());
            let mut seconds = 0;
            for (i, access) in accesses.iter().enumerate() {
                let share = self.share(access);
                // SAFETY: both buffers have room for all accesses; of `i` accesses, `seconds` were the second's.
                unsafe {
                    to_first.add(i - seconds).write(*access);
                    to_second.add(seconds).write(*access);
                }
                seconds += share;
            }
            // SAFETY: that many were written.
            unsafe {
                first.set_len(accesses.len() - seconds);
                second.set_len(seconds);
            }
            return conditions;
        }
        for access in accesses {
            let outbox = &mut outbox[self.share(access)];
            let len = outbox.len();
            // SAFETY: room for all accesses was reserved in every buffer.
            unsafe {
                outbox.as_mut_ptr().add(len).write(*access);
                outbox.set_len(len + 1);
            }
        }
        conditions
    }

    /// State access mode: applies all accesses of the shares that the thread takes.
    pub fn apply(
        &self,
        task: Assignment,
        shares: &Shares,
        round: &mut usize,
        bench: &mut Workbench,
        chains: &mut Chains,
        watch: &mut Stopwatch,
    ) -> Result<(), RunError> {
        let Assignment { thread, threads, run, batch, outcome, .. } = task;
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, run.tables.bases(), arena, true);
        // SAFETY: only read between the two barriers.
        let conditions: usize = unsafe { self.outboxes.sum(|outbox| outbox.conditions) };
        if conditions > 0 {
            for share in shares.round(thread, *round) {
                // SAFETY: the share is this thread's; outboxes are only read between the two barriers.
                unsafe {
                    self.later.with_mut(share, |later| {
                        chains.begin(later);
                        for planner in 0..threads {
                            self.outboxes.with(planner, |outbox| chains.sort(task, &outbox.accesses[share], later));
                        }
                        chains.ahead(task, &mut context)
                    })?;
                }
            }
            *round += 1;
            if shares.stealing() {
                // Another thread may go on with the share.
                watch.lap(&mut bench.counters.time.useful);
                self.barrier.wait(thread, run.idle, run.stopped)?;
                watch.lap(&mut bench.counters.time.sync);
            }
        }
        for share in shares.round(thread, *round) {
            for planner in 0..threads {
                // SAFETY: as above.
                unsafe {
                    self.outboxes.with(planner, |outbox| {
                        let accesses = &outbox.accesses[share];
                        bench.counters.time.remote += run.placement.fetch(thread, planner, size_of_val(&accesses[..]));
                        if conditions == 0 { chains.apply(task, &mut context, accesses) } else { Ok(()) }
                    })?;
                }
            }
            if conditions > 0 {
                // SAFETY: the share is this thread's.
                unsafe { self.later.with(share, |later| chains.apply(task, &mut context, later)) }?;
            }
        }
        *round += 1;
        if chains.is_empty() {
            return Ok(());
        }
        watch.lap(&mut bench.counters.time.useful);
        let mut patience = run.idle.patience();
        while !chains.is_empty() {
            if chains.look(task, &mut context)? {
                patience = run.idle.patience();
            } else {
                run.check()?;
                // Kernels decide events without a notification, so the thread must not sleep here.
                patience.pass();
            }
        }
        watch.lap(&mut bench.counters.time.sync);
        Ok(())
    }
}
