//! Stages: one partitioned or stateful operator, a worker per lane, batches in order.

use crate::channel::reorder::ReorderBuffer;
use crate::channel::worklist::{HybridQueue, InOrder};
use crate::executor::pooled::place::average;
use crate::executor::pooled::pool::{Pool, Worker};
use crate::kernel::RunError;
use crate::metrics::Stopwatch;

#[derive(Debug)]
pub struct Stage {
    /// Position in the chain.
    pub operator: usize,
    /// Reorders what the step in front makes.
    pub front: ReorderBuffer,
    pub queue: HybridQueue,
    /// Batches that all lanes are done with.
    pub done: InOrder,
}

impl Stage {
    pub fn new(operator: usize, lanes: usize, window: usize) -> Self {
        Self {
            operator,
            front: ReorderBuffer::new(window),
            queue: HybridQueue::new(lanes, window),
            done: InOrder::new(window),
        }
    }
}

impl Pool {
    pub fn lane_is_waiting(&self, stage: usize, lane: usize) -> bool {
        self.stages[stage].queue.is_waiting(lane, self.stages[stage].front.released())
    }

    /// Lanes of a stage that a worker looks after first, so that their state stays in its cache.
    pub fn home(&self, stage: usize, index: usize) -> std::ops::Range<usize> {
        let (threads, lanes) = (self.workers.len(), self.lanes[stage].count());
        if lanes == 1 {
            // Single lanes are dealt out from the end of the chain.
            let mine = (self.stages.len() - 1 - stage) % threads == index;
            return 0..usize::from(mine);
        }
        index * lanes / threads..(index + 1) * lanes / threads
    }

    /// Lanes that others look after: the last resort, since their state is in another cache.
    pub fn steal(&self, index: usize, worker: &mut Worker, clock: &mut Stopwatch) -> Result<bool, RunError> {
        for stage in (0..self.stages.len()).rev() {
            let home = self.home(stage, index);
            for lane in (home.end..self.lanes[stage].count()).chain(0..home.start) {
                if self.run_lanes(stage, lane..lane + 1, index, worker, clock)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Takes what is waiting for `lanes` of a stage through its operator; false: nothing was.
    pub fn run_lanes(
        &self,
        index: usize,
        lanes: std::ops::Range<usize>,
        me: usize,
        worker: &mut Worker,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        let stage = &self.stages[index];
        let operator = &self.chain.operators[stage.operator];
        let released = stage.front.released();
        let mut done = 0;
        for lane in lanes {
            let Some(mut held) = stage.queue.take(lane, released) else { continue };
            if done == 0 {
                self.move_to(me, 2 * index + 1);
                clock.lap(&mut worker.counters.time.other);
            }
            while let Some(serial) = held.next(released) {
                let input = &self.slot(serial).inputs[index];
                let outcome = input.batch.with(|batch| {
                    input.outputs[lane].with_mut(|output| {
                        // SAFETY: the batch was released, and is not written until all its lanes are done; this
                        // worker holds the lane, and with it the lane's outputs.
                        let (batch, output) = unsafe { (&*batch, &mut *output) };
                        let (rows, hashes) = batch.lane(lane);
                        output.rows.clear();
                        // SAFETY: the lane was made for this operator and is held; the rows are the batch's.
                        let outcome = unsafe {
                            self.lanes[index].with(lane, |state| {
                                state.process(operator, rows, hashes, &mut worker.scratch, &mut output.rows)
                            })
                        };
                        let origins = output.rows.origins();
                        output.one_each = origins.len() == rows.n
                            && origins.iter().enumerate().fold(true, |same, (i, &origin)| same & (origin == i as u32));
                        worker.counters.dropped += output.rows.take_dropped();
                        outcome
                    })
                });
                self.note(outcome)?;
                done += 1;
                if held.done(serial) {
                    stage.done.offer(serial);
                    self.idle.notify();
                }
            }
            held.put_back();
            self.idle.notify();
        }
        if done > 0 {
            let before = worker.counters.time.useful;
            clock.lap(&mut worker.counters.time.useful);
            let per_lane = (worker.counters.time.useful - before) as f64 / done as f64;
            average(&mut worker.costs[2 * index + 1], per_lane * self.lanes[index].count() as f64);
        }
        Ok(done > 0)
    }
}
