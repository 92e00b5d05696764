//! `affinity`: a worker first looks after its own lanes, so that their state stays in its cache. Of the places with work, it
//! goes to the one with the lowest throughput, because that place holds up the others.
//!
//! The throughput of a place, in events of the source, is its number of workers divided by the cost of an event there. Costs and
//! selectivities make places comparable that see different numbers of rows. So workers spread over the pipeline, and a place
//! without a worker comes first. A worker takes other workers' lanes only if there is nothing else.
//!
//! Ties go to stages, whose lanes the worker looks after, and then to the end of the chain. Places are all steps and stages, in
//! turn: a step without operators merges the outputs of a stage.
//!
//! Unlike `ct` of the paper, it needs no window of time. Workers do not queue for a scheduler, and none looks at others' queues.

use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic, Places};

#[derive(Debug)]
struct Affinity;

/// The heuristic `affinity`.
pub fn make(_: Constants) -> Box<dyn Heuristic> {
    Box::new(Affinity)
}

impl Heuristic for Affinity {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let throughput = |place| match places.workers(place) {
            0 => 0.0,
            workers => workers as f64 / places.per_event(place).max(f64::MIN_POSITIVE),
        };
        let stages = (0..places.count() / 2).rev().map(|stage| 2 * stage + 1);
        let steps = (0..places.count().div_ceil(2)).rev().map(|step| 2 * step);
        let mut best: Option<(usize, Option<f64>)> = None;
        for place in stages.chain(steps).filter(|&place| places.is_schedulable(place)) {
            let Some((other, known)) = best else {
                best = Some((place, None));
                continue;
            };
            // Throughputs are found out only once there is a choice.
            let lowest = known.unwrap_or_else(|| throughput(other));
            if lowest == 0.0 {
                return Some(other);
            }
            let this = throughput(place);
            best = Some(if this < lowest { (place, Some(this)) } else { (other, Some(lowest)) });
        }
        best.map(|(place, _)| place)
    }

    fn is_central(&self) -> bool {
        false
    }
}
