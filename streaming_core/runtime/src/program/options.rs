//! How a program is run: what Python hands over as JSON.

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::error::RunError;
use crate::output::sink::SinkKind;
use crate::threads::idle::Strategy;
use crate::threads::topology::affinity;

/// Partitions of a partitioned operator at most.
pub const MOST_PARTITIONS: usize = 256;
/// Microseconds of a slice, or of a window of time, at most.
const LONGEST: u64 = 1_000_000;

/// From an event on, per operator the pattern of the owners of its cells.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    pub event: i64,
    pub owners: BTreeMap<String, Vec<usize>>,
}

/// Events per second offered.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Rate {
    /// 0 = everything is there at once.
    Constant(f64),
    /// From an event of the run on, each.
    Phases(Vec<(u64, f64)>),
}

impl Rate {
    /// From which event on there is which rate; none: everything is there at once.
    pub fn phases(&self) -> Vec<(u64, f64)> {
        match self {
            Self::Constant(rate) => Some((0, *rate)).filter(|_| *rate > 0.0).into_iter().collect(),
            Self::Phases(phases) => phases.clone(),
        }
    }
}

fn is_sequence(phases: &[(u64, f64)]) -> bool {
    phases.first().is_some_and(|first| first.0 == 0)
        && phases.windows(2).all(|pair| pair[0].0 < pair[1].0)
        && phases.iter().all(|&(_, rate)| rate.is_finite() && rate > 0.0)
}

/// How a program is run; the names are the RunSpec's.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub executor: String,
    pub scheme: Option<String>,
    pub pool: Option<String>,
    pub stealing: bool,
    pub heuristic: Option<String>,
    pub queue: Option<String>,
    pub reorder: Option<String>,
    pub partitioning: Option<String>,
    /// Partitions of a partitioned operator, where the queue leaves their number open.
    pub partitions: usize,
    /// Of executor pooled, in microseconds: after which a worker chooses anew, and over which throughput is seen.
    pub slice: u64,
    pub throughput_window: u64,
    /// Of executor pinned, in microseconds: how long the oldest event of a batch waits for the others, in an open loop.
    pub linger: u64,
    pub channel: Option<String>,
    /// Of pinned windowed operators: whether replicas share state and input (`vsn`, or `vsn_esg` as published) or nothing (`sn`).
    pub parallelism: Option<String>,
    /// Of executor morsel; the others' hangs on how they execute.
    pub order: Option<String>,
    /// Of pinned operators by name, the threads of their replicas.
    pub plan: BTreeMap<String, Vec<usize>>,
    /// Of pinned windowed operators: from an event on, who owns which cells; in the order of events.
    pub schedule: Vec<Scheduled>,
    /// Of pinned windowed operators: who else asks for reconfigurations, and its thresholds in percent.
    pub controller: Option<String>,
    pub thresholds: Vec<u32>,
    /// Of executor share: the number of the share of the keys, and the number of shares.
    pub share: (usize, usize),
    pub threads: usize,
    /// The number of cores that the choice of threads reckons with; 0: the cores that this process may run on.
    pub cores: usize,
    /// The number of threads that `within_cores` took out of `threads`.
    #[serde(skip)]
    pub beyond_cores: usize,
    /// Of channel merge_sort: the threads of merge tasks, in addition to `threads`. The executor sets it.
    #[serde(skip)]
    pub merge_threads: usize,
    pub punctuation: usize,
    pub batch: usize,
    pub rate: Rate,
    pub pin: bool,
    pub idle: Strategy,
    pub sink: SinkKind,
    /// Of executor pinned: the metrics say what was delivered when, which takes memory for every batch.
    pub deliveries: bool,
    /// Of an open loop: the events whose latencies count, from the first one to before the second one. None: all events.
    pub latencies: Option<[u64; 2]>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            executor: String::new(),
            scheme: None,
            pool: None,
            stealing: false,
            heuristic: None,
            queue: None,
            reorder: None,
            partitioning: None,
            partitions: 100,
            slice: 5,
            throughput_window: 1_000,
            linger: 1_000,
            channel: None,
            parallelism: None,
            order: None,
            plan: BTreeMap::new(),
            schedule: Vec::new(),
            controller: None,
            thresholds: Vec::new(),
            share: (0, 1),
            threads: 1,
            cores: 0,
            beyond_cores: 0,
            merge_threads: 0,
            punctuation: 500,
            batch: 256,
            rate: Rate::Constant(0.0),
            pin: false,
            idle: Strategy::Yield,
            sink: SinkKind::Digest,
            deliveries: false,
            latencies: None,
        }
    }
}

impl Options {
    pub fn parse(json: &str) -> Result<Self, RunError> {
        let options: Self =
            serde_json::from_str(json).map_err(|error| RunError::Invalid(format!("options: {error}")))?;
        options.check()?;
        Ok(options)
    }

    /// The same options with at most as many threads as cores: the others would only take the cores from these. Threads that
    /// are bound to cores stay as they are.
    pub fn within_cores(&self) -> Self {
        if self.pin {
            return self.clone();
        }
        let cores = match self.cores {
            0 if cfg!(test) => usize::MAX,
            0 => affinity().map_or(usize::MAX, |cores| cores.len()),
            cores => cores,
        };
        let threads = self.threads.min(cores.max(1));
        Self { threads, beyond_cores: self.threads - threads, ..self.clone() }
    }

    /// The number of threads that the user allows.
    pub fn allowed_threads(&self) -> usize {
        self.threads + self.beyond_cores
    }

    pub fn check(&self) -> Result<(), RunError> {
        let invalid = |what: &str| Err(RunError::Invalid(format!("options: {what}")));
        if !(1..=1024).contains(&self.threads) {
            return invalid("threads must be between 1 and 1024");
        }
        if self.punctuation == 0 || self.batch == 0 {
            return invalid("punctuation and batch must be at least 1");
        }
        if !(1..=MOST_PARTITIONS).contains(&self.partitions) {
            return Err(RunError::Invalid(format!("options: partitions must be between 1 and {MOST_PARTITIONS}")));
        }
        if ![self.slice, self.throughput_window].iter().all(|time| (1..=LONGEST).contains(time)) {
            return invalid("slice and throughput_window must be between 1 and 1000000 microseconds");
        }
        if self.linger > LONGEST {
            return invalid("linger must be at most 1000000 microseconds");
        }
        match &self.rate {
            Rate::Constant(rate) if !rate.is_finite() || *rate < 0.0 => {
                return invalid("rate must be finite and not negative");
            }
            Rate::Phases(phases) if !is_sequence(phases) => {
                return invalid("rates must be pairs [event, positive rate] with ascending events that start at 0");
            }
            _ => {}
        }
        Ok(())
    }
}
