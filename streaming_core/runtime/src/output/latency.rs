//! Latencies, as histograms.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Latencies in nanoseconds, to three digits, up to an hour.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    const LONGEST: u64 = 3_600_000_000_000;

    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, Self::LONGEST, 3).expect("the bounds are valid constants"))
    }

    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.max(1));
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both histograms have the same bounds");
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How often each value was recorded, to the digits kept.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// What gives these counts.
    pub fn of(counts: &[(u64, u64)]) -> Self {
        let mut latencies = Self::new();
        for &(nanoseconds, count) in counts {
            latencies.0.saturating_record_n(nanoseconds.max(1), count);
        }
        latencies
    }

    /// Percentiles and mean in microseconds, named as in the run report.
    pub fn to_json(&self) -> Value {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        json!({
            "p50": at(0.5),
            "p95": at(0.95),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": self.0.max() as f64 / 1e3,
            "mean": self.0.mean() / 1e3,
        })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}
