//! The `pinned` executor: a task per operator replica, each on the thread that the plan says (BriskStream, sections 2
//! and 5), order kept by the channels between them (Viper, section 4).
//!
//! ```text
//! source ==> [gate] split 0 ==> [gate] count 0 ==> [gate] sink
//!        \\> [gate] split 1 ==> [gate] count 1 =/
//! ```
//!
//! A task writes batches into its *outlet*; whoever takes them reads them there through his *gate*. With channel
//! `scalegate` gates merge what they read; with `merge_sort` a task of its own does that in front of each replica that
//! has several sources. Threads go round their tasks; a task that has no input, or no room for output, is passed over,
//! so that any number of replicas shares any number of threads.
//!
//! No cycle of waiting: a task waits for room until all its readers have gone on, and for input until some source has.
//! Among the rows not yet taken there is an earliest one; whoever is to take it has every source's word that no earlier one
//! comes, because heartbeats follow every batch along every edge, and room, because what it has put out is earlier still
//! and was taken.

mod plan;
mod task;

use crate::dataflow::channel::gate::{Gate, Source, Taken};
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::direct::Direct;
use crate::dataflow::flush::flush;
use crate::dataflow::lane::{Lanes, Scratch, keyed_states};
use crate::dataflow::operator::Chain;
use crate::error::RunError;
use crate::executor::{Executor, States};
use crate::output::clock::{Arrivals, Clock, Running, Stopwatch};
use crate::output::counters::Counters;
use crate::output::delivered::Delivered;
use crate::output::metrics::Metrics;
use crate::output::sink::Sink;
use crate::program::options::Options;
use crate::program::{OperatorKind, Origin, Program};
use crate::rows::block::Block;
use crate::threads::own::Lent;
use crate::threads::sync::{Arc, AtomicI64, CachePadded, Mutex, Ordering, UnsafeCell, lock};
use crate::threads::team::{Signals, Team};

use plan::Plan;
use task::{Edge, Role, Route, Task};

/// Jumbo tuples that an outlet holds.
const SLOTS: usize = 8;

/// Who puts the rows of several sources into one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    ScaleGate,
    MergeSort,
    /// Nobody: batches are taken as they come, as BriskStream's replicas take theirs from queues of their own.
    Spsc,
}

/// The registry of channels.
const CHANNELS: &[(&str, Channel)] =
    &[("scalegate", Channel::ScaleGate), ("merge_sort", Channel::MergeSort), ("spsc", Channel::Spsc)];

/// What all threads share.
#[derive(Debug)]
struct Shared {
    chain: Chain,
    /// Per stateful operator: a lane per replica, used by that replica only.
    lanes: Vec<Lanes>,
    outlets: Vec<Outlet>,
    signals: Arc<Signals>,
    /// The failure of the earliest event, and of those of one event the one of the first operator; written by any thread.
    failure: Mutex<Option<(i64, usize, RunError)>>,
    /// Its event: sources deal no later ones. Written with the failure.
    failed_at: AtomicI64,
    arrivals: Arrivals,
    batch: usize,
}

/// One block's worth of work.
struct Job<'a> {
    block: &'a Block,
    /// The seq of its last event.
    end: i64,
    /// Events before this block.
    before: u64,
    clock: Running,
}

impl Job<'_> {
    /// Whether the first `upto` events of the block have arrived.
    fn has_arrived(&self, shared: &Shared, upto: usize) -> bool {
        self.arrival(shared, upto - 1).is_none_or(|arrival| self.clock.now() >= arrival)
    }

    /// When event `index` of the block arrives, if the loop is open.
    fn arrival(&self, shared: &Shared, index: usize) -> Option<u64> {
        shared.arrivals.is_open_loop().then(|| shared.arrivals.at(self.before + index as u64))
    }
}

/// One thread's tasks, upstream first. Used by that thread, and between blocks by the executor.
type Tasks = CachePadded<UnsafeCell<Vec<Task>>>;

/// The executor; see the module.
#[derive(Debug)]
pub struct Pinned {
    team: Team,
    shared: Shared,
    /// Per thread.
    tasks: Vec<Tasks>,
    /// The thread of the sink, whose last task it is.
    sink: usize,
    /// The way of flushed rows.
    direct: Direct,
    /// What flushing counted.
    flushed: Counters,
    clock: Clock,
    events: u64,
}

// SAFETY: rows and addresses refer to memory that the executor owns, or to a block that is in use.
unsafe impl Send for Pinned {}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an option names a strategy that does not exist, or the plan does not fit the program.
pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    Ok(Box::new(Pinned::new(&program, &options)?))
}

impl Pinned {
    fn new(program: &Program, options: &Options) -> Result<Self, RunError> {
        let named = options.channel.as_deref().unwrap_or(CHANNELS[0].0);
        let Some((_, channel)) = CHANNELS.iter().find(|(name, _)| *name == named) else {
            let known: Vec<&str> = CHANNELS.iter().map(|(name, _)| *name).collect();
            let message = format!("unknown channel {named:?} of executor pinned; known: {}", known.join(", "));
            return Err(RunError::Invalid(message));
        };
        let plan = Plan::new(program, &options.plan, options.threads)?;
        // SAFETY: whoever hands over a program answers for its addresses.
        let chain = unsafe { Chain::bind(program) }?;
        let hasher = match channel {
            Channel::Spsc => program.unordered_hasher()?,
            _ => program.hasher()?,
        };
        let sink = Sink::new(options.sink, hasher);
        let team = Team::new(options.threads, options.idle, options.pin)?;
        let (outlets, tasks) = wire(program, &plan, *channel, options.threads, Delivered::new(sink));
        let lanes = chain.stateful.iter().map(|&at| Lanes::new(&chain.operators[at], plan.operators[at].len()));
        let shared = Shared {
            lanes: lanes.collect(),
            outlets,
            signals: team.signals(),
            failure: Mutex::new(None),
            failed_at: AtomicI64::new(i64::MAX),
            arrivals: Arrivals::new(options.rate),
            batch: options.batch,
            chain,
        };
        let direct = Direct::new(&shared.chain);
        let tasks = tasks.into_iter().map(|tasks| CachePadded::new(UnsafeCell::new(tasks))).collect();
        Ok(Self {
            team,
            shared,
            tasks,
            sink: plan.sink,
            direct,
            flushed: Counters::default(),
            clock: Clock::default(),
            events: 0,
        })
    }
}

/// Hands out what the sink has delivered, between blocks; `sink` is its thread.
fn delivered<R>(tasks: &[Tasks], sink: usize, work: impl FnOnce(&mut Delivered) -> R) -> R {
    tasks[sink].with_mut(|tasks| {
        // SAFETY: no thread is at work.
        let task = unsafe { &mut *tasks }.last_mut().expect("the sink is its thread's last task");
        let Role::Sink(delivered) = &mut task.role else { unreachable!("the sink is its thread's last task") };
        work(delivered)
    })
}

/// All tasks by thread, wired by outlets.
fn wire(
    program: &Program,
    plan: &Plan,
    channel: Channel,
    threads: usize,
    delivered: Delivered,
) -> (Vec<Outlet>, Vec<Vec<Task>>) {
    let operators = &program.operators;
    let origin_number = |origin: Origin| match origin {
        Origin::Events => 0,
        Origin::Operator(index) => index + 1,
    };
    // Who takes what: operators, then the sink.
    let takers: Vec<(&[Origin], usize, Option<crate::program::Key>)> = (operators.iter().zip(&plan.operators))
        .map(|(operator, places)| (&operator.inputs[..], places.len(), operator.key))
        .chain([(&program.outputs[..], 1, None)])
        .collect();
    // Per origin its edges; per taker, for each stream it takes, which edge that is.
    let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); operators.len() + 1];
    let mut taken_edges: Vec<Vec<usize>> = Vec::new();
    for &(inputs, replicas, key) in &takers {
        let mut numbers = Vec::new();
        for &origin in inputs {
            let edges = &mut edges[origin_number(origin)];
            let first = edges.last().map_or(0, |edge| edge.first + edge.readers);
            let keyed = edges.iter().filter(|edge| matches!(edge.route, Route::Key(..))).count();
            let route = key.map_or(Route::Turn, |key| Route::Key(key, keyed));
            numbers.push(edges.len());
            edges.push(Edge { first, readers: replicas, route });
        }
        taken_edges.push(numbers);
    }
    // Rows are ranked if they, or what becomes of them, meet others of their event somewhere.
    let ordered = channel != Channel::Spsc;
    let meets = |inputs: &[Origin]| ordered && inputs.iter().map(|&origin| plan.of(origin).len()).sum::<usize>() > 1;
    let mut ranked = vec![false; operators.len() + 1];
    for taker in (0..takers.len()).rev() {
        let inputs = takers[taker].0;
        let asks = meets(inputs) || (taker < operators.len() && ranked[taker + 1]);
        for &origin in inputs {
            ranked[origin_number(origin)] |= asks;
        }
    }
    // Outlets of all replicas.
    let mut outlets = Vec::new();
    let mut first_outlet = Vec::new();
    for origin in std::iter::once(Origin::Events).chain((0..operators.len()).map(Origin::Operator)) {
        let edges = &edges[origin_number(origin)];
        let readers = edges.last().map_or(0, |edge| edge.first + edge.readers);
        let keyed = edges.iter().filter(|edge| matches!(edge.route, Route::Key(..))).count();
        first_outlet.push(outlets.len());
        for _ in plan.of(origin) {
            outlets.push(Outlet::new(SLOTS, readers, || Jumbo::new(program.stride(origin), readers, keyed)));
        }
    }
    // Whose rows the sink takes, if it is one operator, and what examines them.
    let (taken_by_sink, examined) = match program.outputs[..] {
        [Origin::Operator(index)] => (Some(index), Some(delivered.sink.preparer().clone())),
        _ => (None, None),
    };
    let mut tasks: Vec<Vec<Task>> = (0..threads).map(|_| Vec::new()).collect();
    let task = |role, gate, outlet, edges, ranked, stride| Task {
        role,
        gate,
        outlet,
        edges,
        ranked,
        preparer: None,
        taken: Taken::new(stride),
        scratch: Scratch::default(),
        counters: Counters::default(),
        next: 0,
        blocked: false,
        ended: false,
        done: false,
    };
    for (index, &place) in plan.source.iter().enumerate() {
        let role = Role::Source { index, of: plan.source.len() };
        let gate = Gate::new(Vec::new(), true, false, false);
        tasks[place].push(task(role, gate, Some(index), edges[0].clone(), false, program.event.stride));
    }
    let mut delivered = Some(delivered);
    for (taker, &(inputs, replicas, key)) in takers.iter().enumerate() {
        let stride = program.stride(inputs[0]);
        let is_sink = taker == operators.len();
        for replica in 0..replicas {
            let place = if is_sink { plan.sink } else { plan.operators[taker][replica] };
            let mut sources = Vec::new();
            for (stream, (&origin, &edge)) in inputs.iter().zip(&taken_edges[taker]).enumerate() {
                let number = origin_number(origin);
                let edge = &edges[number][edge];
                let hashes = match edge.route {
                    Route::Key(_, place) => Some(place),
                    Route::Turn => None,
                };
                for producer in 0..plan.of(origin).len() {
                    let outlet = first_outlet[number] + producer;
                    sources.push(Source::new(outlet, edge.first + replica, stream as u64, hashes));
                }
            }
            let asks = !is_sink && ranked[taker + 1];
            if channel == Channel::MergeSort && sources.len() > 1 {
                let outlet = outlets.len();
                outlets.push(Outlet::new(SLOTS, 1, || Jumbo::new(stride, 1, usize::from(key.is_some()))));
                let gate = Gate::new(std::mem::take(&mut sources), true, asks, false);
                let merge = task(Role::Merge, gate, Some(outlet), Vec::new(), asks, stride);
                tasks[place].push(Task { preparer: examined.clone().filter(|_| is_sink), ..merge });
                sources.push(Source::new(outlet, 0, 0, key.map(|_| 0)));
            }
            let gate = Gate::new(sources, ordered, asks, is_sink && ordered && examined.is_some());
            let new = if is_sink {
                let delivered = Box::new(delivered.take().expect("there is one sink"));
                task(Role::Sink(delivered), gate, None, Vec::new(), false, stride)
            } else {
                let stateless = operators[taker].kind == OperatorKind::Stateless;
                let role = Role::Operator { operator: taker, lane: if stateless { 0 } else { replica } };
                let outlet = first_outlet[taker + 1] + replica;
                // What merge operators take is nobody's to deliver yet.
                let direct = taken_by_sink == Some(taker) && (channel != Channel::MergeSort || replicas == 1);
                let preparer = examined.clone().filter(|_| direct);
                Task { preparer, ..task(role, gate, Some(outlet), edges[taker + 1].clone(), asks, stride) }
            };
            tasks[place].push(new);
        }
    }
    (outlets, tasks)
}

impl Shared {
    /// Keeps the failure of the earliest event.
    fn note(&self, operator: usize, error: RunError) {
        let seq = error.rank().1;
        let mut first = lock(&self.failure);
        if first.as_ref().is_none_or(|(other, before, _)| (seq, operator) < (*other, *before)) {
            // ORDERING: Relaxed; a source that sees it late deals events for nothing.
            self.failed_at.store(seq, Ordering::Relaxed);
            *first = Some((seq, operator, error));
        }
    }

    /// Everything that a thread does for a block.
    fn work(&self, tasks: &mut [Task], job: &Job<'_>) -> Result<(), RunError> {
        let signals = &*self.signals;
        tasks.iter_mut().for_each(Task::begin);
        let mut clock = Stopwatch::start();
        loop {
            // ORDERING: Acquire; nothing but the flag is used.
            if signals.stopped.load(Ordering::Acquire) {
                return Err(RunError::Stopped);
            }
            let (mut worked, mut done) = (false, true);
            for task in &mut *tasks {
                worked |= task.step(self, job, &mut clock)?;
                done &= task.done;
            }
            if done {
                return Ok(()); // at once, if the plan gives this thread nothing to do
            }
            if worked {
                continue;
            }
            let leaves = || signals.stopped.load(Ordering::Acquire);
            let due = tasks.iter().filter(|task| task.awaits_arrival(self)).map(|task| task.next).min();
            let time = &mut tasks[0].counters.time;
            clock.lap(&mut time.other);
            match due {
                // Events come whether anybody rings or not.
                Some(next) => {
                    let index = job.before + job.block.n.min(next + self.batch) as u64 - 1;
                    let may_work = |tasks: &[Task]| tasks.iter().any(|task| task.may_work(self));
                    self.arrivals.wait(index, &job.clock, || leaves() || may_work(tasks));
                    clock.lap(&mut tasks[0].counters.time.other);
                }
                None => {
                    signals.idle.wait(|| leaves() || tasks.iter().any(|task| task.may_work(self)));
                    clock.lap(&mut tasks[0].counters.time.sync);
                }
            }
        }
    }
}

impl Executor for Pinned {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        if block.n == 0 {
            return Ok(());
        }
        let clock = self.clock.start();
        let job = Job { block, end: block.seq(block.n - 1), before: self.events, clock };
        let (shared, lent) = (&self.shared, Lent(&self.tasks));
        let outcome = self.team.run(&|index| {
            // SAFETY: each thread has its own.
            unsafe { lent.with(index, |tasks| shared.work(tasks, &job)) }
        });
        self.clock.stop(clock);
        self.events += block.n as u64;
        outcome?;
        lock(&self.shared.failure).take().map_or(Ok(()), |(_, _, error)| Err(error))
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let clock = self.clock.start();
        let Self { shared, direct, flushed, .. } = self;
        let outcome = delivered(&self.tasks, self.sink, |delivered| {
            // SAFETY: the lanes are the chain's; no thread is at work.
            unsafe { flush(&shared.chain, &shared.lanes, direct, seq, &mut delivered.sink, flushed) }
        });
        self.clock.stop(clock);
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        delivered(&self.tasks, self.sink, |delivered| delivered.sink.take())
    }

    fn metrics(&self) -> Metrics {
        let mut counters = self.team.counters();
        counters += self.flushed;
        for tasks in &self.tasks {
            // SAFETY: no thread is at work.
            tasks.with(|tasks| unsafe { &*tasks }.iter().for_each(|task| counters += task.counters));
        }
        delivered(&self.tasks, self.sink, |delivered| Metrics {
            events: self.events,
            counters,
            seconds: self.clock.seconds(),
            binding: self.team.binding(),
            ..delivered.metrics()
        })
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        // SAFETY: no thread is at work.
        unsafe { keyed_states(&self.shared.chain, &self.shared.lanes, operator) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
