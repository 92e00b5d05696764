"""BriskStream: pinned replicas, and the optimiser that places them."""
