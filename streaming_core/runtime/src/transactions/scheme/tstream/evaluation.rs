//! Parallel transaction processing (TStream, section IV-C2): threads walk the chains from the first operation to the last,
//! in rounds if chains depend on each other.
//!
//! The first round walks the chains that depend on no other. Each later round walks the chains that are left, as far as
//! *earlier rounds* evaluated what they depend on. The paper keeps a mark per chain. It does not treat chains that depend on
//! each other, such as those of two accounts with a transfer each way. Here a chain is walked up to the first operation that
//! is not ready, and the next round goes on there. So the number of rounds depends only on the events of the batch.
//!
//! **Conditions** of an event are evaluated once, on the versions of their rows. The thread that first comes to a ready
//! operation that needs them evaluates them. Another thread waits for the decision, which is under way.
//!
//! **Kernels** apply many operations at a time. A thread collects operations that lie behind each other in memory. It applies
//! them before it keeps a version of their row, before it needs a condition among them, and at the end of the round.
//!
//! **No deadlock.** Take the earliest event with an operation that no earlier round has evaluated. The operations before it,
//! in its chain and in those that it depends on, belong to earlier events. Others are conditions of this event without
//! dependencies. So the operation is ready in this round or the next. A thread that evaluates conditions does not wait.
//!
//! **Exactness.** One thread per round walks a chain, in event order. A condition sees the row of its own chain after all
//! earlier operations. Of another row, it sees the version after all earlier events, which exists when it is read. A write
//! or read is applied when its event is decided.

use std::ops::Range;

use crate::error::RunError;
use crate::program::kernel::{Access, ApplyContext};
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU32, Ordering};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::scheme::tstream::chains::{Chain, Chains, Cursor, Origin};
use crate::transactions::scheme::tstream::decomposition::Decomposition;
use crate::transactions::scheme::tstream::layout::Layout;
use crate::transactions::scheme::tstream::tasks::Task;

/// The data that all threads read in state access mode. `Chains` defines the only changes.
pub(super) struct Processing<'a> {
    pub task: Assignment<'a>,
    pub layout: &'a Layout,
    /// Per partition.
    pub chains: &'a Own<Chains>,
    /// Per thread.
    pub decompositions: &'a Own<Decomposition>,
    /// Per event, a `Claim`.
    pub claims: &'a [AtomicU32],
    pub round: u32,
}

/// Operations that a thread has to apply, in order.
pub(super) struct Pending<'a> {
    context: ApplyContext,
    /// The operations of a partition, and the range of those to apply.
    partition: &'a [Access],
    range: Range<usize>,
}

/// The progress of a chain in a round.
pub(super) struct Walked {
    /// Bytes of its operations.
    pub bytes: usize,
    pub is_done: bool,
}

/// In which chains of an event its operations are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// Not in this one, in this round.
    Later,
    /// In this one.
    Here,
    /// In all of them.
    Everywhere,
}

/// The round in which a thread decides an event by its conditions, and whether the event was ready everywhere. 0: no thread
/// has claimed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim(u32);

impl Claim {
    fn of(round: u32, readiness: Readiness) -> Self {
        Self((round + 1) << 1 | u32::from(readiness == Readiness::Everywhere))
    }

    /// Whether the event is ready in any chain in a round, by what the claim tells.
    ///
    /// A thread claimed the event in an earlier round: it walked its own chain up to it, and found the others ready.
    #[inline(always)]
    fn is_ready(self, round: u32) -> bool {
        let claimed = self.0 >> 1;
        claimed != 0 && (claimed <= round || self.0 & 1 != 0)
    }
}

impl<'a> Processing<'a> {
    /// Returns the state of a thread's walk through the chains of a round.
    ///
    /// `is_shared`: whether other threads decide the same events meanwhile, or wait for their decisions.
    pub fn start(&self, is_shared: bool) -> Pending<'a> {
        let Assignment { thread, run, batch, outcome, .. } = self.task;
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        Pending {
            context: outcome.apply_context(batch, run.tables.bases(), arena, is_shared),
            partition: &[],
            range: 0..0,
        }
    }

    /// Adds operations of a partition to those that are to be applied.
    ///
    /// # Safety
    /// Their rows are this thread's until it applies them. Their events are decided by then, except by conditions among them.
    pub unsafe fn append(
        &self,
        pending: &mut Pending<'a>,
        partition: &'a [Access],
        range: Range<usize>,
    ) -> Result<(), RunError> {
        if range.is_empty() {
            return Ok(());
        }
        if pending.range.end == range.start && std::ptr::eq(pending.partition, partition) {
            pending.range.end = range.end;
            return Ok(());
        }
        // SAFETY: as the caller says.
        unsafe { self.apply(pending)? };
        (pending.partition, pending.range) = (partition, range);
        Ok(())
    }

    /// Applies all operations that are to be applied.
    ///
    /// # Safety
    /// As for `append`.
    pub unsafe fn apply(&self, pending: &mut Pending<'a>) -> Result<(), RunError> {
        let operations = &pending.partition[pending.range.clone()];
        pending.range.start = pending.range.end;
        if operations.is_empty() {
            return Ok(());
        }
        let Assignment { run, batch, .. } = self.task;
        let (address, len) = (operations.as_ptr(), operations.len());
        // SAFETY: as the caller says.
        if unsafe { run.transaction.apply(batch, &mut pending.context, address, len)? } != len {
            return Err(RunError::Engine("an operation was not ready in its round".into()));
        }
        Ok(())
    }

    /// Walks a chain as far as its operations are ready. The operations may still be pending afterwards.
    ///
    /// # Safety
    /// It is state access mode, and no other thread walks the chain in this round.
    pub unsafe fn walk(&self, task: Task, pending: &mut Pending<'a>) -> Result<Walked, RunError> {
        // SAFETY: in state access mode chains are only read, except for the fields of the walking thread, which is this one.
        unsafe {
            let chains = &*self.chains.with(task.partition as usize, |chains| &raw const *chains);
            let Some(number) = (task.chain as usize).checked_sub(chains.plain_len()) else {
                let range = chains.plain(task.chain as usize);
                let bytes = range.len() * size_of::<Access>();
                self.append(pending, chains.operations(), range)?;
                return Ok(Walked { bytes, is_done: true });
            };
            let chain = &chains.tracked()[number];
            chain.walk(|cursor| self.evaluate(chains, chain, (task.partition, number as u32), cursor, pending))
        }
    }

    /// # Safety
    /// As for `walk`.
    unsafe fn evaluate(
        &self,
        chains: &'a Chains,
        chain: &'a Chain,
        own: (u32, u32),
        cursor: &mut Cursor,
        pending: &mut Pending<'a>,
    ) -> Result<Walked, RunError> {
        let bases = self.task.run.tables.bases();
        let (partition, origins) = (chains.operations(), chains.origins());
        let Range { start, end } = chain.range();
        let versions = chains.versions(chain);
        // Operations up to `at` are evaluated; those up to `appended` are applied or pending.
        let mut at = start + cursor.operations;
        let mut appended = at;
        let mut is_ready = true;
        loop {
            while let Some(&version) = versions.get(cursor.versions).filter(|version| version.position == at - start) {
                // SAFETY: the row is this thread's in this round; the version is read in later rounds only.
                unsafe {
                    self.append(pending, partition, appended..at)?;
                    self.apply(pending)?;
                    chain.keep(version, self.layout, bases);
                }
                appended = at;
                cursor.versions += 1;
            }
            if at == end {
                break;
            }
            let Origin { thread, link } = origins[at];
            if link.is_conditional() {
                let group = link.number();
                // SAFETY: decompositions are only read in state access mode.
                let decomposition =
                    unsafe { &*self.decompositions.with(thread as usize, |decomposition| &raw const *decomposition) };
                let event = partition[at].event;
                let readiness = match link.is_dependent() {
                    true => self.readiness(event, decomposition, group, own),
                    false => Readiness::Here,
                };
                if readiness == Readiness::Later {
                    is_ready = false;
                    break;
                }
                if decomposition.conditions(group).1 && !self.task.outcome.is_decided(event) {
                    // Conditions on rows with containers may be among the pending operations.
                    // SAFETY: the row is this thread's in this round, and events of earlier operations are decided.
                    unsafe {
                        self.append(pending, partition, appended..at)?;
                        self.apply(pending)?;
                    }
                    appended = at;
                }
                if !self.task.outcome.is_decided(event) {
                    self.decide(event, decomposition, group, readiness, pending)?;
                }
            }
            at += 1;
        }
        // SAFETY: as above.
        unsafe { self.append(pending, partition, appended..at)? };
        cursor.operations = at - start;
        chain.set_evaluated(self.round, cursor.operations);
        Ok(Walked { bytes: (end - start) * size_of::<Access>(), is_done: is_ready })
    }

    /// Where earlier rounds have evaluated all operations before the event, in the chains of its conditions' rows other than
    /// `own`, a partition and a chain. It is the same at any time of a round.
    fn readiness(&self, event: u32, decomposition: &Decomposition, group: usize, own: (u32, u32)) -> Readiness {
        // ORDERING: Relaxed; a barrier has published the claims of earlier rounds. A claim of this round only tells what is
        // the same at any time of it.
        let claim = Claim(self.claims[event as usize].load(Ordering::Relaxed));
        if claim.is_ready(self.round) {
            return Readiness::Everywhere;
        }
        let mut readiness = Readiness::Everywhere;
        // SAFETY: chains with dependent operations are walked after the first round.
        for sight in unsafe { decomposition.sights(group) } {
            if sight.position == 0 {
                continue;
            }
            // SAFETY: in state access mode chains are only read.
            let evaluated = unsafe {
                self.chains.with(sight.partition as usize, |chains| {
                    chains.tracked()[sight.chain as usize].evaluated_before(self.round)
                })
            };
            if evaluated < sight.position as usize {
                if (sight.partition, sight.chain) != own {
                    return Readiness::Later;
                }
                readiness = Readiness::Here;
            }
        }
        readiness
    }

    /// Decides a ready event by its conditions, or waits for its decision.
    fn decide(
        &self,
        event: u32,
        decomposition: &Decomposition,
        group: usize,
        readiness: Readiness,
        pending: &mut Pending,
    ) -> Result<(), RunError> {
        let Assignment { threads, run, batch, outcome, .. } = self.task;
        let (claim, claimed) = (&self.claims[event as usize], Claim::of(self.round, readiness).0);
        let is_first = if threads == 1 {
            // ORDERING: Relaxed; there is no other thread, and the event was not decided before.
            claim.store(claimed, Ordering::Relaxed);
            true
        } else {
            // ORDERING: Relaxed; one thread finds it not claimed, and the decision publishes the result.
            claim.compare_exchange(0, claimed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if is_first {
            let (conditions, _) = decomposition.conditions(group);
            let tables = std::mem::replace(&mut pending.context.tables, decomposition.bases());
            // SAFETY: these are conditions only, on versions that no thread writes any more, and no other thread evaluates
            // them.
            let done =
                unsafe { run.transaction.apply(batch, &mut pending.context, conditions.as_ptr(), conditions.len()) };
            pending.context.tables = tables;
            done?;
            if !outcome.is_decided(event) {
                return Err(RunError::Engine("an event is undecided after all its conditions".into()));
            }
            return Ok(());
        }
        let mut patience = run.idle.patience();
        while !outcome.is_decided(event) {
            run.check()?;
            // Kernels decide events without a notification, so the thread must not sleep here.
            patience.pass();
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_claim_answers_for_later_rounds_and_in_its_own_only_if_ready_everywhere() {
        let ready = |readiness| [1, 2, 3].map(|round| Claim::of(2, readiness).is_ready(round));
        assert_eq!(ready(Readiness::Here), [false, false, true]);
        assert_eq!(ready(Readiness::Everywhere)[1..], [true, true]);
        assert!(!Claim(0).is_ready(5), "no thread has claimed the event");
    }
}
