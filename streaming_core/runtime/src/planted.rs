//! Faults planted on purpose, one at a time: what `lockstep find` has to notice (tests/planted).
//!
//! They exist only with the feature `planted`. `LOCKSTEP_PLANTED` then names the fault of the process. Without the feature,
//! `has` is false at compile time, and no release has the feature.

/// What is wrong. The name of a fault is that of its variant, in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "planted", derive(serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Fault {
    /// `owners`: an event that one share rejects still writes the rows of another share.
    LostAbort,
    /// `owners`: an event overtakes a waiting one if they have only its upper row in common.
    OvertakenWrite,
    /// The non-blocking reorder buffer releases a batch before the batches in front of it.
    UnorderedRelease,
    /// `morsel`: batches reach the sink in the order in which they are done.
    LostTurn,
    /// `pinned`: of rows of one event, those of the last stream come first.
    StreamTie,
    /// A window expires at the last row that belongs to it.
    EarlyExpiry,
    /// A replica forgets what is open in the last cell that it gains.
    LostHandover,
    /// Each replica counts a late row.
    LateTwice,
}

/// Whether this fault is planted.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn has(_: Fault) -> bool {
    false
}

/// Whether this fault is planted.
#[cfg(feature = "planted")]
pub fn has(fault: Fault) -> bool {
    static PLANTED: std::sync::LazyLock<Option<Fault>> = std::sync::LazyLock::new(|| {
        let name = std::env::var("LOCKSTEP_PLANTED").ok()?;
        Some(serde_json::from_value(name.into()).expect("LOCKSTEP_PLANTED names a fault"))
    });
    *PLANTED == Some(fault)
}
