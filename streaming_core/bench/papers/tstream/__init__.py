"""TStream (ICDE 2020): transactions on shared state."""

from streaming_core.apps import registry

registry.add(f"{__name__}.tpk")
