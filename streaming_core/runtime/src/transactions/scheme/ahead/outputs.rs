//! The outputs of events that threads execute in turn: merged per batch, and delivered in order.
//!
//! Every thread emits the outputs of its events into a buffer of its own. The thread that executes the last event of a batch
//! puts the rows of all buffers in event order, and delivers them. Batches exist for delivery only: no event waits for another
//! event of its batch.

use std::ops::Range;

use crate::error::RunError;
use crate::output::sink::Prepared;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
use crate::threads::own::Own;
use crate::threads::reorder::buffer::ReorderBuffer;
use crate::threads::reorder::non_blocking::NonBlocking;
use crate::threads::sync::{AtomicUsize, CachePadded, Ordering, UnsafeCell};
use crate::transactions::batch::Batch;
use crate::transactions::delivery::Timing;
use crate::transactions::run::Run;

/// The least number of batches in flight. A thread that executes an event of a later batch waits.
const DEPTH: usize = 4;

/// The outputs of the batches in flight. Batches of a block are numbered from 0.
pub(super) struct Outputs {
    batch: usize,
    slots: Vec<CachePadded<Slot>>,
    /// Puts complete batches in order.
    complete: NonBlocking,
}

struct Slot {
    /// The number of executed events of the batch. Threads add to it; the one that completes the batch resets it.
    executed: AtomicUsize,
    parts: Own<Part>,
    /// Passes from the thread that completes the batch to the one that delivers it.
    merged: UnsafeCell<Merged>,
}

/// The outputs of a thread's events of a batch.
pub(super) struct Part {
    pub rows: RowBuffer,
    /// The number of rows after each event.
    ends: Vec<u32>,
    /// Engine time at which the thread began.
    started: u64,
}

struct Merged {
    /// Where the rows of the batch lie, in event order.
    places: Vec<*const u8>,
    rows: Rows,
    prepared: Prepared,
    started: u64,
}

// SAFETY: `executed` and `complete` pass `merged` and the parts from thread to thread. They write with Release and read with
// Acquire. The rows that `merged` points to stay until the batch is delivered.
unsafe impl Sync for Slot {}
// SAFETY: nothing in it refers to a thread.
unsafe impl Send for Slot {}

impl Part {
    /// Notes that the rows of the next event are complete.
    #[inline]
    pub fn end_event(&mut self) {
        self.ends.push(self.rows.len() as u32);
    }
}

impl Outputs {
    pub fn new(stride: usize, threads: usize, batch: usize) -> Self {
        // A transaction waits only for the `threads - 1` transactions before it. They must have room too.
        let slots = (2 * threads).div_ceil(batch).next_power_of_two().max(DEPTH);
        let part = || Part { rows: RowBuffer::new(stride, false), ends: Vec::new(), started: 0 };
        let slot = || {
            CachePadded::new(Slot {
                executed: AtomicUsize::new(0),
                parts: Own::new(threads, part),
                merged: UnsafeCell::new(Merged {
                    places: Vec::new(),
                    rows: Rows::nothing(stride),
                    prepared: Prepared::default(),
                    started: 0,
                }),
            })
        };
        Self { batch, slots: (0..slots).map(|_| slot()).collect(), complete: NonBlocking::new(slots) }
    }

    /// Starts again with batch 0. No thread is at a block.
    pub fn rewind(&self) {
        self.complete.restart();
    }

    /// The number of batches of the block.
    pub fn count(&self, run: &Run) -> usize {
        run.events.len().div_ceil(self.batch)
    }

    pub fn batch<'a>(&self, run: &Run<'a>, number: usize) -> Batch<'a> {
        let begin = run.events.start + number * self.batch;
        Batch { block: run.block, begin, end: run.events.end.min(begin + self.batch) }
    }

    fn slot(&self, number: usize) -> &Slot {
        &self.slots[number % self.slots.len()]
    }

    /// Whether there is room for the outputs of batch `number`.
    pub fn has_room(&self, number: usize) -> bool {
        number < self.complete.released() as usize + self.slots.len()
    }

    /// Lends the part of the batch's outputs that belongs to `thread`, which calls this once for each batch.
    ///
    /// # Safety
    /// There is room for the batch, and `thread` is the calling thread's number.
    #[inline]
    pub unsafe fn part<R>(&self, run: &Run, number: usize, thread: usize, work: impl FnOnce(&mut Part) -> R) -> R {
        let emit = |part: &mut Part| {
            part.rows.clear();
            part.ends.clear();
            part.started = run.clock.now();
            work(part)
        };
        // SAFETY: the slot's last batch is delivered, and other threads look at the part only after this thread declares its
        // events executed.
        unsafe { self.slot(number).parts.with_mut(thread, emit) }
    }

    /// Declares that `events` more events of a batch are executed. Delivers the batch if they were the last ones.
    pub fn complete(&self, run: &Run, number: usize, events: usize) -> Result<(), RunError> {
        let batch = self.batch(run, number);
        let slot = self.slot(number);
        // ORDERING: AcqRel; the thread that executes the last event takes over the parts of all threads.
        if events == 0 || slot.executed.fetch_add(events, Ordering::AcqRel) + events < batch.len() {
            return Ok(());
        }
        // ORDERING: Relaxed; the reorder buffer publishes it before the slot is used again.
        slot.executed.store(0, Ordering::Relaxed);
        // SAFETY: all events are executed, so this thread is alone with the slot.
        slot.merged.with_mut(|merged| unsafe { slot.merge(run, batch.begin..batch.end, &mut *merged) })?;
        let mut outcome = Ok(());
        self.complete.complete_and_release(number as u64, &mut |number| {
            // Nothing after a failure is delivered.
            if outcome.is_ok() {
                let arrival = run.arrival(&self.batch(run, number as usize));
                outcome = self.slot(number as usize).merged.with(|merged| {
                    // SAFETY: complete, and no thread uses the slot again before it is released.
                    let Merged { rows, prepared, started, .. } = unsafe { &*merged };
                    let timing = Timing { started: *started, arrival };
                    // SAFETY: as above, of the rows in the parts.
                    unsafe { run.deliver_rows(run.first_ticket + number, *rows, prepared, Some(timing)) }
                });
            }
        });
        run.idle.notify();
        outcome
    }
}

impl Slot {
    /// Puts the rows of all parts in event order, and examines them.
    ///
    /// # Safety
    /// All events of the batch are executed, and no other thread is at the slot.
    unsafe fn merge(&self, run: &Run, events: Range<usize>, merged: &mut Merged) -> Result<(), RunError> {
        let threads = self.parts.len();
        // SAFETY: as the caller says.
        let part = |thread: usize| unsafe { self.parts.with(thread, |part| &raw const *part) };
        // SAFETY: as the caller says.
        let part = |thread: usize| unsafe { &*part(thread) };
        merged.started = part(events.start % threads).started;
        // A thread without events of the batch may be at its part.
        if threads == 1 {
            merged.rows = Rows::of(&part(0).rows, run.block.text);
        } else {
            merged.places.clear();
            for (index, event) in events.enumerate() {
                let Part { rows, ends, .. } = part(event % threads);
                // A thread has every `threads`-th event.
                let own = index / threads;
                let begin = own.checked_sub(1).map_or(0, |before| ends[before]);
                merged.places.extend((begin..ends[own]).map(|row| rows.row(row as usize)));
            }
            let (places, n) = (merged.places.as_ptr(), merged.places.len());
            merged.rows = Rows { places, n, text: run.block.text, ..Rows::nothing(merged.rows.stride) };
        }
        // SAFETY: the rows of the parts.
        merged.prepared = unsafe { run.delivery.preparer.prepare_rows(merged.rows, None)? };
        Ok(())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::threads::sync::{Arc, thread};
    use crate::threads::testing::interleave;
    use crate::transactions::testing::world::World;

    /// Two threads execute the events of two batches in turn. loom fails if both are at a part or at the sink at a time. The
    /// delivery fails if a batch is left out, comes twice or comes too early.
    fn explore(batch: usize) {
        interleave(3, move || {
            let shared = Arc::new((Outputs::new(8, 2, batch), World::new()));
            let work = move |(outputs, world): &(Outputs, World), thread: usize| {
                world.run(|run| {
                    for number in 0..outputs.count(run) {
                        let batch = outputs.batch(run, number);
                        let events = (batch.begin..batch.end).filter(|&event| event % 2 == thread).count();
                        // SAFETY: there is room for both batches.
                        unsafe { outputs.part(run, number, thread, |part| (0..events).for_each(|_| part.end_event())) };
                        outputs.complete(run, number, events).unwrap();
                    }
                });
            };
            let other = {
                let shared = shared.clone();
                thread::spawn(move || work(&shared, 1))
            };
            work(&shared, 0);
            other.join().unwrap();
            shared.1.check(2 / batch as u64);
        });
    }

    #[test]
    fn loom_batches_are_delivered_in_order() {
        explore(1);
    }

    #[test]
    fn loom_the_last_thread_delivers_a_batch() {
        explore(2);
    }
}
