//! Controller `model`: by the work that waits and that will come (STRETCH, section 8.5).
//!
//! An event costs what those dealt lately have cost. In the next period as many come as came in the last one, or, if rates
//! fell or rose by a lot, as came in the last one alone; what waits is to be worked off in `HORIZON` periods. The paper takes
//! its model of a join's cost from another paper; this one is ours, of any operator.

use crate::dataflow::windowed::controller::gauge::{Gauge, Load};

/// What a period counts for in the means: of the last so many, about.
const LATELY: f64 = 4.0;
/// Periods in which what waits is worked off.
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

/// The mean of what was lately, with what is now.
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
