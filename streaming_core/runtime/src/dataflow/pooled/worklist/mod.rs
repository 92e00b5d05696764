//! Worklists of partitioned stages: the worker that takes each lane (partition) of a batch through the operator (axis `queue`).
//!
//! One trait (`list.rs`), one file per worklist, one registry.

mod hybrid;
mod lanes;
pub mod list;
mod open;
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

/// For operators with one state, which no partition divides: any free worker takes the only lane.
pub const SINGLE: &QueueStrategy = &lanes::QUEUE;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
