//! Strategies: what the options name, found in the registries.

use crate::dataflow::lane::{PARTITIONINGS, Partitioning};
use crate::dataflow::pooled::grouping::Grouping;
use crate::dataflow::pooled::heuristic::{self, HEURISTICS};
use crate::dataflow::pooled::worklist::QUEUES;
use crate::dataflow::pooled::worklist::list::QueueStrategy;
use crate::error::RunError;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::threads::reorder::{self, BUFFERS};

const POOLED: &str = " of executor pooled";

/// A choice on each axis.
#[derive(Debug, Clone, Copy)]
pub struct Strategies {
    pub heuristic: heuristic::Make,
    pub queue: &'static QueueStrategy,
    pub reorder: reorder::Make,
    pub partitioning: Partitioning,
    /// Whether all of them are the defaults. One thread then needs no queue and no buffer.
    pub is_default: bool,
}

impl Strategies {
    /// Those that the options name, the defaults where they name none.
    ///
    /// # Errors
    /// `Invalid`: there is none of that name.
    pub fn named(options: &Options) -> Result<Self, RunError> {
        let names = [&options.heuristic, &options.queue, &options.reorder];
        let defaults = [HEURISTICS[0].0, QUEUES[0].0, BUFFERS[0].0];
        let is_default =
            names.iter().zip(defaults).all(|(name, default)| name.as_deref().is_none_or(|name| name == default));
        Ok(Self {
            is_default,
            heuristic: find("heuristic", POOLED, options.heuristic.as_deref(), HEURISTICS)?,
            queue: find("queue", POOLED, options.queue.as_deref(), QUEUES)?,
            reorder: find("reorder", POOLED, options.reorder.as_deref(), BUFFERS)?,
            partitioning: find("partitioning", POOLED, options.partitioning.as_deref(), PARTITIONINGS)?,
        })
    }

    /// How many lanes partitioned stages get, as the queue has it.
    pub fn grouping(&self, options: &Options) -> Grouping {
        Grouping::Queue(self.queue.partitions, options.partitions)
    }
}
