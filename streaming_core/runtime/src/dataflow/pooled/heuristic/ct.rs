//! `ct`, current throughput: the place whose current throughput is lowest, because it holds up the others.
//!
//! A place's throughput, in events of the source, is the number of workers there by what an event costs there; costs
//! and selectivities make places comparable that see different numbers of rows. So workers spread over the pipeline:
//! a place without a worker comes first. Source: Prasaad et al., abstract and the section on scheduling heuristics: what
//! exploits pipeline parallelism does better than what exploits data parallelism.
//! Ties go to stages, whose lanes are this worker's to look after, and then to the end of the chain.

use crate::dataflow::pooled::heuristic::places::{Heuristic, Places};

#[derive(Debug)]
struct CurrentThroughput;

/// The heuristic `ct`.
pub fn make(_places: usize, _window: usize) -> Box<dyn Heuristic> {
    Box::new(CurrentThroughput)
}

impl Heuristic for CurrentThroughput {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let throughput = |place| match places.workers(place) {
            0 => 0.0,
            workers => workers as f64 / places.cost(place).max(f64::MIN_POSITIVE),
        };
        let stages = (0..places.count() / 2).rev().map(|stage| 2 * stage + 1);
        let steps = (0..places.count().div_ceil(2)).rev().map(|step| 2 * step);
        let mut best: Option<(usize, Option<f64>)> = None;
        for place in stages.chain(steps).filter(|&place| places.has_work(place)) {
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
}
