//! The workbench of a thread: what it needs to plan, apply and post-process events.

use std::ops::Range;

use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Prepared;
use crate::rows::buffer::RowBuffer;
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Timing;
use crate::transactions::outcome::Outcome;
use crate::transactions::planner::Planner;
use crate::transactions::run::Run;
use crate::transactions::slots::Slots;

/// What a thread needs to take events through plan, apply and post.
#[derive(Debug)]
pub(crate) struct Workbench {
    pub(crate) planner: Planner,
    pub(crate) slots: Slots,
    pub(crate) outputs: RowBuffer,
    pub(crate) counters: Counters,
}

impl Workbench {
    pub(crate) fn new(output_stride: usize) -> Self {
        Self {
            planner: Planner::new(),
            slots: Slots::new(),
            outputs: RowBuffer::new(output_stride, false),
            counters: Counters::default(),
        }
    }

    /// Plans some events of a batch into the empty planner.
    pub(crate) fn plan(
        &mut self,
        run: &Run,
        batch: &Batch,
        events: Range<usize>,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        self.planner.reset();
        self.plan_more(run, batch, events, outcome)
    }

    /// Plans further events of a batch.
    pub(crate) fn plan_more(
        &mut self,
        run: &Run,
        batch: &Batch,
        events: Range<usize>,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        let planned = self.planner.accesses().len();
        run.transaction.plan(batch, events, &mut self.planner, outcome)?;
        self.counters.dropped += self.planner.take_dropped();
        let accesses = &self.planner.accesses()[planned..];
        self.counters.time.remote += run.placement.rows(accesses.iter().map(|access| access.table));
        Ok(())
    }

    /// Applies all planned accesses in order. The thread is alone with the events in the planner.
    ///
    /// # Safety
    /// As for `Transaction::apply`. No other thread applies accesses of these events.
    pub(crate) unsafe fn apply_all(
        &self,
        run: &Run,
        batch: &Batch,
        thread: usize,
        outcome: &Outcome,
    ) -> Result<(), RunError> {
        // SAFETY: `thread` is the calling thread's number.
        let arena = unsafe { run.tables.arena(thread) };
        let mut context = outcome.apply_context(batch, run.tables.bases(), arena, false);
        let accesses = self.planner.accesses();
        // SAFETY: as the caller says.
        let done = unsafe { run.transaction.apply(batch, &mut context, accesses.as_ptr(), accesses.len())? };
        if done != accesses.len() {
            // The conditions of an event precede what waits for them, and no other thread evaluates any.
            return Err(RunError::Engine("an event is undecided after all its conditions".into()));
        }
        Ok(())
    }

    /// Takes a batch from plan to outputs, one event after the other.
    ///
    /// # Safety
    /// As for `Transaction::execute`.
    pub(crate) unsafe fn execute(&mut self, run: &Run, batch: &Batch, thread: usize) -> Result<(), RunError> {
        self.outputs.clear();
        // SAFETY: `thread` is the calling thread's number; the caller answers for the tables.
        let (dropped, rejected) = unsafe {
            let arena = run.tables.arena(thread);
            run.transaction.execute(batch, run.tables.bases(), arena, &mut self.slots, None, &mut self.outputs)?
        };
        self.counters.dropped += dropped + self.outputs.take_dropped();
        self.counters.rejected += rejected;
        self.counters.time.remote += run.placement.events(batch.len());
        Ok(())
    }

    /// Post-processes some events and examines their outputs.
    pub(crate) fn post(
        &mut self,
        run: &Run,
        batch: &Batch,
        events: Range<usize>,
        outcome: &Outcome,
    ) -> Result<Prepared, RunError> {
        self.outputs.clear();
        self.counters.rejected += run.transaction.post(batch, events, outcome, &mut self.outputs)?;
        self.counters.dropped += self.outputs.take_dropped();
        run.prepare(&self.outputs)
    }
}

/// Executes some events by themselves and delivers under `ticket`.
///
/// # Safety
/// As for `Transaction::execute`.
pub(crate) unsafe fn alone(
    bench: &mut Workbench,
    thread: usize,
    run: &Run,
    batch: &Batch,
    ticket: u64,
) -> Result<(), RunError> {
    let started = run.clock.now();
    let mut watch = Stopwatch::start();
    // SAFETY: as the caller says.
    unsafe { bench.execute(run, batch, thread)? };
    let prepared = run.prepare(&bench.outputs)?;
    watch.lap(&mut bench.counters.time.useful);
    let timing = Timing { started, arrival: run.arrival(batch) };
    run.deliver(ticket, &bench.outputs, &prepared, Some(timing))?;
    watch.lap(&mut bench.counters.time.other);
    Ok(())
}
