//! Events that span shares. The dealer plans such an event, and gives each share the accesses of its rows. What a share does
//! not see there, it reads from the others:
//!
//! - A condition is evaluated by the share of its row. This share notes the *verdict*, and where it captured rows. A share that
//!   waits for the decision reads the notes of all shares with conditions. It takes captured rows over as if they were its own.
//! - The results of reads stay where they are. The event's *home* collects them, and makes the outputs, once all shares have
//!   executed the batch.
//!
//! Each line has one share that writes it. A share that waits for a verdict *defers* its accesses, and goes on with events that
//! have no row in the same bucket (`ranges.rs`). So a verdict is seldom waited for, however long a line takes from core to core.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::RunError;
use crate::planted::{self, Fault};
use crate::program::kernel::{Access, ApplyContext, decision, kind};
use crate::rows::buffer::RowBuffer;
use crate::threads::own::Own;
use crate::transactions::batch::Batch;
use crate::transactions::outcome::Columns;
use crate::transactions::run::Run;
use crate::transactions::scheme::owners::batches::{Deal, Planned, SPANS};
use crate::transactions::scheme::owners::exchange::{Fate, Part};
use crate::transactions::scheme::owners::ranges::{Buckets, Layout, place};
use crate::transactions::workbench::Workbench;

/// Events that wait for a verdict at a time: enough that the thread of the verdict comes by meanwhile.
const DEFERRED: usize = 32;

/// A thread's own data for events that span shares.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// How many accesses of the share's list are applied or deferred.
    access: usize,
    /// Events that wait for a verdict, and the buckets of all their rows.
    deferred: VecDeque<Deferred>,
    busy: Buckets,
    /// The addresses of tables, one of them replaced by that of a captured row.
    tables: Vec<*mut u8>,
    /// The number of an event's reads, and their results.
    results: Vec<u64>,
}

/// A planned event that waits for a verdict, with the accesses of own rows that wait for its decision.
#[derive(Debug)]
struct Deferred {
    number: usize,
    accesses: Range<usize>,
    buckets: Buckets,
}

// SAFETY: addresses are used within the call that wrote them.
unsafe impl Send for Desk {}

impl Desk {
    /// Starts with a batch.
    pub fn begin(&mut self) {
        self.access = 0;
    }

    /// Whether nothing waits for a verdict.
    pub fn is_clear(&self) -> bool {
        self.deferred.is_empty()
    }

    /// How many of these events precede the first one that has rows in a bucket of a deferred event.
    fn free(&self, events: &[u32], places: &[u32]) -> usize {
        let is_busy = |&event: &u32| {
            let place = places[event as usize];
            let high = if planted::has(Fault::OvertakenWrite) { place & 0xFFFF } else { place >> 16 };
            self.busy.meet(place & 0xFFFF, high)
        };
        events.iter().position(is_busy).unwrap_or(events.len())
    }
}

/// The share of a thread in a batch.
pub(super) struct Share<'a> {
    pub thread: usize,
    pub run: &'a Run<'a>,
    pub batch: Batch<'a>,
    pub deal: &'a Deal,
    pub ticket: u64,
    pub layout: &'a Layout,
}

impl Share<'_> {
    /// Goes on in the list of the share, from `event` on, as far as verdicts are there. Returns whether the share is done with the
    /// batch; `worked` says whether it came any further.
    ///
    /// # Safety
    /// The thread has the share, and all earlier batches of it are done.
    pub unsafe fn go_on(
        &self,
        part: &mut Part,
        (event, desk): (&mut usize, &mut Desk),
        bench: &mut Workbench,
        outputs: &mut RowBuffer,
        worked: &mut bool,
    ) -> Result<bool, RunError> {
        let (run, events) = (self.run, &self.deal.shares[self.thread][..]);
        let tables = run.tables.bases();
        // SAFETY: the thread's own arena.
        let arena = unsafe { run.tables.arena(self.thread) };
        loop {
            let rest = &events[*event..];
            let own = &rest[..rest.iter().position(|entry| entry & SPANS != 0).unwrap_or(rest.len())];
            let n = if desk.is_clear() { own.len() } else { desk.free(own, &self.deal.places) };
            if n > 0 {
                // SAFETY: all rows of these events are in this share, and what precedes them was applied, or has no row in their
                // buckets. `Deal` keeps `SELECTION_AHEAD` entries behind the list.
                let (dropped, rejected) = unsafe {
                    run.transaction.execute(&self.batch, tables, arena, &mut bench.slots, Some(&own[..n]), outputs)?
                };
                bench.counters.dropped += dropped;
                bench.counters.rejected += rejected;
                (*event, *worked) = (*event + n, true);
            }
            let is_taken = match rest.get(n) {
                // SAFETY: as the caller says.
                Some(entry) if entry & SPANS != 0 => unsafe {
                    self.settle(part, desk)?;
                    self.take((entry & !SPANS) as usize, part, desk)?
                },
                Some(_) => false,
                None if desk.is_clear() => break,
                None => false,
            };
            if is_taken {
                (*event, *worked) = (*event + 1, true);
            // SAFETY: as above.
            } else if unsafe { self.settle(part, desk)? } {
                *worked = true;
            } else {
                return Ok(false);
            }
        }
        if !run.placement.is_flat() {
            bench.counters.time.remote += run.placement.fetch(
                self.thread,
                self.deal.dealer,
                size_of_val(events) + size_of_val(&self.deal.accesses[self.thread][..]),
            );
            bench.counters.time.remote += run.placement.events(events.len());
        }
        Ok(true)
    }

    /// Takes the next event that spans shares. Returns whether that is done; if not, it has a row in a bucket of a deferred event.
    ///
    /// # Safety
    /// Everything of this share before the event was applied, or is deferred.
    unsafe fn take(&self, number: usize, part: &mut Part, desk: &mut Desk) -> Result<bool, RunError> {
        let (planned, accesses) = (&self.deal.planned[number], &self.deal.accesses[self.thread][desk.access..]);
        let own = &accesses[..accesses.iter().take_while(|access| access.event == planned.event).count()];
        let buckets = || {
            let mut buckets = Buckets::NONE;
            own.iter().for_each(|access| buckets.add(place(access.row, self.layout.scales[usize::from(access.table)])));
            buckets
        };
        if !desk.is_clear() && (desk.deferred.len() == DEFERRED || desk.busy.meets(&buckets())) {
            return Ok(false);
        }
        let end = desk.access + own.len();
        if planned.conditions == 0 {
            // SAFETY: these are own rows, and as the caller says.
            unsafe { self.apply(&mut self.context(planned, None, part), own)? };
            desk.access = end;
            return Ok(true);
        }
        let conditions = own.iter().take_while(|access| !access.waits()).count();
        let fate = self.begin(number, part);
        // SAFETY: as above.
        unsafe { self.apply(&mut self.context(planned, Some(&raw mut part.fates[number]), part), &own[..conditions])? };
        if conditions > 0 {
            let failed = part.fates[number].decision & decision::FAILED != 0;
            self.deal.notes[self.thread][number].write(self.ticket, fate.captures, failed);
        }
        let waits = conditions < own.len() || planned.home as usize == self.thread;
        let accesses = desk.access + conditions..end;
        desk.access = end;
        if waits && conditions < planned.conditions as usize {
            let buckets = buckets();
            desk.busy.join(&buckets);
            desk.deferred.push_back(Deferred { number, accesses, buckets });
            return Ok(true);
        }
        // SAFETY: as above; all conditions are evaluated.
        unsafe { self.apply_rest(number, part, accesses)? };
        Ok(true)
    }

    /// Begins an event with conditions.
    fn begin(&self, number: usize, part: &mut Part) -> Fate {
        let planned = &self.deal.planned[number];
        let captures = part.captures[planned.captured as usize..].as_mut_ptr() as u64;
        for access in self.conditions(planned).filter(|access| access.kind == kind::CAPTURE) {
            let group = access.slot as usize * 8;
            // SAFETY: the group's count and argument, as planned; the share has room for the group at the same offset.
            unsafe {
                let planned = ((planned.captures as usize + group) as *const u64).read_unaligned();
                ((captures as usize + group) as *mut u64).write_unaligned(planned);
            }
        }
        part.fates[number] = Fate { decision: planned.decision, captures };
        part.fates[number]
    }

    /// All conditions of an event; in place of the event they have the share of their row.
    fn conditions(&self, planned: &Planned) -> impl Iterator<Item = &Access> {
        self.deal.planner.accesses()[planned.first as usize..][..planned.conditions as usize].iter()
    }

    /// A context for accesses of an event. `fate`: that of the event, if it has conditions.
    fn context(&self, planned: &Planned, fate: Option<*mut Fate>, part: &Part) -> ApplyContext {
        let event = planned.event as usize;
        // SAFETY: the thread's own arena; the addresses are those of fields. Without conditions, the kernel reads the decision only.
        unsafe {
            let (decision, captures) = match fate {
                Some(fate) => (&raw mut (*fate).decision, &raw mut (*fate).captures),
                None => ((&raw const planned.decision).cast_mut(), std::ptr::null_mut()),
            };
            let columns = Columns {
                decisions: decision.wrapping_sub(event),
                results: (&raw const part.base).cast_mut().wrapping_sub(event),
                captures: captures.wrapping_sub(event),
                first: std::ptr::null_mut(),
            };
            columns.apply_context(&self.batch, self.run.tables.bases(), self.run.tables.arena(self.thread), false)
        }
    }

    /// Applies accesses of an event that do not wait.
    ///
    /// # Safety
    /// As for `Transaction::apply`.
    unsafe fn apply(&self, context: &mut ApplyContext, accesses: &[Access]) -> Result<(), RunError> {
        if accesses.is_empty() {
            return Ok(());
        }
        // SAFETY: as the caller says.
        let done = unsafe { self.run.transaction.apply(&self.batch, context, accesses.as_ptr(), accesses.len())? };
        if done != accesses.len() {
            return Err(RunError::Engine("an event is undecided after all its conditions".into()));
        }
        Ok(())
    }

    /// Applies accesses of an event that is decided.
    ///
    /// # Safety
    /// As for `take`.
    unsafe fn apply_rest(&self, number: usize, part: &mut Part, accesses: Range<usize>) -> Result<(), RunError> {
        let fate = &raw mut part.fates[number];
        let mut context = self.context(&self.deal.planned[number], Some(fate), part);
        // SAFETY: as the caller says.
        unsafe { self.apply(&mut context, &self.deal.accesses[self.thread][accesses]) }
    }

    /// Goes on with deferred events, in their order, as far as verdicts are there. Returns whether there were any.
    ///
    /// # Safety
    /// As for `take`.
    unsafe fn settle(&self, part: &mut Part, desk: &mut Desk) -> Result<bool, RunError> {
        let before = desk.deferred.len();
        while let Some(Deferred { number, accesses, .. }) = desk.deferred.front() {
            let (number, accesses) = (*number, accesses.clone());
            if !self.decide(number, part, &mut desk.tables)? {
                break;
            }
            // SAFETY: as the caller says.
            unsafe { self.apply_rest(number, part, accesses)? };
            desk.deferred.pop_front();
        }
        if desk.deferred.len() == before {
            return Ok(false);
        }
        desk.busy = Buckets::NONE;
        desk.deferred.iter().for_each(|deferred| desk.busy.join(&deferred.buckets));
        Ok(true)
    }

    /// Decides an event by what other shares note of it; false: they have not yet.
    fn decide(&self, number: usize, part: &mut Part, tables: &mut Vec<*mut u8>) -> Result<bool, RunError> {
        let planned = &self.deal.planned[number];
        let foreign = || self.conditions(planned).filter(|access| access.event as usize != self.thread);
        let note = |access: &Access| self.deal.notes[access.event as usize][number].read(self.ticket);
        let fate = &raw mut part.fates[number];
        let mut has_failed = part.fates[number].decision & decision::FAILED != 0;
        for access in foreign() {
            let Some((failed, _)) = note(access) else { return Ok(false) };
            has_failed |= failed && !planted::has(Fault::LostAbort);
        }
        if has_failed {
            part.fates[number].decision |= decision::FAILURE;
            return Ok(true);
        }
        for access in foreign() {
            if access.kind == kind::CONDITION {
                part.fates[number].decision -= 1;
                continue;
            }
            // The owner of the row has captured it at the same place of its own captures of the event.
            let captures = note(access).map_or(0, |(_, captures)| captures) as usize;
            let row = usize::from(access.kind - kind::CAPTURE);
            let at = captures + access.slot as usize * 8 + 8 + row * self.layout.stride;
            tables.clear();
            tables.resize(self.layout.scales.len(), std::ptr::null_mut());
            tables[usize::from(access.table)] = at as *mut u8;
            let mut context = ApplyContext { tables: tables.as_ptr(), ..self.context(planned, Some(fate), part) };
            // SAFETY: the captured row stays until the batch is delivered; what it is copied to is this share's.
            unsafe { self.apply(&mut context, &[Access { event: planned.event, row: 0, ..*access }])? };
        }
        Ok(true)
    }

    /// Makes the outputs of the events that this share is home to. Returns the number of rejected events.
    ///
    /// # Safety
    /// All shares have executed the batch.
    pub unsafe fn post(&self, parts: &Own<Part>, desk: &mut Desk, outputs: &mut RowBuffer) -> Result<u64, RunError> {
        let (mut rejected, bytes) = (0, self.layout.result);
        for (number, planned) in self.deal.planned.iter().enumerate() {
            if planned.home as usize != self.thread {
                continue;
            }
            let accesses = &self.deal.planner.accesses()[planned.first as usize..planned.end as usize];
            let most = (accesses.len() * bytes).div_ceil(8) + 1;
            if desk.results.len() < most {
                desk.results.resize(most, 0);
            }
            let results = desk.results[1..].as_mut_ptr() as u64;
            let mut reads = 0;
            for access in accesses.iter().filter(|access| access.kind == kind::READ) {
                // SAFETY: as the caller says; there is room for the results of all accesses.
                unsafe {
                    let from = parts.with(access.event as usize, |part| part.base) as usize;
                    copy(from + access.slot as usize * bytes, results as usize + reads * bytes, bytes);
                }
                reads += 1;
            }
            desk.results[0] = reads as u64;
            // SAFETY: as the caller says.
            let fate = unsafe { parts.with(self.thread, |part| part.fates[number]) };
            let word = if planned.conditions == 0 { planned.decision } else { fate.decision };
            let event = planned.event as usize;
            let columns = Columns {
                decisions: (&raw const word).cast_mut().wrapping_sub(event),
                results: (&raw const results).cast_mut().wrapping_sub(event),
                captures: std::ptr::null_mut(),
                first: std::ptr::null_mut(),
            };
            // SAFETY: the columns have an entry for this event, which the kernel only reads.
            rejected += unsafe { self.run.transaction.post_from(&self.batch, event..event + 1, columns, outputs)? };
        }
        Ok(rejected)
    }
}

/// Copies a few bytes, in words as far as they go.
///
/// # Safety
/// So many bytes are readable and writable there.
#[inline(always)]
unsafe fn copy(from: usize, to: usize, bytes: usize) {
    let words = bytes / 8 * 8;
    // SAFETY: as the caller says.
    unsafe {
        for at in (0..words).step_by(8) {
            ((to + at) as *mut u64).write_unaligned(((from + at) as *const u64).read_unaligned());
        }
        for at in words..bytes {
            ((to + at) as *mut u8).write(((from + at) as *const u8).read());
        }
    }
}
