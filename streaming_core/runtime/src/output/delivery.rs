//! The time of each delivery, for readers that need more than latencies.

/// Events up to `event` were finished at `at`, and none of them before; `latency` of the first of them, if the loop is open.
/// In nanoseconds of engine time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Delivery {
    pub at: u64,
    pub event: i64,
    pub latency: Option<u64>,
}
