"""Properties of this machine as the runtime sees them: its topology, and the pools that threads share."""

from __future__ import annotations

import json
from functools import cache
from typing import Any


@cache
def topology() -> dict[str, Any]:
    """Sockets, cores and distances of this machine."""
    from streaming_core import _runtime

    return json.loads(_runtime.probe())


def pool_is_shared(pool: str, threads: int) -> bool:
    """Whether two threads share a pool of operation chains.

    A machine with one socket has two made-up sockets, and two threads have one each. Then `shared_per_socket` equals
    `shared_nothing`.

    Raises:
        ValueError: The runtime does not know the pool.
    """
    from streaming_core import _runtime

    return len(set(_runtime.pools(pool, threads))) < threads
