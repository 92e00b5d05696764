"""The topology of this machine, as the runtime sees it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any


@cache
def topology() -> dict[str, Any]:
    """Sockets, cores and distances of this machine."""
    from streaming_core import _runtime

    return json.loads(_runtime.probe())
