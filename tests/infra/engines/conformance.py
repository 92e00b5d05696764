"""For the tests of engines: an engine answers as the oracle."""

from pathlib import Path
from tempfile import TemporaryDirectory

from infra.engines.installation import install
from streaming_core.conformance import suite
from streaming_core.engines import environment, registry


def conforms(name, *applications):
    """Fail unless the engine's answers equal the oracle's, for all applications or for some. Install it if need be."""
    if environment.complaint(registry.load(name)):
        install(name, print)
    with TemporaryDirectory() as folder:
        report = suite.run(name, Path(folder), applications)
    wrong = [cell for cell in report.cells if cell.outcome.verdict != "equal"]
    assert not wrong, "; ".join(f"{report.command(cell)}: {cell.outcome.reason}" for cell in wrong[:3])
    assert report.cells
