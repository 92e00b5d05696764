//! Parallel transaction processing (TStream, section IV-C2): threads walk the chains from the first operation to the last,
//! in rounds if chains depend on each other.
//!
//! The first round evaluates the chains that depend on no other. Each later round walks the chains that are left, as far as
//! *earlier rounds* evaluated what they depend on. The paper keeps a mark per chain. It does not treat chains that depend on
//! each other, such as those of two accounts with a transfer each way. Here a chain is walked up to the first operation that
//! is not ready, and the next round goes on there. So the number of rounds depends only on the events of the batch.
//!
//! **Versions.** A chain keeps its row for each condition of another chain's operations, as it is after all earlier events.
//! So the condition finds the version that its event must see, however far the chain has been walked. The next batch drops
//! the versions.
//!
//! **Conditions** of an event are evaluated once, on the versions of their rows. The thread that first comes to a ready
//! operation that needs them evaluates them. Another thread waits for the decision, which is under way.
//!
//! **Kernels** apply many operations at a time. A walk copies operations behind each other. The thread applies them
//! at the end of the round, and before it keeps a version of their row or needs a condition among them.
//!
//! **No deadlock.** Take the earliest event with an entry that no earlier round has passed. The entries before it, in its
//! chain and in those that it depends on, belong to earlier events, or are conditions of this event. A walk passes conditions
//! without waiting. So the operation is ready in this round or the next. A thread that evaluates conditions does not wait.
//!
//! **Exactness.** One thread per round walks a chain, in event order. A condition sees the row of its own chain after all
//! earlier operations. Of another row, it sees the version after all earlier events, which exists when it is read. A write
//! or read is applied when its event is decided.

use std::ptr::null;

use crate::error::RunError;
use crate::planted::{self, Fault};
use crate::program::kernel::{Access, ApplyContext};
use crate::threads::own::Own;
use crate::threads::sync::{AtomicU32, Ordering};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::scheme::tstream::chains::{Chain, Directory};
use crate::transactions::scheme::tstream::decomposition::Decomposition;
use crate::transactions::scheme::tstream::layout::Layout;
use crate::transactions::scheme::tstream::operation::Operation;
use crate::transactions::scheme::tstream::skip_list::Node;

/// So many operations are applied at once.
const MOST: usize = 512;

/// The data that all threads read in state access mode. `Chain` defines the only changes.
pub(super) struct Processing<'a> {
    pub task: Assignment<'a>,
    pub layout: &'a Layout,
    pub directory: &'a Directory,
    /// Per thread.
    pub decompositions: &'a Own<Decomposition>,
    /// Per event, a `Claim`.
    pub claims: &'a [AtomicU32],
    pub round: u32,
}

/// Operations that a thread has to apply, in order.
pub(super) struct Pending<'a> {
    context: ApplyContext,
    operations: &'a mut Vec<Access>,
}

/// The progress of a chain in a round.
pub(super) struct Walked {
    pub nodes: usize,
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

impl Processing<'_> {
    /// Returns the state of a thread's walk through the chains of a round. No operations are pending.
    ///
    /// `is_shared`: whether other threads decide the same events meanwhile, or wait for their decisions.
    pub fn start<'a>(&self, is_shared: bool, operations: &'a mut Vec<Access>) -> Pending<'a> {
        let Assignment { thread, run, batch, outcome, .. } = self.task;
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(thread) };
        Pending { context: outcome.apply_context(batch, run.tables.bases(), arena, is_shared), operations }
    }

    /// Adds an operation to those that are to be applied.
    ///
    /// # Safety
    /// Its row is this thread's until it applies it. Its event is decided by then, except by conditions before it.
    #[inline(always)]
    unsafe fn push(&self, pending: &mut Pending, access: Access) -> Result<(), RunError> {
        pending.operations.push(access);
        if pending.operations.len() == MOST {
            // SAFETY: as the caller says.
            unsafe { self.apply(pending)? };
        }
        Ok(())
    }

    /// Applies all operations that are to be applied.
    ///
    /// # Safety
    /// As for `push`.
    pub unsafe fn apply(&self, pending: &mut Pending) -> Result<(), RunError> {
        let Assignment { run, batch, .. } = self.task;
        let (address, len) = (pending.operations.as_ptr(), pending.operations.len());
        // SAFETY: as the caller says.
        if len > 0 && unsafe { run.transaction.apply(batch, &mut pending.context, address, len)? } != len {
            return Err(RunError::Engine("an operation was not ready in its round".into()));
        }
        pending.operations.clear();
        Ok(())
    }

    /// Walks a chain as far as its operations are ready. The operations may still be pending afterwards.
    ///
    /// # Safety
    /// It is state access mode, and no other thread walks the chain in this round.
    #[inline]
    pub unsafe fn walk(&self, chain: &Chain, pending: &mut Pending) -> Result<Walked, RunError> {
        // SAFETY: as the caller says; in state access mode nodes are only read.
        let walked = unsafe {
            if chain.is_plain() {
                let (mut at, mut nodes) = (chain.after(null()), 0);
                while !at.is_null() {
                    self.push(pending, (*at).operation().access)?;
                    at = chain.after(at);
                    nodes += 1;
                }
                Walked { nodes, is_done: true }
            } else {
                chain.walk(|last| self.evaluate(chain, last, pending))?
            }
        };
        if walked.is_done {
            self.directory.clear(self.layout, chain.name());
        }
        Ok(walked)
    }

    /// What a thread has decomposed.
    #[inline(always)]
    fn decomposition(&self, thread: u32) -> &Decomposition {
        // SAFETY: decompositions are only read in state access mode, and it lasts longer than this borrow.
        unsafe { &*self.decompositions.with(thread as usize, |decomposition| &raw const *decomposition) }
    }

    /// # Safety
    /// As for `walk`.
    unsafe fn evaluate(
        &self,
        chain: &Chain,
        last: &mut *const Node,
        pending: &mut Pending,
    ) -> Result<Walked, RunError> {
        let mut nodes = 0;
        // Whether operations of this chain are pending.
        let mut is_behind = false;
        let stopped = loop {
            // SAFETY: as the caller says.
            let (node, operation) = unsafe {
                let node = chain.after(*last);
                if node.is_null() {
                    break None;
                }
                (node, (*node).operation())
            };
            let Operation { access, link, thread } = operation;
            if link.is_conditional() {
                let (decomposition, event, group) = (self.decomposition(thread), access.event, link.number());
                let readiness = match link.is_dependent() {
                    true => self.readiness(event, decomposition, group, chain),
                    false => Readiness::Here,
                };
                if readiness == Readiness::Later {
                    break Some(event);
                }
                if is_behind && decomposition.conditions(group).1 {
                    // Conditions on rows with containers may be among the pending operations.
                    // SAFETY: the row is this thread's in this round, and events of earlier operations are decided.
                    unsafe { self.apply(pending)? };
                    is_behind = false;
                }
                if !self.task.outcome.is_decided(event) {
                    self.decide(event, decomposition, group, readiness, pending)?;
                }
            }
            // SAFETY: the row is this thread's in this round, and the event is decided; the version is read in later rounds,
            // or by this walk.
            unsafe {
                if link.is_version() {
                    if is_behind {
                        self.apply(pending)?;
                        is_behind = false;
                    }
                    self.keep(chain, self.decomposition(thread).version(access.table, link.number(), self.layout));
                } else {
                    self.push(pending, access)?;
                    is_behind = true;
                }
            }
            *last = node;
            nodes += 1;
        };
        chain.stop(self.round, stopped);
        Ok(Walked { nodes, is_done: stopped.is_none() })
    }

    /// Keeps the row of a chain as this version.
    ///
    /// # Safety
    /// The calling thread walks the chain. No thread has read the version, which has as many bytes.
    #[inline(always)]
    unsafe fn keep(&self, chain: &Chain, version: *mut u8) {
        let stride = self.layout.stride(chain.name().table);
        // SAFETY: the row is the thread's.
        unsafe {
            let row = self.layout.address(chain.name(), self.task.run.tables.bases());
            if stride == size_of::<u64>() {
                // Frequent, and far faster than a copy of unknown length.
                version.cast::<u64>().write_unaligned(row.cast::<u64>().read_unaligned());
            } else {
                row.copy_to_nonoverlapping(version, stride);
            }
        }
    }

    /// Where earlier rounds have passed the conditions of the event, in the chains of their rows other than `own`. It is the
    /// same at any time of a round.
    fn readiness(&self, event: u32, decomposition: &Decomposition, group: usize, own: &Chain) -> Readiness {
        // ORDERING: Relaxed; a barrier has published the claims of earlier rounds. A claim of this round only tells what is
        // the same at any time of it.
        let claim = Claim(self.claims[event as usize].load(Ordering::Relaxed));
        if claim.is_ready(self.round) {
            return Readiness::Everywhere;
        }
        let mut readiness = Readiness::Everywhere;
        let most = if planted::has(Fault::LostDependency) { 1 } else { usize::MAX };
        for &seen in decomposition.seen(group).iter().take(most) {
            // SAFETY: chains live until the interval ends.
            if !unsafe { (*seen).has_passed(event, self.round) } {
                if !std::ptr::eq(seen, own) {
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
