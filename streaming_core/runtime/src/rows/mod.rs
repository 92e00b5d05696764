//! Rows: fixed width, their text beside them.

pub mod block;
pub mod buffer;
pub mod built;
pub mod column;
pub mod emitter;
#[cfg(feature = "pyo3")]
pub mod fill;
pub mod mix;
pub mod texts;
pub mod union;
pub mod view;
