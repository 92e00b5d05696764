//! Schemes that are wrong on purpose: what the comparison finds out.

use crate::error::RunError;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::kernel::{Access, decision, kind};
use crate::program::options::Options;
use crate::rows::buffer::RowBuffer;
use crate::transactions::batch::Batch;
use crate::transactions::executor;
use crate::transactions::outcome::Outcome;
use crate::transactions::planner::Planner;
use crate::transactions::run::{Candidate, Run, Scheme};
use crate::transactions::testing::bank::comparison::{check_engine, events, flat, options};
use crate::transactions::testing::bank::kernels::{VERDICT, program};
use std::panic::AssertUnwindSafe;

/// What may be wrong with a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// An event runs before the one it depends on.
    LostDependency,
    /// A condition sees what its own event writes.
    PostState,
    /// One write of a rejected event stays.
    HalfAbort,
    /// The outputs of two events are delivered in the wrong order.
    Disorder,
}

/// One thread that takes a block's events one after the other, but for one fault, in one event of sixteen.
struct Faulty(Fault);

impl Scheme for Faulty {
    fn block(&self, _thread: usize, run: &Run) -> Result<(), RunError> {
        let batch = Batch { block: run.block, begin: 0, end: run.block.n };
        let (mut planner, outcome) = (Planner::new(), Outcome::new(batch.len()));
        run.transaction.plan(&batch, 0..batch.len(), &mut planner, &outcome)?;
        let mut events: Vec<&[Access]> = planner.accesses().chunk_by(|a, b| a.event == b.event).collect();
        if self.0 == Fault::LostDependency {
            events.chunks_mut(16).filter(|some| some.len() > 1).for_each(|some| some.swap(0, 1));
        }
        // SAFETY: the only thread.
        let arena = unsafe { run.tables.arena(0) };
        let mut context = outcome.apply_context(&batch, run.tables.bases(), arena, false);
        for (number, accesses) in events.into_iter().enumerate() {
            let fault = if number % 16 == 0 { self.0 } else { Fault::None };
            let mut apply = |accesses: &[Access]| {
                // SAFETY: the only thread, and conditions stand before what waits for them.
                unsafe { run.transaction.apply(&batch, &mut context, accesses.as_ptr(), accesses.len()) }
            };
            // SAFETY: the event's word, which no other thread uses.
            let word = unsafe {
                &mut *outcome
                    .apply_context(&batch, run.tables.bases(), arena, false)
                    .decisions
                    .add(accesses[0].event as usize)
            };
            let (conditions, others) = accesses.split_at(accesses.iter().filter(|access| !access.waits()).count());
            if fault == Fault::PostState {
                let pending = std::mem::replace(word, 0);
                let writes: Vec<Access> = others.iter().filter(|access| access.kind == kind::MODIFY).copied().collect();
                apply(&writes)?;
                *word = pending;
                apply(conditions)?;
                let reads: Vec<Access> = others.iter().filter(|access| access.kind == kind::READ).copied().collect();
                apply(&reads)?;
                continue;
            }
            apply(conditions)?;
            if fault == Fault::HalfAbort && *word & decision::FAILED != 0 {
                let rejected = std::mem::replace(word, 0);
                apply(&others[..1])?;
                *word = rejected;
            }
            apply(others)?;
        }
        let mut order: Vec<usize> = (0..batch.len()).collect();
        if self.0 == Fault::Disorder {
            order.chunks_mut(16).filter(|some| some.len() > 1).for_each(|some| some.swap(0, 1));
        }
        for (ticket, event) in (run.first_ticket..).zip(order) {
            let mut rows = RowBuffer::new(VERDICT, false);
            run.transaction.post(&batch, event..event + 1, &outcome, &mut rows)?;
            let prepared = run.prepare(&rows)?;
            run.deliver(ticket, &rows, &prepared, None)?;
        }
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// The test of the tests: what `check` compares finds out every fault, and a scheme without any passes but for its counts.
#[test]
fn a_faulty_scheme_is_found_out() {
    let events = events(2000, 6, 3, 1, 23);
    let message_of = |fault| {
        let make_scheme =
            |_: &Program, _: &Options| -> Result<_, RunError> { Ok(Candidate::only(1, Box::new(Faulty(fault)))) };
        let engine = executor::make_with(make_scheme, flat(1), program(6, 3), options("owners", 1, 500, "")).unwrap();
        let checked =
            std::panic::catch_unwind(AssertUnwindSafe(|| check_engine(engine, [6, 3], &events, 640, "faulty")));
        checked.err().map(|payload| payload.downcast::<String>().map_or_else(|_| "?".into(), |message| *message))
    };
    // It counts neither rejected nor dropped events, so even without a fault the comparison ends there, and not before.
    let message = message_of(Fault::None).unwrap();
    assert!(message.contains("counts"), "{message}");
    for fault in [Fault::LostDependency, Fault::PostState, Fault::HalfAbort, Fault::Disorder] {
        let message = message_of(fault).unwrap_or_else(|| panic!("{fault:?} was not found"));
        assert!(message.contains("faulty: output"), "{fault:?}: {message}");
    }
}
