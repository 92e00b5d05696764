//! Why a run stopped.

use thiserror::Error;

/// Why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// An operator raised at an event, in the window [from, to) if it is one of windows; `exception` is numba's pickle of what
    /// it raised. Of the failures of one operator at one event, the earliest has the least `order`.
    #[error("operator {operator} failed at event {seq}")]
    Kernel { operator: String, seq: i64, window: Option<(i64, i64)>, order: u128, exception: Vec<u8> },
    /// An event has more rows than ranks can order (`dataflow/channel/rank.rs`).
    #[error(
        "event {seq} becomes too many rows to keep their order; use one thread or, without windows, executor pooled"
    )]
    TooManyRows { seq: i64 },
    /// The program, the options or a block do not fit what the runtime was told.
    #[error("{0}")]
    Invalid(String),
    /// Memory ran out.
    #[error("out of memory for {0}")]
    Memory(String),
    /// A defect of the engine.
    #[error("{0}")]
    Engine(String),
    /// Another thread failed first; never reported while the first error is.
    #[error("stopped because another thread failed")]
    Stopped,
    /// A signal asked the process to end (`interruption.rs`).
    #[error("interrupted by a signal")]
    Interrupted,
}

impl RunError {
    /// A kernel's failure with `order` worked out from the one that it has.
    pub fn ordered(self, by: impl FnOnce(u128) -> u128) -> Self {
        match self {
            Self::Kernel { operator, seq, window, order, exception } => {
                Self::Kernel { operator, seq, window, order: by(order), exception }
            }
            other => other,
        }
    }

    /// Rank for choosing the error to report when several threads fail: defects first, then the earliest event.
    pub fn rank(&self) -> (u8, i64) {
        match self {
            Self::Engine(_) | Self::Memory(_) => (0, 0),
            Self::Invalid(_) => (1, 0),
            Self::Kernel { seq, .. } | Self::TooManyRows { seq } => (2, *seq),
            Self::Interrupted => (3, 0),
            Self::Stopped => (4, 0),
        }
    }
}
