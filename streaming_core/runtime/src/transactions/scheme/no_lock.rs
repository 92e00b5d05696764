//! `no_lock`: `lock` without its locks (TStream, section VI-B). Events have their turn, but ask for nothing, and run at once.
//! A bound on what locking could give, not a result: transactions interleave as they like.
//!
//! It is memory-safe for tables of fixed rows: kernels compute addresses from row numbers alone, never from what they
//! find in a row, so a race can only make values stale or torn. The racing accesses are compiled by numba, outside of
//! Rust's memory model, to plain loads and stores of up to eight bytes. Containers hold addresses, which a torn read
//! would follow anywhere: tables with containers are refused, those of the paper's TP too.

use std::ops::Range;

use crate::error::RunError;
use crate::program::Program;
use crate::program::kernel::Access;
use crate::program::options::Options;
use crate::transactions::run::Scheme;
use crate::transactions::scheme::ahead;
use crate::transactions::scheme::ahead::{Group, Guard};

pub fn make(program: &Program, options: &Options) -> Result<Box<dyn Scheme>, RunError> {
    if let Some(table) = program.tables.iter().find(|table| table.containers) {
        let message = format!("no_lock cannot run table {}: its rows hold containers", table.name);
        return Err(RunError::Invalid(message));
    }
    Ok(ahead::make(NoLock, program, options))
}

struct NoLock;

impl Guard for NoLock {
    type Plan = ();
    type Held = ();
    /// As many as `lock` lets ask at one turn.
    const GROUP: usize = 16;

    fn held(&self) {}

    fn plan(&self, _accesses: &[Access], _events: usize, _plan: &mut ()) {}

    fn request(&self, _plan: &(), _events: Range<usize>, _thread: usize, _number: u64, _held: &mut ()) {}

    fn is_granted(&self, _held: &(), _index: usize) -> bool {
        true
    }

    #[inline]
    unsafe fn apply(&self, group: &Group<()>, events: Range<usize>, _held: &mut ()) -> Result<(), RunError> {
        let first = |event: usize| match event < group.batch.len() {
            true => group.outcome.first(event as u32),
            false => group.accesses.len(),
        };
        let accesses = &group.accesses[first(events.start)..first(events.end)];
        // SAFETY: the events are this thread's, in program order. See the top of this file: races on rows are what this scheme
        // is about, and harmless.
        unsafe { group.apply(accesses, group.run.tables.bases()) }
    }

    fn release(&self, _held: &(), _events: Range<usize>) {}
}
