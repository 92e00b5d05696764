//! What a task costs: the rows it takes and puts out, and how long it was at them.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::output::counters::Breakdown;

/// Up to so many picoseconds a row: a millisecond. Two digits, for a task keeps it as long as it lives.
const LONGEST: u64 = 1_000_000_000;

/// Of one task, since it began. Steps that found nothing to do, and waiting, are not in it.
#[derive(Debug)]
pub(super) struct Cost {
    pub rows_in: u64,
    pub rows_out: u64,
    /// Batches that had rows.
    batches: u64,
    /// Nanoseconds in kernels, in finding keys, and in examining, delivering and digesting outputs.
    execute: u64,
    /// Nanoseconds of what else a step takes: gates, outlets, who gets which row.
    others: u64,
    /// Of each batch the picoseconds of executing one of its rows.
    of_a_row: Histogram<u64>,
    /// Of the batch at hand, which may take several steps: its rows, and nanoseconds of executing so far.
    batch: (u64, u64),
}

impl Default for Cost {
    fn default() -> Self {
        let of_a_row = Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are valid constants");
        Self { rows_in: 0, rows_out: 0, batches: 0, execute: 0, others: 0, of_a_row, batch: (0, 0) }
    }
}

impl Cost {
    /// Adds a step that took the rows behind the first `rows_in`. `before` and `now` are the task's breakdown before and after
    /// the step. `is_used` says that nothing of the batch is left for another step.
    pub fn add(&mut self, rows_in: u64, before: Breakdown, now: Breakdown, is_used: bool) {
        let execute = now.useful - before.useful;
        self.execute += execute;
        self.others += now.other - before.other;
        self.batch = (self.batch.0 + self.rows_in - rows_in, self.batch.1 + execute);
        if is_used {
            let (rows, execute) = std::mem::take(&mut self.batch);
            if let Some(of_a_row) = (execute * 1000).checked_div(rows) {
                self.batches += 1;
                self.of_a_row.saturating_record(of_a_row.max(1));
            }
        }
    }

    /// Times in nanoseconds; `execute_quantiles` are those of a row of a batch, at every twentieth of the batches.
    pub fn to_json(&self) -> Value {
        let at = |twentieth: u64| self.of_a_row.value_at_quantile(twentieth as f64 / 20.0) as f64 / 1e3;
        let quantiles: Vec<f64> = if self.batches > 0 { (0..=20).map(at).collect() } else { Vec::new() };
        json!({
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "batches": self.batches,
            "execute_ns": self.execute,
            "others_ns": self.others,
            "execute_quantiles": quantiles,
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_steps_take_is_divided_by_their_rows() {
        let mut cost = Cost::default();
        let mut time = Breakdown::default();
        // The third batch takes two steps.
        for (rows, useful, other, used) in
            [(10, 1_000, 30, true), (0, 0, 5, true), (10, 2_000, 30, false), (0, 1_000, 10, true)]
        {
            let (before, taken) = (time, cost.rows_in);
            time += Breakdown { useful, other, sync: 7, ..Breakdown::default() };
            cost.rows_in += rows;
            cost.add(taken, before, time, used);
        }
        let json = cost.to_json();
        assert_eq!((&json["rows_in"], &json["batches"]), (&json!(20), &json!(2)));
        assert_eq!((&json["execute_ns"], &json["others_ns"]), (&json!(4_000), &json!(75)));
        let quantiles: Vec<f64> = serde_json::from_value(json["execute_quantiles"].clone()).unwrap();
        assert!((99.0..=101.0).contains(&quantiles[5]) && (297.0..=303.0).contains(&quantiles[15]), "{quantiles:?}");
    }
}
