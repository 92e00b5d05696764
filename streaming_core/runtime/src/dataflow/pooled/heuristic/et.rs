//! `et`, estimated time: the place whose queue is estimated to take longest.
//!
//! A queue's time is its batches by what a batch costs there, shared among the workers that would then be there. What
//! nobody has tried yet might take for ever, and comes first. Ties go to the end of the chain. Source: Prasaad et al.,
//! the section on scheduling heuristics. Counting the workers that are there already is a reading of ours: without them
//! everybody would run to the same queue.

use crate::dataflow::pooled::heuristic::places::{Heuristic, Places};

#[derive(Debug)]
struct EstimatedTime;

/// The heuristic `et`.
pub fn make(_places: usize, _window: usize) -> Box<dyn Heuristic> {
    Box::new(EstimatedTime)
}

impl Heuristic for EstimatedTime {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        let time = |place| match places.cost(place) {
            0.0 => f64::INFINITY,
            // There is something, whatever the queue has come to since.
            cost => places.queue(place).max(1) as f64 * cost / (places.workers(place) + 1) as f64,
        };
        (0..places.count())
            .filter(|&place| places.has_work(place))
            .map(|place| (place, time(place)))
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(place, _)| place)
    }
}
