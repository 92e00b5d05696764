//! The native runtime: runs compiled operators (kernels) on batches of rows, on every core.
//!
//! One noun per file, bottom up; README.md beside this crate states the ABI the kernels are compiled against.

pub mod arena;
pub mod batch;
pub mod channel;
pub mod chunk;
pub mod delivered;
pub mod digest;
pub mod executor;
pub mod idle;
pub mod interruption;
pub mod kernel;
pub mod key_group;
pub mod metrics;
pub mod placement;
pub mod program;
#[cfg(feature = "pyo3")]
mod python;
pub mod rows;
pub mod scheme;
pub mod sink;
mod stage;
pub mod state;
pub mod sync;
pub mod topology;
pub mod transaction;
pub mod union;
