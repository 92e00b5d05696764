"""Few plans of few events for tests of the suites, because a planned application is compiled and measured."""

from __future__ import annotations

import pytest

from streaming_core.bench import banded, resident, rlas, searches, servers
from streaming_core.run import profile


def few_plans(patch: pytest.MonkeyPatch) -> None:
    """Reduce suite `rlas` to one application, two values of each sweep and few rows of memory."""
    for module, values in (
        (profile, {"EVENTS": 1000}),
        (resident, {"EVENTS": 2000, "REQUESTS": 20}),
        (banded, {"EVENTS": 4000, "ROUNDS": 2}),
        (
            servers,
            {
                "APPS": {"sd": servers.UNORDERED},
                "SERVERS": ("server_b",),
                "STRATEGIES": ("balanced", "rlas", "random"),
                "SOCKETS": (1, 2),
                "COMPRESSIONS": (5,),
                "DRAWN": 3,
            },
        ),
        (
            rlas,
            {
                "DRAWN": 2,
                "RACED": (("sd", "gate"),),
                "CANDIDATES": 2,
                "PILOT_ROUNDS": 1,
                "MEASURED": ("balanced", "os"),
            },
        ),
        (
            searches,
            {
                "planned_apps": lambda: ["sd"],
                "SEARCHES": 1,
                "LIMIT_SECONDS": 1e9,
                "VARIANTS": dict(list(searches.VARIANTS.items())[:2]),
            },
        ),
    ):
        for name, value in values.items():
            patch.setattr(module, name, value)
    searches._instances.cache_clear()
