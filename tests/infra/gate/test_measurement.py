"""The measurement of a run's cells: the measurable ones, and the content of its rows."""

import json
from socket import gethostname

import pytest

from infra.gate import measurement
from infra.gate.measurement import Place
from infra.hosts.build import Build
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home, new_run_id
from streaming_core.run.way import Spark
from streaming_core.storage import write_json
from tests.infra.gate import measured_run


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> tuple[Home, str, list[str]]:
    home = Home(tmp_path_factory.mktemp("home"))
    return home, *measured_run.make(home)


def test_unmeasurable_cell_is_refused(measured, tmp_path, monkeypatch):
    home, run_id, names = measured

    def refused(cells: list[str] | None = None, run: str = run_id) -> str:
        with pytest.raises(BadInput) as error:
            measurement.cells_of(home, run, cells)
        return str(error.value)

    assert [cell["cell"] for cell in measurement.cells_of(home, run_id, None)] == names[:2]
    assert [cell["cell"] for cell in measurement.cells_of(home, run_id, names[1:2])] == names[1:2]
    assert refused(["nosuch"]) == f"run {run_id} has no cell nosuch: its page lists the names"
    assert refused([names[2]]) == f"not equal to the oracle: {names[2]}; the gate measures only cells that are equal"
    assert refused(run=new_run_id("none", 1e9)).endswith("plan.json is missing")
    monkeypatch.setattr(measurement, "checkout", lambda: Build("def5678", tmp_path))
    assert refused().endswith("this checkout is build def5678: start a run of this checkout first")
    monkeypatch.undo()
    monkeypatch.setattr(measurement, "gethostname", lambda: "elsewhere")
    assert refused().endswith("use the gate on that host, or start a run here first")


def test_cells_on_spark_are_not_measured(tmp_path):
    home = Home(tmp_path)
    run_id, names = measured_run.make(home)
    path = home.run(run_id) / "plan.json"
    plan = json.loads(path.read_text())
    plan["cells"][0]["spec"] = Spark(app="wc").model_dump(mode="json")
    write_json(path, plan)
    assert [cell["cell"] for cell in measurement.cells_of(home, run_id, None)] == names[1:2]
    with pytest.raises(
        BadInput, match=f"^the gate measures Lockstep's engine, but {names[0]} ran on another one; name other cells$"
    ):
        measurement.cells_of(home, run_id, names[:2])


def test_cell_is_measured_on_its_own_host(tmp_path, monkeypatch):
    home = Home(tmp_path)
    run_id, names = measured_run.make(home)
    here = gethostname()
    assert set(measurement.places(home, run_id).values()) == {Place(here, None)}
    measured_run.run_on(home, run_id, "generic", names[:2], is_remote=False)
    assert set(measurement.places(home, run_id).values()) == {Place(here, None)}
    measured_run.run_on(home, run_id, "node", names[:1])
    assert measurement.places(home, run_id) == {names[0]: Place(here, "node")} | {
        name: Place(here, None) for name in names[1:]
    }
    monkeypatch.setattr(measurement, "gethostname", lambda: "elsewhere")
    assert [cell["cell"] for cell in measurement.cells_of(home, run_id, names[:1])] == names[:1]
    with pytest.raises(BadInput, match=f"{names[1]} ran on host {here}: use the gate on that host"):
        measurement.cells_of(home, run_id, names[:2])
