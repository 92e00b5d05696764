"""`lockstep debug`: it finds the cell, the event and the workload in the files of a run, not only of the newest."""

import io
import json
import re

import pytest

from jobs.raw import write_raw
from streaming_core.regression import matrix
from streaming_core.regression.home import new_run_id
from streaming_core.regression.request import RegressionSpec
from tests.infra.cli.conftest import lockstep, refused
from tests.infra.gate import measured_run

NEWER = new_run_id("newer", 1.1e9)


@pytest.fixture
def red(home) -> tuple[str, list[str]]:
    """A run, its cells, and a newer run without them. The last of the cells is red."""
    run_id, names = measured_run.make(home, events=300)
    write_raw(home, "violations", run_id, [{"cell": names[2], "seq": seq} for seq in (None, 250, 200)])
    matrix.plan(RegressionSpec(applications=["gs"], events=300), home, NEWER)
    return run_id, names


def test_first_event_that_differs_opens_in_an_older_run(red, monkeypatch, capsys):
    run_id, (*_, cell) = red
    monkeypatch.setattr("sys.stdin", io.StringIO("p row.seq\n" + "c\n" * 20))
    assert lockstep("debug", cell, "--run", run_id) == 0
    out, error = capsys.readouterr()
    assert error.startswith("event 200 of ")
    outputs = [json.loads(row) for row in re.findall(r"{.*}$", out, re.MULTILINE)]
    assert [row["seq"] for row in outputs] == [200] * 10, "a line has ten words"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], f"run {NEWER}: unknown cell"),
        (["--run", "20990101T000000Z-00000000"], "no run '20990101T000000Z-00000000'"),
        (["--run", "RUN_ID", "--event", "300"], "the workload has no event 300"),
        (["--run", ""], "--run must not be empty"),
    ],
)
def test_bad_input_is_one_line(red, capsys, arguments, message):
    run_id, (*_, cell) = red
    assert message in refused(capsys, "debug", cell, *[run_id if word == "RUN_ID" else word for word in arguments])


def test_cell_without_an_output_that_differs_needs_an_event(red, capsys):
    run_id, (equal, *_) = red
    assert "name an event with --event" in refused(capsys, "debug", equal, "--run", run_id)
