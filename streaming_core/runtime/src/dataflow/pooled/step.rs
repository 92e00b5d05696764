//! Steps: a worker takes a batch through the stateless operators between two stages. Any worker may run any step on any batch.
//!
//! `run_step` follows a batch. The batch enters from the lanes in front, and passes the operators. Then it goes to the sink or
//! into the lanes of the next stage.

use std::ptr::null;

use crate::dataflow::frame::Job;
use crate::dataflow::lane::{Scratch, lane_of};
use crate::dataflow::operator::taken;
use crate::dataflow::pooled::input::{Sorted, merge};
use crate::dataflow::pooled::pool::{Pool, Worker};
use crate::dataflow::pooled::slot::{BatchHead, Slot};
use crate::dataflow::pooled::worklist::list::Dealer;
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::sink::Prepared;
use crate::program::Origin;
use crate::rows::buffer::RowBuffer;
use crate::rows::union::union;
use crate::rows::view::Rows;

/// Where the rows stay that leave a step.
#[derive(Clone, Copy, PartialEq)]
enum Destination {
    /// With the batch, until it is delivered.
    Sink,
    /// With the batch, for the only lane of the next stage, or until the batch is released.
    Batch,
    /// In the order of parts: the step copies them at once.
    Parts,
}

/// A step, applied to the batch in a slot.
struct Passage<'a> {
    pool: &'a Pool,
    job: &'a Job<'a>,
    slot: &'a Slot,
    /// The number of the step, and of the stage behind it.
    k: usize,
    /// The events of the batch.
    events: Rows,
    destination: Destination,
    /// The origins whose rows leave the step.
    leaving: &'a [Origin],
    /// The operator that writes all rows that leave straight to their destination, if one does.
    last: Option<usize>,
}

impl Pool {
    /// Takes batch `serial` through step `k`. Returns how many rows came in and went out.
    ///
    /// The step merges the outputs of the lanes in front, and runs the stateless operators. It passes their outputs to the stage
    /// behind, or to the sink.
    pub fn run_step(
        &self,
        k: usize,
        serial: u64,
        worker: &mut Worker,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<(usize, usize), RunError> {
        let slot = self.slot(serial);
        clock.lap(&mut worker.counters.time.other);
        let counts = slot.head.with_mut(|head| {
            // SAFETY: the worker that took the batch for this step owns its head until it hands the batch on.
            let head = unsafe { &mut *head };
            head.out.clear();
            if k == 0 {
                head.started = job.clock.now();
            }
            let passage = Passage::new(self, k, slot, job, job.rows().slice(head.start..head.end));
            // SAFETY: as above.
            unsafe {
                if let Some(prepared) = passage.digested() {
                    (head.prepared, head.outputs) = (prepared, null());
                    return Ok((prepared.rows(), prepared.rows()));
                }
                let rows_in = passage.enter(head, worker)?;
                clock.lap(&mut worker.counters.time.other);
                passage.operate(head, worker)?;
                let rows_out = if passage.destination == Destination::Sink {
                    let rows_out = passage.leave(head)?;
                    clock.lap(&mut worker.counters.time.useful);
                    rows_out
                } else {
                    clock.lap(&mut worker.counters.time.useful);
                    passage.pass(head, worker)?
                };
                Ok::<_, RunError>((rows_in, rows_out))
            }
        })?;
        self.hand_on(k, serial, worker, job)?;
        job.frame.signals.idle.notify();
        clock.lap(&mut worker.counters.time.other);
        Ok(counts)
    }

    /// Hands batch `serial` on behind step `k`: delivers it, or lets the lanes of the stage behind have it.
    ///
    /// The buffer holds the rows of the step as they are. With the paper's queues, the worker that passes them on deals them to
    /// the partitions: `send_downstream` (section 3), and `getPartition` in `addInput` (figure 7). So this takes as long as it
    /// does in the paper, and workers behind `lock` wait for it.
    fn hand_on(&self, k: usize, serial: u64, worker: &mut Worker, job: &Job) -> Result<(), RunError> {
        if k == self.stages.len() {
            return self.deliver(serial, job);
        }
        let stage = &self.stages[k];
        let mut outcome = Ok(());
        stage.front.complete_and_release(serial, &mut |serial| {
            self.slot(serial).inputs[k].batch.with_mut(|batch| {
                // SAFETY: the releasing worker sees the complete batch, which no lane has before it is added.
                let batch = unsafe { &mut *batch };
                if stage.deals == Dealer::Releaser && outcome.is_ok() {
                    // SAFETY: the rows stay with the batch.
                    outcome = unsafe { self.sort(k, batch.rows, true, batch, &mut worker.scratch, job) };
                }
                stage.count_entered(batch.n);
                // A copy, because the batch may leave when the last part was added.
                worker.parts.clone_from(&batch.parts);
            });
            if worker.parts.is_empty() {
                stage.finish(serial);
            } else if outcome.is_ok() {
                stage.queue.add(serial, &worker.parts);
            }
        });
        outcome
    }

    /// Hashes the keys of the rows for stage `k`, and puts the rows in the order of parts if there are several lanes. `stay`: the
    /// rows stay with the batch.
    ///
    /// # Safety
    /// The rows are readable, lie outside of the batch's sorted rows, and have the layout of the stage's inputs.
    unsafe fn sort(
        &self,
        k: usize,
        rows: Rows,
        stay: bool,
        batch: &mut Sorted,
        scratch: &mut Scratch,
        job: &Job,
    ) -> Result<(), RunError> {
        let (lanes, stage) = (&job.frame.lanes[k], &self.stages[k]);
        let key = &job.frame.chain.operators[stage.operator].key;
        let numbered = self.numbered == Some(k);
        // SAFETY: as the caller says.
        unsafe {
            scratch.hash(rows, key)?;
            if lanes.count() == 1 {
                batch.whole_with(rows, &mut scratch.hashes);
                return Ok(());
            }
            match lanes.ranges() {
                None => {
                    let lane_of = |hashes: &[u64], row, count| lane_of(hashes[row], count);
                    batch.sort(rows, &mut scratch.hashes, numbered, stay, lane_of)
                }
                Some(ranges) => {
                    scratch.place(rows, key)?;
                    let Scratch { hashes, positions, .. } = scratch;
                    batch.sort(rows, hashes, numbered, stay, |_, row, _| ranges.range(positions[row]))
                }
            }
        }
    }

    /// Delivers batch `serial`, and the batches that waited for it.
    fn deliver(&self, serial: u64, job: &Job) -> Result<(), RunError> {
        let mut failure = None;
        self.back.complete_and_release(serial, &mut |serial| {
            let outcome = self.slot(serial).head.with_mut(|head| {
                // SAFETY: the reorder buffer lets one worker at a time deliver, after the batch was completed; the outputs
                // stay until the slot is reused.
                unsafe {
                    let head = &mut *head;
                    let copies = std::mem::take(&mut head.copies);
                    job.frame.deliver(0, |delivered| {
                        match head.outputs.as_ref() {
                            Some(outputs) => {
                                let rows = Rows::of(outputs, job.block.text);
                                delivered.sink.take_over(rows, &head.prepared, copies)?;
                            }
                            None => delivered.sink.admit(&head.prepared)?,
                        }
                        delivered.record(job.clock.now(), head.started, job.arrival(head.start));
                        Ok(())
                    })
                }
            });
            failure = failure.take().or(outcome.err());
        });
        failure.map_or(Ok(()), Err)
    }
}

impl<'a> Passage<'a> {
    fn new(pool: &'a Pool, k: usize, slot: &'a Slot, job: &'a Job, events: Rows) -> Self {
        let chain = &job.frame.chain;
        let destination = match pool.stages.get(k) {
            None => Destination::Sink,
            Some(stage) if stage.lanes == 1 || stage.deals == Dealer::Releaser => Destination::Batch,
            Some(_) => Destination::Parts,
        };
        let leaving = match pool.stages.get(k) {
            Some(stage) => &chain.operators[stage.operator].inputs,
            None => &chain.outputs,
        };
        // An operator that alone puts out all rows that leave writes them where they stay.
        let last = match leaving[..] {
            [Origin::Operator(index)] if !chain.kept[index] && destination != Destination::Parts => Some(index),
            _ => None,
        };
        Self { pool, job, slot, k, events, destination, leaving, last }
    }

    /// The room for the outputs of operator `index`.
    ///
    /// # Safety
    /// The batch is this worker's, and not yet released.
    unsafe fn room(&self, index: usize, head: &mut BatchHead, buffers: &mut [RowBuffer]) -> *mut RowBuffer {
        if self.job.frame.chain.kept[index] {
            &raw mut head.kept[index]
        } else if self.last != Some(index) {
            &raw mut buffers[index]
        } else if self.destination == Destination::Sink {
            &raw mut head.out
        } else {
            // SAFETY: as the caller says.
            unsafe { self.slot.inputs[self.k].with_buffer(|buffer| &raw mut *buffer) }
        }
    }

    /// The rows of an origin. `rows` are those of the batch's head.
    ///
    /// # Safety
    /// The operator has put its rows out, in this step or an earlier one, and they are not written while they are used.
    unsafe fn stream(&self, origin: Origin, rows: &[*const RowBuffer]) -> Rows {
        match origin {
            Origin::Events => self.events,
            // SAFETY: as the caller says.
            Origin::Operator(index) => Rows::of(unsafe { &*rows[index] }, self.job.block.text),
        }
    }

    /// The results of the outputs, if the lanes of the stage in front have digested them.
    ///
    /// # Safety
    /// The lanes in front are done with the batch, and it is this worker's.
    unsafe fn digested(&self) -> Option<Prepared> {
        let stage = self.k.checked_sub(1).filter(|&stage| self.pool.numbered == Some(stage))?;
        // SAFETY: as the caller says.
        unsafe { self.slot.inputs[stage].prepared() }
    }

    /// Takes in the outputs of the stage in front, merged if they are of several parts. Returns how many rows come in.
    ///
    /// # Safety
    /// The lanes in front are done with the batch, and it is this worker's.
    unsafe fn enter(&self, head: &mut BatchHead, worker: &mut Worker) -> Result<usize, RunError> {
        if self.k == 0 {
            return Ok(self.events.n);
        }
        let (input, index) = (&self.slot.inputs[self.k - 1], self.pool.stages[self.k - 1].operator);
        head.rows[index] = input.batch.with(|batch| {
            // SAFETY: all lanes are done with the batch, which is this worker's.
            let batch = unsafe { &*batch };
            if batch.parts.len() <= 1 {
                // SAFETY: as above.
                return Ok(unsafe { batch.only() });
            }
            // SAFETY: as the caller says.
            let room = unsafe { self.room(index, head, &mut worker.buffers) };
            // SAFETY: the room is this worker's, or the batch's.
            let merged = unsafe { &mut *room };
            merged.clear();
            // SAFETY: as above.
            unsafe { merge(batch, &mut worker.cursors, merged) }?;
            Ok::<_, RunError>(room.cast_const())
        })?;
        // SAFETY: it was written just now, or by the lane.
        Ok(unsafe { (*head.rows[index]).len() })
    }

    /// Runs the stateless operators of the step.
    ///
    /// # Safety
    /// The batch is this worker's, and its rows have entered.
    unsafe fn operate(&self, head: &mut BatchHead, worker: &mut Worker) -> Result<(), RunError> {
        let frame = self.job.frame;
        for index in frame.chain.step(self.k) {
            let operator = &frame.chain.operators[index];
            let union = &mut worker.unions[index];
            // SAFETY: operators in front have put out their rows, which stay readable.
            let stream = |origin| unsafe { self.stream(origin, &head.rows) };
            // SAFETY: the rows are readable; the room for a union is this worker's.
            let rows = unsafe { taken(&operator.inputs, stream, union) }?;
            // SAFETY: as the caller says.
            let room = unsafe { self.room(index, head, &mut worker.buffers) };
            // SAFETY: the room is this worker's, or the batch's.
            let outputs = unsafe { &mut *room };
            outputs.clear();
            // SAFETY: the rows are what the operator takes.
            let outcome = unsafe { operator.map(rows, outputs) };
            worker.counters.dropped += outputs.take_dropped();
            head.rows[index] = room;
            self.pool.note(index, outcome, frame)?;
        }
        Ok(())
    }

    /// Prepares the outputs of the batch for the sink. Returns how many there are.
    ///
    /// # Safety
    /// The batch is this worker's, and all operators have run.
    unsafe fn leave(&self, head: &mut BatchHead) -> Result<usize, RunError> {
        head.outputs = match self.leaving[..] {
            [Origin::Operator(index)] => head.rows[index],
            _ => {
                // SAFETY: as the caller says.
                let stream = |&origin: &Origin| unsafe { self.stream(origin, &head.rows) };
                let streams: Vec<Rows> = self.leaving.iter().map(stream).collect();
                // SAFETY: the rows are readable and lie elsewhere.
                unsafe { union(&streams, &mut head.out) }?;
                &raw const head.out
            }
        };
        // SAFETY: the outputs stay until the batch is delivered.
        let outputs = unsafe { &*head.outputs };
        let preparer = &self.job.frame.preparer;
        head.prepared = preparer.prepare(outputs, self.job.block.text)?;
        // SAFETY: a buffer's rows are readable.
        head.copies = unsafe { preparer.keep(Rows::of(outputs, self.job.block.text), &head.prepared) }?;
        Ok(outputs.len())
    }

    /// Leaves the rows with the batch for the stage behind, or deals them to its lanes. Returns how many there are.
    ///
    /// # Safety
    /// As for `leave`.
    unsafe fn pass(&self, head: &BatchHead, worker: &mut Worker) -> Result<usize, RunError> {
        let (stage, input) = (&self.pool.stages[self.k], &self.slot.inputs[self.k]);
        let union = match self.destination {
            Destination::Parts => &raw mut worker.unions[stage.operator],
            // SAFETY: the batch is this worker's until it is released.
            _ => unsafe { input.with_buffer(|buffer| &raw mut *buffer) },
        };
        // SAFETY: as the caller says.
        let stream = |origin| unsafe { self.stream(origin, &head.rows) };
        // SAFETY: as above; the room for a union is this worker's, or the batch's.
        let rows = unsafe { taken(self.leaving, stream, &mut *union) }?;
        input.batch.with_mut(|batch| {
            // SAFETY: the batch is this worker's until it is released.
            let batch = unsafe { &mut *batch };
            if stage.deals == Dealer::Releaser || self.job.frame.chain.operators[stage.operator].key.is_empty() {
                batch.whole(rows);
            } else {
                // SAFETY: the rows have the layout of the stage's inputs.
                unsafe { self.pool.sort(self.k, rows, false, batch, &mut worker.scratch, self.job) }?;
            }
            Ok(rows.n)
        })
    }
}
