//! Delivery: the sink behind a door that lets in one ticket after the other.

use crate::error::RunError;
use crate::output::delivered::Delivered;
use crate::output::sink::{Preparer, Sink};
use crate::threads::door::Door;
use crate::threads::idle::Idle;
use crate::threads::sync::UnsafeCell;

/// When a batch started and when its first event was to arrive, in engine time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub started: u64,
    pub arrival: Option<u64>,
}

/// The sink behind its door.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub preparer: Preparer,
    door: Door,
    /// Used by who is in.
    delivered: UnsafeCell<Delivered>,
}

// SAFETY: `delivered` is only used by who is behind the door.
unsafe impl Sync for Delivery {}
// SAFETY: nothing refers to a thread.
unsafe impl Send for Delivery {}

impl Delivery {
    pub fn new(sink: Sink) -> Self {
        Self {
            preparer: sink.preparer().clone(),
            door: Door::default(),
            delivered: UnsafeCell::new(Delivered::new(sink)),
        }
    }

    /// The next ticket to be delivered, when nobody is delivering.
    pub fn next_ticket(&self) -> u64 {
        self.door.next()
    }

    /// Delivers by `work` when it is this ticket's turn, waiting for that.
    ///
    /// # Errors
    /// What `work` said, after which nobody delivers any more; `Stopped`: `leaves` said so before the turn came.
    pub fn deliver(
        &self,
        ticket: u64,
        idle: &Idle,
        leaves: impl Fn() -> bool,
        work: impl FnOnce(&mut Delivered) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.door.enter(ticket, idle, leaves)?;
        // SAFETY: whose turn it is, is alone behind the door.
        self.delivered.with_mut(|delivered| work(unsafe { &mut *delivered }))?;
        self.door.leave(ticket, idle);
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
