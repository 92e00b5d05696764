//! What a worker does at the lanes of a stage.

use crate::dataflow::frame::Job;
use crate::dataflow::pooled::places::Place;
use crate::dataflow::pooled::pool::{Pool, Worker};
use crate::dataflow::pooled::worklist::list::{Reach, Visit, Visitor};
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::threads::team::Signals;

/// A worker at the lanes of a stage.
struct AtLanes<'a> {
    pool: &'a Pool,
    place: usize,
    stage: usize,
    /// The worker sends on the batches that are done.
    sends: bool,
    me: usize,
    job: &'a Job<'a>,
    worker: &'a mut Worker,
    clock: &'a mut Stopwatch,
    /// Parts of batches so far, and the rows that went in and came out.
    parts: usize,
    rows_in: usize,
    rows_out: usize,
    /// Rows that a slice is enough for; None until `is_spent` needs it.
    most: Option<usize>,
    /// The failure of a batch behind the stage.
    failure: Option<RunError>,
}

impl Visitor for AtLanes<'_> {
    fn run(&mut self, lane: usize, serial: u64) -> Result<(), RunError> {
        let Self { pool, stage, worker, job, .. } = self;
        let frame = job.frame;
        if self.parts == 0 {
            pool.move_to(self.me, self.place);
            self.clock.lap(&mut worker.counters.time.other);
        }
        let index = pool.stages[*stage].operator;
        let operator = &frame.chain.operators[index];
        let input = &pool.slot(serial).inputs[*stage];
        let outcome = input.batch.with(|batch| {
            input.outputs[lane].with_mut(|output| {
                // SAFETY: no worker writes a released batch until all its lanes are done. No other worker is at the lane,
                // nor at the lane's outputs.
                let (batch, output) = unsafe { (&*batch, &mut *output) };
                let (rows, hashes) = batch.lane(lane);
                pool.stages[*stage].count_taken(self.me, rows.n);
                output.rows.clear();
                // SAFETY: the lane belongs to this operator and to this worker, the rows to the batch.
                let outcome = unsafe {
                    frame.lanes[*stage].with(lane, |state| {
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
        pool.note(index, outcome, frame)?;
        self.parts += 1;
        Ok(())
    }

    fn finish(&mut self, serial: u64) {
        self.pool.stages[self.stage].done.offer(serial);
        self.job.frame.signals.idle.notify();
        if self.sends {
            self.send();
        }
    }

    /// A slice holds as many rows as their estimated cost allows; one part, while no worker knows the cost.
    fn is_spent(&mut self) -> bool {
        let rows = || {
            let cost = self.pool.estimates.averages(self.place).cost();
            cost.map_or(1, |cost| (self.pool.slice as f64 / cost) as usize)
        };
        self.rows_in > 0 && self.rows_in >= *self.most.get_or_insert_with(rows)
    }

    fn wait(&mut self, wait: &mut dyn FnMut()) {
        self.clock.lap(&mut self.worker.counters.time.useful);
        wait();
        self.clock.lap(&mut self.worker.counters.time.sync);
    }
}

impl AtLanes<'_> {
    /// Takes the batches that are done through the empty step behind the stage.
    fn send(&mut self) {
        // The time so far is that of the lanes.
        self.clock.lap(&mut self.worker.counters.time.useful);
        while self.failure.is_none()
            && let Some(serial) = self.pool.stages[self.stage].done.take()
        {
            self.failure = self.pool.run_step(self.stage + 1, serial, self.worker, self.job, self.clock).err();
        }
    }
}

impl Pool {
    /// Takes the work that waits at the stage of `place` through its operator. Returns whether there was any.
    pub fn run_lanes(
        &self,
        place: usize,
        reach: Reach,
        me: usize,
        worker: &mut Worker,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        let Place::Stage { index, sends, .. } = self.places[place] else { unreachable!("a step has no lanes") };
        let stage = &self.stages[index];
        let Signals { idle, stopped, .. } = &*job.frame.signals;
        let turn = Visit { worker: me, reach, released: stage.front.released(), idle, stopped };
        let before = worker.spent();
        let mut at = AtLanes {
            pool: self,
            place,
            stage: index,
            sends,
            me,
            job,
            worker,
            clock,
            parts: 0,
            rows_in: 0,
            rows_out: 0,
            most: None,
            failure: None,
        };
        let did = stage.queue.work(&turn, &mut at)?;
        if let Some(failure) = at.failure {
            return Err(failure);
        }
        if did {
            let AtLanes { worker, clock, parts, rows_in, rows_out, .. } = at;
            // A worker that only delegated parts did no useful work itself.
            let time = &mut worker.counters.time;
            clock.lap(if parts > 0 { &mut time.useful } else { &mut time.other });
            self.estimates.record(me, place, worker.spent() - before, rows_in, rows_out);
        }
        idle.notify();
        Ok(did)
    }
}
