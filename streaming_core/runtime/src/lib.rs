//! The native runtime: runs compiled operators (kernels) on batches of rows, on every core.
//!
//! Bottom up: a module uses those above it in this list, never one below (`tests/layers.rs` holds it to that). README.md
//! beside this crate states the ABI the kernels are compiled against, and says where each published system lives.

mod error;

mod interruption;

mod threads;

mod rows;

mod memory;

mod output;

mod program;

mod state;

mod executor;

mod dataflow;

mod transactions;

mod engine;

#[cfg(feature = "pyo3")]
mod python;

pub use engine::make;
pub use error::RunError;
pub use executor::Executor;
pub use program::Program;
pub use program::kernel::{BatchContext, CONSTANTS, LAYOUTS};
pub use program::options::Options;
pub use rows::block::{Block, Text};
pub use threads::idle::Strategy;
