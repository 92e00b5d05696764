//! Parallel transaction processing (TStream, section IV-C2): chains are walked, from the first operation to the last, and what
//! depends on other chains in rounds.
//!
//! In the first round those chains are walked that depend on none; in each later one those that are left, as far as what they
//! depend on was evaluated *in earlier rounds*. The paper keeps a mark per chain and says nothing of chains that depend on each
//! other, as those of two accounts with a transfer each way do; so a chain is walked up to the first operation that is not
//! ready, and goes on there in the next round. How many rounds a batch takes is therefore a matter of its events alone.
//!
//! **Conditions** are evaluated once an event, by whoever comes first to a ready operation that needs them, on copies of
//! their rows' versions. Who comes second waits for the decision, which is under way.
//!
//! **No deadlock.** Take the earliest event with an operation that no earlier round has evaluated. Whatever stands before
//! the operation in its chain and in those that it depends on belongs to earlier events, or is a condition of this event's
//! that needs nothing. So in this round or the next the operation is ready; and who evaluates conditions waits for nobody.
//!
//! **Exactness.** A chain is walked in event order, by one thread a round. A condition sees its own chain's row as all before
//! it have left it, and of another row the version that all earlier events left, which is evaluated when it is read.
//! A write or read is applied when its event is decided.

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

/// What all threads look at in state access mode, and nobody changes but as `Chains` says.
pub(super) struct Processing<'a> {
    pub task: Assignment<'a>,
    pub partitioning: &'a Partitioning,
    pub layout: &'a Layout,
    pub directory: &'a Directory,
    /// Per thread: the chains of its partition, and what it has planned.
    pub chains: &'a Own<Chains>,
    pub benches: &'a Own<Workbench>,
    /// Which conditions are evaluated on versions; any thread's.
    pub decomposition: &'a Decomposition,
    /// Per event: whether somebody evaluates its conditions, or has.
    pub claimed: &'a [AtomicBool],
    pub round: u32,
}

/// A thread's copies of rows that conditions are evaluated on.
pub(super) struct Copies {
    /// Per table: copied rows.
    rows: Vec<Vec<u64>>,
    /// Where they begin, as `Tables::bases`.
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

/// What became of a chain in a round.
pub(super) struct Walked {
    /// Bytes of its operations.
    pub bytes: usize,
    pub is_done: bool,
}

impl Processing<'_> {
    /// Walks a chain as far as its operations are ready.
    ///
    /// # Safety
    /// It is state access mode, and in this round nobody else walks the chain.
    pub unsafe fn walk(&self, task: Task, copies: &mut Copies) -> Result<Walked, RunError> {
        // SAFETY: in state access mode chains are only read, but for what belongs to who walks them, the calling thread.
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
        // Operations up to here are to be applied; those up to the cursor were.
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
                    // SAFETY: the row is this thread's in this round, and what stands before these was applied.
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
    /// The chain's row is this thread's, and the events are decided but for conditions among these operations.
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
            return Err(RunError::Engine("an operation was not ready that should have been".into()));
        }
        cursor.operations = end;
        Ok(())
    }

    fn conditions(&self, event: u32) -> &[Access] {
        let Assignment { threads, batch, outcome, .. } = self.task;
        conditions(batch, event, threads, outcome, |planner| {
            // SAFETY: in state access mode nobody plans, and accesses stay where they are until the next batch is planned.
            unsafe {
                let planned = self.benches.with(planner, |bench| &raw const *bench.planner.accesses());
                &*planned
            }
        })
    }

    /// Whether earlier rounds have evaluated everything that stands before the event in the chains of its conditions' rows
    /// other than `own`.
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
                        // Conditions that are operations stand before the event's others.
                        let is_before = |one: &Access| (one.event, one.waits()) < (event, true);
                        evaluated >= operations.partition_point(is_before)
                    }
                })
            }
        };
        self.conditions(event).iter().map(RowName::of).all(|name| name == own || is_there(name))
    }

    /// Has the event decided. `own`: the row whose chain the calling thread walks, up to this event.
    fn decide(
        &self,
        event: u32,
        own: RowName,
        copies: &mut Copies,
        context: &mut ApplyContext,
    ) -> Result<(), RunError> {
        let Assignment { run, batch, outcome, .. } = self.task;
        // ORDERING: Relaxed; one finds it not claimed, and the decision hands over what came of it.
        if !self.claimed[event as usize].swap(true, Ordering::Relaxed) {
            self.copy(event, own, copies);
            let tables = std::mem::replace(&mut context.tables, copies.bases.as_ptr());
            let accesses = &copies.conditions;
            // SAFETY: these are conditions only, on copies of the thread's own, and nobody else evaluates them.
            let done = unsafe { run.transaction.apply(batch, context, accesses.as_ptr(), accesses.len()) };
            context.tables = tables;
            done?;
            if !outcome.is_decided(event) {
                return Err(RunError::Engine("an event stayed undecided after all its conditions".into()));
            }
            return Ok(());
        }
        let mut patience = run.idle.patience();
        while !outcome.is_decided(event) {
            run.check()?;
            // Kernels decide events without ringing a bell, so nobody sleeps here.
            patience.pass();
        }
        Ok(())
    }

    /// Copies the rows of an event's conditions as the event is to see them.
    fn copy(&self, event: u32, own: RowName, copies: &mut Copies) {
        let bases = self.task.run.tables.bases();
        copies.conditions.clear();
        copies.rows.iter_mut().for_each(Vec::clear);
        for condition in self.conditions(event).iter().filter(|one| self.decomposition.is_on_version(one)) {
            let name = RowName::of(condition);
            let stride = self.layout.stride(name.table);
            // SAFETY: in state access mode directory and chains are only read. The row's own chain is walked by this thread;
            // of others everything before the event was evaluated in earlier rounds; and a row without a chain is not written.
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
