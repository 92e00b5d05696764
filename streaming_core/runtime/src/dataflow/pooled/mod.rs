//! The `pooled` executor: a pool of workers that choose their work at run time, with total order end to end.
//! Source: Prasaad, Ramalingam, Kaushik: Scaling Ordered Stream Processing on Shared-Memory Multicores.
//!
//! A block is cut into batches. A batch has a serial number, and lives in slot `serial % WINDOW` until it is delivered. The
//! operators, in topological order, form steps and stages. A step is a chain of fused stateless operators; any worker runs it
//! on any batch. A stage is one partitioned or stateful operator; a worker per lane runs it on batches in order.
//!
//! ```text
//! source -> step 0 -> [reorder] -> stage 0 by lanes -> step 1 -> [reorder] -> stage 1 ... -> step K -> [reorder] -> sink
//! ```
//!
//! A step first merges the outputs of the lanes before it, in order, unless the lanes have digested them for the sink. With
//! queue `lanes` it also deals its own outputs to the lanes of the next stage. With the paper's queues, the worker that takes
//! them out of the reorder buffer does so. A pipeline that branches (the paper has none) takes the same way, one operator with state after
//! the other. A batch keeps the rows of an operator until their last consumer has them, and unites streams that meet.
//!
//! Three strategies can be chosen. The `heuristic` chooses a worker's next place; the paper's heuristics use a central
//! scheduler. The `queue` decides how a stage hands out its lanes. The `reorder` buffer restores the order. README.md argues
//! that nothing overflows, and that no workers wait in a circle. With one thread and the default strategies, batches pass
//! straight through (`direct`).
//!
//! With the default strategies, any number of workers may take part in a section of a block (`threads/choice.rs`). All can take
//! any lane and any step, so the others are not missed. Channels start anew when the number changes, with no batch in flight.

mod estimates;
mod grouping;
mod heuristic;
mod in_order;
mod input;
mod lanes;
mod place;
mod places;
mod pool;
mod regroup;
mod scheduler;
mod slot;
mod stage;
mod step;
mod strategies;
mod times;
mod touched;
mod worklist;

use crate::dataflow::frame::{Dataflow, Frame, Job, Work, any_number};
use crate::error::RunError;
use crate::executor::Executor;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::threads::choice::Choice;

use grouping::Grouping;
use place::Allotment;
use pool::{MOST_UNITS, NOWHERE, Pool, Worker};
use stage::Stage;
use strategies::Strategies;
use worklist::list::Reach;

/// The number of batches after which the shares are examined first; then again each time the number has doubled.
const TRIAL: usize = 64;

/// The executor; see the module.
type Pooled = Dataflow<Pool>;

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an option names a strategy that does not exist.
pub(crate) fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    let strategies = Strategies::named(&options)?;
    let options = if strategies.is_default { options.within_cores() } else { options };
    Ok(Box::new(pooled(&program, &options, strategies, strategies.grouping(&options))?))
}

fn pooled(
    program: &Program,
    options: &Options,
    strategies: Strategies,
    grouping: Grouping,
) -> Result<Pooled, RunError> {
    let choice = if strategies.is_default { any_number(options) } else { Choice::fixed(options.threads) };
    let pool = |frame: &Frame| Pool::new(&frame.chain, strategies, grouping, options);
    Dataflow::new(program, options, choice, true, 1, |_| 1, pool)
}

impl Work for Pool {
    fn section(&self, frame: &Frame, processed: u64) -> usize {
        // The work so far decides how to go on.
        let most = MOST_UNITS.saturating_mul(frame.batch);
        if self.is_direct { usize::MAX } else { (TRIAL * frame.batch).max(processed as usize).min(most) }
    }

    fn begin(&mut self, frame: &mut Frame, n: usize, choice: &Choice) -> Result<(), RunError> {
        self.regroup(frame, choice)?;
        self.begin_section(n, frame.batch);
        Ok(())
    }

    fn work(&self, thread: usize, job: &Job) -> Result<(), RunError> {
        // SAFETY: each worker has its own.
        unsafe {
            self.workers.with_mut(thread, |worker| match self.is_direct {
                true => alone(worker, job),
                false => self.go_round(thread, worker, job),
            })
        }
    }

    fn counters(&self) -> Counters {
        // SAFETY: no worker is at work.
        unsafe { self.workers.sum(|worker| worker.counters) }
    }
}

/// With one thread and the default strategies: batch after batch straight through the chain.
fn alone(worker: &mut Worker, job: &Job) -> Result<(), RunError> {
    let (frame, rows) = (job.frame, job.rows());
    for start in (0..rows.n).step_by(frame.batch) {
        frame.check()?;
        let end = rows.n.min(start + frame.batch);
        if frame.arrivals.is_open_loop() {
            let mut clock = Stopwatch::start();
            job.await_arrival(end, || frame.is_stopped());
            clock.lap(&mut worker.counters.time.other);
        }
        let started = job.clock.now();
        // SAFETY: the rows are the block's events; there is no other thread.
        unsafe {
            frame.deliver(0, |delivered| {
                let (batch, sink) = (rows.slice(start..end), &mut delivered.sink);
                worker.direct.events(&frame.chain, &frame.lanes, batch, sink, &mut worker.counters)?;
                delivered.record(job.clock.now(), started, job.arrival(start));
                Ok::<_, RunError>(())
            })
        }?;
    }
    Ok(())
}

impl Pool {
    /// Does the work of worker `me` for a block.
    fn go_round(&self, me: usize, worker: &mut Worker, job: &Job) -> Result<(), RunError> {
        let mut clock = Stopwatch::start();
        loop {
            job.frame.check()?;
            if self.is_over() {
                return Ok(());
            }
            if self.heuristic.is_central() {
                match self.allot(me, worker, job) {
                    Allotment::Place(place) => {
                        self.spend_slice(place, Reach::All, me, worker, job, &mut clock)?;
                    }
                    Allotment::Nothing(nothing) => {
                        self.scheduler.rest(|| self.rest(worker, job, &mut clock, || self.should_ask(&nothing, job)));
                    }
                }
                continue;
            }
            let did = match self.choose(me, job) {
                Some(place) => self.spend_slice(place, Reach::Own, me, worker, job, &mut clock)?,
                None => false,
            };
            if !did && !self.help(me, worker, job, &mut clock)? {
                self.move_to(me, NOWHERE);
                job.frame.signals.idle.notify();
                self.rest(worker, job, &mut clock, || self.has_work(me, job));
            }
        }
    }

    /// A hint whether there is work for worker `me`.
    fn has_work(&self, me: usize, job: &Job) -> bool {
        let is_waiting = |stage: &Stage| stage.done.is_waiting() || stage.is_waiting(me, Reach::All);
        self.source_is_open(job) || self.stages.iter().any(is_waiting)
    }

    /// Waits until `something` is, or the work is over.
    fn rest(&self, worker: &mut Worker, job: &Job, clock: &mut Stopwatch, something: impl Fn() -> bool) {
        clock.lap(&mut worker.counters.time.other);
        let idle = &job.frame.signals.idle;
        let is_ready = || job.frame.is_stopped() || self.is_over() || something();
        if job.frame.arrivals.is_open_loop() {
            // No thread notifies sleepers when an event arrives, so they look again soon.
            let mut patience = idle.patience();
            while !is_ready() {
                if !patience.pass() {
                    std::thread::sleep(std::time::Duration::from_micros(50));
                }
            }
        } else {
            idle.wait(is_ready);
        }
        clock.lap(&mut worker.counters.time.sync);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
