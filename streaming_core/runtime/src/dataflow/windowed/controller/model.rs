//! Controller `model`: by the work that waits and the work to come (STRETCH, section 8.5).
//!
//! The model takes the cost of an event from the last periods. It expects events at the mean rate of the last periods. If the
//! rate rose or fell by a lot, it expects the rate of the last period alone. Replicas should finish the waiting work in `HORIZON`
//! periods. The paper takes its model of a join's cost from another paper; this model is ours, for any operator.

use crate::dataflow::windowed::controller::gauge::{Gauge, Load};

/// What a period counts for in the means: of the last so many, about.
const LATELY: f64 = 4.0;
/// Periods in which replicas should finish the waiting work.
const HORIZON: f64 = 10.0;
/// Rates that differ by so much are a change, no noise.
const CHANGE: f64 = 1.3;

#[derive(Debug, Default)]
pub(super) struct Model {
    /// Nanoseconds of an event, once one was dealt.
    cost: Option<f64>,
    /// Events that arrive in a nanosecond.
    rate: Option<f64>,
}

/// The mean of the last values, with the newest one.
fn lately(before: Option<f64>, now: f64) -> f64 {
    before.map_or(now, |before| before + (now - before) / LATELY)
}

impl Gauge for Model {
    fn load(&mut self, seen: &Load) -> f64 {
        if seen.dealt > 0 {
            self.cost = Some(lately(self.cost, seen.worked as f64 / seen.dealt as f64));
        }
        let now = seen.arrived as f64 / seen.period as f64;
        let changed = |rate: f64| now > rate * CHANGE || rate > now * CHANGE;
        let rate = lately(self.rate.filter(|&rate| !changed(rate)), now);
        self.rate = Some(rate);
        let expected = rate + seen.pending as f64 / (HORIZON * seen.period as f64);
        self.cost.unwrap_or(0.0) * expected / seen.replicas as f64
    }
}
