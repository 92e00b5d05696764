"""The interpreter under pdb: it stops in the user's source at one event and then yields the oracle's outputs."""

from __future__ import annotations

import io
import re
import sys

import pyarrow.parquet as pq
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.oracle import oracle
from streaming_core.oracle.debugger import debug
from tests.support.draws import some


def source_of(tmp_path, name: str, events: int = 300) -> workload.Source:
    app = registry.load(name)
    workload.write(app, app.bind(), events, 1, tmp_path / name)
    return workload.read(tmp_path / name)


def session(source: workload.Source, event: int, commands: str) -> tuple[str, list[dict] | None]:
    out = io.StringIO()
    outputs = debug(source, event, io.StringIO(commands), out)
    return out.getvalue(), None if outputs is None else outputs.to_pylist()


@pytest.mark.parametrize("name", some(["gs", "scalejoin", "wc", "wordcount", "lr"], 2))
@pytest.mark.parametrize("event", [0, 157, 299])
def test_outputs_of_an_event_are_those_of_the_oracle(tmp_path, name, event):
    source = source_of(tmp_path, name)
    oracle.run(tmp_path / name, tmp_path / "oracle")
    rows = pq.read_table(tmp_path / "oracle" / "outputs").to_pylist()
    text, outputs = session(source, event, "c\n" * 10_000)
    assert outputs == [row for row in rows if row["seq"] == event]
    assert f"{name}.py" in text, "it stops in the application"
    assert sys.gettrace() is None


def test_debugger_stops_in_each_operator_and_shows_row_and_state(tmp_path):
    text, _ = session(source_of(tmp_path, "wc"), 200, "p row.line\nc\np state.n\n" + "c\n" * 20)
    stops = re.findall(r"> .*/apps/wc\.py\(\d+\)_f\d+_(\w+)\(\)", text)
    assert stops[0] == "split"
    assert stops[1:] == ["count"] * 10, "a line has ten words"
    assert re.search(r"^\(operator\) b'\w+ ", text, re.MULTILINE)
    assert re.search(r"^\(operator\) \d+$", text, re.MULTILINE)


def test_leaving_the_debugger_prints_no_outputs(tmp_path):
    _, outputs = session(source_of(tmp_path, "wc"), 200, "q\n")
    assert outputs is None
    assert sys.gettrace() is None


@pytest.mark.parametrize("event", [-1, 300, 1 << 62])
def test_an_event_outside_the_workload_is_refused(tmp_path, event):
    with pytest.raises(BadInput, match=f"the workload has no event {event}: it has 300 events"):
        session(source_of(tmp_path, "wc"), event, "")
