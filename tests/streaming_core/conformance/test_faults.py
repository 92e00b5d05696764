"""`lockstep conformance` detects the faults of `faults.py` and shows the first row that differs."""

from pathlib import Path

import pytest

from streaming_core.conformance import suite
from streaming_core.engines import registry
from tests.streaming_core.conformance.faults import FAULTS
from tests.streaming_core.engines.planted import plant
from tests.support.draws import some

RIGHT = Path(__file__).with_name("faulty.py").read_text()
ORDERS = {"wc": "total", "wordcount": "none"}
# These differ in a digest or in the form of the outputs, so there is no row to show.
WITHOUT_ROWS = {"state outlives a pass", "the digest covers other texts than the file", "no outputs, no file"}


@pytest.fixture(autouse=True)
def engines(tmp_path, monkeypatch):
    """The folder of engines."""
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    return tmp_path / "engines"


@pytest.mark.parametrize("name", some(sorted(FAULTS)))
def test_a_fault_is_detected_by_its_workloads(engines, tmp_path, name):
    fault = FAULTS[name]
    assert RIGHT.count(fault.old) == 1
    plant(engines, "faulty", RIGHT.replace(fault.old, fault.new), applications=ORDERS)
    report = suite.run("faulty", tmp_path / "work", [fault.app], [fault.shows], threads=[3], seconds=0.0)
    (cell,) = report.cells
    assert cell.outcome.verdict != "equal"
    assert bool(cell.outcome.rows) == (name not in WITHOUT_ROWS)


@pytest.mark.slow
def test_the_engine_without_a_fault_conforms(engines, tmp_path):
    plant(engines, "right", RIGHT, applications=ORDERS)
    report = suite.run("right", tmp_path / "work")
    assert report.exit_code == 0
