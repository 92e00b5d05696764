//! Strategies: what the options name, found in the registries.

use crate::dataflow::pooled::heuristic::{self, HEURISTICS};
use crate::dataflow::pooled::worklist::{QUEUES, Queue};
use crate::error::RunError;
use crate::program::options::Options;
use crate::threads::reorder::{self, BUFFERS};

/// A choice on each axis.
#[derive(Debug, Clone, Copy)]
pub struct Strategies {
    pub heuristic: heuristic::Make,
    pub queue: &'static Queue,
    pub reorder: reorder::Make,
}

impl Strategies {
    /// Those that the options name, the defaults where they name none.
    ///
    /// # Errors
    /// `Invalid`: there is none of that name.
    pub fn named(options: &Options) -> Result<Self, RunError> {
        Ok(Self {
            heuristic: find("heuristic", options.heuristic.as_deref(), HEURISTICS)?,
            queue: find("queue", options.queue.as_deref(), QUEUES)?,
            reorder: find("reorder", options.reorder.as_deref(), BUFFERS)?,
        })
    }
}

fn find<T: Copy>(axis: &str, name: Option<&str>, registry: &[(&str, T)]) -> Result<T, RunError> {
    let name = name.unwrap_or(registry[0].0);
    match registry.iter().find(|(known, _)| *known == name) {
        Some((_, found)) => Ok(*found),
        None => {
            let known: Vec<&str> = registry.iter().map(|(name, _)| *name).collect();
            let known = known.join(", ");
            Err(RunError::Invalid(format!("unknown {axis} {name:?} of executor pooled; known: {known}")))
        }
    }
}
