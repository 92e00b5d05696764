"""STRETCH: windowed operators that share their states and change their degree of parallelism."""

from streaming_core.apps import registry

registry.add(f"{__name__}.forward")
registry.add(f"{__name__}.paircount")
