//! How a program is run: what Python hands over as JSON.

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::error::RunError;
use crate::output::sink::SinkKind;
use crate::threads::idle::Strategy;

/// From an event on, per operator the replicas that share its keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    pub event: i64,
    pub replicas: BTreeMap<String, Vec<usize>>,
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
    pub channel: Option<String>,
    /// Of pinned windowed operators: whether replicas share state and input (`vsn`) or nothing (`sn`).
    pub parallelism: Option<String>,
    /// Of executor morsel; the others' hangs on how they execute.
    pub order: Option<String>,
    /// Of pinned operators by name, the threads of their replicas.
    pub plan: BTreeMap<String, Vec<usize>>,
    /// Of pinned windowed operators: from an event on, which replicas share the keys; in the order of events.
    pub schedule: Vec<Scheduled>,
    pub threads: usize,
    pub punctuation: usize,
    pub batch: usize,
    /// Events per second offered; 0 = everything is there at once.
    pub rate: f64,
    pub pin: bool,
    pub idle: Strategy,
    pub sink: SinkKind,
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
            channel: None,
            parallelism: None,
            order: None,
            plan: BTreeMap::new(),
            schedule: Vec::new(),
            threads: 1,
            punctuation: 500,
            batch: 256,
            rate: 0.0,
            pin: false,
            idle: Strategy::Yield,
            sink: SinkKind::Digest,
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

    pub fn check(&self) -> Result<(), RunError> {
        let invalid = |what: &str| Err(RunError::Invalid(format!("options: {what}")));
        if !(1..=1024).contains(&self.threads) {
            return invalid("threads must lie in 1..1024");
        }
        if self.punctuation == 0 || self.batch == 0 {
            return invalid("punctuation and batch must be positive");
        }
        if !self.rate.is_finite() || self.rate < 0.0 {
            return invalid("rate must be finite and not negative");
        }
        Ok(())
    }
}
