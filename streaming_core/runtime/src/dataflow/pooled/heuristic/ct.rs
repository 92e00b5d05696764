//! `ct`, current throughput: the place whose normalised throughput in the current window of time is lowest, because it is
//! likely to be the bottleneck.
//!
//! n_i = (T_i + w_i s) / (c_i cs_i).
//!
//! Workers spent the time T_i at i in the window, and are allotted w_i s now. The cost of a tuple there is c_i, and the
//! cumulative selectivity is cs_i. Source: Prasaad et al., section 6.4,
//! equation (3).
//!
//! The cost of a place is unknown until a worker has been there. The first worker to go there measures it. Others come when the
//! cost is known or when they have nothing else to do. Ties, as at the beginning of a window, go to the end of the chain.

use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic, Places};

#[derive(Debug)]
struct CurrentThroughput {
    slice: f64,
}

/// The heuristic `ct`.
pub fn make(constants: Constants) -> Box<dyn Heuristic> {
    Box::new(CurrentThroughput { slice: constants.slice as f64 })
}

impl Heuristic for CurrentThroughput {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let throughput = |place| {
            let time = places.spent(place) as f64 + places.workers(place) as f64 * self.slice;
            // Where nothing ever leaves, or the cost is unknown, any time at all is more than enough.
            time / (places.cost(place).unwrap_or(0.0) * places.cumulative(place)).max(f64::MIN_POSITIVE)
        };
        (0..places.count())
            .rev()
            .filter(|&place| places.is_schedulable(place))
            .map(|place| (place, throughput(place)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(place, _)| place)
    }
}
