//! Parallel transaction processing (TStream, section IV-C2): threads walk the chains from the first operation to the last,
//! in rounds if chains depend on each other.
//!
//! The first round walks the chains that depend on no other. Each later round walks the chains that are left, as far as
//! *earlier rounds* evaluated what they depend on. The paper keeps a mark per chain. It does not treat chains that depend on
//! each other, such as those of two accounts with a transfer each way. Here a chain is walked up to the first operation that
//! is not ready, and the next round goes on there. So the number of rounds depends only on the events of the batch.
//!
//! **Conditions** of an event are evaluated once, on copies of the versions of their rows. The thread that first comes to a
//! ready operation that needs them evaluates them. Another thread waits for the decision, which is under way.
//!
//! **No deadlock.** Take the earliest event with an operation that no earlier round has evaluated. The operations before it,
//! in its chain and in those that it depends on, belong to earlier events. Others are conditions of this event without
//! dependencies. So the operation is ready in this round or the next. A thread that evaluates conditions does not wait.
//!
//! **Exactness.** One thread per round walks a chain, in event order. A condition sees the row of its own chain after all
//! earlier operations. Of another row, it sees the version after all earlier events, which exists when it is read. A write
//! or read is applied when its event is decided.

use std::ptr::null_mut;

use crate::error::RunError;
use crate::program::kernel::{Access, ApplyContext};
use crate::threads::own::Own;
use crate::threads::sync::{AtomicBool, Ordering};
use crate::transactions::scheme::assignment::Assignment;
use crate::transactions::scheme::tstream::chains::{Chain, Chains, Cursor, Directory, Layout};
use crate::transactions::scheme::tstream::decomposition::{Decomposition, Needs, Partitioning, RowName, conditions};
use crate::transactions::scheme::tstream::tasks::Task;
use crate::transactions::workbench::Workbench;

/// The data that all threads read in state access mode. `Chains` defines the only changes.
pub(super) struct Processing<'a> {
    pub task: Assignment<'a>,
    pub partitioning: &'a Partitioning,
    pub layout: &'a Layout,
    pub directory: &'a Directory,
    /// Per thread: the chains of its partition, and its plans.
    pub chains: &'a Own<Chains>,
    pub benches: &'a Own<Workbench>,
    /// The conditions that are evaluated on versions; that of any thread.
    pub decomposition: &'a Decomposition,
    /// Per event: whether a thread evaluates its conditions, or has done so.
    pub claimed: &'a [AtomicBool],
    pub round: u32,
}

/// A thread's copies of rows for conditions.
pub(super) struct Copies {
    /// Per table: copied rows.
    rows: Vec<Vec<u64>>,
    /// The base addresses of the copies, like `Tables::bases`.
    bases: Vec<*mut u8>,
    /// The conditions, on the copies.
    conditions: Vec<Access>,
}

// SAFETY: `bases` points into `rows`.
unsafe impl Send for Copies {}

impl Copies {
    pub fn new(tables: usize) -> Self {
        Self { rows: vec![Vec::new(); tables], bases: vec![null_mut(); tables], conditions: Vec::new() }
    }
}

/// The progress of a chain in a round.
pub(super) struct Walked {
    /// Bytes of its operations.
    pub bytes: usize,
    pub is_done: bool,
}

impl Processing<'_> {
    /// Walks a chain as far as its operations are ready.
    ///
    /// # Safety
    /// It is state access mode, and no other thread walks the chain in this round.
    pub unsafe fn walk(&self, task: Task, copies: &mut Copies) -> Result<Walked, RunError> {
        // SAFETY: in state access mode chains are only read, except for the fields of the walking thread, which is this one.
        unsafe {
            self.chains.with(task.partition, |chains| {
                let chain = chains.chain(task.chain);
                chain.walk(|cursor| self.evaluate(chains, chain, cursor, copies))
            })
        }
    }

    /// # Safety
    /// As for `walk`.
    unsafe fn evaluate(
        &self,
        chains: &Chains,
        chain: &Chain,
        cursor: &mut Cursor,
        copies: &mut Copies,
    ) -> Result<Walked, RunError> {
        let Assignment { thread, run, batch, outcome, .. } = self.task;
        let bases = run.tables.bases();
        // SAFETY: the thread's own arena.
        let mut context = outcome.apply_context(batch, bases, unsafe { run.tables.arena(thread) }, true);
        let (operations, needs) = chains.operations(chain);
        // Operations up to here are next to apply; those up to the cursor are applied.
        let mut at = cursor.operations;
        let mut is_ready = true;
        while at < operations.len() {
            let Access { event, .. } = operations[at];
            let waits = operations[at].waits();
            let of_event = |one: &&Access| one.event == event && one.waits() == waits;
            let end = at + operations[at..].iter().take_while(of_event).count();
            if needs[at] != Needs::Nothing {
                is_ready = needs[at] == Needs::Own || self.is_ready(event, chain.name);
                if !is_ready {
                    break;
                }
                if !outcome.is_decided(event) {
                    // SAFETY: the row is this thread's in this round, and all earlier operations are applied.
                    unsafe { self.apply(&mut context, operations, cursor, at)? };
                    self.decide(event, chain.name, copies, &mut context)?;
                }
            }
            at = end;
            if waits && chains.writes(chain, cursor.versions, event) {
                // SAFETY: as above; the version is read in later rounds only.
                unsafe {
                    self.apply(&mut context, operations, cursor, at)?;
                    cursor.versions += 1;
                    chains.keep(chain, cursor.versions, self.layout, bases);
                }
            }
        }
        // SAFETY: as above.
        unsafe { self.apply(&mut context, operations, cursor, at)? };
        chain.set_evaluated(self.round, at);
        Ok(Walked { bytes: size_of_val(operations), is_done: is_ready })
    }

    /// Applies a chain's operations from the cursor on up to number `end`.
    ///
    /// # Safety
    /// The chain's row is this thread's, and the events are decided, except for conditions among these operations.
    unsafe fn apply(
        &self,
        context: &mut ApplyContext,
        operations: &[Access],
        cursor: &mut Cursor,
        end: usize,
    ) -> Result<(), RunError> {
        let part = &operations[cursor.operations..end];
        if part.is_empty() {
            return Ok(());
        }
        let Assignment { run, batch, .. } = self.task;
        // SAFETY: as the caller says.
        let done = unsafe { run.transaction.apply(batch, context, part.as_ptr(), part.len())? };
        if done != part.len() {
            return Err(RunError::Engine("an operation was not ready in its round".into()));
        }
        cursor.operations = end;
        Ok(())
    }

    fn conditions(&self, event: u32) -> &[Access] {
        let Assignment { threads, batch, outcome, .. } = self.task;
        conditions(batch, event, threads, outcome, |planner| {
            // SAFETY: in state access mode no thread plans, and accesses stay in place until the next batch is planned.
            unsafe {
                let planned = self.benches.with(planner, |bench| &raw const *bench.planner.accesses());
                &*planned
            }
        })
    }

    /// Whether earlier rounds have evaluated all operations before the event, in the chains of its conditions' rows other
    /// than `own`.
    fn is_ready(&self, event: u32, own: RowName) -> bool {
        let is_there = |name: RowName| {
            // SAFETY: in state access mode directory and chains are only read.
            unsafe {
                let Some(number) = self.directory.chain(self.layout, name) else { return true };
                self.chains.with(self.partitioning.of(name), |chains| {
                    let chain = chains.chain(number);
                    let operations = chains.operations(chain).0;
                    let evaluated = chain.evaluated_before(self.round);
                    evaluated == operations.len() || {
                        // Conditions that are operations precede the event's other operations.
                        let is_before = |one: &Access| (one.event, one.waits()) < (event, true);
                        evaluated >= operations.partition_point(is_before)
                    }
                })
            }
        };
        self.conditions(event).iter().map(RowName::of).all(|name| name == own || is_there(name))
    }

    /// Decides the event, or waits for its decision. `own`: the row whose chain the calling thread walks, up to this event.
    fn decide(
        &self,
        event: u32,
        own: RowName,
        copies: &mut Copies,
        context: &mut ApplyContext,
    ) -> Result<(), RunError> {
        let Assignment { run, batch, outcome, .. } = self.task;
        // ORDERING: Relaxed; one thread finds it not claimed, and the decision publishes the result.
        if !self.claimed[event as usize].swap(true, Ordering::Relaxed) {
            self.copy(event, own, copies);
            let tables = std::mem::replace(&mut context.tables, copies.bases.as_ptr());
            let accesses = &copies.conditions;
            // SAFETY: these are conditions only, on the thread's own copies, and no other thread evaluates them.
            let done = unsafe { run.transaction.apply(batch, context, accesses.as_ptr(), accesses.len()) };
            context.tables = tables;
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

    /// Copies the rows of an event's conditions in the versions that the event must see.
    fn copy(&self, event: u32, own: RowName, copies: &mut Copies) {
        let bases = self.task.run.tables.bases();
        copies.conditions.clear();
        copies.rows.iter_mut().for_each(Vec::clear);
        for condition in self.conditions(event).iter().filter(|one| self.decomposition.is_on_version(one)) {
            let name = RowName::of(condition);
            let stride = self.layout.stride(name.table);
            // SAFETY: in state access mode directory and chains are only read. This thread walks the row's own chain. Earlier
            // rounds evaluated all operations before the event in other chains. A row without a chain is not written.
            let from = unsafe {
                match self.directory.chain(self.layout, name).filter(|_| name != own) {
                    None => self.layout.address(name, bases).cast_const(),
                    Some(number) => self.chains.with(self.partitioning.of(name), |chains| {
                        chains.seen(chains.chain(number), event, self.layout, bases)
                    }),
                }
            };
            let rows = &mut copies.rows[usize::from(name.table)];
            let row = copies.conditions.len();
            rows.resize(((row + 1) * stride).div_ceil(size_of::<u64>()), 0);
            // SAFETY: a row has so many bytes, and room was just made for them.
            unsafe { from.copy_to_nonoverlapping(rows.as_mut_ptr().cast::<u8>().add(row * stride), stride) };
            copies.conditions.push(Access { row: row as u32, ..*condition });
        }
        for (base, rows) in copies.bases.iter_mut().zip(&mut copies.rows) {
            *base = rows.as_mut_ptr().cast();
        }
    }
}
