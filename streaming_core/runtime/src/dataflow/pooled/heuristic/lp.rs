//! `lp`, last in pipeline: the place nearest to the sink.
//!
//! What is in flight leaves before anything new is started, so queues are short and latencies low; workers gather where
//! the last work is. Source: Prasaad et al., the section on scheduling heuristics.

use crate::dataflow::pooled::heuristic::places::{Heuristic, Places};

#[derive(Debug)]
struct LastInPipeline;

/// The heuristic `lp`.
pub fn make(_places: usize, _window: usize) -> Box<dyn Heuristic> {
    Box::new(LastInPipeline)
}

impl Heuristic for LastInPipeline {
    fn choose(&self, places: &dyn Places) -> Option<usize> {
        (0..places.count()).rev().find(|&place| places.has_work(place))
    }
}
