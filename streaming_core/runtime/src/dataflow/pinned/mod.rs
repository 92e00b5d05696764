//! The `pinned` executor: a task per operator replica, on the thread that the plan names (BriskStream, sections 2 and 5).
//! The channels between tasks keep the order (Viper, section 3).
//!
//! ```text
//! source ==> [gate] split 0 ==> [gate] count 0 ==> [gate] sink
//!        \\> [gate] split 1 ==> [gate] count 1 =/
//! ```
//!
//! A task writes batches into its *outlet*. Its consumers read them there through their *gates*. With channel `gate`, the
//! gates merge the rows that they read. With `scalegate`, a task inserts its rows into a ScaleGate for each reader that has
//! several sources. With `merge_sort`, a merge task stands before each replica that has several sources. It merges and sorts
//! rows on a thread of its own, in addition to those of the plan (Viper, section 3.1). With `pair_queue`, a task has a queue
//! for each of its consumers, and copies rows into tuples that it refills (`pairs.rs`). A thread cycles through its tasks. It
//! skips a task without input, or without room for output. So any number of replicas can share any number of threads.
//!
//! Without a plan, there is a replica per thread, and any number of threads may take part in a block (`threads/choice.rs`).
//! Of A threads, thread `a` runs the tasks of the plan's threads `a`, `a + A`, `a + 2A` and so on. Tasks move between blocks. Of a
//! windowed operator, the first A replicas then own all keys, and the others get no rows.
//!
//! Before a windowed operator, a task per replica finds the keys of rows; these tasks take batches in turn. All replicas read
//! their outlets (`dataflow/windowed`). If replicas share nothing, such a task has an outlet for each of them. With parallelism
//! `vsn_esg` there are no such tasks: producers insert into an elastic ScaleGate, and each replica reads it with a handle of
//! its own. The replicas insert what they put out into another one.
//!
//! No deadlock: a task waits for room until all its readers have moved on, and for input until a source has. Take the
//! earliest event that some task has not taken yet, and the most upstream task that must take it. Every source has told this
//! task that all of the event is there. For each batch has all rows of its events, and says so along every edge. Before a
//! thread waits, its tasks wake the readers of all that they have published (`pause`). The task also has room, because its
//! outputs so far belong to earlier events, and were taken.

mod channels;
mod cost;
mod numbering;
mod pairs;
mod plan;
mod role;
mod route;
mod step;
mod task;
mod wiring;

use crate::dataflow::frame::{Dataflow, Frame, Job, Work, any_number};
use crate::dataflow::windowed::PARALLELISMS;
use crate::dataflow::windowed::owners::Owners;
use crate::error::RunError;
use crate::executor::Executor;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::program::Program;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::threads::bells::INPUT;
use crate::threads::choice::{Choice, Way};
use crate::threads::idle::{self, Patience};
use crate::threads::own::Own;
use crate::threads::sync::AtomicI64;

use serde_json::Value;

use channels::{CHANNELS, Channel};
use plan::{Plan, SINK, SOURCE};
use role::Role;
use step::step;
use task::{Network, Step, Task};
use wiring::graph::Graph;
use wiring::{wakes, wire};

/// The executor; see the module.
type Pinned = Dataflow<Tasks>;

/// All tasks.
#[derive(Debug)]
struct Tasks {
    /// The tasks of each thread: those of one thread of the plan, upstream first, then those of another.
    tasks: Own<Vec<Task>>,
    /// Threads that take part: the first ones.
    threads: usize,
    network: Network,
}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an option names a strategy that does not exist, or the plan does not fit the program.
pub(crate) fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    let options = if leaves_threads_open(&options) { options.within_cores() } else { options };
    Ok(Box::new(pinned(&program, &options)?))
}

/// Whether the options say nothing of replicas and their threads, and nothing that is a published algorithm's.
fn leaves_threads_open(options: &Options) -> bool {
    let is = |option: &Option<String>, default: &str| option.as_deref().is_none_or(|name| name == default);
    let has_defaults = is(&options.channel, CHANNELS[0].0)
        && is(&options.parallelism, PARALLELISMS[0].0)
        && is(&options.controller, "none");
    has_defaults && options.plan.is_empty() && options.schedule.is_empty()
}

fn pinned(program: &Program, options: &Options) -> Result<Pinned, RunError> {
    let channel = find("channel", " of executor pinned", options.channel.as_deref(), CHANNELS)?;
    if program.is_windowed() && channel != Channel::Gate {
        return Err(RunError::Invalid(
            "windowed operators need channel gate: use channel gate, or leave the option out".into(),
        ));
    }
    let plan = Plan::new(program, &options.plan, options.threads)?;
    check_schedule(program, options, &plan)?;
    let replicas = |operator: usize| plan.operators[operator].len();
    let mergers = if channel == Channel::MergeSort { plan.with_several_sources(program) } else { 0 };
    let choice = if leaves_threads_open(options) {
        any_number(options)
    } else {
        let way = Way { threads: plan.threads(), part: 1 };
        Choice::new([way], 1, options.threads).limited_by("the plan has no tasks for more")
    };
    let (options, threads) =
        (&Options { threads: plan.threads(), merge_threads: mergers, ..options.clone() }, plan.threads() + mergers);
    Dataflow::new(program, options, choice, channel.is_ordered(), plan.sink.len(), replicas, |frame| {
        let (preparer, windows) = (&frame.preparer, &frame.windows);
        let (outlets, tasks) = wire(&Graph::new(program, &plan, channel, preparer, windows), threads, options.batch);
        debug_assert!(tasks[options.threads..].iter().all(|tasks| tasks.len() == 1));
        let failed_at = AtomicI64::new(i64::MAX);
        Tasks { tasks: tasks.into_iter().collect(), threads, network: Network { outlets, failed_at } }
    })
}

/// # Errors
/// `Invalid`: the events of the schedule do not ascend, or it names an unknown operator or replica.
fn check_schedule(program: &Program, options: &Options, plan: &Plan) -> Result<(), RunError> {
    let invalid = |what: String| Err(RunError::Invalid(format!("schedule: {what}")));
    for pair in options.schedule.windows(2) {
        if pair[0].event > pair[1].event {
            return invalid(format!(
                "events must ascend, but event {} comes after event {}",
                pair[1].event, pair[0].event
            ));
        }
    }
    for at in &options.schedule {
        for (name, pattern) in &at.owners {
            let Some(index) = program.operators.iter().position(|o| o.name == *name && o.window.is_some()) else {
                return invalid(format!("{name} is not a windowed operator"));
            };
            if let Err(why) = Owners::check(name, pattern, plan.operators[index].len()) {
                return invalid(format!("event {}: {why}", at.event));
            }
        }
    }
    Ok(())
}

impl Tasks {
    /// Gives the tasks of the plan's threads to the first `threads` threads.
    fn deal(&mut self, threads: usize, frame: &Frame) {
        let mut dealt: Vec<Vec<Task>> = (0..self.tasks.len()).map(|_| Vec::new()).collect();
        for thread in 0..self.tasks.len() {
            // SAFETY: borrowed mutably, so no thread is at work.
            for task in unsafe { self.tasks.with_mut(thread, std::mem::take) } {
                dealt[task.planned % threads].push(task);
            }
        }
        wakes::connect(&mut dealt, &frame.windows);
        frame.windows.iter().flatten().for_each(|windowed| windowed.spread(threads));
        self.tasks = dealt.into_iter().collect();
        self.threads = threads;
    }
}

impl Work for Tasks {
    fn begin(&mut self, frame: &mut Frame, _n: usize, choice: &Choice) -> Result<(), RunError> {
        if !choice.is_fixed() && choice.threads() != self.threads {
            self.deal(choice.threads(), frame);
        }
        Ok(())
    }

    fn work(&self, thread: usize, job: &Job) -> Result<(), RunError> {
        // SAFETY: each thread has its own.
        unsafe { self.tasks.with_mut(thread, |tasks| go_round(tasks, thread, &self.network, job, self.threads == 1)) }
    }

    fn counters(&self) -> Counters {
        let all = |tasks: &Vec<Task>| {
            tasks.iter().fold(Counters::default(), |mut sum, task| {
                sum += task.counters;
                sum
            })
        };
        // SAFETY: no thread is at work.
        unsafe { self.tasks.sum(all) }
    }

    fn tasks(&self, frame: &Frame) -> Value {
        let about = |task: &Task| {
            let name = |operator: usize| &frame.chain.operators[operator].name[..];
            let (role, operator) = match &task.role {
                Role::Source { .. } => ("source", SOURCE),
                Role::Operator { operator, .. } => ("operator", name(*operator)),
                Role::Keys(keys) => ("keys", name(keys.operator)),
                Role::Merge { operator } => ("merge", operator.map_or(SINK, name)),
                Role::Sink { .. } => ("sink", SINK),
            };
            let mut json = task.cost.to_json();
            json["role"] = role.into();
            json["operator"] = operator.into();
            json["thread"] = task.planned.into();
            json
        };
        let of_thread = |thread| {
            let all = |tasks: &Vec<Task>| tasks.iter().map(about).collect::<Vec<_>>();
            // SAFETY: no thread is at work.
            unsafe { self.tasks.with(thread, all) }
        };
        (0..self.tasks.len()).flat_map(of_thread).collect()
    }
}

/// Before a thread waits, its tasks announce what they have put out. Returns whether one of them has got work again: input
/// often follows at once, and to announce each tuple would cost more than the tuple.
fn pause(tasks: &mut [Task], network: &Network, job: &Job) -> bool {
    if !tasks.iter().any(|task| task.owes) {
        return false;
    }
    // Without room, only its readers can help.
    let is_stuck = job.frame.arrivals.is_open_loop() || tasks.iter().any(|task| task.owes && task.blocked);
    let mut patience = Patience::new(idle::Strategy::Park);
    while !is_stuck && patience.pass() {
        if tasks.iter_mut().any(|task| task.may_work(network, job)) {
            return true;
        }
    }
    for task in tasks {
        if task.announce(network, true) {
            job.frame.signals.bells.ring(&[(&task.wakes.readers, INPUT)]);
        }
    }
    false
}

/// Does the work of a thread for a block.
///
/// # Errors
/// `Engine`: it is alone and none of its tasks can go on.
fn go_round(tasks: &mut [Task], thread: usize, network: &Network, job: &Job, is_alone: bool) -> Result<(), RunError> {
    let frame = job.frame;
    tasks.iter_mut().for_each(Task::begin);
    let mut clock = Stopwatch::start();
    loop {
        frame.check()?;
        let (mut worked, mut done) = (false, true);
        for task in &mut *tasks {
            worked |= step(task, &mut Step { network, job, clock: &mut clock })?;
            done &= task.done;
        }
        if done {
            return Ok(()); // at once, if the plan gives this thread nothing to do
        }
        if worked || pause(tasks, network, job) {
            continue;
        }
        let due = tasks.iter().filter(|task| task.awaits_arrival(job)).map(|task| task.next).min();
        clock.lap(&mut tasks[0].counters.time.other);
        let linger = job.linger();
        let awaited = tasks.iter().fold(0, |kinds, task| kinds | task.awaits());
        let mut leaves =
            || frame.is_stopped() || job.linger() != linger || tasks.iter_mut().any(|task| task.may_work(network, job));
        match due {
            // Events arrive without a notification.
            Some(next) => {
                job.await_batch(next, job.block.n.min(next + frame.batch), linger, leaves);
                clock.lap(&mut tasks[0].counters.time.other);
            }
            // The only thread would wait for ever.
            None if is_alone && !leaves() => {
                return Err(RunError::Engine("the run is stuck: no task can make progress".into()));
            }
            None => {
                frame.signals.bells.wait(thread, awaited, leaves);
                clock.lap(&mut tasks[0].counters.time.sync);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
