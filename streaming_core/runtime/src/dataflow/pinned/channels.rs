//! The channels of the executor, by the name of the option.

/// The part that puts the rows of several sources into one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// The consumer, in its gate.
    Gate,
    /// All producers for the consumer.
    ScaleGate,
    /// A merge task on its own thread.
    MergeSort,
    /// No part: consumers take the batches of each producer's ring as they come.
    SharedRing,
    /// No part: a queue for each producer and consumer, with tuples that the producer refills (BriskStream).
    PairQueue,
}

impl Channel {
    /// Whether consumers get rows in the order of events.
    pub fn is_ordered(self) -> bool {
        !matches!(self, Self::SharedRing | Self::PairQueue)
    }

    /// Whether Viper compares this channel with others.
    pub fn is_vipers(self) -> bool {
        matches!(self, Self::ScaleGate | Self::MergeSort)
    }
}

/// The registry of channels.
pub(super) const CHANNELS: &[(&str, Channel)] = &[
    ("gate", Channel::Gate),
    ("scalegate", Channel::ScaleGate),
    ("merge_sort", Channel::MergeSort),
    ("shared_ring", Channel::SharedRing),
    ("pair_queue", Channel::PairQueue),
];
