//! State transactions on shared tables.

pub mod batch;
pub mod delivery;
pub mod executor;
pub mod outcome;
pub mod planner;
pub mod ring;
pub mod run;
pub mod scheme;
pub mod slots;
#[cfg(test)]
pub mod testing;
pub mod transaction;
pub mod workbench;
