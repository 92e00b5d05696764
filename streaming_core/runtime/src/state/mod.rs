//! State: shared tables and keyed state.

pub mod keyed;
pub mod table;
