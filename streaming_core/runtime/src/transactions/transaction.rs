//! State transactions: their compiled operators, called on the events of a batch.

use std::ptr::null_mut;

use crate::error::RunError;
use crate::memory::arena::ArenaHeader;
use crate::program;
use crate::program::kernel::{
    Access, ApplyContext, ExecuteContext, IndexHeader, Kernel, PlaceContext, PlanContext, PostContext, Raised,
};
use crate::rows::block::Block;
use crate::rows::buffer::RowBuffer;
use crate::rows::texts::{self, Texts};
use crate::state::table::Tables;
use crate::threads::sync::{Arc, Shared};
use crate::transactions::batch::Batch;
use crate::transactions::outcome::{Columns, Outcome};
use crate::transactions::planner::Planner;
use crate::transactions::slots::Slots;

/// The kernels of a transaction.
#[derive(Debug, Clone)]
pub struct Transaction {
    name: String,
    plan: Kernel<PlanContext>,
    apply: Kernel<ApplyContext>,
    post: Kernel<PostContext>,
    execute: Kernel<ExecuteContext>,
    place: Kernel<PlaceContext>,
    /// By table; null for a dense one.
    indexes: Shared<*const IndexHeader>,
    /// Memory for new texts, if operators make any.
    texts: Option<Arc<Texts>>,
}

impl Transaction {
    /// # Safety
    /// The program's addresses are kernels that follow ABI.md and outlive this, and so do the tables.
    pub unsafe fn new(
        transaction: &program::TransactionSpec,
        tables: &Tables,
        texts: Option<Arc<Texts>>,
    ) -> Result<Self, RunError> {
        // SAFETY: as the caller says.
        unsafe {
            Ok(Self {
                name: transaction.name.clone(),
                plan: Kernel::at(transaction.plan)?,
                apply: Kernel::at(transaction.apply)?,
                post: Kernel::at(transaction.post)?,
                execute: Kernel::at(transaction.execute)?,
                place: Kernel::at(transaction.place)?,
                // Kernels read the addresses, and any thread may call an index.
                indexes: Shared::new(tables.indexes().cast_mut()),
                texts,
            })
        }
    }

    /// A block whose text is all that its rows can name.
    pub fn begin(&self, block: &Block) -> Result<Block, RunError> {
        Ok(Block { text: texts::begin(self.texts.as_ref(), block.text)?, ..*block })
    }

    #[cold]
    fn failed(&self, batch: &Batch, raised: Raised) -> RunError {
        let at = batch.begin + usize::try_from(raised.at).unwrap_or(0);
        let seq = if at < batch.block.n { batch.block.seq(at) } else { -1 };
        RunError::Kernel { operator: self.name.clone(), seq, window: None, order: 0, exception: raised.exception }
    }

    /// Compute mode: appends the accesses of some events of the batch to the planner.
    ///
    /// Only this call writes the outcome's entries of these events while it runs.
    pub fn plan(
        &self,
        batch: &Batch,
        events: std::ops::Range<usize>,
        planner: &mut Planner,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        assert!(batch.len() <= outcome.events);
        // SAFETY: the outcome has an entry per event.
        unsafe { self.plan_into(batch, events, planner, outcome.columns()) }
    }

    /// As `plan`, wherever the entries of the events are.
    ///
    /// # Safety
    /// The columns have an entry for each of these events.
    pub unsafe fn plan_into(
        &self,
        batch: &Batch,
        events: std::ops::Range<usize>,
        planner: &mut Planner,
        columns: Columns,
    ) -> Result<(), RunError> {
        assert!(events.end <= batch.len());
        let context = &mut planner.inner.context;
        context.rows = batch.rows();
        context.text = batch.block.text.pointer();
        context.begin = events.start as i64;
        context.end = events.end as i64;
        context.decisions = columns.decisions;
        context.results = columns.results;
        context.captures = columns.captures;
        context.first = columns.first;
        context.indexes = self.indexes.get();
        // SAFETY: as the caller says; accesses and result memory belong to the planner.
        unsafe { self.plan.call(context) }.map_err(|raised| self.failed(batch, raised))
    }

    /// State access mode: applies accesses in order, up to the first one that must wait for its event's decision. Returns the
    /// number of applied accesses.
    ///
    /// # Safety
    /// No other thread applies accesses of the same rows meanwhile, or the scheme makes that safe. `accesses` has `n`.
    #[inline(always)]
    pub unsafe fn apply(
        &self,
        batch: &Batch,
        context: &mut ApplyContext,
        accesses: *const Access,
        n: usize,
    ) -> Result<usize, RunError> {
        context.accesses = accesses;
        context.n = n as i64;
        context.done = 0;
        // SAFETY: the context was made by `Outcome::apply_context`; the caller answers for the accesses.
        unsafe { self.apply.call(context) }.map_err(|raised| self.failed(batch, raised))?;
        Ok(context.done as usize)
    }

    /// Post-processes events after all their accesses. Returns the number of rejected events.
    pub fn post(
        &self,
        batch: &Batch,
        events: std::ops::Range<usize>,
        outcome: &Outcome,
        outputs: &mut RowBuffer,
    ) -> Result<u64, RunError> {
        assert!(batch.len() <= outcome.events);
        // SAFETY: the outcome has an entry per event; result memory lives in planners that were not reset since.
        unsafe { self.post_from(batch, events, outcome.columns(), outputs) }
    }

    /// As `post`, wherever the entries of the events are.
    ///
    /// # Safety
    /// The columns have an entry for each of these events, whose result memory is readable.
    pub unsafe fn post_from(
        &self,
        batch: &Batch,
        events: std::ops::Range<usize>,
        columns: Columns,
        outputs: &mut RowBuffer,
    ) -> Result<u64, RunError> {
        assert!(events.end <= batch.len());
        outputs.make_texts(self.texts.as_ref());
        let mut context = PostContext {
            rows: batch.rows(),
            begin: events.start as i64,
            end: events.end as i64,
            text: batch.block.text.pointer(),
            decisions: columns.decisions,
            results: columns.results,
            emitter: outputs.emitter(),
            ..PostContext::default()
        };
        // SAFETY: as the caller says.
        unsafe { self.post.call(&mut context) }.map_err(|raised| self.failed(batch, raised))?;
        Ok(context.rejected as u64)
    }

    /// Writes where the rows of the batch's events lie: `places` gets `place::low` and `place::high` of each event. It has an
    /// entry for each event at least.
    pub fn place(&self, batch: &Batch, places: &mut [u32]) -> Result<(), RunError> {
        assert!(batch.len() <= places.len());
        let mut context = PlaceContext {
            rows: batch.rows(),
            begin: 0,
            end: batch.len() as i64,
            text: batch.block.text.pointer(),
            places: places.as_mut_ptr(),
            error_at: 0,
            error: null_mut(),
            error_len: 0,
            indexes: self.indexes.get(),
            lookups: 0,
        };
        // SAFETY: the slice has an entry per event.
        unsafe { self.place.call(&mut context) }.map_err(|raised| self.failed(batch, raised))
    }

    /// Takes events of the batch from plan to outputs, one after the other: all events, or the selected ones in ascending
    /// order. Returns the numbers of (dropped, rejected) events.
    ///
    /// # Safety
    /// No other thread is at the tables meanwhile, or the scheme makes that safe.
    pub unsafe fn execute(
        &self,
        batch: &Batch,
        tables: *const *mut u8,
        arena: *mut ArenaHeader,
        slots: &mut Slots,
        selection: Option<&[u32]>,
        outputs: &mut RowBuffer,
    ) -> Result<(u64, u64), RunError> {
        let context = &mut slots.inner.context;
        context.selection = selection.map_or(null_mut(), |events| events.as_ptr());
        context.rows = batch.rows();
        context.begin = 0;
        context.end = selection.map_or(batch.len(), <[u32]>::len) as i64;
        context.text = batch.block.text.pointer();
        context.tables = tables;
        context.arena = arena;
        outputs.make_texts(self.texts.as_ref());
        context.emitter = outputs.emitter();
        context.dropped = 0;
        context.rejected = 0;
        context.indexes = self.indexes.get();
        // SAFETY: the batch has that many rows, the scratch memory is this thread's; the caller answers for the tables.
        unsafe { self.execute.call(context) }.map_err(|raised| self.failed(batch, raised))?;
        Ok((context.dropped as u64, context.rejected as u64))
    }
}
