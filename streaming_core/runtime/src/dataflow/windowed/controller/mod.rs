//! Controllers: how many replicas an operator should have, by the load that is measured, never by results (STRETCH,
//! sections 8.4 and 8.5). Its gauge says how loaded the replicas are, its thresholds what follows from that. Controller
//! `balance` has the same replicas share the cells in another way.

pub mod balance;
mod gauge;
mod model;
mod threshold;

use crate::dataflow::windowed::controller::gauge::Gauge;
use crate::error::RunError;
use crate::program::registry::find;

pub use gauge::Load;

/// Shares of what replicas can do, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Above it there are more replicas.
    pub upper: u32,
    /// Below it stays the load for which replicas are added or taken away.
    pub target: u32,
    /// Below it there are fewer.
    pub lower: u32,
}

impl Thresholds {
    /// # Errors
    /// `Invalid`: they are not three, or out of order.
    pub fn new(percentages: &[u32]) -> Result<Self, RunError> {
        match *percentages {
            [upper, target, lower] if 0 < lower && lower < target && target < upper && upper <= 100 => {
                Ok(Self { upper, target, lower })
            }
            _ => Err(RunError::Invalid(format!(
                "thresholds must be three percentages, 100 >= upper > target > lower > 0, not {percentages:?}"
            ))),
        }
    }

    /// How many of `most` replicas there should be, if the number should change from `n` at this `load`. These are the fewest that
    /// keep the load below the target.
    pub fn wanted(self, load: f64, n: usize, most: usize) -> Option<usize> {
        let percent = 100.0 * load;
        if percent <= f64::from(self.upper) && percent >= f64::from(self.lower) {
            return None;
        }
        // What is exactly at the target is not below it.
        let fewest = ((percent * n as f64 / f64::from(self.target)).floor() as usize + 1).clamp(1, most);
        let more = percent > f64::from(self.upper);
        (if more { fewest > n } else { fewest < n }).then_some(fewest)
    }
}

/// A controller: a gauge and its thresholds.
#[derive(Debug)]
pub struct Controller {
    pub name: &'static str,
    gauge: Box<dyn Gauge>,
    thresholds: Thresholds,
}

/// What there is of a controller's name, with the paper's thresholds.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    gauge: fn() -> Box<dyn Gauge>,
    thresholds: Thresholds,
}

const THRESHOLD: Kind = Kind {
    name: "threshold",
    gauge: || Box::new(threshold::Threshold),
    thresholds: Thresholds { upper: 90, target: 70, lower: 45 },
};
/// Of this one the paper says no target.
const MODEL: Kind = Kind {
    name: "model",
    gauge: || Box::<model::Model>::default(),
    thresholds: Thresholds { upper: 80, target: 75, lower: 70 },
};

/// The registry of controllers. `balance` has neither gauge nor thresholds.
const CONTROLLERS: &[(&str, Option<Kind>)] =
    &[(THRESHOLD.name, Some(THRESHOLD)), (MODEL.name, Some(MODEL)), (balance::NAME, None)];

impl Controller {
    /// The controller of that name, with the paper's thresholds if there are none here; `None` for `balance`.
    ///
    /// # Errors
    /// `Invalid`: there is none, or the thresholds make no sense.
    pub fn new(name: &str, thresholds: &[u32]) -> Result<Option<Self>, RunError> {
        let kind = find("controller", "", Some(name), CONTROLLERS)?;
        let Some(Kind { name, gauge, thresholds: usual }) = kind else { return Ok(None) };
        let thresholds = if thresholds.is_empty() { usual } else { Thresholds::new(thresholds)? };
        Ok(Some(Self { name, gauge: gauge(), thresholds }))
    }

    /// How loaded the replicas are, and how many there should be, if not as many as there are.
    pub fn decide(&mut self, seen: &Load) -> (f64, Option<usize>) {
        let load = self.gauge.load(seen);
        (load, self.thresholds.wanted(load, seen.replicas, seen.most))
    }

    /// In words, why there should be other replicas.
    pub fn cause(&self, load: f64) -> String {
        let Thresholds { upper, lower, .. } = self.thresholds;
        let percent = 100.0 * load;
        if percent > f64::from(upper) {
            format!("load {percent:.0} % above {upper} %")
        } else {
            format!("load {percent:.0} % below {lower} %")
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
