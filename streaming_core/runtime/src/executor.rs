//! What an executor is.

use crate::error::RunError;
use crate::output::metrics::{Metrics, Standing};
use crate::rows::block::Block;

/// Keys and states of a keyed operator, ascending by key; a stateful operator has one state and no keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct States {
    pub keys: Keys,
    /// `state_size` bytes each. Containers in them point into memory that lives as long as the executor.
    pub states: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    None,
    Integers(Vec<i64>),
    Texts(Vec<Vec<u8>>),
}

/// An operator whose replicas come and go, for other threads than the one that processes.
pub trait Reconfigurable: Send + Sync {
    /// From the next event on that has not been dealt yet, these replicas share the operator's keys; a request that was not
    /// heard yet is forgotten.
    ///
    /// # Errors
    /// `Invalid`: there are no such replicas.
    fn request(&self, replicas: &[usize]) -> Result<(), RunError>;

    /// Whether the last request has been heard, and all whom it concerns have gone over.
    fn is_settled(&self) -> bool;
}

/// Processes one run: blocks in order, then `finish` once. After an error nothing but `metrics` may be called.
pub trait Executor: Send {
    /// Processes a block and returns when all its outputs are delivered.
    fn process(&mut self, block: &Block) -> Result<(), RunError>;

    /// End of the stream: flushes, with `seq` = the number of events of the stream.
    fn finish(&mut self, seq: i64) -> Result<(), RunError>;

    /// Outputs since the last call in delivered order (rows, and a `sub` per row); only the parquet sink keeps any.
    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>);

    fn metrics(&self) -> Metrics;

    /// Replaces a table's rows; before the first block.
    fn load_table(&mut self, index: usize, _rows: &[u8]) -> Result<(), RunError> {
        Err(RunError::Invalid(format!("there is no table {index}")))
    }

    fn table(&self, index: usize) -> Result<Vec<u8>, RunError> {
        Err(RunError::Invalid(format!("there is no table {index}")))
    }

    /// Where the run stands, between blocks, with an image of every table: what `resume` goes on from.
    fn checkpoint(&self) -> Result<(Standing, Vec<Vec<u8>>), RunError> {
        Err(RunError::Invalid("this executor does not support checkpoints".into()))
    }

    /// Goes on from a checkpoint of the same program; before the first block, in place of `load_table`.
    fn resume(&mut self, _standing: Standing, _images: &[&[u8]]) -> Result<(), RunError> {
        Err(RunError::Invalid("this executor does not support checkpoints".into()))
    }

    /// The operator of that name, if its replicas can come and go.
    fn reconfigurable(&self, _operator: &str) -> Option<Box<dyn Reconfigurable>> {
        None
    }

    /// The states of operator number `operator` of the program.
    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        Err(RunError::Invalid(format!("operator {operator} has no state")))
    }
}
