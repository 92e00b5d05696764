"""Few plans of few events for tests of the suites, because a planned application is compiled and measured."""

import pytest

from streaming_core.bench.papers.briskstream import servers
from streaming_core.bench.papers.stretch import banded, resident
from streaming_core.run import profile


def few_plans(patch: pytest.MonkeyPatch) -> None:
    """Reduce suite `briskstream` to one small server and few plans, and suite `stretch` to few rows of memory."""
    for module, values in (
        (profile, {"EVENTS": 1000}),
        (resident, {"EVENTS": 2000, "REQUESTS": 20}),
        (banded, {"EVENTS": 4000, "ROUNDS": 2}),
        (servers, {"DRAWN": 2, "APPS": ("fd",), "WAYS": {"server_b": servers.WAYS["server_a"]}}),
    ):
        for name, value in values.items():
            patch.setattr(module, name, value)
