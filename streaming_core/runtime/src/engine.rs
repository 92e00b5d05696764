//! The registry of executors.

use crate::dataflow;
use crate::error::RunError;
use crate::executor::Executor;
use crate::program::Program;
use crate::program::options::Options;
use crate::program::registry::find;
use crate::transactions::executor;

type Make = fn(Program, Options) -> Result<Box<dyn Executor>, RunError>;

/// The registry: adding an executor touches its file and this table.
const EXECUTORS: &[(&str, Make)] = &[
    ("pooled", dataflow::pooled::make),
    ("pinned", dataflow::pinned::make),
    ("morsel", dataflow::morsel::make),
    ("transactional", executor::make),
    ("share", dataflow::share::make),
];

/// The executor that the options name, ready for the first block.
pub fn make(program: Program, options: Options) -> Result<Box<dyn Executor>, RunError> {
    let make = find("executor", "", Some(&options.executor), EXECUTORS)?;
    if program.is_windowed() && !matches!(&*options.executor, "pinned" | "share") {
        return Err(RunError::Invalid(format!(
            "executor {} cannot run windowed operators; use pinned",
            options.executor
        )));
    }
    make(program, options)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod relay;
