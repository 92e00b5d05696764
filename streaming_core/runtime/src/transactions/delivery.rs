//! Delivery: the sink behind a door that opens for one ticket after the other.

use crate::error::RunError;
use crate::output::delivered::Delivered;
use crate::output::sink::{Prepared, Preparer, Sink};
use crate::rows::buffer::RowBuffer;
use crate::threads::sync::{AtomicU64, CachePadded, Ordering, UnsafeCell};
use crate::transactions::run::Run;

/// When a batch started and when its first event was to arrive, in engine time.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub started: u64,
    pub arrival: Option<u64>,
}

/// The sink behind a door that opens for one ticket after the other.
#[derive(Debug)]
pub struct Delivery {
    pub(crate) preparer: Preparer,
    /// The ticket whose turn it is; written by who holds it.
    turn: CachePadded<AtomicU64>,
    /// Used by who holds the current ticket.
    delivered: UnsafeCell<Delivered>,
}

// SAFETY: `delivered` is only used by who holds the current ticket, handed on with Release and taken with Acquire.
unsafe impl Sync for Delivery {}
// SAFETY: nothing refers to a thread.
unsafe impl Send for Delivery {}

impl Delivery {
    pub fn new(sink: Sink) -> Self {
        Self {
            preparer: sink.preparer().clone(),
            turn: CachePadded::new(AtomicU64::new(0)),
            delivered: UnsafeCell::new(Delivered::new(sink)),
        }
    }

    /// Examines outputs before their turn to be delivered comes; any thread.
    pub fn prepare(&self, rows: &RowBuffer, run: &Run) -> Result<Prepared, RunError> {
        self.preparer.prepare(rows, run.block.text)
    }

    /// The next ticket to be delivered, when nobody is delivering.
    pub fn next_ticket(&self) -> u64 {
        // ORDERING: Relaxed; asked between blocks, or by who holds the ticket.
        self.turn.load(Ordering::Relaxed)
    }

    /// Delivers when it is this ticket's turn, waiting for that. With `timing` the delivery completes a batch.
    pub fn deliver(
        &self,
        ticket: u64,
        rows: &RowBuffer,
        prepared: &Prepared,
        timing: Option<Timing>,
        run: &Run,
    ) -> Result<(), RunError> {
        run.idle.wait(|| {
            // ORDERING: Acquire takes over the sink from who delivered before.
            self.turn.load(Ordering::Acquire) == ticket || run.stopped.load(Ordering::Acquire)
        });
        // ORDERING: Acquire, as above.
        if self.turn.load(Ordering::Acquire) != ticket {
            return Err(RunError::Stopped);
        }
        self.delivered.with_mut(|delivered| {
            // SAFETY: the current ticket is ours alone.
            let delivered = unsafe { &mut *delivered };
            delivered.sink.deliver(rows, prepared, run.block.text)?;
            if let Some(timing) = timing {
                delivered.record(run.clock.now(), timing.started, timing.arrival);
            }
            Ok(())
        })?;
        // ORDERING: Release hands the sink to the next ticket.
        self.turn.store(ticket + 1, Ordering::Release);
        run.idle.notify();
        Ok(())
    }

    /// What was delivered.
    ///
    /// # Safety
    /// No thread is in `deliver` while the result is used.
    pub unsafe fn delivered(&self) -> &Delivered {
        // SAFETY: as the caller says.
        self.delivered.with(|delivered| unsafe { &*delivered })
    }

    pub fn delivered_mut(&mut self) -> &mut Delivered {
        // SAFETY: `&mut self` is alone.
        self.delivered.with_mut(|delivered| unsafe { &mut *delivered })
    }
}
