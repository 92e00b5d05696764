//! Worklists of partitioned stages: who takes which lane (partition) of which batch through the operator (axis `queue`).
//!
//! One trait (`list.rs`), one file per worklist, one registry.

mod hybrid;
mod lanes;
pub mod list;
mod partitioned;
mod parts;
mod shared;

use list::QueueStrategy;

/// The registry, the default first: adding a worklist touches its file and this table.
pub const QUEUES: &[(&str, &QueueStrategy)] = &[
    ("lanes", &lanes::QUEUE),
    ("hybrid", &hybrid::QUEUE),
    ("partitioned", &partitioned::QUEUE),
    ("shared", &shared::QUEUE),
];

/// For operators with one state, which no partition divides: whoever is free takes the only lane.
pub const SINGLE: &QueueStrategy = &lanes::QUEUE;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
