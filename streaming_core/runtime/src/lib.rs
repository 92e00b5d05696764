//! The native runtime: runs compiled operators (kernels) on batches of rows, on every core.
//!
//! A module uses only the modules above it in this list (`tests/layers.rs` checks this). README.md beside this crate explains
//! the modules. ABI.md defines the interface to kernels and to Python.

mod error;

mod interruption;

mod planted;

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

#[cfg(all(test, not(any(loom, shuttle))))]
#[path = "../tests/layers.rs"]
mod layers;

pub use dataflow::share::Dealer;
pub use engine::make;
pub use error::RunError;
pub use executor::Executor;
pub use program::Program;
pub use program::kernel::{BatchContext, CONSTANTS, LAYOUTS};
pub use program::options::Options;
pub use rows::block::{Block, Text};
pub use threads::idle::Strategy;
