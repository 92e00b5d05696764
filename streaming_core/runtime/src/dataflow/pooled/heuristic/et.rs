//! `et`, estimated time: the place whose queue would take longest to process with one worker more.
//!
//! p_i = I_i c_i / (w_i + 1) where w_i < M_i, which all schedulable places have in common. Source: Prasaad et al., section
//! 6.3, equation (2). A place without a known cost comes first, until a worker is there.
//! Ties go to the end of the chain.

use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic, Places};

#[derive(Debug)]
struct EstimatedTime;

/// The heuristic `et`.
pub fn make(_: Constants) -> Box<dyn Heuristic> {
    Box::new(EstimatedTime)
}

impl Heuristic for EstimatedTime {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let time = |place| match (places.cost(place), places.workers(place)) {
            (None, 0) => f64::INFINITY,
            (cost, workers) => places.queue(place) * cost.unwrap_or(0.0) / (workers + 1) as f64,
        };
        (0..places.count())
            .filter(|&place| places.is_schedulable(place))
            .map(|place| (place, time(place)))
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(place, _)| place)
    }
}
