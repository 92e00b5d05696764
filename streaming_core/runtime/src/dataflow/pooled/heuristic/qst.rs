//! `qst`, queue size throttling: the place nearest to the source, unless the queue behind it is full.
//!
//! Each place makes work for the next one until that has its share of the room in flight, then workers move on: as much
//! data parallelism at one place as there are workers. Source: Prasaad et al., the section on scheduling heuristics. Why
//! nearest to the source: of the places that have work, the one nearest to the sink has only empty queues behind it and
//! is never throttled, so choosing from that end would be `lp`.
//! A worker that finds nothing but throttled places takes the last one: it may be that only others can empty the queue
//! behind it, and what is in flight is bounded anyway.

use crate::dataflow::pooled::heuristic::places::{Heuristic, Places};

#[derive(Debug)]
struct QueueSizeThrottling {
    /// Batches in a queue from which the place in front of it is throttled.
    threshold: u64,
}

/// The heuristic `qst`.
pub fn make(places: usize, window: usize) -> Box<dyn Heuristic> {
    Box::new(QueueSizeThrottling { threshold: (window / places).max(1) as u64 })
}

impl Heuristic for QueueSizeThrottling {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let is_throttled = |place| place + 1 < places.count() && places.queue(place + 1) >= self.threshold;
        let mut last = None;
        for place in (0..places.count()).filter(|&place| places.has_work(place)) {
            if !is_throttled(place) {
                return Some(place);
            }
            last = Some(place);
        }
        last
    }
}
