//! Steps: fused stateless operators, any worker on any batch.

use std::ptr::null;

use crate::batch::RowBuffer;
use crate::executor::pooled::input::merge;
use crate::executor::pooled::pool::{Job, Pool, Worker};
use crate::executor::pooled::slot::Slot;
use crate::kernel::RunError;
use crate::metrics::Stopwatch;
use crate::stage::{Lanes, Rows};
use crate::sync::Ordering;

/// Where the rows that a step makes have to stay.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// With the batch, until it is delivered.
    Sink,
    /// With the batch, for the only lane of the stage behind.
    Lane,
    /// They are copied into lane order at once.
    Lanes,
}

impl Pool {
    pub fn source_is_open(&self, job: &Job<'_>) -> bool {
        // ORDERING: Relaxed: a hint; the exchange in `start` decides.
        let next = self.source.load(Ordering::Relaxed);
        next < job.end.min(self.back.released() + self.window) && !self.has_failed() && self.has_arrived(next, job)
    }

    /// Whether the last event of batch `serial` is there.
    pub fn has_arrived(&self, serial: u64, job: &Job<'_>) -> bool {
        if !self.arrivals.is_open_loop() {
            return true;
        }
        let last = ((serial - job.first + 1) * self.batch as u64).min(job.block.n as u64) - 1;
        job.clock.now() >= self.arrivals.at(job.before + last)
    }

    /// Batches that could be started now: a hint.
    pub fn startable(&self, job: &Job<'_>) -> u64 {
        // ORDERING: Relaxed: a hint.
        let next = self.source.load(Ordering::Relaxed);
        let room = job.end.min(self.back.released() + self.window).saturating_sub(next);
        // What has not arrived yet waits for nobody.
        if self.arrivals.is_open_loop() { room.min(u64::from(self.source_is_open(job))) } else { room }
    }

    /// The next batch of the block, for this worker to start.
    pub fn start(&self, job: &Job<'_>) -> Option<u64> {
        // ORDERING: Relaxed: the counter only hands out numbers; what the slot held is seen through `back`.
        let next = self.source.load(Ordering::Relaxed);
        if next >= job.end.min(self.back.released() + self.window) || self.has_failed() || !self.has_arrived(next, job)
        {
            return None;
        }
        // ORDERING: as above. The slot is free: `released`, read with Acquire, is beyond the batch it held.
        self.source.compare_exchange(next, next + 1, Ordering::Relaxed, Ordering::Relaxed).ok()
    }

    pub fn slot(&self, serial: u64) -> &Slot {
        &self.slots[(serial & (self.window - 1)) as usize]
    }

    /// Takes batch `serial` through step `k`: merges what the lanes in front emitted, runs the stateless operators,
    /// and hands the result to the stage behind, or to the sink; how many rows came in and went out.
    pub fn run_step(
        &self,
        k: usize,
        serial: u64,
        worker: &mut Worker,
        job: &Job<'_>,
        clock: &mut Stopwatch,
    ) -> Result<(usize, usize), RunError> {
        let slot = self.slot(serial);
        clock.lap(&mut worker.counters.time.other);
        let Worker { buffers, merged, scratch, counters, .. } = worker;
        let text = job.block.text;
        let counts = slot.head.with_mut(|head| {
            // SAFETY: the worker that took the batch for this step owns its head until it hands the batch on.
            let head = unsafe { &mut *head };
            head.out.clear();
            let step = self.chain.step(k);
            let place = match self.lanes.get(k).map(Lanes::count) {
                None => Place::Sink,
                Some(1) => Place::Lane,
                Some(_) => Place::Lanes,
            };
            // What comes in.
            let mut outputs: *const RowBuffer = null();
            let mut rows;
            if k == 0 {
                head.start = (serial - job.first) as usize * self.batch;
                head.end = job.block.n.min(head.start + self.batch);
                head.started = job.clock.now();
                let block = job.block;
                rows = Rows { start: block.row(0), n: block.n, stride: block.stride, text }.slice(head.start..head.end);
            } else {
                let input = &slot.inputs[k - 1];
                if let [only] = &input.outputs[..] {
                    // SAFETY: the lane is done, and the batch is this worker's.
                    let is_empty = input.batch.with(|batch| unsafe { (*batch).n == 0 });
                    outputs = only.with_mut(|output| {
                        // SAFETY: as above; nobody writes the outputs before the slot is reused.
                        let rows = unsafe { &mut (*output).rows };
                        if is_empty {
                            // The lane never saw this batch: these are outputs of an older one.
                            rows.clear();
                        }
                        rows as *const RowBuffer
                    });
                } else {
                    let mut run = |out: &mut RowBuffer| {
                        out.clear();
                        outputs = out;
                        input.batch.with(|batch| {
                            // SAFETY: all lanes are done with the batch.
                            let batch = unsafe { &*batch };
                            // SAFETY: as above.
                            unsafe { merge(batch, &input.outputs, out) }
                        })
                    };
                    match place {
                        Place::Sink if step.is_empty() => run(&mut head.out),
                        // SAFETY: the batch is this worker's until it is released.
                        Place::Lane if step.is_empty() => unsafe { slot.inputs[k].with_buffer(run) },
                        _ => run(&mut merged[k - 1]),
                    }?;
                }
                // SAFETY: not null: set above, and not written while the rows are used.
                rows = Rows::of(unsafe { &*outputs }, text);
            }
            let rows_in = rows.n;
            clock.lap(&mut counters.time.other);
            // The stateless operators. The last one writes where the rows are to stay.
            for index in step.clone() {
                let operator = &self.chain.operators[index];
                let mut run = |out: &mut RowBuffer| {
                    out.clear();
                    // SAFETY: the rows are events, or outputs of the operator before.
                    let outcome = unsafe { operator.map(rows, out) };
                    counters.dropped += out.take_dropped();
                    outputs = out;
                    rows = Rows::of(out, text);
                    self.note(outcome)
                };
                match place {
                    Place::Sink if index + 1 == step.end => run(&mut head.out),
                    // SAFETY: the batch is this worker's until it is released.
                    Place::Lane if index + 1 == step.end => unsafe { slot.inputs[k].with_buffer(run) },
                    _ => run(&mut buffers[index]),
                }?;
            }
            if place == Place::Sink {
                // SAFETY: a chain has an operator, so there are outputs; they stay until the batch is delivered.
                head.prepared = self.preparer.prepare(unsafe { &*outputs }, text)?;
                head.outputs = outputs;
                clock.lap(&mut counters.time.useful);
                return Ok((rows_in, rows.n));
            }
            clock.lap(&mut counters.time.useful);
            slot.inputs[k].batch.with_mut(|batch| {
                // SAFETY: the batch is this worker's until it is released.
                let batch = unsafe { &mut *batch };
                match self.chain.operators[self.stages[k].operator].key {
                    // SAFETY: the rows have the layout of the key's operator's inputs.
                    Some(key) => unsafe {
                        scratch.hash(rows, key)?;
                        if place == Place::Lane {
                            batch.whole(rows, &mut scratch.hashes);
                        } else {
                            batch.sort(rows, &scratch.hashes)?;
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
                if stage.queue.is_empty(serial) {
                    stage.done.offer(serial);
                }
            });
        }
        self.idle.notify();
        clock.lap(&mut worker.counters.time.other);
        Ok(counts)
    }
}
