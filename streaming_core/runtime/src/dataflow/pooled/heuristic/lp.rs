//! `lp`, last in pipeline: the latest place that has a non-empty queue.
//!
//! What is in flight leaves before anything new is started, so queues are short and latencies low; workers gather where
//! the last work is. Source: Prasaad et al., section 6.2, with a threshold of 1 as in its evaluation.

use crate::dataflow::pooled::heuristic::places::{Constants, Heuristic, Places};

#[derive(Debug)]
struct LastInPipeline;

/// The heuristic `lp`.
pub fn make(_: Constants) -> Box<dyn Heuristic> {
    Box::new(LastInPipeline)
}

impl Heuristic for LastInPipeline {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        (0..places.count()).rev().find(|&place| places.is_schedulable(place))
    }
}
