"""Scaling Ordered Stream Processing: pooled workers that keep the order."""

from streaming_core.apps import registry

registry.add(f"{__name__}.matrix")
