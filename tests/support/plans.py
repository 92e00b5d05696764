"""Few plans of few events for tests of the suites, because a planned application is compiled and measured."""

import pytest

from streaming_core.bench.papers.briskstream import servers
from streaming_core.planner import scaling
from streaming_core.run import profile


def few_plans(patch: pytest.MonkeyPatch) -> None:
    """Reduce suite `briskstream` to one small server, few plans, and searches that end early."""
    for module, values in (
        (profile, {"EVENTS": 1000}),
        (scaling, {"PLACEMENT_NODES": 20}),
        (servers, {"DRAWN": 2, "APPS": ("fd",), "WAYS": {"server_b": servers.WAYS["server_a"]}}),
    ):
        for name, value in values.items():
            patch.setattr(module, name, value)
