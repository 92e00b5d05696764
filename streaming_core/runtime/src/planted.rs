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
    /// `mvlk`: a reader reads the row in place, although a later writer has begun.
    StaleVersion,
    /// `tstream`: of the rows that an event depends on, only the first one has to be ready.
    LostDependency,
    /// `lock`, `pat`: a writer does not wait for earlier readers.
    LostReader,
    /// After a kill, the count lacks the transactions rejected before the checkpoint.
    LostRejections,
    /// Of two batches that are complete, the non-blocking reorder buffer releases the later one first.
    UnorderedRelease,
    /// `pooled`: as many outputs as inputs count as one output of each input.
    UnevenMerge,
    /// `morsel`: batches reach the sink in the order in which workers finish them.
    LostTurn,
    /// `pinned`: of rows of one event, those of the first stream come last.
    StreamTie,
    /// `pinned`: a merge ignores the numbers of an event's rows.
    NumberedTie,
    /// `pinned`: nothing wakes a thread that sleeps when there is room.
    LostBell,
    /// `pinned`: a source loses the last row of a block whose last batch is full.
    LostRow,
    /// `pair_queue`: a tuple keeps the hashes of its former rows.
    StaleHashes,
    /// A window expires at the last row that belongs to it.
    EarlyExpiry,
    /// A session ends by its first row, although a later one has prolonged it.
    StaleSession,
    /// A replica forgets what is open in every other cell that it gains.
    LostHandover,
    /// Each replica counts a late row.
    LateTwice,
    /// A restored part of a keyed state lacks its first key.
    LostKey,
    /// `lower` leaves out the bytes at the end that fill no word.
    UnloweredTail,
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
