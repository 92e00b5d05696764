//! The trait of an executor.

use crate::error::RunError;
use crate::output::metrics::{Metrics, Standing};
use crate::rows::block::Block;
use crate::state::states::{Keys, States};

/// A handle for other threads to change the replicas of an operator.
pub trait Reconfigurable: Send + Sync {
    /// Requests other owners of the operator's cells, by their pattern, from the next event that is not dealt yet. It
    /// replaces a request that the source has not taken in yet.
    ///
    /// # Errors
    /// `Invalid`: there are no such replicas.
    fn request(&self, owners: &[usize]) -> Result<(), RunError>;

    /// Whether the source has taken in the last request, and all affected replicas have gone over.
    fn is_settled(&self) -> bool;
}

/// Receives parts of the state, see `Executor::images`.
pub type TakeNamed<'a> = &'a mut dyn FnMut(&str, usize, &[u64]) -> Result<(), RunError>;

/// Processes one run: blocks in order, then `finish` once. After an error nothing but `metrics` may be called.
pub trait Executor: Send {
    /// Processes a block and returns when all its outputs are delivered.
    fn process(&mut self, block: &Block) -> Result<(), RunError>;

    /// End of the stream: flushes, with `seq` = the number of events of the stream.
    fn finish(&mut self, seq: i64) -> Result<(), RunError>;

    /// Outputs since the last call in delivered order (rows, and a `sub` per row); only the parquet sink keeps any.
    fn take_outputs(&mut self) -> (Vec<u8>, Vec<u32>);

    /// The ranks of the outputs that `take_outputs` returned last, if the executor is one of several that share the keys.
    fn take_ranks(&mut self) -> Vec<u128> {
        Vec::new()
    }

    fn metrics(&self) -> Metrics;

    /// Replaces a table's rows, before the first block. An indexed table takes the key of each row. If it inserts rows, it takes
    /// no keys and one row: what a new row starts with.
    fn load_table(&mut self, index: usize, _keys: &Keys, _rows: &[u8]) -> Result<(), RunError> {
        Err(RunError::Invalid(format!("there is no table {index}")))
    }

    /// All rows of a table, in the order of its keys.
    fn table(&self, index: usize) -> Result<States, RunError> {
        Err(RunError::Invalid(format!("there is no table {index}")))
    }

    /// Where the run stands, between blocks.
    fn standing(&self) -> Result<Standing, RunError> {
        Err(RunError::Invalid("this executor makes no checkpoints".into()))
    }

    /// The state between blocks, in parts (`state/image.rs`): `take` receives the name of a table or an operator, the number of a
    /// part, and its image.
    fn images(&self, _take: TakeNamed) -> Result<(), RunError> {
        Err(RunError::Invalid("this executor makes no checkpoints".into()))
    }

    /// Takes a part of the state, before the first block and after `load_table`. The executor of a share leaves out the keys of
    /// others.
    fn restore(&mut self, name: &str, image: &[u64]) -> Result<(), RunError>;

    /// Goes on from where another run stood, whatever its executor, once the state is restored.
    fn resume(&mut self, standing: &Standing) -> Result<(), RunError>;

    /// A handle of an operator by its name, if its replicas can change.
    fn reconfigurable(&self, _operator: &str) -> Option<Box<dyn Reconfigurable>> {
        None
    }

    /// The states of operator number `operator` of the program.
    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        Err(RunError::Invalid(format!("operator {operator} has no state")))
    }
}
