//! A run's figures, and where it stands at a checkpoint.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use crate::output::counters::Counters;
use crate::output::delivery::Delivery;
use crate::output::digest::Digest;
use crate::output::latency::Latencies;
use crate::output::sink::Tally;

/// Where a windowed operator stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowStanding {
    /// The words of its watermark (`dataflow/windowed/watermark.rs`).
    pub watermark: Vec<i64>,
    /// Rows that came too late.
    pub late: u64,
}

/// What a checkpoint has beside the state: where the run stands, and what its figures go on from. It is the same for all executors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    pub events: u64,
    /// Engine time.
    pub nanoseconds: u64,
    pub counters: Counters,
    /// As in `Metrics`.
    pub chosen: BTreeMap<String, u64>,
    pub delivered: Tally,
    /// `Latencies::counts`.
    pub processing: Vec<(u64, u64)>,
    pub end_to_end: Vec<(u64, u64)>,
    /// By windowed operator.
    pub windows: BTreeMap<String, WindowStanding>,
}

/// A run's figures; ABI.md describes the JSON.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub events: u64,
    pub counters: Counters,
    /// Rows that came after all of their windows had expired.
    pub late: u64,
    /// Reconfigurations of windowed operators (`dataflow/windowed/epochs.rs`).
    pub reconfigurations: Value,
    /// Per windowed operator with a controller, what that saw (`dataflow/windowed/controller`).
    pub loads: Value,
    /// Per windowed operator, how often each replica's keys were met by rows.
    pub calls: Value,
    /// Reconfigurations that are not listed, beyond the first ones of each operator.
    pub omitted_reconfigurations: usize,
    /// Loads that are not listed.
    pub omitted_loads: usize,
    /// What each task of executor `pinned` has cost (`dataflow/pinned/cost.rs`).
    pub tasks: Value,
    pub seconds: f64,
    pub digest: Digest,
    pub in_order: bool,
    /// Per batch: from the start of its processing to its delivery.
    pub processing: Latencies,
    /// Per batch, open loop: from the intended arrival of its first event to its delivery.
    pub end_to_end: Latencies,
    /// What was delivered when, if the options ask for it.
    pub deliveries: Option<Vec<Delivery>>,
    /// How many threads worked, of how many, and why not all of them (`threads/choice.rs`).
    pub threads: Value,
    /// Core of each thread as it really took effect, if threads are pinned.
    pub binding: Option<Vec<usize>>,
    /// Where memory lies (`Placement::to_json`), of an executor that sees to that.
    pub memory: Value,
    /// Events by the scheme that ran them, where one chooses between several.
    pub chosen: BTreeMap<String, u64>,
    /// The scheme's own times in nanoseconds and counts, summed over threads, since the run began or resumed.
    pub costs: BTreeMap<&'static str, u64>,
}

impl Metrics {
    pub fn to_json(&self) -> Value {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        let time = &self.counters.time;
        json!({
            "events": self.events,
            "outputs": self.digest.rows,
            "digest": self.digest.sum,
            "in_order": self.in_order,
            "seconds": self.seconds,
            "events_per_s": if self.seconds > 0.0 { self.events as f64 / self.seconds } else { 0.0 },
            "processing": self.processing.to_json(),
            "end_to_end": if self.end_to_end.is_empty() { Value::Null } else { self.end_to_end.to_json() },
            "breakdown": {
                "useful": seconds(time.useful),
                "sync": seconds(time.sync),
                "lock": seconds(time.lock),
                "remote": seconds(time.remote),
                "other": seconds(time.other),
            },
            "cpu_seconds": seconds(self.counters.cpu_nanoseconds),
            "dropped": self.counters.dropped,
            "rejected": self.counters.rejected,
            "late": self.late,
            "reconfigurations": self.reconfigurations,
            "loads": self.loads,
            "calls": self.calls,
            "omitted_reconfigurations": self.omitted_reconfigurations,
            "omitted_loads": self.omitted_loads,
            "tasks": self.tasks,
            "deliveries": self.deliveries,
            "threads": self.threads,
            "binding": self.binding,
            "memory": self.memory,
            "chosen": self.chosen,
            "costs": self.costs,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn json_has_microseconds_and_seconds() {
        let mut metrics = Metrics { events: 3, ..Metrics::default() };
        metrics.processing.record(5_000);
        let json = metrics.to_json();
        assert_eq!(json["processing"]["max"].as_f64().unwrap().round(), 5.0);
        assert!(json["end_to_end"].is_null());
        assert_eq!((&json["digest"], &json["outputs"]), (&json!(0), &json!(0)));
    }
}
