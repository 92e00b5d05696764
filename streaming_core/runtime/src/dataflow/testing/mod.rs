//! What executors are tested with.

#[cfg(not(shuttle))]
pub mod faults;
pub mod pipelines;
#[cfg(shuttle)]
pub mod schedules;
pub mod unordered;
pub mod windows;
