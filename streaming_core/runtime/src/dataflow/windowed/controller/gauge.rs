//! What a controller sees, and what makes of it how loaded replicas are.

use serde::{Deserialize, Serialize};

/// What was seen of an operator in a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// When it ended, and how long it was, in nanoseconds of engine time.
    pub at: u64,
    pub period: u64,
    /// Replicas that own cells, and how many there are.
    pub replicas: usize,
    pub most: usize,
    /// Processor time of replicas at work in the period, all together, in nanoseconds.
    pub worked: u64,
    /// Events that came in the period, and that were dealt to the replicas.
    pub arrived: u64,
    pub dealt: u64,
    /// Events that had come and were not dealt yet.
    pub pending: u64,
}

/// How loaded replicas are: 1 is all that those that own cells can do.
pub trait Gauge: std::fmt::Debug + Send + Sync {
    fn load(&mut self, seen: &Load) -> f64;
}
