//! Stages: one partitioned or stateful operator, a worker per lane, batches in order.

use crate::dataflow::operator::Chain;
use crate::dataflow::pooled::in_order::InOrder;
use crate::dataflow::pooled::pool::{Pool, Worker};
use crate::dataflow::pooled::strategies::Strategies;
use crate::dataflow::pooled::worklist::{Reach, Run, SINGLE, Shape, Turn, Worklist};
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::program::OperatorKind;
use crate::threads::reorder::ReorderBuffer;

#[derive(Debug)]
pub struct Stage {
    /// Position in the chain.
    pub operator: usize,
    /// Reorders what the step in front makes.
    pub front: Box<dyn ReorderBuffer>,
    pub queue: Box<dyn Worklist>,
    /// Batches that all lanes are done with.
    pub done: InOrder,
}

impl Stage {
    /// Stage `index` of the chain.
    pub fn new(chain: &Chain, index: usize, lanes: usize, workers: usize, window: usize, how: Strategies) -> Self {
        let operator = chain.stateful[index];
        let is_partitioned = chain.operators[operator].kind == OperatorKind::Partitioned;
        let queue = if is_partitioned { how.queue } else { SINGLE };
        // Only lanes are dealt out from the end of the chain.
        let owner = (chain.stateful.len() - 1 - index) % workers;
        Self {
            operator,
            front: (how.reorder)(window),
            queue: (queue.make)(Shape { lanes, workers, window, owner }),
            done: InOrder::new(window),
        }
    }

    /// Whether `worker` would find something, perhaps: a hint.
    pub fn is_waiting(&self, worker: usize, reach: Reach) -> bool {
        self.queue.is_waiting(worker, reach, self.front.released())
    }

    /// Batches that were released to the stage and are not done: a hint.
    pub fn queued(&self) -> u64 {
        self.front.released().saturating_sub(self.done.taken() + self.done.waiting())
    }
}

/// A worker at the lanes of a stage.
struct AtLanes<'a> {
    pool: &'a Pool,
    stage: usize,
    me: usize,
    worker: &'a mut Worker,
    clock: &'a mut Stopwatch,
    /// Parts of batches so far, and the rows that went in and came out.
    parts: usize,
    rows_in: usize,
    rows_out: usize,
}

impl Run for AtLanes<'_> {
    fn run(&mut self, lane: usize, serial: u64) -> Result<(), RunError> {
        let Self { pool, stage, worker, .. } = self;
        if self.parts == 0 {
            pool.move_to(self.me, 2 * *stage + 1);
            self.clock.lap(&mut worker.counters.time.other);
        }
        let operator = &pool.chain.operators[pool.stages[*stage].operator];
        let input = &pool.slot(serial).inputs[*stage];
        let outcome = input.batch.with(|batch| {
            input.outputs[lane].with_mut(|output| {
                // SAFETY: the batch was released, and is not written until all its lanes are done; nobody else is at
                // the lane, nor at the lane's outputs.
                let (batch, output) = unsafe { (&*batch, &mut *output) };
                let (rows, hashes) = batch.lane(lane);
                output.rows.clear();
                // SAFETY: the lane was made for this operator, and is this worker's; the rows are the batch's.
                let outcome = unsafe {
                    pool.lanes[*stage].with(lane, |state| {
                        state.process(operator, rows, hashes, &mut worker.scratch, &mut output.rows)
                    })
                };
                let origins = output.rows.origins();
                output.one_each = origins.len() == rows.n
                    && origins.iter().enumerate().fold(true, |same, (i, &origin)| same & (origin == i as u32));
                worker.counters.dropped += output.rows.take_dropped();
                self.rows_in += rows.n;
                self.rows_out += output.rows.len();
                outcome
            })
        });
        pool.note(outcome)?;
        self.parts += 1;
        Ok(())
    }

    fn finish(&mut self, serial: u64) {
        self.pool.stages[self.stage].done.offer(serial);
        self.pool.idle.notify();
    }

    fn wait(&mut self, wait: &mut dyn FnMut()) {
        self.clock.lap(&mut self.worker.counters.time.useful);
        wait();
        self.clock.lap(&mut self.worker.counters.time.sync);
    }
}

impl Pool {
    /// Takes what is waiting at a stage through its operator; false: nothing was.
    pub fn run_lanes(
        &self,
        index: usize,
        reach: Reach,
        me: usize,
        worker: &mut Worker,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        let stage = &self.stages[index];
        let turn =
            Turn { worker: me, reach, released: stage.front.released(), idle: &self.idle, stopped: &self.broken };
        let before = worker.counters.time.useful;
        let mut at = AtLanes { pool: self, stage: index, me, worker, clock, parts: 0, rows_in: 0, rows_out: 0 };
        let did = stage.queue.work(&turn, &mut at)?;
        if did {
            let AtLanes { worker, clock, rows_in, rows_out, .. } = at;
            clock.lap(&mut worker.counters.time.useful);
            self.estimates.record(me, 2 * index + 1, worker.counters.time.useful - before, rows_in, rows_out);
        }
        self.idle.notify();
        Ok(did)
    }
}
