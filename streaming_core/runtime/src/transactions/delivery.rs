//! Delivery: the sink behind a door that lets in one ticket after the other.

use crate::error::RunError;
use crate::output::delivered::Delivered;
use crate::output::sink::Preparer;
use crate::threads::door::Door;
use crate::threads::idle::Idle;
use crate::threads::sync::UnsafeCell;

/// The start of a batch, and the intended arrival of its first event, in engine time.
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
    /// For the thread behind the door.
    delivered: UnsafeCell<Delivered>,
}

// SAFETY: only the thread behind the door uses `delivered`.
unsafe impl Sync for Delivery {}
// SAFETY: nothing refers to a thread.
unsafe impl Send for Delivery {}

impl Delivery {
    pub fn new(delivered: Delivered) -> Self {
        Self {
            preparer: delivered.sink.preparer().clone(),
            door: Door::default(),
            delivered: UnsafeCell::new(delivered),
        }
    }

    /// The next ticket to deliver, while no thread is delivering.
    pub fn next_ticket(&self) -> u64 {
        self.door.next()
    }

    /// Waits for the turn of this ticket, and then delivers by `work`.
    ///
    /// # Errors
    /// The error of `work`, after which no thread delivers any more. `Stopped`: `leaves` agreed before the turn came.
    pub fn deliver(
        &self,
        ticket: u64,
        idle: &Idle,
        leaves: impl Fn() -> bool,
        work: impl FnOnce(&mut Delivered) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.door.enter(ticket, idle, leaves)?;
        // SAFETY: the thread with the turn is alone behind the door.
        self.delivered.with_mut(|delivered| work(unsafe { &mut *delivered }))?;
        self.door.leave(ticket, idle);
        Ok(())
    }

    /// The delivered outputs.
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
