//! Tasks: replicas of operators, the sources, the sink, and the mergers of `merge_sort`. A task belongs to one thread.

use std::ops::Range;

use crate::dataflow::channel::elastic::ends::Inserter;
use crate::dataflow::channel::inlet::Inlet;
use crate::dataflow::channel::outlet::{Jumbo, Outlet};
use crate::dataflow::channel::rank::{Counted, Rank, path_too_long};
use crate::dataflow::channel::scale_gate::Feed;
use crate::dataflow::channel::taken::Taken;
use crate::dataflow::frame::Job;
use crate::dataflow::lane::Scratch;
use crate::dataflow::operator::truncate;
use crate::dataflow::pinned::cost::Cost;
use crate::dataflow::pinned::numbering::number;
use crate::dataflow::pinned::pairs::PairQueues;
use crate::dataflow::pinned::route::{Edge, Route, prepare, route};
use crate::dataflow::windowed::Replicated;
use crate::dataflow::windowed::control::Control;
use crate::dataflow::windowed::copies::Copies;
use crate::dataflow::windowed::epochs::Epochs;
use crate::dataflow::windowed::keys::{Finder, Lister};
use crate::dataflow::windowed::operator::Out;
use crate::dataflow::windowed::replica::Replica;
use crate::dataflow::windowed::replica::barrier::Reconfigured;
use crate::error::RunError;
use crate::output::clock::Stopwatch;
use crate::output::counters::Counters;
use crate::output::delivered::Delivered;
use crate::output::sink::Preparer;
use crate::rows::view::Rows;
use crate::threads::bells::{INPUT, Kinds, PEERS, ROOM};
use crate::threads::sync::{AtomicI64, Ordering};
use crate::threads::team::thread_cpu_nanoseconds;

/// What the tasks of all threads share.
#[derive(Debug)]
pub(super) struct Network {
    pub outlets: Vec<Outlet>,
    /// The event of the earliest failure: sources deal no later ones. A task that notes a failure writes it.
    pub failed_at: AtomicI64,
}

/// What a task does with what it takes.
#[derive(Debug)]
pub(super) enum Role {
    /// Deals events: number `index` of `of` sources takes every `of`-th.
    Source { index: usize, of: usize },
    /// A replica of an operator; `lane` is its part of the keys.
    Operator { operator: usize, lane: usize },
    /// Finds the keys of rows of an input of a windowed operator, for all of its replicas.
    Keys {
        operator: usize,
        input: usize,
        /// Which of those it shares a thread with.
        replica: usize,
        lister: Lister,
        /// If each replica has a queue of its own: what goes into these.
        copies: Option<Copies>,
        /// Up to which event it has said everything.
        said: i64,
    },
    /// Puts streams into one order for the replica behind it, the sink if none (the extra operators that Viper does without).
    Merge { operator: Option<usize> },
    /// Takes the outputs of the events of its ranges.
    Sink { number: usize },
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

#[derive(Debug)]
pub(super) struct Task {
    pub role: Role,
    pub inlet: Inlet,
    /// Number of its outlet, the first if it has several; the sink has none.
    pub outlet: Option<usize>,
    /// With channel `pair_queue`: the queues that take the outlet's place.
    pub pairs: Option<PairQueues>,
    pub edges: Vec<Edge>,
    /// The ScaleGates of those who take its rows, if they have such.
    pub feeds: Vec<Feed>,
    /// Its ends of the elastic ScaleGates of windowed operators that take its rows.
    pub inserters: Vec<Inserter>,
    /// If it reads an elastic ScaleGate, what finds the keys of the rows.
    pub finder: Option<Finder>,
    /// The event up to which it has published everything.
    pub said: i64,
    /// Whether its rows are ranked.
    pub ranked: bool,
    /// Whether its rows are numbered before the sink.
    pub numbered: bool,
    /// The other threads whose tasks wait for what this one does.
    pub wakes: Wakes,
    /// The rows of events that a windowed replica takes, if it takes all.
    pub counted: Counted,
    /// If its rows are what the sink takes: to find out about them here what can be, where they have just been made.
    pub preparer: Option<Preparer>,
    /// The event that it put out something of last, and how many rows: those that follow are numbered from there.
    pub put_out: Option<(i64, u64)>,
    pub taken: Taken,
    /// A windowed replica that waits for others to go over to an epoch, or has more to expire: up to where it has used what it
    /// took.
    pub left: Option<usize>,
    /// Whether it puts out whole events.
    pub whole: bool,
    /// Then: the slot that is filled has rows of an event that has more. It is filled on, and published with the last of them.
    pub unfinished: bool,
    pub scratch: Scratch,
    pub counters: Counters,
    pub cost: Cost,
    /// Events of the block that a source has looked at.
    pub next: usize,
    /// There is no room in the outlet.
    pub blocked: bool,
    /// Nothing comes out any more in this block.
    pub ended: bool,
    /// Nothing comes in any more.
    pub done: bool,
}

// SAFETY: rows refer to memory that the executor owns, or to a block that is in use; nothing refers to a thread.
unsafe impl Send for Task {}

impl Task {
    /// A block begins.
    pub fn begin(&mut self) {
        self.inlet.begin();
        (self.next, self.blocked, self.ended, self.done) = (0, false, false, false);
        self.taken.last = false;
    }

    /// Whether a step might do something now, for a task whose last one did nothing.
    pub fn may_work(&self, network: &Network, job: &Job) -> bool {
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
            (Role::Keys { copies: Some(copies), .. }, _) => copies.of.len(),
            _ => 1,
        };
        self.outlet.map_or(0..0, |first| first..first + queues)
    }

    /// Whether there is room for what it puts out.
    fn has_room(&self, network: &Network) -> bool {
        if let Some(pairs) = &self.pairs {
            return pairs.has_room(&network.outlets);
        }
        self.inserters.iter().for_each(|inserter| inserter.collect(&network.outlets));
        network.outlets[self.outlets()].iter().all(Outlet::has_room)
    }

    /// Its operator, if it is a replica of a windowed one.
    pub fn windowed(&self, windows: &[Option<Replicated>]) -> Option<usize> {
        match self.role {
            Role::Operator { operator, .. } => windows[operator].is_some().then_some(operator),
            _ => None,
        }
    }

    /// Whether it may go on with what it took.
    fn may_go_on(&self, job: &Job) -> bool {
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

    /// Goes on by one batch, if there is one and room for what it becomes; false: there was not.
    ///
    /// # Errors
    /// Kernels' failures are noted in the frame; anything else ends the run.
    pub fn step(&mut self, network: &Network, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        let (taken, before) = (self.cost.rows_in, self.counters.time);
        let watched = self.watched(job).map(|who| (who, thread_cpu_nanoseconds()));
        let worked = self.go_on(network, job, clock)?;
        if worked {
            self.cost.add(taken, before, self.counters.time, self.left.is_none());
            if let Some(((control, replica), began)) = watched {
                control.add_work(replica, thread_cpu_nanoseconds() - began);
            }
        }
        Ok(worked)
    }

    /// Whose controller wants to know how long it works, as which replica.
    fn watched<'a>(&self, job: &Job<'a>) -> Option<(&'a Control, usize)> {
        let (operator, replica) = match self.role {
            Role::Keys { operator, replica, .. } => (operator, replica),
            Role::Operator { operator, lane } => (operator, lane),
            _ => return None,
        };
        let windowed = job.frame.windows[operator].as_ref()?;
        windowed.control.watches.then_some((&*windowed.control, replica))
    }

    fn go_on(&mut self, network: &Network, job: &Job, clock: &mut Stopwatch) -> Result<bool, RunError> {
        if self.pairs.as_ref().is_some_and(PairQueues::is_waiting) {
            let worked = self.pour(network, clock)?;
            if worked {
                job.frame.signals.bells.ring(&[(&self.wakes.readers, INPUT)]);
            }
            return Ok(worked);
        }
        self.blocked = match self.outlet {
            Some(_) if !self.ended => !self.has_room(network),
            _ => false,
        };
        if self.done || self.blocked {
            return Ok(false);
        }
        if let Role::Source { index, of } = self.role {
            return Ok(self.deal(index, of, network, job, clock)? || self.flush(network, job));
        }
        if self.left.is_some() {
            if !self.may_go_on(job) {
                return Ok(false);
            }
            self.operate(network, job, clock)?;
            self.used(network, job);
            return Ok(true);
        }
        let known = self.taken.upto;
        // SAFETY: this task alone reads as these readers; what was taken before has been used.
        let new = unsafe { self.inlet.take(&network.outlets, job.block.text, &mut self.taken) }?;
        clock.lap(&mut self.counters.time.other);
        if !new {
            // Even so, the inlet may have released heartbeats that said nothing new.
            job.frame.signals.bells.ring(&[(&self.wakes.writers, ROOM)]);
            return Ok(self.flush(network, job));
        }
        self.cost.rows_in += self.taken.rows() as u64;
        if let Role::Sink { number } = self.role {
            // SAFETY: this task alone is that sink.
            unsafe { job.frame.deliver(number, |delivered| deliver(delivered, &self.taken, known, job)) }?;
            self.cost.rows_out += self.taken.rows() as u64;
            clock.lap(&mut self.counters.time.useful);
        } else if !self.ended {
            self.operate(network, job, clock)?;
        }
        self.used(network, job);
        Ok(true)
    }

    /// What was taken has been used, unless something is left of it.
    fn used(&mut self, network: &Network, job: &Job) {
        if self.left.is_none() {
            self.done = self.taken.last && !self.pairs.as_ref().is_some_and(PairQueues::is_waiting);
            self.inlet.release(&network.outlets);
        }
        let Wakes { readers, writers, peers } = &self.wakes;
        job.frame.signals.bells.ring(&[(readers, INPUT), (writers, ROOM), (peers, PEERS)]);
    }

    /// Copies waiting outputs into the queues of its consumers. Returns whether something was published.
    fn pour(&mut self, network: &Network, clock: &mut Stopwatch) -> Result<bool, RunError> {
        let Some(pairs) = &mut self.pairs else { return Ok(false) };
        // SAFETY: this task alone writes its queues.
        let has_published = unsafe { pairs.pour(&network.outlets) }?;
        self.blocked = pairs.is_waiting();
        if !self.blocked {
            self.done = if let Role::Source { .. } = self.role { pairs.outputs.last } else { self.taken.last };
        }
        clock.lap(&mut self.counters.time.other);
        Ok(has_published || !self.blocked)
    }

    /// In an open loop, publishes what waits in open jumbo tuples: the task has no input. Returns whether there was any.
    fn flush(&mut self, network: &Network, job: &Job) -> bool {
        let Some(pairs) = self.pairs.as_mut().filter(|_| job.frame.arrivals.is_open_loop()) else { return false };
        // SAFETY: this task alone writes its queues.
        let has_published = unsafe { pairs.flush(&network.outlets, job.block.text) };
        if has_published {
            job.frame.signals.bells.ring(&[(&self.wakes.readers, INPUT)]);
        }
        has_published
    }

    /// Puts out the next events.
    fn deal(
        &mut self,
        index: usize,
        of: usize,
        network: &Network,
        job: &Job,
        clock: &mut Stopwatch,
    ) -> Result<bool, RunError> {
        let block = job.block;
        let full = block.n.min(self.next + job.frame.batch * of);
        let outlet = &network.outlets[self.outlet.expect("every source has an outlet")];
        // ORDERING: Relaxed; only when to stop early hangs on it.
        let failed = self.next < full && block.seq(self.next) > network.failed_at.load(Ordering::Relaxed);
        let due = if full == self.next || failed { Some(full) } else { job.due(self.next, full, job.linger()) };
        let Some(end) = due else { return Ok(false) };
        let (start, n) = if failed { (block.n, 0) } else { (self.next, end - self.next) };
        for windowed in job.frame.windows.iter().flatten().filter(|_| n > 0) {
            let now = job.clock.now();
            windowed.control.deal((block.seq(start), block.seq(end - 1)), now, job.offered(end, now));
        }
        let rows = Rows::new(block.row(start), n, block.stride, block.text);
        let serial = self.pairs.as_ref().map_or_else(|| outlet.serial(), |pairs| pairs.serial);
        let mut fill = |jumbo: &mut Jumbo| {
            jumbo.clear();
            // Injectors deal event by event, as Viper's do: every `of`-th one, where they lie.
            let first = (of + index - start % of) % of;
            jumbo.rows = Rows { n: n.saturating_sub(first).div_ceil(of), stride: of * rows.stride, ..rows };
            jumbo.rows.start = rows.start.wrapping_add(first * rows.stride);
            jumbo.started = job.clock.now();
            jumbo.last = start + n == block.n;
            jumbo.upto = if jumbo.last { block.seq(block.n - 1) } else { block.seq(end - 1) };
            self.cost.rows_in += jumbo.rows.n as u64;
            self.cost.rows_out += jumbo.rows.n as u64;
            route(&self.edges, serial, &mut self.scratch, jumbo)
        };
        self.next = end;
        if let Some(pairs) = &mut self.pairs {
            fill(&mut pairs.outputs)?;
            pairs.start(&self.edges);
            self.pour(network, clock)?;
        } else {
            // SAFETY: this task alone writes its outlet, and has seen room.
            unsafe { outlet.fill(&mut fill) }?;
            outlet.publish();
            // SAFETY: as above; that is what was published last.
            unsafe { feed(&mut self.feeds, &mut self.inserters, outlet) };
            self.done = start + n == block.n;
        }
        clock.lap(&mut self.counters.time.other);
        job.frame.signals.bells.ring(&[(&self.wakes.readers, INPUT)]);
        Ok(true)
    }

    /// Runs the operator on what was taken, and puts out what it becomes.
    fn operate(&mut self, network: &Network, job: &Job, clock: &mut Stopwatch) -> Result<(), RunError> {
        if let Role::Keys { copies: Some(_), .. } = self.role {
            return self.copy(network, job, clock);
        }
        let mut stopped = None;
        if let Inlet::Elastic(_) = self.inlet {
            match self.prepare(job) {
                Ok(true) => (),
                Ok(false) => {
                    self.left = Some(0);
                    return Ok(());
                }
                Err(error @ RunError::Stopped) => stopped = Some(error),
                Err(error) => return Err(error),
            }
            clock.lap(&mut self.counters.time.useful);
        }
        let outlet = &network.outlets[self.outlet.expect("every task except the sink has an outlet")];
        let serial = self.pairs.as_ref().map_or_else(|| outlet.serial(), |pairs| pairs.serial);
        let Self {
            role,
            pairs,
            edges,
            feeds,
            inserters,
            said,
            ranked,
            numbered,
            counted,
            preparer,
            put_out,
            taken,
            left,
            whole,
            unfinished,
            scratch,
            counters,
            cost,
            ended,
            ..
        } = self;
        let mut fill = |jumbo: &mut Jumbo| {
            if !*unfinished {
                jumbo.clear();
            }
            (jumbo.upto, jumbo.last, jumbo.started) = (taken.upto, taken.last, taken.started);
            if let Role::Keys { operator, input, lister, said, .. } = role {
                let windowed =
                    job.frame.windows[*operator].as_ref().expect("only tasks of windowed operators have keys");
                // SAFETY: the rows were taken just now; they are what the operator takes.
                let outcome = unsafe { list(windowed, *input, lister, taken, job, jumbo) };
                clock.lap(&mut counters.time.useful);
                note(outcome, *operator, network, job, jumbo, ended)?;
                deal(&windowed.operator.epochs, *said, jumbo, outlet);
                *said = jumbo.upto;
                return Ok(());
            }
            let made = &mut jumbo.made;
            let Role::Operator { operator, lane } = *role else {
                // SAFETY: the rows were taken just now.
                unsafe { made.gather(taken.rows.n, |i| taken.rows.row(i)) }?;
                jumbo.ranks.extend_from_slice(&taken.ranks);
                jumbo.rows = Rows::of(&jumbo.made, job.block.text);
                for hashes in &mut jumbo.hashes {
                    hashes.clear();
                    hashes.extend_from_slice(&taken.hashes);
                }
                jumbo.shares[0].whole = true;
                clock.lap(&mut counters.time.other);
                return Ok(());
            };
            let (chain, lanes) = (&job.frame.chain, &job.frame.lanes);
            let about = &chain.operators[operator];
            let windowed = &job.frame.windows[operator];
            let outcome = match chain.stateful.binary_search(&operator) {
                Err(_) if let Some(windowed) = windowed => {
                    if left.is_none() && !windowed.operator.shares_nothing() {
                        for (index, rank) in taken.ranks.iter_mut().enumerate() {
                            // SAFETY: there is a rank of each row that was taken.
                            *rank = counted.rank(unsafe { taken.rows.seq(index) }, *rank);
                        }
                    }
                    let inputs = ranked.then_some(&taken.ranks[..]);
                    let mut out = Out { rows: made, inputs, ranks: &mut jumbo.ranks };
                    let from = left.take().unwrap_or(0);
                    let work = |replica: &mut Replica| {
                        let (operator, now) = (&windowed.operator, || job.clock.now());
                        let rows = (taken.rows, taken.upto);
                        let to = match stopped.take() {
                            Some(error) => Err(error),
                            // SAFETY: replicas keep to the epochs; rows came with their meetings.
                            None => unsafe { replica.process(operator, rows, from, &taken.hashes, &now, &mut out) },
                        };
                        if to.is_err() {
                            replica.give_up(operator);
                        }
                        to
                    };
                    // SAFETY: this task alone is this replica.
                    unsafe { windowed.replicas.with_mut(lane, work) }.map(|to| {
                        *left = to;
                        if let Some(to) = to {
                            // SAFETY: the row was taken.
                            let next = (to < taken.rows.n).then(|| unsafe { taken.rows.seq(to) });
                            (jumbo.upto, jumbo.last) = (next.map_or(taken.upto, |seq| seq - 1), false);
                        }
                    })
                }
                // SAFETY: the rows are what the operator takes; the buffer is this task's.
                Err(_) => unsafe { about.map(taken.rows, made) }.map_err(|error| place(error, taken)),
                // SAFETY: as above; this task alone uses the lane.
                Ok(stage) => unsafe {
                    lanes[stage].with(lane, |lane| lane.process(about, taken.rows, &taken.hashes, scratch, made))
                }
                .map_err(|error| place(error, taken)),
            };
            counters.dropped += made.take_dropped();
            clock.lap(&mut counters.time.useful);
            note(outcome, operator, network, job, jumbo, ended)?;
            let rows = Rows::of(&jumbo.made, job.block.text);
            // SAFETY: rows that were just made.
            *unfinished = *whole && left.is_some() && rows.n > 0 && unsafe { rows.seq(rows.n - 1) } > jumbo.upto;
            // An elastic ScaleGate wants watermarks that ascend.
            *unfinished |= !inserters.is_empty() && rows.n == 0 && jumbo.upto <= *said && !jumbo.last;
            if *unfinished {
                return Ok(());
            }
            jumbo.rows = rows;
            if *numbered {
                // If the kernel has failed, the outputs of earlier events are left.
                let emits = if *ended { (0, None) } else { about.emits };
                number(emits, (&taken.subs, taken.rows), jumbo.made.origins(), &mut jumbo.subs)?;
            }
            if *ranked && windowed.is_none() {
                let outcome = rank(&taken.ranks, taken.rows, jumbo.made.origins(), &mut jumbo.ranks);
                if let Err(RunError::TooManyRows { seq }) = outcome {
                    truncate(&mut jumbo.made, seq);
                    jumbo.ranks.truncate(jumbo.made.len());
                    jumbo.rows = Rows::of(&jumbo.made, job.block.text);
                }
                note(outcome, operator, network, job, jumbo, ended)?;
            }
            route(edges, serial, scratch, jumbo)?;
            if let Some(preparer) = preparer {
                clock.lap(&mut counters.time.other);
                for edge in edges.iter().filter(|edge| matches!(edge.route, Route::Range)) {
                    prepare(preparer, edge.first..edge.first + edge.readers, jumbo, put_out)?;
                }
                clock.lap(&mut counters.time.useful);
            }
            Ok::<_, RunError>(())
        };
        let mut fill = |jumbo: &mut Jumbo| fill(jumbo).map(|()| jumbo.rows.n as u64);
        if let Some(pairs) = pairs {
            cost.rows_out += fill(&mut pairs.outputs)?;
            pairs.start(edges);
            *ended |= taken.last;
            return self.pour(network, clock).map(|_| ());
        }
        let mut upto = *said;
        let fill = |jumbo: &mut Jumbo| {
            let rows = fill(jumbo)?;
            upto = jumbo.upto;
            Ok::<_, RunError>(rows)
        };
        // SAFETY: this task alone writes its outlet, and has seen room.
        let rows = unsafe { outlet.fill(fill) }?;
        if !*unfinished {
            *said = upto;
            cost.rows_out += rows;
            outlet.publish();
            // SAFETY: as above; that is what was published last.
            unsafe { feed(feeds, inserters, outlet) };
        }
        *ended |= taken.last && left.is_none();
        clock.lap(&mut counters.time.other);
        Ok(())
    }

    /// Prepares what a replica took from an elastic ScaleGate: goes over to the epoch that begins with it, and finds the keys.
    /// Returns whether it can be used now. Else others must come to the barrier first.
    fn prepare(&mut self, job: &Job) -> Result<bool, RunError> {
        let Self { role, inlet, taken, finder, left, said, .. } = self;
        let (&mut Role::Operator { operator, lane }, Inlet::Elastic(taker), Some(finder)) = (role, inlet, finder)
        else {
            return Ok(true);
        };
        let windowed = job.frame.windows[operator].as_ref().expect("only a windowed operator has an elastic ScaleGate");
        let is_new = left.is_none() || taken.reconfiguration.is_some();
        *left = left.filter(|_| !is_new);
        if let Some(index) = taken.reconfiguration {
            let now = || job.clock.now();
            let go_over = |replica: &mut Replica| {
                // SAFETY: the reader is this replica's, and what it took begins with the epoch.
                unsafe { replica.reconfigure(&windowed.operator, index, &taker.reader, &now) }
            };
            // SAFETY: this task alone is this replica.
            match unsafe { windowed.replicas.with_mut(lane, go_over) }? {
                Reconfigured::Waits => return Ok(false),
                Reconfigured::Stays => (),
                Reconfigured::Leaves => {
                    // Up to the epoch, all is out.
                    taken.clear();
                    taken.last = false;
                    taken.upto = windowed.operator.epochs.get(index).map_or(*said, |epoch| epoch.event - 1).max(*said);
                }
            }
            taken.reconfiguration = None;
        } else if is_new && !taker.reader.is_present() {
            // SAFETY: as above.
            unsafe { windowed.replicas.with_mut(lane, |replica| replica.pass(&windowed.operator)) };
        }
        if is_new {
            // SAFETY: the rows were taken just now; they are what the operator takes.
            unsafe { finder.find(&windowed.operator, taken.rows, &mut taken.hashes) }?;
        }
        Ok(true)
    }

    /// Finds the keys of what was taken, and puts copies into the queues of replicas that share nothing.
    fn copy(&mut self, network: &Network, job: &Job, clock: &mut Stopwatch) -> Result<(), RunError> {
        let first = self.outlet.expect("every task except the sink has an outlet");
        let Self { role, taken, counters, cost, ended, .. } = self;
        let Role::Keys { operator, input, lister, copies: Some(copies), said, .. } = role else { return Ok(()) };
        let windowed =
            &job.frame.windows[*operator].as_ref().expect("only tasks of windowed operators have keys").operator;
        let rows = taken.rows;
        // SAFETY: the rows were taken just now; they are what the operator takes.
        let outcome = unsafe { copies.deal(windowed, lister, *input, (rows, &taken.ranks)) };
        clock.lap(&mut counters.time.useful);
        let mut heading = (taken.upto, taken.last);
        if has_failed(outcome, *operator, network, job)? {
            (heading, *ended) = ((job.block.seq(job.block.n - 1), true), true);
        }
        let (upto, last) = heading;
        let queues = &network.outlets[first..first + copies.of.len()];
        for (replica, (outlet, copied)) in queues.iter().zip(&mut copies.of).enumerate() {
            let fill = |jumbo: &mut Jumbo| {
                jumbo.clear();
                (jumbo.upto, jumbo.last, jumbo.started) = (upto, last, taken.started);
                std::mem::swap(&mut jumbo.made, &mut copied.rows);
                std::mem::swap(&mut jumbo.words, &mut copied.words);
                std::mem::swap(&mut jumbo.hashes[0], &mut copied.meetings);
                std::mem::swap(&mut jumbo.ranks, &mut copied.ranks);
                jumbo.rows = Rows::of(&jumbo.made, job.block.text);
                jumbo.shares[0].whole = true;
                cost.rows_out += jumbo.rows.n as u64;
            };
            // SAFETY: this task alone writes its outlets, and has seen room in all of them.
            unsafe { outlet.fill(fill) };
            outlet.pass_over(0, last || windowed.epochs.concerns(replica, *said, upto));
            outlet.publish();
        }
        *said = upto;
        *ended |= last;
        clock.lap(&mut counters.time.other);
        Ok(())
    }
}

/// Sorts what was published last into the ScaleGates of those who take it.
///
/// # Safety
/// The caller is the outlet's writer, and has published something that it did not sort in.
unsafe fn feed(feeds: &mut [Feed], inserters: &mut [Inserter], outlet: &Outlet) {
    for feed in feeds {
        // SAFETY: as the caller says.
        unsafe { feed.add(outlet.latest()) };
    }
    for inserter in inserters {
        // SAFETY: as above.
        unsafe { inserter.add(outlet.latest()) };
    }
}

/// A failure at the position of an input, ordered by the rank or the number of that input.
fn place(error: RunError, taken: &Taken) -> RunError {
    error.ordered(|position| {
        let number = || taken.subs.get(position as usize).copied().map_or(0, u128::from);
        taken.ranks.get(position as usize).map_or_else(number, |rank| rank.order())
    })
}

/// Takes in what became of a kernel's call.
fn note(
    outcome: Result<(), RunError>,
    operator: usize,
    network: &Network,
    job: &Job,
    jumbo: &mut Jumbo,
    ended: &mut bool,
) -> Result<(), RunError> {
    if has_failed(outcome, operator, network, job)? {
        // The outputs of earlier events go on; nothing else comes from here.
        (jumbo.upto, jumbo.last, *ended) = (job.block.seq(job.block.n - 1), true, true);
    }
    Ok(())
}

/// Whether a kernel's call has failed, of which all take notice.
fn has_failed(outcome: Result<(), RunError>, operator: usize, network: &Network, job: &Job) -> Result<bool, RunError> {
    match outcome {
        Err(error @ (RunError::Kernel { .. } | RunError::TooManyRows { .. })) => {
            // ORDERING: Relaxed; a source that sees it late deals events for nothing.
            network.failed_at.fetch_min(error.rank().1, Ordering::Relaxed);
            job.frame.note(operator, error);
            Ok(true)
        }
        // A windowed replica cannot go on: another one has failed, and that one says so.
        Err(RunError::Stopped) => Ok(true),
        other => other.map(|()| false),
    }
}

/// Puts the rows that were taken, and their meetings, into a jumbo tuple.
///
/// # Safety
/// They have not been given back, and are what the input takes.
unsafe fn list(
    windowed: &Replicated,
    input: usize,
    lister: &mut Lister,
    taken: &Taken,
    job: &Job,
    jumbo: &mut Jumbo,
) -> Result<(), RunError> {
    let rows = taken.rows;
    jumbo.ranks.extend_from_slice(&taken.ranks);
    // Events stay where they are; what operators have put out is given back before replicas come to it.
    let block = job.block.row(0)..job.block.row(job.block.n);
    jumbo.rows = if rows.places.is_null() && block.contains(&rows.start) {
        rows
    } else {
        // SAFETY: as the caller says.
        unsafe { jumbo.made.gather(rows.n, |i| rows.row(i)) }?;
        Rows::of(&jumbo.made, job.block.text)
    };
    // SAFETY: as the caller says.
    unsafe { lister.list(&windowed.operator, input, jumbo.rows, &mut jumbo.words, &mut jumbo.hashes[0]) }
}

/// Says which replicas of a windowed operator take which of the rows of a jumbo tuple, behind event `after`: those that own
/// cells in their epochs. A row that concerns no other replica would wait for heartbeats that pass over its reader.
fn deal(epochs: &Epochs, after: i64, jumbo: &mut Jumbo, outlet: &Outlet) {
    let (rows, upto) = (jumbo.rows, jumbo.upto);
    for (replica, share) in jumbo.shares.iter_mut().enumerate() {
        match epochs.takes(replica, after, upto) {
            Some(takes) => share.whole = takes,
            None => {
                // SAFETY: the rows are there.
                let takes = |&position: &u32| epochs.takes_event(replica, unsafe { rows.seq(position as usize) });
                share.positions.extend((0..rows.n as u32).filter(takes));
            }
        }
        outlet.pass_over(replica, jumbo.last || epochs.concerns(replica, after, upto));
    }
}

/// Delivers what the sink has taken; events up to `known` had been delivered before.
fn deliver(delivered: &mut Delivered, taken: &Taken, known: i64, job: &Job) -> Result<(), RunError> {
    let rows = taken.rows;
    let mut first = job.block.seq(0).max(known.saturating_add(1));
    if rows.n > 0 {
        // SAFETY: the rows were taken just now.
        first = unsafe { rows.seq(0) };
    }
    // SAFETY: nothing has been given back.
    unsafe { taken.deliver(&mut delivered.sink) }?;
    if taken.started < u64::MAX {
        // Events are numbered from the block's first one on.
        let index = (job.block.n - 1).min((first - job.block.seq(0)) as usize);
        let (now, arrival) = (job.clock.now(), job.arrival(index));
        delivered.record(now, taken.started, arrival);
        if taken.upto > known {
            delivered.finished(taken.upto, now, arrival);
        }
    }
    Ok(())
}

/// The ranks of outputs, from those of their inputs (none: each was alone with its event) and their origins. None, if each
/// of them is still alone.
fn rank(inputs: &[Rank], rows: Rows, origins: &[u32], outputs: &mut Vec<Rank>) -> Result<(), RunError> {
    if origins.windows(2).all(|pair| pair[0] != pair[1]) {
        // What an input becomes one row of keeps its rank.
        if !inputs.is_empty() {
            outputs.extend(origins.iter().map(|&origin| inputs[origin as usize]));
        }
        return Ok(());
    }
    for outputs_of in origins.chunk_by(|a, b| a == b) {
        let origin = outputs_of[0] as usize;
        let input = inputs.get(origin).copied().unwrap_or(Rank::ONLY);
        if outputs_of.len() == 1 {
            outputs.push(input);
            continue;
        }
        for number in 0..outputs_of.len() as u64 {
            // SAFETY: an input that emitted something.
            outputs.push(input.output(number).ok_or_else(|| path_too_long(unsafe { rows.seq(origin) }))?);
        }
    }
    Ok(())
}
