//! The common frame of executors of dataflows. It holds threads that persist over blocks, the operators and their state, the
//! sink, the failure to report, and the metrics of the run. The `Work` of an executor defines what a thread does for a block.

use crate::dataflow::flush::flush;
use crate::dataflow::lane::{Lanes, keyed_states};
use crate::dataflow::operator::Chain;
use crate::dataflow::windowed::control::Offered;
use crate::dataflow::windowed::{PARALLELISMS, Replicated};
use crate::error::RunError;
use crate::executor::{Executor, Reconfigurable, TakeNamed};
use crate::interruption;
use crate::output::clock::{Arrivals, Clock, Running};
use crate::output::counters::Counters;
use crate::output::delivered::{Delivered, metrics};
use crate::output::metrics::{Metrics, Standing};
use crate::output::ranges::merged;
use crate::output::sink::{Preparer, Sink};
use crate::program::Program;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::rows::block::{Block, Text};
use crate::rows::texts::{self, Texts};
use crate::rows::view::Rows;
use crate::state::states::States;
use crate::threads::choice::{Choice, Way, widths};
use crate::threads::idle::Strategy;
use crate::threads::sync::{Arc, CachePadded, Mutex, Ordering, UnsafeCell, lock};
use crate::threads::team::{Signals, Team};

use std::collections::BTreeMap;

/// The data that all threads share, in every executor.
#[derive(Debug)]
pub(crate) struct Frame {
    pub chain: Chain,
    /// Per operator with state. The executor decides which thread uses a lane at a time.
    pub lanes: Vec<Lanes>,
    /// Per operator; None without windows.
    pub windows: Vec<Option<Replicated>>,
    /// Memory for new texts, if operators make any.
    texts: Option<Arc<Texts>>,
    /// Per sink. One thread at a time uses each. The executor decides which one.
    delivered: Box<[CachePadded<UnsafeCell<Delivered>>]>,
    pub preparer: Preparer,
    pub signals: Arc<Signals>,
    /// The failure of the earliest event; of several failures of one event, that of the first operator. Any thread writes it.
    failure: Mutex<Option<(i64, usize, RunError)>>,
    pub arrivals: Arrivals,
    pub batch: usize,
    /// Of executor pinned, in an open loop: how long the oldest event of a batch waits for the others, in nanoseconds.
    pub linger: u64,
}

// SAFETY: the callers of `deliver` guarantee that one thread at a time delivers; lanes have the same rule.
unsafe impl Sync for Frame {}

/// The order of failures of one operator at one event: by their place within the event, then by their content.
fn about(error: &RunError) -> (u128, Option<(i64, i64)>, &[u8]) {
    match error {
        RunError::Kernel { window, order, exception, .. } => (*order, *window, exception),
        _ => (0, None, &[]),
    }
}

/// The work for a block, or for a section of one.
pub(crate) struct Job<'a> {
    pub frame: &'a Frame,
    pub block: &'a Block,
    /// The number of events before it.
    before: u64,
    pub clock: Running,
}

/// The part of an executor that is specific to it.
pub(crate) trait Work: Send + Sync {
    /// The largest number of events to process together, after `processed` events.
    fn section(&self, _frame: &Frame, _processed: u64) -> usize {
        usize::MAX
    }

    /// Prepares for the next `n` events, which the first threads work on, as `choice` has it; no thread is at work.
    fn begin(&mut self, _frame: &mut Frame, _n: usize, _choice: &Choice) -> Result<(), RunError> {
        Ok(())
    }

    /// Does the work of thread `thread` for a block. The block is delivered when all threads have returned.
    ///
    /// # Errors
    /// The run is over. A kernel's failure is noted in the frame instead, because earlier events must still be delivered.
    fn work(&self, thread: usize, job: &Job) -> Result<(), RunError>;

    /// The sum over all threads; none is at work.
    fn counters(&self) -> Counters;

    /// The cost of each task, if the executor has tasks; no thread is at work.
    fn tasks(&self, _frame: &Frame) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The executor of a dataflow.
#[derive(Debug)]
pub(crate) struct Dataflow<W> {
    team: Team,
    /// Of the number of threads for each part of a block.
    pub(super) choice: Choice,
    pub(super) frame: Frame,
    pub(super) work: W,
    /// The counters of flushes.
    flushed: Counters,
    clock: Clock,
    events: u64,
}

// SAFETY: rows and addresses refer to memory that the executor owns, or to a block that is in use.
unsafe impl<W: Send> Send for Dataflow<W> {}

#[cfg(all(test, not(loom)))]
impl Frame {
    /// A block's work, as if it were the first.
    pub fn job<'a>(&'a self, block: &'a Block) -> Job<'a> {
        Job { frame: self, block, before: 0, clock: Clock::default().start() }
    }
}

impl Frame {
    /// Lends sink number `sink`.
    ///
    /// # Safety
    /// No other thread has it meanwhile, and the writes of its last user are visible.
    #[inline]
    pub unsafe fn deliver<R>(&self, sink: usize, work: impl FnOnce(&mut Delivered) -> R) -> R {
        // SAFETY: as the caller says.
        self.delivered[sink].with_mut(|delivered| work(unsafe { &mut *delivered }))
    }

    /// Notes a failure of operator number `operator`. Returns whether no earlier failure was known.
    pub fn note(&self, operator: usize, error: RunError) -> bool {
        let seq = error.rank().1;
        let mut first = lock(&self.failure);
        // Several replicas of an operator may fail at one event: the sequential order decides, not the order of arrival.
        let is_first = first
            .as_ref()
            .is_none_or(|(other, before, known)| (seq, operator, about(&error)) < (*other, *before, about(known)));
        if is_first {
            *first = Some((seq, operator, error));
        }
        is_first
    }

    /// Whether some thread has failed or a signal has come, so that all leave.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        // ORDERING: Acquire; nothing but the flag is used.
        interruption::noted() != 0 || self.signals.stopped.load(Ordering::Acquire)
    }

    /// An error once it is.
    #[inline]
    pub fn check(&self) -> Result<(), RunError> {
        interruption::check()?;
        if self.is_stopped() { Err(RunError::Stopped) } else { Ok(()) }
    }
}

impl Job<'_> {
    /// The block's events.
    pub fn rows(&self) -> Rows {
        let block = self.block;
        Rows::new(block.row(0), block.n, block.stride, block.text)
    }

    /// The numbers of arrived and dealt events, if all events of the block before `next` are dealt. In a closed loop, an event
    /// arrives when it is dealt.
    pub fn offered(&self, next: usize, now: u64) -> Offered {
        let dealt = self.before + next as u64;
        let arrivals = &self.frame.arrivals;
        let arrived = if arrivals.is_open_loop() { arrivals.until(now).max(dealt) } else { dealt };
        Offered { arrived, dealt }
    }

    /// When event `index` of the block arrives, if the loop is open.
    pub fn arrival(&self, index: usize) -> Option<u64> {
        let arrivals = &self.frame.arrivals;
        arrivals.is_open_loop().then(|| arrivals.at(self.before + index as u64))
    }

    /// Whether the first `upto` events of the block have arrived.
    pub fn has_arrived(&self, upto: usize) -> bool {
        self.arrival(upto - 1).is_none_or(|arrival| self.clock.now() >= arrival)
    }

    /// The end of the batch that a source deals now, if it begins with event `first` and would end before `full`. In an open
    /// loop, that are all its events once they have arrived, or those that have once the oldest has waited for `linger`
    /// nanoseconds. None: the source waits.
    pub fn due(&self, first: usize, full: usize, linger: u64) -> Option<usize> {
        let Some(last) = self.arrival(full - 1) else { return Some(full) };
        let now = self.clock.now();
        if now >= last {
            return Some(full);
        }
        if now < self.arrival(first)?.saturating_add(linger) {
            return None;
        }
        let arrived = self.frame.arrivals.until(now).saturating_sub(self.before) as usize;
        // Times are rounded, so that the first one may be counted a nanosecond late.
        (arrived > first).then_some(arrived.min(full))
    }

    /// Waits until a batch is due, or `leaves` says to go.
    pub fn await_batch(&self, first: usize, full: usize, linger: u64, leaves: impl FnMut() -> bool) {
        let times = self.arrival(full - 1).zip(self.arrival(first));
        if let Some((last, oldest)) = times {
            self.frame.arrivals.wait_until(last.min(oldest.saturating_add(linger)), &self.clock, leaves);
        }
    }

    /// How long the oldest event of a batch may wait for the others, in nanoseconds. While a program asks for a
    /// reconfiguration, it does not wait: the reconfiguration begins with the next event that the source deals.
    pub fn linger(&self) -> u64 {
        let is_asked = self.frame.windows.iter().flatten().any(|windowed| windowed.control.is_asked());
        if is_asked { 0 } else { self.frame.linger }
    }

    /// Waits until they have, or `leaves` says to go.
    pub fn await_arrival(&self, upto: usize, leaves: impl FnMut() -> bool) {
        self.frame.arrivals.wait(self.before + upto as u64 - 1, &self.clock, leaves);
    }
}

/// Batches in a segment of a trial, with one thread and with several.
const BATCHES_ALONE: usize = 16;
const BATCHES: usize = 128;

/// The choice between numbers of threads, for an executor that works with any.
pub(crate) fn any_number(options: &Options) -> Choice {
    if options.pin {
        return Choice::fixed(options.threads);
    }
    let part = |threads: usize| options.batch * if threads == 1 { BATCHES_ALONE } else { BATCHES };
    let ways = widths(options.threads).map(|threads| Way { threads, part: part(threads) });
    Choice::new(ways, options.batch, options.allowed_threads())
}

impl<W: Work> Dataflow<W> {
    /// Makes the frame, and the executor's part of it.
    ///
    /// Args: `choice`: that of the number of threads. `ordered`: outputs come in total order. `sinks`: their number. `lanes`: the
    /// number of lanes, or replicas, of each operator with state. `work`: makes the executor's part.
    pub fn new(
        program: &Program,
        options: &Options,
        choice: Choice,
        ordered: bool,
        sinks: usize,
        lanes: impl Fn(usize) -> usize,
        work: impl FnOnce(&Frame) -> W,
    ) -> Result<Self, RunError> {
        // SAFETY: the creator of the program guarantees its addresses.
        let chain = unsafe { Chain::bind(program) }?;
        let hasher = if ordered { program.hasher() } else { program.unordered_hasher() }?;
        let preparer = Preparer::new(options.sink, hasher);
        let team = Team::with_more(options.threads, options.merge_threads, options.idle, options.pin)?;
        let parallelism = find("parallelism", " of windowed operators", options.parallelism.as_deref(), PARALLELISMS)?;
        let mut windows = Vec::new();
        for (index, operator) in program.operators.iter().enumerate() {
            // SAFETY: as above.
            let bind = |spec| unsafe { Replicated::bind(program, operator, spec, lanes(index), options, parallelism) };
            windows.push(operator.window.as_ref().map(bind).transpose()?);
        }
        let arrivals = Arrivals::new(&options.rate.phases()).sleeping(options.idle == Strategy::Park);
        let frame = Frame {
            windows,
            texts: program.texts.clone(),
            lanes: chain.stateful.iter().map(|&at| Lanes::new(&chain.operators[at], lanes(at))).collect(),
            chain,
            preparer: preparer.clone(),
            delivered: (0..sinks)
                .map(|_| {
                    let delivered = Delivered::new(Sink::of(preparer.clone()))
                        .with_deliveries(options.deliveries)
                        .with_latencies_of(options.latencies, &arrivals);
                    CachePadded::new(UnsafeCell::new(delivered))
                })
                .collect(),
            signals: team.signals(),
            failure: Mutex::new(None),
            arrivals,
            batch: options.batch,
            linger: options.linger * 1_000,
        };
        let work = work(&frame);
        Ok(Self { team, choice, frame, work, flushed: Counters::default(), clock: Clock::default(), events: 0 })
    }

    fn windows(&self) -> impl Iterator<Item = &Replicated> {
        self.frame.windows.iter().flatten()
    }

    fn reconfigurations(&self) -> serde_json::Value {
        let all = self.windows().flat_map(|windowed| windowed.control.reconfigurations());
        serde_json::to_value(all.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Per windowed operator the calls of each replica, which say how evenly the keys are dealt.
    fn calls(&self) -> serde_json::Value {
        // SAFETY: threads only work within `process` and `finish`, which need `&mut self`.
        let calls = self.windows().map(|windowed| (windowed.operator.name.clone(), unsafe { windowed.calls() }));
        serde_json::to_value(calls.collect::<BTreeMap<_, _>>()).unwrap_or_default()
    }

    /// Per windowed operator what its controller saw, if it has one.
    fn loads(&self) -> serde_json::Value {
        let loads = self.windows().map(|windowed| (windowed.operator.name.clone(), windowed.control.loads()));
        let seen = loads.filter(|(_, loads)| !loads.is_empty()).collect::<BTreeMap<_, _>>();
        serde_json::to_value(seen).unwrap_or_default()
    }

    fn section(&mut self, block: &Block) -> Result<(), RunError> {
        let clock = self.clock.start();
        self.work.begin(&mut self.frame, block.n, &self.choice)?;
        // SAFETY: the team is at work within `run` only.
        self.windows().for_each(|windowed| unsafe { windowed.control.begin(clock) });
        let Self { team, choice, frame, work, .. } = self;
        let job = Job { frame, block, before: self.events, clock };
        // Merge threads are behind the others.
        let threads = if choice.is_fixed() { team.len() } else { choice.threads() };
        let (waits, started) = (!job.has_arrived(block.n), clock.now());
        let outcome = team.run(threads, &|thread| work.work(thread, &job));
        choice.note(block.n, (!waits).then(|| clock.now() - started));
        self.clock.stop(clock);
        self.events += block.n as u64;
        outcome?;
        lock(&self.frame.failure).take().map_or(Ok(()), |(_, _, error)| Err(error))
    }
}

impl<W: Work> Executor for Dataflow<W> {
    fn process(&mut self, block: &Block) -> Result<(), RunError> {
        let text = texts::begin(self.frame.texts.as_ref(), block.text)?;
        let mut start = 0;
        while start < block.n {
            let most = self.work.section(&self.frame, self.events).min(block.n - start);
            let n = self.choice.end(start..start + most) - start;
            // SAFETY: a part of the block.
            let section = unsafe { Block::new(block.row(start), n, block.stride, text) };
            self.section(&section)?;
            start += n;
        }
        Ok(())
    }

    fn finish(&mut self, seq: i64) -> Result<(), RunError> {
        let text = texts::begin(self.frame.texts.as_ref(), Text::empty())?;
        let clock = self.clock.start();
        let Self { team, frame, flushed, .. } = self;
        let counters = Mutex::new(flushed);
        let outcome = team.run(1, &|_| {
            // The first sink takes what the end of the stream puts out.
            // SAFETY: the other threads do nothing; the lanes are the chain's.
            unsafe {
                frame.deliver(0, |delivered| {
                    flush(
                        &frame.chain,
                        &frame.lanes,
                        &frame.windows,
                        (seq, text),
                        &mut delivered.sink,
                        &mut lock(&counters),
                    )
                })
            }
        });
        self.clock.stop(clock);
        outcome
    }

    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>) {
        // SAFETY: no thread is at work.
        let rows_of = |sink| unsafe { self.frame.deliver(sink, |delivered| delivered.sink.take()) };
        merged((0..self.frame.delivered.len()).map(rows_of).collect(), self.frame.preparer.stride())
    }

    fn metrics(&self) -> Metrics {
        let mut counters = Counters { cpu_nanoseconds: self.team.cpu_nanoseconds(), ..self.flushed };
        counters += self.work.counters();
        // SAFETY: threads only work within `process` and `finish`, which need `&mut self`.
        let delivered = |sink: &CachePadded<UnsafeCell<Delivered>>| sink.with(|delivered| unsafe { &*delivered });
        Metrics {
            events: self.events,
            threads: self.choice.to_json(),
            counters,
            seconds: self.clock.seconds(),
            reconfigurations: self.reconfigurations(),
            loads: self.loads(),
            calls: self.calls(),
            omitted_reconfigurations: self.windows().map(|windowed| windowed.operator.epochs.omitted()).sum(),
            omitted_loads: self.windows().map(|windowed| windowed.control.omitted_loads()).sum(),
            tasks: self.work.tasks(&self.frame),
            // SAFETY: as above.
            late: self.windows().map(|windowed| unsafe { windowed.late() }).sum(),
            binding: self.team.binding(),
            ..metrics(self.frame.delivered.iter().map(delivered))
        }
    }

    fn standing(&self) -> Result<Standing, RunError> {
        let Metrics { counters, processing, end_to_end, .. } = self.metrics();
        // SAFETY: no thread is at work.
        let of_sink = |sink| unsafe { self.frame.deliver(sink, |delivered| delivered.sink.so_far()) };
        let mut delivered = of_sink(0);
        (1..self.frame.delivered.len()).for_each(|sink| delivered.join(&of_sink(sink)));
        // SAFETY: as above.
        let windows = self.windows().map(|windowed| (windowed.operator.name.clone(), unsafe { windowed.standing() }));
        Ok(Standing {
            events: self.events,
            nanoseconds: self.clock.nanoseconds(),
            counters,
            chosen: BTreeMap::new(),
            delivered,
            processing: processing.counts(),
            end_to_end: end_to_end.counts(),
            windows: windows.collect(),
        })
    }

    fn images(&self, take: TakeNamed) -> Result<(), RunError> {
        let Frame { chain, lanes, .. } = &self.frame;
        for (lanes, &index) in lanes.iter().zip(&chain.stateful) {
            let operator = &chain.operators[index];
            // SAFETY: no thread is at work.
            unsafe { lanes.images(operator, &mut |part, image| take(&operator.name, part, image)) }?;
        }
        for windowed in self.windows() {
            // SAFETY: as above.
            unsafe { windowed.images(&mut |part, image| take(&windowed.operator.name, part, image)) }?;
        }
        Ok(())
    }

    fn restore(&mut self, name: &str, image: &[u64]) -> Result<(), RunError> {
        if let Some(windowed) = self.windows().find(|windowed| windowed.operator.name == name) {
            // SAFETY: no thread has been at work.
            return unsafe { windowed.restore(image) };
        }
        let Frame { chain, lanes, .. } = &mut self.frame;
        let stage = chain.stateful.iter().position(|&index| chain.operators[index].name == name);
        let stage = stage.ok_or_else(|| RunError::Invalid(format!("operator {name} has no state")))?;
        // SAFETY: as above.
        unsafe { lanes[stage].restore(&chain.operators[chain.stateful[stage]], image, |_| true) }
    }

    fn resume(&mut self, standing: &Standing) -> Result<(), RunError> {
        for windowed in self.windows() {
            let known = standing.windows.get(&windowed.operator.name);
            let known = known.ok_or_else(|| RunError::Invalid(format!("{} stands nowhere", windowed.operator.name)))?;
            // SAFETY: no thread has been at work.
            unsafe { windowed.resume(known) }?;
        }
        self.events = standing.events;
        self.flushed = standing.counters;
        self.clock = Clock::after(standing.nanoseconds);
        // SAFETY: as above.
        unsafe { self.frame.deliver(0, |delivered| delivered.resume(standing)) };
        Ok(())
    }

    fn reconfigurable(&self, operator: &str) -> Option<Box<dyn Reconfigurable>> {
        let windowed = self.windows().find(|windowed| windowed.operator.name == operator);
        windowed.map(|windowed| Box::new(windowed.control.clone()) as Box<dyn Reconfigurable>)
    }

    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        // SAFETY: no thread is at work.
        unsafe { keyed_states(&self.frame.chain, &self.frame.lanes, operator) }
    }
}
