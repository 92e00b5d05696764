//! Dataflows: pipelines of operators.

pub mod channel;
pub mod direct;
pub mod flush;
pub mod frame;
pub mod lane;
pub mod morsel;
pub mod operator;
pub mod pinned;
pub mod pooled;
pub mod share;
#[cfg(all(test, not(loom)))]
pub mod testing;
pub mod windowed;
