//! What a worklist is.
//!
//! The worker that releases a batch to the stage adds its parts, one for each lane with rows. Invariant of all worklists: a lane sees the
//! batches that hold rows for it in serial order, each once. One worker at a time is at a lane. The worker that finishes the
//! last lane of a batch owns the batch.
//!
//! None can overflow: a batch lives in slot `serial % window`, and serials in flight span less than `window`.

use std::fmt::Debug;
use std::ops::Range;

use crate::dataflow::pooled::input::Part;
use crate::error::RunError;
use crate::threads::idle::Idle;
use crate::threads::sync::AtomicBool;

/// How large a worklist is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub lanes: usize,
    pub workers: usize,
    /// Batches in flight at most, a power of two.
    pub window: usize,
    /// The worker that looks after an only lane.
    pub owner: usize,
}

impl Shape {
    /// Lanes that a worker looks after, so that their state stays in its cache.
    pub fn home(&self, worker: usize) -> Range<usize> {
        if self.lanes == 1 {
            return 0..usize::from(worker == self.owner);
        }
        worker * self.lanes / self.workers..(worker + 1) * self.lanes / self.workers
    }
}

/// What of a worklist a worker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// What this worker looks after, in a worklist where anybody does.
    Own,
    /// Whatever there is: its own, and then what others look after, whose state is in another cache.
    All,
}

/// A worker at a worklist.
#[derive(Debug, Clone, Copy)]
pub struct Visit<'a> {
    pub worker: usize,
    pub reach: Reach,
    /// Serials below this one were released to the stage, as this worker has read it.
    pub released: u64,
    pub idle: &'a Idle,
    /// Set when some worker has failed: who waits leaves.
    pub stopped: &'a AtomicBool,
}

/// What is done with what a worklist hands out.
pub trait Visitor {
    /// Takes the rows of `lane` in batch `serial` through the operator; no other worker is at the lane.
    ///
    /// # Errors
    /// The run is over: the lane is not handed out again.
    fn run(&mut self, lane: usize, serial: u64) -> Result<(), RunError>;

    /// Every lane has done its part of batch `serial`, which is the caller's now.
    fn finish(&mut self, serial: u64);

    /// Whether as many rows have been taken through as a slice of time is enough for.
    fn is_spent(&mut self) -> bool;

    /// Calls `wait`, which waits for another worker, and notes the time.
    fn wait(&mut self, wait: &mut dyn FnMut());
}

/// Batches of a partitioned stage, by lane.
pub trait Worklist: Debug + Send + Sync {
    /// Adds batch `serial`, the next one for the stage, with its parts. There is at least one.
    ///
    /// Only the worker that releases the batch calls this, in serial order and one at a time.
    fn add(&self, serial: u64, parts: &[Part]);

    /// Whether `worker` would find something now, perhaps: a hint.
    fn is_waiting(&self, worker: usize, reach: Reach, released: u64) -> bool;

    /// Does the work that there is until the visitor's slice is over. Returns whether there was any.
    ///
    /// # Errors
    /// What `run` said, or `Stopped`.
    fn work(&self, visit: &Visit<'_>, visitor: &mut dyn Visitor) -> Result<bool, RunError>;
}

/// How many lanes a partitioned stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partitions {
    /// One, or several if its only lane would keep the workers waiting.
    ByCost,
    /// One for each worker.
    OnePerWorker,
    /// As many as the options say.
    AsConfigured,
}

/// Who deals the rows of a batch to the partitions, and how many rows a call of the operator takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dealer {
    /// The worker that made the rows, before they enter the reorder buffer: Lockstep's own. A call takes a whole part.
    Maker,
    /// The worker that passes the rows on from the reorder buffer, one batch after the other. This is the paper's
    /// `send_downstream` (section 3, figures 2 and 4). It adds every output to its queue serially (section 7.3.2). A call takes at most as many
    /// rows as a batch has events.
    Releaser,
}

/// A strategy for `queue`.
#[derive(Debug)]
pub struct QueueStrategy {
    pub partitions: Partitions,
    /// Who deals the rows of a batch to the partitions.
    pub deals: Dealer,
    pub make: fn(Shape) -> Box<dyn Worklist>,
}
