"""For the tests of engines: an installed engine answers as the oracle."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from streaming_core.conformance import suite
from streaming_core.engines import environment, registry


def conforms(name):
    """Fail unless all answers of the engine equal the oracle's. Skip if it is not installed here."""
    if complaint := environment.complaint(registry.load(name)):
        pytest.skip(complaint)
    with TemporaryDirectory() as folder:
        report = suite.run(name, Path(folder))
    wrong = [one for one in report.cells if one.outcome.verdict != "equal"]
    assert not wrong, "; ".join(f"{report.command(one)}: {one.outcome.reason}" for one in wrong[:3])
    assert report.cells
