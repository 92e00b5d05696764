//! The roles of tasks: what a task does with the rows that it takes. Each role has a file of its own.

mod failures;
pub(super) mod keys;
pub(super) mod merge;
pub(super) mod operator;
pub(super) mod sink;
pub(super) mod source;
mod windowed;

use crate::dataflow::windowed::copies::Copies;
use crate::dataflow::windowed::keys::Lister;

/// What a task does with the rows that it takes.
#[derive(Debug)]
pub(super) enum Role {
    /// Deals events: number `index` of `of` sources takes every `of`-th.
    Source { index: usize, of: usize },
    /// Runs a replica of an operator; `lane` is its part of the keys.
    Operator { operator: usize, lane: usize },
    /// Finds the keys of rows for all replicas of a windowed operator.
    Keys(Keys),
    /// Puts streams into one order for the replica behind it, or for the sink (Viper's operator layer).
    Merge { operator: Option<usize> },
    /// Takes the outputs of the events of its ranges.
    Sink { number: usize },
}

/// Finds the keys of rows of an input of a windowed operator, for all of its replicas.
#[derive(Debug)]
pub(super) struct Keys {
    pub operator: usize,
    pub input: usize,
    /// The number of the replica that runs on the same thread.
    pub replica: usize,
    pub lister: Lister,
    /// The copies for the queues of the replicas, if replicas share nothing.
    pub copies: Option<Box<Copies>>,
    /// The replicas know all rows of events up to this one.
    pub announced: i64,
}
