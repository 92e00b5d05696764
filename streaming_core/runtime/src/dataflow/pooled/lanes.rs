//! What a worker does at the lanes of a stage.

use crate::dataflow::frame::{Frame, Job};
use crate::dataflow::pooled::places::Place;
use crate::dataflow::pooled::pool::{Pool, Worker};
use crate::dataflow::pooled::worklist::list::{Dealer, Reach, Visit, Visitor};
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::sink::Prepared;
use crate::rows::buffer::RowBuffer;
use crate::rows::view::Rows;
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
        input.batch.with(|batch| {
            // SAFETY: no worker writes a released batch until all its lanes are done.
            let batch = unsafe { &*batch };
            let part = batch.lane(lane);
            let rows = part.rows;
            pool.stages[*stage].count_taken(self.me, rows.n);
            // With the paper's queues, a call takes as many tuples as a batch has events. With batches of one, that is
            // `operate(tuple)` of figure 7. Ours takes the whole part.
            let unit = match pool.stages[*stage].deals {
                Dealer::Releaser => frame.batch,
                Dealer::Maker => rows.n,
            };
            let Worker { scratch, buffers, counters, .. } = &mut **worker;
            let mut run = |out: &mut RowBuffer| {
                let (first, mut outcome) = (out.len(), Ok(()));
                for start in (0..rows.n).step_by(unit) {
                    let range = start..rows.n.min(start + unit);
                    let (rows, hashes) = (rows.slice(range.clone()), part.hashes.get(range).unwrap_or_default());
                    let before = out.len();
                    // SAFETY: no other worker is at the lane, which belongs to this operator, and the rows to the batch.
                    outcome = unsafe {
                        frame.lanes[*stage].with(lane, |state| state.process(operator, rows, hashes, scratch, out))
                    };
                    out.shift_origins(before, start);
                    if outcome.is_err() {
                        break;
                    }
                }
                counters.dropped += out.take_dropped();
                self.rows_in += rows.n;
                self.rows_out += out.len().saturating_sub(first);
                pool.note(index, outcome, frame)
            };
            if !batch.is_numbered() {
                // SAFETY: no other worker is at the lane, nor at this worker's outputs.
                return unsafe { part.append(self.me, run) };
            }
            // Outputs that the lane digests go no further.
            buffers[index].clear();
            run(&mut buffers[index])?;
            // SAFETY: the buffers hold what the operator has put out; no other worker is at the lane.
            unsafe { part.digested(digest(pool, frame, index, rows, part.subs, buffers)?) };
            Ok(())
        })?;
        self.parts += 1;
        Ok(())
    }

    fn finish(&mut self, serial: u64) {
        self.pool.stages[self.stage].finish(serial);
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

/// Takes the outputs of a lane of the last stage, that of operator `index`, through the stateless operators behind it, and digests
/// them. Every output is numbered as its input.
///
/// # Safety
/// The operator has put its outputs into its buffer. `inputs` are its inputs, and `subs` their numbers.
unsafe fn digest(
    pool: &Pool,
    frame: &Frame,
    index: usize,
    inputs: Rows,
    subs: &[u32],
    buffers: &mut [RowBuffer],
) -> Result<Prepared, RunError> {
    for index in index + 1..frame.chain.operators.len() {
        let (before, behind) = buffers.split_at_mut(index);
        behind[0].clear();
        // SAFETY: the rows are what the operator takes, and the buffer is this worker's.
        let outcome =
            unsafe { frame.chain.operators[index].map(Rows::of(&before[index - 1], inputs.text), &mut behind[0]) };
        pool.note(index, outcome, frame)?;
    }
    let rows = Rows::of(&buffers[frame.chain.operators.len() - 1], inputs.text);
    match rows.n == inputs.n {
        // SAFETY: a buffer's rows are readable.
        true => unsafe { frame.preparer.prepare_numbered(rows, subs) },
        false if pool.has_failed() => Ok(Prepared::nothing()),
        false => Err(RunError::Engine("an operator does not emit as many rows as its program says".into())),
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
