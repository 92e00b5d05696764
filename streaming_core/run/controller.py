"""The runtime's controllers of windowed operators, called outside a run."""

from __future__ import annotations

import json
from collections.abc import Callable


def decider(controller: str) -> Callable[[dict[str, int]], int | None]:
    """Return a function that consults a controller, one period after the other.

    The function takes the load that the controller sees (report.Load). It returns the number of replicas that the
    controller requests, or None if it keeps them.
    """
    from streaming_core import _runtime

    runtime = _runtime.Controller(controller)
    return lambda load: runtime.decide(json.dumps(load))
