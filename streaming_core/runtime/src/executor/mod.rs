//! Executors: who runs which stage on which batch. One trait, one file per executor, one registry.

mod direct;
#[cfg(all(test, not(any(loom, shuttle))))]
mod faults;
mod flush;
mod morsel;
mod pinned;
#[cfg(all(test, not(loom)))]
mod pipelines;
mod pooled;
#[cfg(all(test, shuttle))]
mod schedules;
pub mod team;
pub mod transactional;
#[cfg(all(test, not(loom)))]
mod unordered;

use crate::batch::Block;
use crate::digest::ColumnKind;
use crate::kernel::RunError;
use crate::metrics::{Metrics, Standing};
use crate::program::{Options, Program};
use crate::stage::{Chain, Lanes};
use crate::state::keyed::KeyRef;

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
        Err(RunError::Invalid("this executor takes no checkpoints".into()))
    }

    /// Goes on from a checkpoint of the same program; before the first block, in place of `load_table`.
    fn resume(&mut self, _standing: Standing, _images: &[&[u8]]) -> Result<(), RunError> {
        Err(RunError::Invalid("this executor takes no checkpoints".into()))
    }

    /// The states of operator number `operator` of the program.
    fn states(&mut self, operator: usize) -> Result<States, RunError> {
        Err(RunError::Invalid(format!("operator {operator} has no state")))
    }
}

/// The states of operator number `operator`, whose lanes are among `lanes`: one entry per operator with state.
///
/// # Safety
/// Nobody else uses the lanes meanwhile; they belong to the chain.
unsafe fn keyed_states(chain: &Chain, lanes: &[Lanes], operator: usize) -> Result<States, RunError> {
    let Ok(stage) = chain.stateful.binary_search(&operator) else {
        return Err(RunError::Invalid(format!("operator {operator} has no state")));
    };
    let size = chain.operators[operator].state_size;
    let (mut integers, mut texts, mut states) = (Vec::new(), Vec::new(), Vec::new());
    // SAFETY: as the caller says.
    for (key, _, state) in unsafe { lanes[stage].sorted() } {
        match key {
            Some(KeyRef::Integer(key)) => integers.push(key),
            Some(KeyRef::Text(key)) => texts.push(key.to_vec()),
            None => {}
        }
        // SAFETY: a state of this operator.
        states.extend_from_slice(unsafe { std::slice::from_raw_parts(state, size) });
    }
    let keys = match chain.operators[operator].key {
        None => Keys::None,
        Some(key) if key.kind == ColumnKind::Text => Keys::Texts(texts),
        Some(_) => Keys::Integers(integers),
    };
    Ok(States { keys, states })
}

type Make = fn(Program, Options) -> Result<Box<dyn Executor>, RunError>;

/// The registry: adding an executor touches its file and this table.
const EXECUTORS: &[(&str, Make)] = &[
    ("pooled", pooled::make),
    ("pinned", pinned::make),
    ("morsel", morsel::make),
    ("transactional", transactional::make),
];

/// The executor that the options name, ready for the first block.
pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    let Some((_, make)) = EXECUTORS.iter().find(|(name, _)| *name == options.executor) else {
        let known: Vec<&str> = EXECUTORS.iter().map(|(name, _)| *name).collect();
        let message = format!("unknown executor {:?}; known: {}", options.executor, known.join(", "));
        return Err(RunError::Invalid(message));
    };
    make(program, options)
}
