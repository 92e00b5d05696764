//! Steps: fused stateless operators, any worker on any batch.

use crate::dataflow::frame::Job;
use crate::dataflow::lane::{Lanes, lane_of};
use crate::dataflow::operator::taken;
use crate::dataflow::pooled::input::merge;
use crate::dataflow::pooled::pool::{Pool, Worker};
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::program::Origin;
use crate::rows::buffer::RowBuffer;
use crate::rows::union::union;
use crate::rows::view::Rows;

/// Where the rows that are taken behind a step have to stay.
#[derive(Clone, Copy, PartialEq)]
enum Destination {
    /// With the batch, until it is delivered.
    Sink,
    /// With the batch, for the only lane of the stage behind.
    Lane,
    /// They are copied into lane order at once.
    Lanes,
}

impl Pool {
    /// Takes batch `serial` through step `k`: merges what the lanes in front emitted, runs the stateless operators,
    /// and hands the result to the stage behind, or to the sink; how many rows came in and went out.
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
        let Worker { buffers, unions, scratch, counters, .. } = worker;
        let (frame, text) = (job.frame, job.block.text);
        let (chain, operators) = (&frame.chain, &frame.chain.operators);
        let counts = slot.head.with_mut(|head| {
            // SAFETY: the worker that took the batch for this step owns its head until it hands the batch on.
            let head = unsafe { &mut *head };
            head.out.clear();
            if k == 0 {
                head.start = (serial - self.first) as usize * frame.batch;
                head.end = job.block.n.min(head.start + frame.batch);
                head.started = job.clock.now();
            }
            let events = job.rows().slice(head.start..head.end);
            let place = match frame.lanes.get(k).map(Lanes::count) {
                None => Destination::Sink,
                Some(1) => Destination::Lane,
                Some(_) => Destination::Lanes,
            };
            let takes = match self.stages.get(k) {
                Some(stage) => &operators[stage.operator].inputs,
                None => &chain.outputs,
            };
            // Whoever makes all that is taken behind this step writes it where it is to stay.
            let last = match takes[..] {
                [Origin::Operator(index)] if !chain.kept[index] && place != Destination::Lanes => Some(index),
                _ => None,
            };
            let mut room = |index: usize, kept: &mut [RowBuffer], out: &mut RowBuffer| -> *mut RowBuffer {
                if chain.kept[index] {
                    &raw mut kept[index]
                } else if last != Some(index) {
                    &raw mut buffers[index]
                } else if place == Destination::Sink {
                    &raw mut *out
                } else {
                    // SAFETY: the batch is this worker's until it is released.
                    unsafe { slot.inputs[k].with_buffer(|buffer| &raw mut *buffer) }
                }
            };
            // What comes in.
            let mut rows_in = events.n;
            if k > 0 {
                let (input, index) = (&slot.inputs[k - 1], self.stages[k - 1].operator);
                head.rows[index] = if let [only] = &input.outputs[..] {
                    // SAFETY: the lane is done, and the batch is this worker's.
                    let is_empty = input.batch.with(|batch| unsafe { (*batch).n == 0 });
                    only.with_mut(|output| {
                        // SAFETY: as above; no worker writes the outputs before the slot is reused.
                        let rows = unsafe { &mut (*output).rows };
                        if is_empty {
                            // The lane never saw this batch: these are outputs of an older one.
                            rows.clear();
                        }
                        &raw const *rows
                    })
                } else {
                    let out = room(index, &mut head.kept, &mut head.out);
                    // SAFETY: the room is this worker's, or the batch's.
                    let merged = unsafe { &mut *out };
                    merged.clear();
                    input.batch.with(|batch| {
                        // SAFETY: all lanes are done with the batch.
                        let batch = unsafe { &*batch };
                        // SAFETY: as above.
                        unsafe { merge(batch, &input.outputs, merged) }
                    })?;
                    out
                };
                // SAFETY: it was made just now.
                rows_in = unsafe { (*head.rows[index]).len() };
            }
            clock.lap(&mut counters.time.other);
            let stream = |origin: Origin, rows: &[*const RowBuffer]| match origin {
                Origin::Events => events,
                // SAFETY: made in this step, or kept since; not written while they are taken.
                Origin::Operator(index) => Rows::of(unsafe { &*rows[index] }, text),
            };
            // The stateless operators.
            for index in chain.step(k) {
                let operator = &operators[index];
                // SAFETY: the rows are readable; the room for a union is this worker's.
                let rows = unsafe { taken(&operator.inputs, |origin| stream(origin, &head.rows), &mut unions[index]) }?;
                let out = room(index, &mut head.kept, &mut head.out);
                // SAFETY: the room is this worker's, or the batch's.
                let made = unsafe { &mut *out };
                made.clear();
                // SAFETY: the rows are what the operator takes.
                let outcome = unsafe { operator.map(rows, made) };
                counters.dropped += made.take_dropped();
                head.rows[index] = out;
                self.note(index, outcome, frame)?;
            }
            if place == Destination::Sink {
                head.outputs = match takes[..] {
                    [Origin::Operator(index)] => head.rows[index],
                    _ => {
                        let streams: Vec<Rows> = takes.iter().map(|&origin| stream(origin, &head.rows)).collect();
                        // SAFETY: the rows are readable and lie elsewhere.
                        unsafe { union(&streams, &mut head.out) }?;
                        &raw const head.out
                    }
                };
                // SAFETY: the outputs are there, and stay until the batch is delivered.
                let outputs = unsafe { &*head.outputs };
                head.prepared = frame.preparer.prepare(outputs, text)?;
                clock.lap(&mut counters.time.useful);
                return Ok::<_, RunError>((rows_in, outputs.len()));
            }
            clock.lap(&mut counters.time.useful);
            let union = match place {
                Destination::Lanes => &raw mut unions[self.stages[k].operator],
                // SAFETY: the batch is this worker's until it is released.
                _ => unsafe { slot.inputs[k].with_buffer(|buffer| &raw mut *buffer) },
            };
            // SAFETY: as above; the room for a union is this worker's, or the batch's.
            let rows = unsafe { taken(takes, |origin| stream(origin, &head.rows), &mut *union) }?;
            slot.inputs[k].batch.with_mut(|batch| {
                // SAFETY: the batch is this worker's until it is released.
                let batch = unsafe { &mut *batch };
                match operators[self.stages[k].operator].key {
                    // SAFETY: the rows have the layout of the key's operator's inputs.
                    Some(key) => unsafe {
                        scratch.hash(rows, key)?;
                        if place == Destination::Lane {
                            batch.whole(rows, &mut scratch.hashes);
                        } else {
                            match frame.lanes[k].ranges() {
                                None => {
                                    batch.sort(rows, &scratch.hashes, |row, count| lane_of(scratch.hashes[row], count))
                                }
                                Some(ranges) => {
                                    scratch.place(rows, key)?;
                                    batch.sort(rows, &scratch.hashes, |row, _| ranges.range(scratch.positions[row]))
                                }
                            }?;
                        }
                    },
                    None => batch.whole(rows, &mut Vec::new()),
                }
                self.stages[k].queue.offer(serial, &|lane| batch.starts[lane] < batch.starts[lane + 1]);
                Ok((rows_in, rows.n))
            })
        })?;
        if k == self.stages.len() {
            self.deliver(serial, job)?;
        } else {
            let stage = &self.stages[k];
            stage.front.complete_and_release(serial, &mut |serial| {
                // SAFETY: the releasing worker sees the complete batch, which no lane has before it is added.
                stage.count_entered(self.slot(serial).inputs[k].batch.with(|batch| unsafe { (*batch).n }));
                if !stage.queue.add(serial) {
                    stage.done.offer(serial);
                }
            });
        }
        frame.signals.idle.notify();
        clock.lap(&mut worker.counters.time.other);
        Ok(counts)
    }

    /// Lets batch `serial` leave, and whatever waited for it.
    fn deliver(&self, serial: u64, job: &Job) -> Result<(), RunError> {
        let mut failure = None;
        self.back.complete_and_release(serial, &mut |serial| {
            let outcome = self.slot(serial).head.with(|head| {
                // SAFETY: the reorder buffer lets one worker at a time deliver, after the batch was completed; the outputs
                // stay until the slot is reused.
                unsafe {
                    let head = &*head;
                    job.frame.deliver(0, |delivered| {
                        delivered.sink.deliver(&*head.outputs, &head.prepared, job.block.text)?;
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
