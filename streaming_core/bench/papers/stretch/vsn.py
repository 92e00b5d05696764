"""What the experiments of STRETCH share: the ways that they compare, and the claims on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streaming_core.bench.claims import Claim
from streaming_core.run.way import DEFAULT_BATCH, Pinned

OURS, PUBLISHED, SHARE_NOTHING = SHARING = "vsn", "vsn_esg", "sn"
SHARED = (OURS, PUBLISHED)
BATCHES = (1, DEFAULT_BATCH)  # the paper's: each tuple alone; and ours
MEAN = "end_to_end_mean_us"
CORES = 16  # fewer do not show how an operator grows, or a controller that follows the load


def ways(
    app: str, params: dict[str, Any], counts: Iterable[int], parallelisms: tuple[str, ...] = SHARING
) -> list[Pinned]:
    """Return each parallelism with each batch, on each number of threads. The first one is the default way."""
    fields = {"app": app, "params": params}
    return [
        Pinned.model_validate(fields | {"threads": count, "parallelism": parallelism, "batch": batch})
        for count in counts
        for batch in reversed(BATCHES)
        for parallelism in parallelisms
    ]


def claim(
    says: str, source: str, having: dict[str, Any] | None = None, over: dict[str, Any] | None = None, **more: Any
) -> Claim:
    """Return a claim on VSN as published and on ours, at the same batch and threads."""
    published, ours = ({"parallelism": parallelism} | (having or {}) for parallelism in (PUBLISHED, OURS))
    return Claim(says, source, published, ours, over or {}, **more)
