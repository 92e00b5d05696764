//! `qst`, queue size throttling: the earliest place whose output queue, that is the next one's, is below its threshold.
//!
//! T_i = C cs_i / (cs_1 + ... + cs_n): the capacity of the system by what an event turns into behind each place. So each
//! place makes work for the next one until that has its share, then workers move on. Source: Prasaad et al., section 6.1,
//! equation (1). The capacity is the room in flight, in events. A threshold is at least 1, for a place that nothing ever
//! leaves would never be worked at else. The last place is never throttled; who finds none but throttled ones rests.

use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic, Places};

#[derive(Debug)]
struct QueueSizeThrottling {
    capacity: f64,
}

/// The heuristic `qst`.
pub fn make(constants: Constants) -> Box<dyn Heuristic> {
    Box::new(QueueSizeThrottling { capacity: constants.capacity as f64 })
}

impl Heuristic for QueueSizeThrottling {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let all: f64 = (0..places.count()).map(|place| places.cumulative(place)).sum();
        let threshold = |place| (self.capacity * places.cumulative(place) / all.max(f64::MIN_POSITIVE)).max(1.0);
        let is_throttled = |place| place + 1 < places.count() && places.queue(place + 1) >= threshold(place);
        (0..places.count()).find(|&place| places.is_schedulable(place) && !is_throttled(place))
    }
}
