//! The data of a task, and what the tasks of every role share: room for outputs, publication, and wake-ups.
//!
//! Start with `step.rs`, the loop that moves a task on, then read the task's role in `role/`. A task belongs to one thread,
//! and it alone writes its outlets.

use std::ops::Range;

use crate::dataflow::channel::elastic::ends::Inserter;
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::rank::Counted;
use crate::dataflow::channel::scale_gate::Feed;
use crate::dataflow::channel::taken::Taken;
use crate::dataflow::frame::Job;
use crate::dataflow::lane::Scratch;
use crate::dataflow::pinned::cost::Cost;
use crate::dataflow::pinned::pairs::PairQueues;
use crate::dataflow::pinned::role::{Keys, Role};
use crate::dataflow::pinned::route::Edge;
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::keys::Finder;
use crate::dataflow::windowed::replica::Replica;
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::sink::Preparer;
use crate::threads::bells::{INPUT, Kinds, PEERS, ROOM};
use crate::threads::sync::AtomicI64;

/// What the tasks of all threads share.
#[derive(Debug)]
pub(super) struct Network {
    pub outlets: Vec<Outlet>,
    /// The event of the earliest failure. A task that notes a failure writes it, and sources deal no later events.
    pub failed_at: AtomicI64,
}

/// The surroundings of one step of a task.
pub(super) struct Step<'a> {
    pub network: &'a Network,
    pub job: &'a Job<'a>,
    /// The clock of the task's thread.
    pub clock: &'a mut Stopwatch,
}

/// The threads that a task wakes, without its own.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    /// The threads of the tasks that read its outlets: they wait for input.
    pub readers: Vec<usize>,
    /// The threads of the tasks whose outlets it reads: they wait for room.
    pub writers: Vec<usize>,
    /// The threads of the other replicas of its windowed operator.
    pub peers: Vec<usize>,
}

/// A replica of an operator, a source, a sink, a finder of keys or a merger.
#[derive(Debug)]
pub(super) struct Task {
    pub role: Role,
    /// The thread that the plan names.
    pub planned: usize,
    pub inlet: Inlet,
    /// The number of its outlet, or of the first if it has several. The sink has none.
    pub outlet: Option<usize>,
    /// With channel `pair_queue`: the queues that take the outlet's place.
    pub pairs: Option<Box<PairQueues>>,
    pub edges: Vec<Edge>,
    /// Its ends of the ScaleGates of its consumers.
    pub feeds: Vec<Feed>,
    /// Its ends of the elastic ScaleGates of its consumers.
    pub inserters: Vec<Inserter>,
    /// Finds the keys of the rows, if the task is a windowed replica that reads an elastic ScaleGate.
    pub finder: Option<Finder>,
    /// The task has published all outputs of events up to this one.
    pub published: i64,
    /// The readers were told of those up to this one.
    pub announced: i64,
    /// The number of events between two announcements; 0: each batch is announced.
    pub period: i64,
    /// Whether it has published something since the last announcement.
    pub owes: bool,
    /// Whether its rows are ranked.
    pub ranked: bool,
    /// Whether its rows are numbered before the sink.
    pub numbered: bool,
    /// The other threads whose tasks wait for this one.
    pub wakes: Wakes,
    /// Counts the rows of each event, for a task that finds the keys of all of them.
    pub counted: Counted,
    /// Examines the rows for the sink where they are new, if the sink takes only this operator's rows.
    pub preparer: Option<Preparer>,
    /// The event of the last row that it put out, and the next `sub` of that event.
    pub put_out: Option<(i64, u64)>,
    pub taken: Taken,
    /// The position in `taken` up to which a windowed replica has used the rows, if it has to pause before the rest. It pauses
    /// until other replicas have gone over to an epoch, or between the parts of a large window that expires.
    pub left: Option<usize>,
    /// Whether it puts out whole events.
    pub whole: bool,
    /// Whether the slot to fill already has some of an event's rows. The task adds the others, then publishes the slot.
    pub unfinished: bool,
    pub scratch: Scratch,
    pub counters: Counters,
    pub cost: Cost,
    /// The number of the block's events that a source has looked at.
    pub next: usize,
    /// There is no room in the outlet.
    pub blocked: bool,
    /// The task puts out nothing more in this block.
    pub ended: bool,
    /// The task takes nothing more in this block.
    pub done: bool,
}

// SAFETY: rows refer to memory that the executor owns, or to a block that is in use; nothing refers to a thread.
unsafe impl Send for Task {}

impl Task {
    /// A task without consumers that takes rows of `stride` bytes; `outlet` as in the field.
    pub fn new(role: Role, inlet: Inlet, outlet: Option<usize>, stride: usize) -> Self {
        Self {
            role,
            planned: 0,
            inlet,
            outlet,
            pairs: None,
            edges: Vec::new(),
            feeds: Vec::new(),
            inserters: Vec::new(),
            finder: None,
            published: i64::MIN,
            announced: i64::MIN,
            period: 0,
            owes: false,
            ranked: false,
            numbered: false,
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
        }
    }

    /// Prepares for a new block.
    pub fn begin(&mut self) {
        self.inlet.begin();
        (self.next, self.blocked, self.ended, self.done) = (0, false, false, false);
        self.taken.last = false;
    }

    /// Whether a step might do something now, for a task whose last one did nothing.
    pub fn may_work(&mut self, network: &Network, job: &Job) -> bool {
        if self.done {
            return false;
        }
        if self.blocked {
            return self.has_room(network);
        }
        if self.left.is_some() {
            return self.may_go_on(job);
        }
        self.inlet.has_news(&network.outlets)
    }

    /// What a step waits for, if the last one did nothing.
    pub fn awaits(&self) -> Kinds {
        match self {
            Self { done: true, .. } => 0,
            Self { blocked: true, .. } => ROOM,
            Self { left: Some(_), .. } => PEERS,
            // Another replica may add it to the readers.
            Self { inlet: Inlet::Elastic(_), .. } => INPUT | PEERS,
            _ => INPUT,
        }
    }

    /// The numbers of its outlets.
    pub fn outlets(&self) -> Range<usize> {
        let queues = match (&self.role, &self.pairs) {
            (_, Some(pairs)) => pairs.len(),
            (Role::Keys(Keys { copies: Some(copies), .. }), _) => copies.of.len(),
            _ => 1,
        };
        self.outlet.map_or(0..0, |first| first..first + queues)
    }

    /// Whether there is room for what it puts out.
    pub fn has_room(&mut self, network: &Network) -> bool {
        if let Some(pairs) = &self.pairs {
            return pairs.has_room(&network.outlets);
        }
        self.inserters.iter_mut().for_each(|inserter| inserter.collect(&network.outlets));
        self.inserters.iter().all(Inserter::has_room) && network.outlets[self.outlets()].iter().all(Outlet::has_room)
    }

    /// Its operator, if it is a replica of a windowed one.
    pub fn windowed(&self, windows: &[Option<Replicated>]) -> Option<usize> {
        match self.role {
            Role::Operator { operator, .. } => windows[operator].is_some().then_some(operator),
            _ => None,
        }
    }

    /// Whether it may go on with what it took.
    pub fn may_go_on(&self, job: &Job) -> bool {
        let Role::Operator { operator, lane } = self.role else { return true };
        let windowed = job.frame.windows[operator].as_ref().expect("only a windowed operator leaves work unfinished");
        let may_go_on = |replica: &Replica| match self.taken.reconfiguration {
            Some(index) => replica.is_barrier_open(&windowed.operator, index),
            None => replica.may_go_on(&windowed.operator),
        };
        // SAFETY: this task alone is this replica.
        unsafe { windowed.replicas.with(lane, may_go_on) }
    }

    /// Whether it is a source that waits for events to arrive, after a step that did nothing.
    pub fn awaits_arrival(&self, job: &Job) -> bool {
        job.frame.arrivals.is_open_loop() && matches!(self.role, Role::Source { .. }) && !self.done && !self.blocked
    }

    /// The outlet, or the first one. Only the sink has none.
    pub fn outlet<'a>(&self, network: &'a Network) -> &'a Outlet {
        &network.outlets[self.outlet.expect("every task except the sink has an outlet")]
    }

    /// The number of the next batch that the task puts out.
    pub fn serial(&self, outlet: &Outlet) -> u64 {
        self.pairs.as_ref().map_or_else(|| outlet.serial(), |pairs| pairs.serial)
    }

    /// Whether a row in the task's queues waits for room.
    pub fn is_pouring(&self) -> bool {
        self.pairs.as_ref().is_some_and(|pairs| pairs.is_waiting())
    }

    /// Starts the outputs of the rows that were taken; `jumbo` is empty then, or has earlier rows of an unfinished event.
    pub fn head(&self, jumbo: &mut Jumbo) {
        if !self.unfinished {
            jumbo.clear();
        }
        (jumbo.upto, jumbo.last, jumbo.started) = (self.taken.upto, self.taken.last, self.taken.started);
    }

    /// Puts out a jumbo tuple that `fill` fills. An unfinished one stays in its slot.
    ///
    /// # Errors
    /// Those of `fill`; and the queues of channel `pair_queue` may have no memory.
    pub fn put_out(
        &mut self,
        step: &mut Step,
        fill: impl FnOnce(&mut Self, &mut Step, &mut Jumbo) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        if let Some(mut pairs) = self.pairs.take() {
            let outcome = fill(self, step, &mut pairs.outputs);
            let pairs = self.pairs.insert(pairs);
            outcome?;
            self.cost.rows_out += pairs.outputs.rows.n as u64;
            pairs.start(&self.edges);
            self.ended |= self.taken.last;
            return self.pour(step).map(|_| ());
        }
        let outlet = self.outlet(step.network);
        let fill = |jumbo: &mut Jumbo| {
            fill(self, step, jumbo)?;
            Ok::<_, RunError>((jumbo.upto, jumbo.rows.n as u64))
        };
        // SAFETY: this task alone writes its outlet, and has seen room.
        let (upto, rows) = unsafe { outlet.fill(fill) }?;
        if !self.unfinished {
            (self.published, self.owes) = (upto, self.period > 0);
            self.cost.rows_out += rows;
            outlet.publish();
            // SAFETY: as above.
            unsafe { self.insert_latest(outlet) };
        }
        self.ended |= self.taken.last && self.left.is_none();
        step.clock.lap(&mut self.counters.time.other);
        Ok(())
    }

    /// Copies waiting outputs into the queues of its consumers. Returns whether the task has published a tuple or has no
    /// more rows that wait.
    pub fn pour(&mut self, step: &mut Step) -> Result<bool, RunError> {
        let Some(pairs) = &mut self.pairs else { return Ok(false) };
        // SAFETY: this task alone writes its queues.
        let has_published = unsafe { pairs.pour(&step.network.outlets) }?;
        self.blocked = pairs.is_waiting();
        if !self.blocked {
            self.done = if let Role::Source { .. } = self.role { pairs.outputs.last } else { self.taken.last };
        }
        step.clock.lap(&mut self.counters.time.other);
        Ok(has_published || !self.blocked)
    }

    /// In an open loop, publishes the rows that wait in open jumbo tuples: the task has no input. Returns whether there were
    /// any.
    pub fn flush(&mut self, step: &Step) -> bool {
        let job = step.job;
        let Some(pairs) = self.pairs.as_mut().filter(|_| job.frame.arrivals.is_open_loop()) else { return false };
        // SAFETY: this task alone writes its queues.
        let has_published = unsafe { pairs.flush(&step.network.outlets, job.block.text) };
        if has_published {
            job.frame.signals.bells.ring(&[(&self.wakes.readers, INPUT)]);
        }
        has_published
    }

    /// Tells the readers what the task has published: once in a period, at the end of a block, and when it `pauses`. Adds
    /// watermarks to the ScaleGates of its consumers. Returns whether the readers are to be woken.
    pub fn announce(&mut self, network: &Network, pauses: bool) -> bool {
        if self.period == 0 {
            return !pauses;
        }
        let behind = self.published.saturating_sub(self.announced);
        if !self.owes || (behind < self.period && !pauses && !self.ended) {
            return false;
        }
        (self.announced, self.owes) = (self.published, false);
        let Some(outlet) = self.outlet.map(|outlet| &network.outlets[outlet]) else { return false };
        for feed in &mut self.feeds {
            // SAFETY: this task alone writes the outlet. What it has published it has inserted, and there is something new.
            unsafe { feed.add_watermark(outlet) };
        }
        true
    }

    /// Inserts the jumbo tuple that the task published last into the ScaleGates of its consumers.
    ///
    /// # Safety
    /// The caller is the outlet's writer, and has published a jumbo tuple that it has not inserted.
    pub unsafe fn insert_latest(&mut self, outlet: &Outlet) {
        for feed in &mut self.feeds {
            // SAFETY: as the caller says.
            unsafe { feed.add(outlet) };
        }
        for inserter in &mut self.inserters {
            // SAFETY: as above.
            unsafe { inserter.add(outlet.latest()) };
        }
    }
}
