"""The verdict on a cell and on a run, from raw rows alone."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from reports.history import Cell, History, Run, human_micros, human_rate
from streaming_core.regression.home import Home
from streaming_core.run.way import RunSpec
from tests.reports import past_runs

SPEC = RunSpec(app="sl", executor="transactional", scheme="tstream", threads=2)
BOUND = RunSpec(app="sl", executor="transactional", scheme="no_lock", threads=2)


def check(verdict: str, rows: int = 10, name: str = "outputs") -> dict:
    zero = dict.fromkeys(("missing", "extra", "different", "out_of_order"), 0)
    return {"check": name, "verdict": verdict, "expected_rows": rows, "actual_rows": rows, "detail": None, **zero}


def cell(*checks: dict, spec: RunSpec = SPEC, digests: tuple[str, ...] = (), **facts) -> Cell:
    samples = [{"digest": digest, "kind": "peak"} for digest in digests]
    return Cell(spec.cell, spec, "w", spec.is_bound, list(checks), [], samples, facts)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (cell(check("equal")), "equal"),
        (cell(), "not_run"),
        (cell(status="failed"), "failed"),
        (cell(check("equal"), status="failed"), "failed"),
        (cell(check("equal"), check("different")), "different"),
        (cell(check("different"), check("failed")), "different"),
        (cell(check("equal"), check("failed")), "failed"),
        (cell(check("equal"), check("not_run")), "not_run"),
        (cell(check("equal", rows=0)), "not_run"),
        (cell(check("equal"), check("equal", rows=0)), "not_run"),
        (cell(check("equal"), digests=("a", "a", "a")), "equal"),
        (cell(check("equal"), digests=("a", "a", "b")), "different"),
        (cell(check("not_comparable"), spec=BOUND), "not_comparable"),
        (cell(check("not_comparable"), spec=BOUND, digests=("a", "b")), "not_comparable"),
        (cell(check("failed"), spec=BOUND), "failed"),
        (cell(spec=BOUND), "not_run"),
    ],
)
def test_the_verdict_on_a_cell(found, verdict):
    assert found.verdict == verdict


def test_a_run_is_green_only_when_every_cell_is_equal_or_a_bound():
    good, bound = cell(check("equal")), cell(check("not_comparable"), spec=BOUND)
    assert Run("20260101T000000Z-00000000", {}, [good, bound]).green
    assert not Run("20260101T000000Z-00000000", {}, [good, bound, cell()]).green
    assert not Run("20260101T000000Z-00000000", {}, [good, cell(check("failed"), spec=BOUND)]).green
    assert not Run("20260101T000000Z-00000000", {}, []).green, "a run of nothing proves nothing"


def test_since_names_the_first_build_that_differs(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home)
    # The night before the last one differs too: the series began there.
    night = past_runs.RUN_IDS[-2]
    rows = History(home).rows("verdicts", night)
    for row in rows:
        if row["cell"].startswith("sl.transactional.tstream.t2") and row["check"] == "outputs":
            row["verdict"] = "different"
    from jobs.raw import write_raw

    write_raw(home, "verdicts", night, rows)
    assert "sl/tstream/t2 differs since build abc323def" in History(home).run(past_runs.LAST).sentence


def test_a_run_is_found_without_its_plan(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    (home.run(past_runs.RUN_IDS[0]) / "plan.json").unlink()
    run = History(home).latest()
    assert run.run_id == past_runs.RUN_IDS[0]
    assert len(run.cells) == 14
    assert run.counts["not_run"] == 1


def test_a_run_that_an_older_version_loaded_is_read(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    (home.run(past_runs.RUN_IDS[0]) / "plan.json").unlink()
    path = home.raw("cells") / f"run_id={past_runs.RUN_IDS[0]}" / "part-0.parquet"
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["stealing", "checkpoint", "channel", "plan"]), path)
    run = History(home).latest()
    assert len(run.cells) == 14
    assert {(cell.spec.stealing, cell.spec.checkpoint) for cell in run.cells} == {(False, 0)}


def test_figures_as_people_write_them():
    assert [human_rate(v) for v in (None, 312.4, 84_123, 1_240_000, 2.5e9)] == [
        "\N{EN DASH}", "312", "84.1 k", "1.24 M", "2.5 G",
    ]  # fmt: skip
    assert [human_micros(v) for v in (None, 40.0, 1234.0, 3.4e6)] == ["\N{EN DASH}", "40 µs", "1.23 ms", "3.4 s"]
