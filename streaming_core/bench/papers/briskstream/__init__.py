"""BriskStream: pinned replicas, and the optimiser that places them."""

from streaming_core.apps import registry

registry.add(f"{__name__}.brisk_wc")
