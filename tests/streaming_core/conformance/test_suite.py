"""conformance/suite.py and `lockstep conformance`: faulty engines and their reports."""

import json

import pytest

from infra.cli.command import main
from streaming_core.conformance import suite, trial
from streaming_core.engines import registry
from streaming_core.errors import BadInput
from tests.streaming_core.engines.planted import WC, plant
from tests.support.draws import some


@pytest.fixture(autouse=True)
def engines(tmp_path, monkeypatch):
    """The folder of engines."""
    monkeypatch.setenv(registry.SETTING, str(tmp_path / "engines"))
    return tmp_path / "engines"


def wrapped(body):
    """An engine for wc that changes its right outputs `rows`, a list of dicts, by some lines of Python."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return WC.format(
        fault=f"""
right = wc
def wc(task):
    one = right(task)
    def one_pass():
        table = one()
        rows = table.to_pylist()
{lines}
        return pa.Table.from_pylist(rows, schema=task.schema)
    return one_pass
"""
    )


UNORDERED = "rows = [{'word': row['word'], 'n': row['n']} for row in rows]\n"


def cells_by_workload(name, tmp_path, workloads, **options):
    """Workload -> its only cell, on one thread."""
    report = suite.run(name, tmp_path / "cells", ["wc"], workloads, threads=[1], **options)
    return {cell.workload: cell for cell in report.cells}


@pytest.mark.slow
def test_a_correct_engine_conforms(engines):
    plant(engines, "right", WC.format(fault=""))
    assert main(["conformance", "--engine", "right", "--workloads", "empty,blanks", "--threads", "2"]) == 0


@pytest.mark.parametrize(("executor", "app"), some([("pooled", "wc"), ("pinned", "scalejoin")]))
def test_executors_of_lockstep_conform(executor, app, tmp_path):
    report = suite.run(executor, tmp_path / "cells", [app], ["empty", "repeats"])
    assert report.exit_code == 0
    assert len(report.cells) == 4
    assert list((tmp_path / "cells").rglob("*.parquet")) == []


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["pooled", "pinned", "transactional"])
def test_executors_of_lockstep_conform_on_all_workloads(executor, tmp_path):
    assert suite.run(executor, tmp_path / "cells").exit_code == 0


def test_a_wrong_row_is_reported_with_its_event(engines, tmp_path):
    plant(engines, "lower", wrapped("rows = [row | {'word': row['word'].lower()} for row in rows]"))
    cell = cells_by_workload("lower", tmp_path, ["bytes"])["bytes"]
    [row] = cell.outcome.rows
    assert (row.expected["word"], row.actual["word"]) == (b"A", b"a")
    assert row.expected["seq"] == row.actual["seq"] == cell.event["seq"]
    assert cell.event["line"] == b"A"
    assert (cell.cause.events, cell.cause.is_smallest, cell.last) == (cell.event["seq"] + 1, True, cell.event)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "side"),
    [
        ("rows = [row for row in rows if row['seq'] != 3]", "expected"),
        ("rows += [row | {'sub': 99} for row in rows if row['seq'] == 3][:1]", "actual"),
    ],
)
def test_a_row_of_one_side_is_reported_alone(engines, tmp_path, fault, side):
    plant(engines, "wrong", wrapped(fault))
    cell = cells_by_workload("wrong", tmp_path, ["ties"])["ties"]
    [row] = cell.outcome.rows
    assert getattr(row, side)["seq"] == 3
    assert [row.expected, row.actual].count(None) == 1
    assert (cell.event["seq"], cell.cause.events) == (3, 4)


@pytest.mark.slow
def test_an_unordered_difference_lists_rows_and_a_cause(engines, tmp_path):
    fault = f"{UNORDERED}rows = [row | {{'n': 9}} for row in rows]"
    plant(engines, "loose", wrapped(fault), applications={"wc": "none"})
    cell = cells_by_workload("loose", tmp_path, ["single"])["single"]
    assert [row.expected is None for row in cell.outcome.rows] == [False] * 3 + [True] * 3
    assert all(row.expected["n"] == 1 for row in cell.outcome.rows[:3])
    assert (cell.outcome.rows[3].actual["n"], cell.outcome.rows[3].times) == (9, 1)
    assert (cell.event, cell.cause.events, cell.last["seq"]) == (None, 1, 0)


@pytest.mark.slow
def test_a_crash_is_reported_with_its_cause(engines, tmp_path):
    plant(engines, "text", wrapped("[int(row['word']) for row in rows]"))
    cell = cells_by_workload("text", tmp_path, ["single"])["single"]
    assert cell.outcome.verdict == "failed"
    assert "ValueError: invalid literal for int()" in cell.outcome.reason
    assert (cell.cause.events, cell.last["seq"]) == (1, 0)


def test_a_hanging_engine_is_stopped(engines, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT", 1.0)
    plant(engines, "hangs", "import signal\nsignal.pause()")
    cell = cells_by_workload("hangs", tmp_path, ["empty"], seconds=0)["empty"]
    assert cell.outcome.verdict == "failed"
    assert "it did not end within 1 s" in cell.outcome.reason


@pytest.mark.slow
def test_a_difference_is_explained_and_kept(engines, tmp_path, capsys):
    plant(engines, "wrong", wrapped("rows = [row | {'n': row['n'] + (row['sub'] >= 5)} for row in rows]"))
    request = ["conformance", "--engine", "wrong", "--workloads", "empty,single", "--keep", str(tmp_path / "kept")]
    assert main(request) == 1
    printed, progress = capsys.readouterr()
    assert progress.splitlines() == ["wc empty: equal", "wc single: different"]
    lines = printed.splitlines()
    assert lines[0] == "wc single, 1 thread: different: 5 in outputs, 2 in passes"
    facts = dict(line.strip().split(maxsplit=1) for line in lines[1:9])
    assert facts["expected"].startswith("seq 0, sub 5, word ")
    assert (facts["expected"][-4:], facts["actual"][-4:]) == (" n 1", " n 2")
    assert facts["event"].startswith("seq 0, ts 0, line ")
    cause = "the first event is wrong already, a stream without events is right; it is "
    assert facts["cause"] == cause + facts["event"]
    assert facts["repeat"] == "lockstep conformance --engine wrong --applications wc --workloads single --threads 1"
    rows = [line.split() for line in lines if line.startswith("wc  ")]
    assert rows == [["wc", "empty", "0", "0", "2"], ["wc", "single", "1", "10", "2"]]
    assert lines[-1] == "wrong does not conform: 2 equal, 2 different"
    folder = tmp_path / "kept" / "wc"
    assert {path.name for path in folder.iterdir()} == {"single"}
    names = {"workload", "oracle", "threads-1", "threads-3", "first-1", "cells.json"}
    assert {path.name for path in (folder / "single").iterdir()} == names


@pytest.mark.slow
def test_the_json_report_lists_rows_and_causes(engines, capsys):
    plant(engines, "wrong", wrapped("rows = [row | {'n': -row['n']} for row in rows]"))
    assert main(["conformance", "--engine", "wrong", "--workloads", "single,late", "--threads", "1", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "differs"
    assert [(case["application"], case["workload"]) for case in report["left_out"]] == [("wc", "late")]
    [cell] = report["cells"]
    assert (cell["rows"][0]["expected"]["n"], cell["rows"][0]["actual"]["n"]) == (1, -1)
    assert cell["smallest_prefix"]["events"] == 1
    assert cell["smallest_prefix"]["last_event"] == cell["event"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--engine unlike", "unknown engine 'unlike'; known: "),
        ("--engine right --applications sd", "engine right: unknown application 'sd'; known: wc"),
        ("--engine right --workloads tie", "unknown workload 'tie' (did you mean 'ties'?)"),
        ("--engine right --threads 1,x", "--threads must be numbers from 1 to 1024, separated by commas, got '1,x'"),
        ("--engine missing", "engine missing is not installed on this machine"),
        ("--engine right --keep {full}", "is not empty; choose a new folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(engines, options, message):
    plant(engines, "right", WC.format(fault=""))
    plant(engines, "missing", WC.format(fault=""))
    (engines / "missing" / ".environment" / "installed.json").unlink()
    with pytest.raises(BadInput) as error:
        main(["conformance", *options.format(full=engines).split()])
    assert message in str(error.value)
