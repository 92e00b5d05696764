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
//! several sources. With `merge_sort`, a merge task stands before each replica that has several sources. It has its own
//! thread, in addition to those of the plan (Viper, section 3.1). With `pair_queue`, a task has a queue for each of its
//! consumers, and copies rows into tuples that it refills (`pairs.rs`). A thread cycles through its tasks. It skips a task without
//! input, or without room for output. So any number of replicas can share any number of threads.
//!
//! Before a windowed operator, a task per replica finds the keys of rows; these tasks take batches in turn. All replicas read
//! their outlets (`dataflow/windowed`). If replicas share nothing, such a task has an outlet for each of them. With parallelism
//! `vsn_esg` there are no such tasks: producers insert into an elastic ScaleGate, and each replica reads it with a handle of
//! its own.
//!
//! No deadlock: a task waits for room until all its readers have moved on, and for input until a source has. Take the
//! earliest event that some task has not taken yet, and the most upstream task that must take it. Every source has told this
//! task that all of the event is there. For each batch has all rows of its events, and announces this along every edge.
//! The task also has room, because its outputs so far belong to earlier events, and were taken.

mod cost;
mod numbering;
mod pairs;
mod plan;
mod route;
mod task;

use crate::dataflow::channel::elastic::elastic_scale_gate;
use crate::dataflow::channel::elastic::ends::{Inserter, Taker};
use crate::dataflow::channel::gate::{Gate, Source};
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::{Jumbo, Outlet, SLOTS};
use crate::dataflow::channel::rank::Counted;
use crate::dataflow::channel::results::Results;
use crate::dataflow::channel::scale_gate::scale_gate;
use crate::dataflow::channel::taken::Taken;
use crate::dataflow::frame::{Dataflow, Frame, Job, Work};
use crate::dataflow::lane::Scratch;
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::copies::Copies;
use crate::dataflow::windowed::keys::{Finder, Lister};
use crate::dataflow::windowed::owners::Owners;
use crate::error::RunError;
use crate::executor::Executor;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Preparer;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::program::{Key, OperatorKind, Origin, Program};
use crate::threads::own::Own;
use crate::threads::sync::AtomicI64;

use serde_json::Value;

use std::collections::{BTreeMap, BTreeSet};

use cost::Cost;
use numbering::is_numbered;
use pairs::PairQueues;
use plan::{Plan, SINK, SOURCE};
use route::{Edge, Route};
use task::{Network, Role, Task, Wakes};

/// The part that puts the rows of several sources into one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Channel {
    /// The consumer, in its gate.
    Gate,
    /// All producers for the consumer.
    ScaleGate,
    /// A merge task on its own thread.
    MergeSort,
    /// No part: consumers take the batches of each producer's ring as they come.
    SharedRing,
    /// No part: a queue for each producer and consumer, with tuples that the producer refills (BriskStream).
    PairQueue,
}

impl Channel {
    fn is_ordered(self) -> bool {
        !matches!(self, Self::SharedRing | Self::PairQueue)
    }

    /// Whether it is one of those that Viper compares.
    fn is_vipers(self) -> bool {
        matches!(self, Self::ScaleGate | Self::MergeSort)
    }
}

/// The registry of channels.
const CHANNELS: &[(&str, Channel)] = &[
    ("gate", Channel::Gate),
    ("scalegate", Channel::ScaleGate),
    ("merge_sort", Channel::MergeSort),
    ("shared_ring", Channel::SharedRing),
    ("pair_queue", Channel::PairQueue),
];

/// The executor; see the module.
type Pinned = Dataflow<Tasks>;

/// All tasks.
#[derive(Debug)]
struct Tasks {
    /// The tasks of each thread, upstream first.
    tasks: Own<Vec<Task>>,
    network: Network,
}

/// Makes the executor that `options` describe.
///
/// # Errors
/// `Invalid`: an option names a strategy that does not exist, or the plan does not fit the program.
pub(crate) fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    Ok(Box::new(pinned(&program, &options)?))
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
    let (options, threads) = (&Options { merge_threads: mergers, ..options.clone() }, options.threads + mergers);
    Dataflow::new(program, options, channel.is_ordered(), plan.sink.len(), replicas, |frame| {
        let (outlets, tasks) = wire(program, &plan, channel, threads, options.batch, &frame.preparer, &frame.windows);
        debug_assert!(tasks[options.threads..].iter().all(|tasks| tasks.len() == 1));
        let failed_at = AtomicI64::new(i64::MAX);
        Tasks { tasks: tasks.into_iter().collect(), network: Network { outlets, failed_at } }
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

/// Makes all tasks by thread, with their outlets. Merge tasks get the last threads, one each.
fn wire(
    program: &Program,
    plan: &Plan,
    channel: Channel,
    threads: usize,
    batch: usize,
    preparer: &Preparer,
    windows: &[Option<Replicated>],
) -> (Vec<Outlet>, Vec<Vec<Task>>) {
    let operators = &program.operators;
    let origin_number = |origin: Origin| match origin {
        Origin::Events => 0,
        Origin::Operator(index) => index + 1,
    };
    // The inputs of each consumer: operators, then the sink.
    let takers: Vec<(&[Origin], usize, Option<Key>)> = (operators.iter().zip(&plan.operators))
        .map(|(operator, places)| (&operator.inputs[..], places.len(), operator.key))
        .chain([(&program.outputs[..], plan.sink.len(), None)])
        .collect();
    // Per origin its edges; per taker, for each stream it takes, which edge that is.
    let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); operators.len() + 1];
    let mut taken_edges: Vec<Vec<usize>> = Vec::new();
    for (taker, &(inputs, replicas, key)) in takers.iter().enumerate() {
        let mut numbers = Vec::new();
        for &origin in inputs {
            let edges = &mut edges[origin_number(origin)];
            let first = edges.last().map_or(0, |edge| edge.first + edge.readers);
            let keyed = edges.iter().filter(|edge| matches!(edge.route, Route::Key(..))).count();
            let windowed = windows.get(taker).and_then(Option::as_ref);
            // One reader stands for all readers of an elastic ScaleGate.
            let replicas = if windowed.is_some_and(|windowed| windowed.operator.has_barrier) { 1 } else { replicas };
            // A task that finds keys finds those of any row; tasks of absent replicas are left out.
            let windowed = windowed.filter(|windowed| !windowed.operator.has_barrier);
            let windowed = windowed.map(|windowed| windowed.operator.epochs.clone());
            let route = match key {
                _ if taker == operators.len() => Route::Range,
                Some(key) => Route::Key(key, keyed),
                None => Route::Turn(windowed),
            };
            numbers.push(edges.len());
            edges.push(Edge { first, readers: replicas, route });
        }
        taken_edges.push(numbers);
    }
    // Rows are ranked if they, or what becomes of them, meet others of their event somewhere.
    let ordered = channel.is_ordered();
    let numbered = channel == Channel::Gate && !preparer.keeps_rows() && is_numbered(program);
    let meets = |inputs: &[Origin]| {
        ordered && !numbered && inputs.iter().map(|&origin| plan.of(origin).len()).sum::<usize>() > 1
    };
    let mut ranked = vec![false; operators.len() + 1];
    for taker in (0..takers.len()).rev() {
        let inputs = takers[taker].0;
        // What a windowed operator takes comes by several tasks.
        let windowed = windows.get(taker).is_some_and(Option::is_some);
        let parts = windowed && ordered && (takers[taker].1 > 1 || inputs.len() > 1);
        let asks = parts || meets(inputs) || (taker < operators.len() && ranked[taker + 1]);
        for &origin in inputs {
            ranked[origin_number(origin)] |= asks;
        }
    }
    // An operator may put out parts of events if they come to the sink by one way. Then they wait only for rows that are there
    // already, or that come from other operators' rows. Otherwise they might wait for the rest of their own event.
    let mut whole = vec![true; operators.len()];
    for index in (0..operators.len()).rev() {
        let origin = Origin::Operator(index);
        let by = takers.iter().position(|(inputs, ..)| inputs.contains(&origin));
        if let ([edge], Some(taker)) = (&edges[origin_number(origin)][..], by) {
            let is_windowed = windows.get(taker).is_some_and(Option::is_some);
            whole[index] = edge.readers > 1 || is_windowed || whole.get(taker).is_some_and(|&whole| whole);
        }
    }
    // Outlets of all replicas: one each, or with `pair_queue` one for each of their readers.
    let in_pairs = channel == Channel::PairQueue;
    let mut outlets = Vec::new();
    let mut first_outlet = Vec::new();
    for origin in std::iter::once(Origin::Events).chain((0..operators.len()).map(Origin::Operator)) {
        let edges = &edges[origin_number(origin)];
        let readers = edges.last().map_or(0, |edge| edge.first + edge.readers);
        let keyed = edges.iter().filter(|edge| matches!(edge.route, Route::Key(..))).count();
        first_outlet.push(outlets.len());
        for _ in plan.of(origin) {
            if in_pairs {
                outlets.extend(pairs::queues(edges, program.stride(origin)));
                continue;
            }
            outlets.push(Outlet::new(SLOTS, readers, || {
                let mut jumbo = Jumbo::new(program.stride(origin), readers, keyed);
                if let Origin::Operator(index) = origin
                    && let Some(windowed) = &windows[index]
                {
                    windowed.operator.furnish(&mut jumbo.made);
                }
                jumbo
            }));
        }
    }
    // The only producer of the sink, if there is one, and the part that examines its rows. In Viper, sinks do this themselves.
    let (taken_by_sink, examined) = match program.outputs[..] {
        [Origin::Operator(index)] if !channel.is_vipers() => (Some(index), Some(preparer.clone())),
        _ => (None, None),
    };
    let pairs_of = |origin: Origin, first: usize| {
        let edges = &edges[origin_number(origin)];
        in_pairs.then(|| PairQueues::new(first, edges, program.stride(origin), batch))
    };
    let mut tasks: Vec<Vec<Task>> = (0..threads).map(|_| Vec::new()).collect();
    let outlets_of = |origin: usize| if in_pairs { edges[origin].iter().map(|edge| edge.readers).sum() } else { 1 };
    let task = |role, gate, outlet, edges, ranked, stride| Task {
        role,
        inlet: Inlet::Gate(gate),
        outlet,
        pairs: None,
        edges,
        feeds: Vec::new(),
        inserters: Vec::new(),
        finder: None,
        said: i64::MIN,
        ranked,
        numbered,
        wakes: Wakes::default(),
        counted: Counted::default(),
        preparer: None,
        put_out: None,
        taken: Taken::new(stride),
        left: None,
        whole: true,
        unfinished: false,
        scratch: Scratch::default(),
        counters: Counters::default(),
        cost: Cost::default(),
        next: 0,
        blocked: false,
        ended: false,
        done: false,
    };
    for (index, &place) in plan.source.iter().enumerate() {
        let role = Role::Source { index, of: plan.source.len() };
        let gate = Gate::new(Vec::new(), true, false, false);
        let outlet = index * outlets_of(0);
        let new = task(role, gate, Some(outlet), edges[0].clone(), false, program.event.stride);
        tasks[place].push(Task { pairs: pairs_of(Origin::Events, outlet), ..new });
    }
    let (mut feeds, mut inserters) = (Vec::new(), Vec::new());
    let mut mergers = 0;
    for (taker, &(inputs, replicas, key)) in takers.iter().enumerate() {
        let stride = program.stride(inputs[0]);
        let is_sink = taker == operators.len();
        // Per input of a windowed operator, the first outlet of those that find keys: each has one, or one for each replica.
        let mut with_keys = Vec::new();
        let apart = windows.get(taker).and_then(Option::as_ref).is_some_and(|w| w.operator.shares_nothing());
        let (queues, readers) = if apart { (replicas, 1) } else { (1, replicas) };
        let mut takers = Vec::new();
        if let Some(Some(windowed)) = windows.get(taker)
            && windowed.operator.has_barrier
        {
            let mut sources = Vec::new();
            for (input, (&origin, &edge)) in inputs.iter().zip(&taken_edges[taker]).enumerate() {
                let (number, stride) = (origin_number(origin), program.stride(origin));
                let reader = edges[number][edge].first;
                let producers = first_outlet[number]..first_outlet[number] + plan.of(origin).len();
                if matches!(origin, Origin::Operator(index) if windows[index].is_some()) {
                    // Absent replicas would hold back the others. The gate of a merge task knows them.
                    let source = |producer| {
                        let source = Source::new(first_outlet[number] + producer, reader, 0, None);
                        silent(windows, origin, producer, source)
                    };
                    let asks = ranked[number];
                    let gate =
                        Gate::new((0..producers.len()).map(source).collect(), true, asks, false).that_takes(true);
                    let role = Role::Merge { operator: Some(taker) };
                    let place = plan.operators[taker][input % replicas];
                    tasks[place].push(task(role, gate, Some(outlets.len()), Vec::new(), asks, stride));
                    sources.push(Source::new(outlets.len(), 0, input as u64, None));
                    outlets.push(Outlet::new(SLOTS, 1, || Jumbo::new(stride, 1, 0)));
                } else {
                    sources.extend(producers.map(|outlet| Source::new(outlet, reader, input as u64, None)));
                }
            }
            let (of_sources, readers) = elastic_scale_gate(&vec![true; sources.len()], &vec![true; replicas], SLOTS);
            takers = Taker::all(readers, &sources, ranked[taker + 1]);
            let epochs = &windowed.operator.epochs;
            inserters.extend(
                of_sources.into_iter().zip(sources).map(|(feed, source)| Inserter::new(feed, source, epochs.clone())),
            );
        } else if let Some(Some(windowed)) = windows.get(taker) {
            for (input, (&origin, &edge)) in inputs.iter().zip(&taken_edges[taker]).enumerate() {
                let (number, stride) = (origin_number(origin), program.stride(origin));
                with_keys.push(outlets.len());
                for (replica, &place) in plan.operators[taker].iter().enumerate() {
                    let reader = edges[number][edge].first + replica;
                    let source = |producer| {
                        let source = Source::new(first_outlet[number] + producer, reader, 0, None);
                        silent(windows, origin, producer, source)
                    };
                    let asks = ranked[number];
                    let gate = Gate::new((0..plan.of(origin).len()).map(source).collect(), ordered, asks, false)
                        .that_takes(true);
                    let role = Role::Keys {
                        operator: taker,
                        input,
                        replica,
                        lister: Lister::new(&windowed.operator),
                        copies: apart.then(|| Copies::new(&windowed.operator, stride, replicas)),
                        said: i64::MIN,
                    };
                    tasks[place].push(task(role, gate, Some(outlets.len()), Vec::new(), asks, stride));
                    outlets.extend(
                        (0..queues)
                            .map(|_| Outlet::new(SLOTS, readers, || Jumbo::new(stride, readers, 1)).with_absence()),
                    );
                }
            }
        }
        let mut takers = takers.into_iter();
        for replica in 0..replicas {
            let place = if is_sink { plan.sink[replica] } else { plan.operators[taker][replica] };
            let mut sources = Vec::new();
            for (stream, &first) in with_keys.iter().enumerate() {
                let (queue, reader) = if apart { (replica, 0) } else { (0, replica) };
                let source = |task| Source::new(first + task * queues + queue, reader, stream as u64, Some(0));
                sources.extend((0..replicas).map(source));
            }
            let straight = if with_keys.is_empty() && takers.len() == 0 { inputs } else { &[] };
            for (stream, (&origin, &edge)) in straight.iter().zip(&taken_edges[taker]).enumerate() {
                let number = origin_number(origin);
                let edge = &edges[number][edge];
                let hashes = match &edge.route {
                    &Route::Key(_, place) => Some(place),
                    Route::Turn(_) | Route::Range => None,
                };
                for producer in 0..plan.of(origin).len() {
                    let outlet = first_outlet[number] + producer * outlets_of(number);
                    let source = if in_pairs {
                        Source::new(outlet + edge.first + replica, 0, stream as u64, hashes.map(|_| 0))
                    } else {
                        Source::new(outlet, edge.first + replica, stream as u64, hashes)
                    };
                    sources.push(silent(windows, origin, producer, source));
                }
            }
            let asks = !is_sink && ranked[taker + 1];
            // A task that inserts into a ScaleGate announces its progress only by watermarks.
            let whole = channel == Channel::ScaleGate || (!is_sink && whole[taker]);
            if channel == Channel::MergeSort && sources.len() > 1 {
                let outlet = outlets.len();
                outlets.push(Outlet::new(SLOTS, 1, || Jumbo::new(stride, 1, usize::from(key.is_some()))));
                let gate = Gate::new(std::mem::take(&mut sources), true, asks, false).that_takes(whole);
                let merge = task(
                    Role::Merge { operator: (!is_sink).then_some(taker) },
                    gate,
                    Some(outlet),
                    Vec::new(),
                    asks,
                    stride,
                );
                mergers += 1;
                tasks[threads - mergers].push(merge);
                sources.push(Source::new(outlet, 0, 0, key.map(|_| 0)));
            }
            let prepared = is_sink && ordered && !numbered && examined.is_some();
            let mut inlet = (is_sink && numbered).then(|| Inlet::Results(Results::new(&sources)));
            if channel == Channel::ScaleGate && sources.len() > 1 {
                let (of_sources, reader) = scale_gate(std::mem::take(&mut sources), SLOTS, asks);
                inlet = Some(Inlet::ScaleGate(reader));
                feeds.extend(of_sources);
            }
            let gate = Gate::new(sources, ordered, asks, prepared).that_takes(whole).of_numbered(numbered);
            let new = if is_sink {
                task(Role::Sink { number: replica }, gate, None, Vec::new(), false, stride)
            } else {
                let stateless = operators[taker].kind == OperatorKind::Stateless;
                let role = Role::Operator { operator: taker, lane: if stateless { 0 } else { replica } };
                let outlet = first_outlet[taker + 1] + replica * outlets_of(taker + 1);
                // The consumers of queues get copies of the rows, so results would not reach them.
                let preparer = examined.clone().filter(|_| taken_by_sink == Some(taker) && !in_pairs);
                let pairs = pairs_of(Origin::Operator(taker), outlet);
                Task {
                    preparer,
                    pairs,
                    whole,
                    ..task(role, gate, Some(outlet), edges[taker + 1].clone(), asks, stride)
                }
            };
            let (mut inlet, mut finder) = (inlet.unwrap_or(new.inlet), None);
            if let (Some(taker), Some(Some(windowed))) = (takers.next(), windows.get(taker)) {
                (inlet, finder) = (Inlet::Elastic(taker), Some(Finder::new(&windowed.operator)));
            }
            tasks[place].push(Task { inlet, finder, ..new });
        }
    }
    for task in tasks.iter_mut().flatten() {
        task.feeds = feeds.extract_if(.., |feed| Some(feed.outlet()) == task.outlet).collect();
        task.inserters = inserters.extract_if(.., |inserter| Some(inserter.outlet()) == task.outlet).collect();
    }
    connect(&mut tasks, windows);
    (outlets, tasks)
}

/// Finds out which threads each task wakes.
fn connect(tasks: &mut [Vec<Task>], windows: &[Option<Replicated>]) {
    let (mut readers, mut writers) = (BTreeMap::<usize, Vec<usize>>::new(), BTreeMap::new());
    let mut replicas = BTreeMap::<usize, Vec<usize>>::new();
    for (thread, tasks) in tasks.iter().enumerate() {
        for task in tasks {
            writers.extend(task.outlets().map(|outlet| (outlet, thread)));
            task.inlet.outlets().into_iter().for_each(|outlet| readers.entry(outlet).or_default().push(thread));
            if let Some(operator) = task.windowed(windows) {
                replicas.entry(operator).or_default().push(thread);
            }
        }
    }
    for (thread, tasks) in tasks.iter_mut().enumerate() {
        for task in tasks {
            let others = |threads: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
                threads.filter(|&other| other != thread).collect::<BTreeSet<_>>().into_iter().collect()
            };
            let sources = task.inlet.outlets();
            task.wakes = Wakes {
                readers: others(&mut task.outlets().filter_map(|outlet| readers.get(&outlet)).flatten().copied()),
                writers: others(&mut sources.iter().map(|outlet| writers[outlet])),
                peers: others(&mut task.windowed(windows).into_iter().flat_map(|operator| replicas[&operator].clone())),
            };
        }
    }
}

/// A source: number `producer` of the producers of `origin`. A replica of a windowed operator need not announce that it puts
/// out nothing.
fn silent(windows: &[Option<Replicated>], origin: Origin, producer: usize, source: Source) -> Source {
    match origin {
        Origin::Operator(index) if let Some(windowed) = &windows[index] => {
            source.silent(&windowed.operator.epochs, producer)
        }
        _ => source,
    }
}

impl Work for Tasks {
    fn work(&self, thread: usize, job: &Job) -> Result<(), RunError> {
        // SAFETY: each thread has its own.
        unsafe {
            self.tasks.with_mut(thread, |tasks| go_round(tasks, thread, &self.network, job, self.tasks.len() == 1))
        }
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
        let about = |task: &Task, thread: usize| {
            let name = |operator: usize| &frame.chain.operators[operator].name[..];
            let (role, operator) = match &task.role {
                Role::Source { .. } => ("source", SOURCE),
                Role::Operator { operator, .. } => ("operator", name(*operator)),
                Role::Keys { operator, .. } => ("keys", name(*operator)),
                Role::Merge { operator } => ("merge", operator.map_or(SINK, name)),
                Role::Sink { .. } => ("sink", SINK),
            };
            let mut json = task.cost.to_json();
            json["role"] = role.into();
            json["operator"] = operator.into();
            json["thread"] = thread.into();
            json
        };
        let of_thread = |thread| {
            let all = |tasks: &Vec<Task>| tasks.iter().map(|task| about(task, thread)).collect::<Vec<_>>();
            // SAFETY: no thread is at work.
            unsafe { self.tasks.with(thread, all) }
        };
        (0..self.tasks.len()).flat_map(of_thread).collect()
    }
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
            worked |= task.step(network, job, &mut clock)?;
            done &= task.done;
        }
        if done {
            return Ok(()); // at once, if the plan gives this thread nothing to do
        }
        if worked {
            continue;
        }
        let due = tasks.iter().filter(|task| task.awaits_arrival(job)).map(|task| task.next).min();
        clock.lap(&mut tasks[0].counters.time.other);
        let linger = job.linger();
        let leaves =
            || frame.is_stopped() || job.linger() != linger || tasks.iter().any(|task| task.may_work(network, job));
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
                let awaited = tasks.iter().fold(0, |kinds, task| kinds | task.awaits());
                frame.signals.bells.wait(thread, awaited, leaves);
                clock.lap(&mut tasks[0].counters.time.sync);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
