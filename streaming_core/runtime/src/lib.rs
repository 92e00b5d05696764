//! The native runtime: runs compiled operators (kernels) on batches of rows, on every core.
//!
//! Bottom up; README.md beside this crate states the ABI the kernels are compiled against.

pub mod error;

pub mod threads;

pub mod rows;

pub mod memory;

pub mod output;

pub mod program;

pub mod state;

pub mod executor;

pub mod dataflow;

pub mod transactions;

pub mod engine;

#[cfg(feature = "pyo3")]
mod python;
