//! `no_lock`: `lock` without locks, and so without the counter that orders their insertion (TStream, section VI-B). It is a
//! bound on the throughput of the other schemes, not a result: transactions interleave in any way.
//!
//! It is memory-safe for tables of fixed rows. Kernels compute addresses from row numbers alone, and never from the content of
//! a row. So a race can only make values stale or torn. The racing accesses are those of compiled kernels, outside of Rust's
//! memory model: plain loads and stores of up to eight bytes. Containers hold addresses, and a torn address could point
//! anywhere. So the scheme refuses tables with containers, such as those of the paper's TP.

use crate::error::RunError;
use crate::program::Program;
use crate::program::options::Options;
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::{Event, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    if let Some(table) = program.tables.iter().find(|table| table.containers) {
        let message = format!("no_lock cannot run table {}: its rows hold containers", table.name);
        return Err(RunError::Invalid(message));
    }
    Ok(ahead::make(NoLock, program, options))
}

struct NoLock;

impl Guard for NoLock {
    type Held = ();

    fn held(&self) {}

    fn collect(&self, _event: &Event, _held: &mut ()) {}

    fn is_permitted(&self, _event: &Event, _held: &()) -> bool {
        true
    }

    fn insert(&self, _event: &Event, _held: &mut ()) {}

    fn is_granted(&self, _held: &()) -> bool {
        true
    }

    #[inline]
    unsafe fn apply(&self, event: &Event, _held: &mut ()) -> Result<(), RunError> {
        // SAFETY: the event is this thread's, and its accesses are in program order. The head of this file says why races on
        // rows are harmless.
        unsafe { event.apply(event.accesses, event.run.tables.bases()) }
    }

    fn release(&self, _held: &()) {}
}
