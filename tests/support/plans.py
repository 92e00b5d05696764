"""Few plans of few events for tests of the suites, because a planned application is compiled and measured."""

import pytest

from streaming_core.bench.papers.briskstream import rlas
from streaming_core.run import profile


def few_plans(patch: pytest.MonkeyPatch) -> None:
    """Reduce suite `rlas` to one application and two plans."""
    for module, values in (
        (profile, {"EVENTS": 1000}),
        (rlas, {"DRAWN": 2, "RACED": (("sd", "gate"),), "CANDIDATES": 2, "PILOT_ROUNDS": 1}),
    ):
        for name, value in values.items():
            patch.setattr(module, name, value)
