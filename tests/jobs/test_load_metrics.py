"""The reports of cells arrive in the raw tables once, with the types of the tables."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs import load_metrics
from jobs.raw import write_raw
from streaming_core.regression.warehouse import RAW
from tests.jobs.world import ORACLE, RUN_ID, WORKLOAD, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    right, failed, _ = world.plan(("serial", 1), ("owners", 2), ("no_lock", 2))
    world.attempt(right)
    world.attempt(failed, number=1, exit_code=1, error="boom", report=None)
    world.attempt(failed, number=2, exit_code=1, error="boom again", report=None)
    return world


def loaded(world: World, table: str) -> list[dict]:
    path = world.home.raw(table) / f"run_id={RUN_ID}" / "part-0.parquet"
    assert pq.read_schema(path).equals(RAW[table])
    return pq.read_table(path, partitioning=None).to_pylist()


def test_every_planned_cell_has_a_row(world):
    load_metrics.work(world.home, RUN_ID)
    right, failed, absent = loaded(world, "cells")
    assert [r["status"] for r in (right, failed, absent)] == ["ok", "failed", "not_run"]
    assert (right["strategy"], right["scheme"], right["threads"], right["punctuation"]) == ("serial", "serial", 1, 500)
    assert (right["workload_address"], right["oracle_address"]) == (WORKLOAD, ORACLE)
    assert (right["load_before"], right["load_after"], right["host"]) == (0.5, 0.75, "here")
    assert (right["events"], right["seed"], right["params"]) == (60, 1, "{}")
    assert right["started_at"].isoformat() == "2026-01-01T00:00:01+00:00"
    assert right["output_digest"] == world.digests["output_digest"]
    assert (failed["attempt"], failed["error"], failed["code_digest"]) == (2, "boom again", None)
    assert (absent["attempt"], absent["is_bound"], absent["started_at"]) == (0, True, None)


def test_row_has_the_options_of_its_cell(tmp_path):
    world = World(tmp_path)
    world.plan(("tstream", 2), pool="shared_everything", stealing=True, checkpoint="30s")
    load_metrics.work(world.home, RUN_ID)
    (row,) = loaded(world, "cells")
    assert (row["scheme"], row["pool"], row["stealing"]) == ("tstream", "shared_everything", True)
    assert (row["strategy"], row["checkpoint"]) == ("tstream-shared_everything-stealing", "30s")


def test_rows_have_reference_and_disturbances_of_each_cell(tmp_path):
    world = World(tmp_path)
    (cell,) = world.plan(("serial", 1))
    seen = {"steal": 0.01, "others": 0.25, "preempted": 7.0, "mhz_before": 2600.0, "mhz_after": None}

    def beside(report: dict) -> dict:
        first, second = report["samples"]
        report["samples"] = [first, second | {"passes": 40, "loop_seconds": 0.002}]
        return report | {"yardstick": "loop", "host": report["host"] | seen}

    world.attempt(cell, report=beside)
    load_metrics.work(world.home, RUN_ID)
    (row,) = loaded(world, "cells")
    assert {name: row[name] for name in ("yardstick", *seen)} == {"yardstick": "loop"} | seen
    assert [(s["passes"], s["loop_seconds"]) for s in loaded(world, "samples")] == [(1, None), (40, 0.002)]


def test_rows_have_count_and_duration_of_reconfigurations(tmp_path):
    world = World(tmp_path)
    schedule = [{"event": event, "owners": {"count": [0]}} for event in (0, 20, 50, 90)]
    (cell,) = world.plan(("gate", 2), schedule=schedule)
    about = {"operator": "count", "owners": [0], "moved": 512, "cells": 1024}
    gone = [{"replica": number, "at": at, "waited": 0} for number, at in enumerate((9_000, 4_500))]
    gone_through = [
        about | {"event": 0, "posted": 500, "gone_over": gone},
        about | {"event": 20, "posted": 4_000, "gone_over": gone[1:]},
        about | {"event": 50, "posted": 5_000, "gone_over": [], "moved": 0},  # the same replicas again
        about | {"event": 90, "posted": None, "gone_over": []},  # which the stream does not reach
    ]

    def changed(report: dict) -> dict:
        first, second = report["samples"]
        first |= {"reconfigurations": gone_through, "omitted_reconfigurations": 5, "dropped_late": 3}
        report["samples"] = [first, second]
        return report

    world.attempt(cell, report=changed)
    load_metrics.work(world.home, RUN_ID)
    (row,) = loaded(world, "cells")
    assert (json.loads(row["schedule"]), row["strategy"]) == (schedule, "gate-reconfigured4")
    first, second = loaded(world, "samples")
    named = ("dropped_late", "reconfigurations", "slowest_reconfiguration_us")
    assert [first[name] for name in named] == [3, 2 + 5, 8.5]
    assert [second[name] for name in named] == [0, 0, None]


def test_samples_come_from_cells_that_ran(world):
    load_metrics.work(world.home, RUN_ID)
    verified, peak = loaded(world, "samples")
    assert [(s["kind"], s["repetition"]) for s in (verified, peak)] == [("verified", 0), ("peak", 1)]
    assert peak["events_per_s"] == 120.0
    assert (peak["processing_p999_us"], peak["end_to_end_p50_us"]) == (4.0, None)
    assert (peak["useful_s"], peak["sync_s"], peak["remote_s"]) == (0.4, 0.1, 0.0)
    assert (peak["cpu_seconds"], peak["energy_joules"]) == (0.5, 2.5)


def test_second_load_changes_nothing_and_a_rerun_replaces_rows(world):
    load_metrics.work(world.home, RUN_ID)
    before = loaded(world, "cells"), loaded(world, "samples")
    load_metrics.work(world.home, RUN_ID)
    assert (loaded(world, "cells"), loaded(world, "samples")) == before
    world.attempt(world.cells[1]["cell"], number=3)
    load_metrics.work(world.home, RUN_ID)
    assert [row["status"] for row in loaded(world, "cells")] == ["ok", "ok", "not_run"]
    assert len(loaded(world, "samples")) == 4


def test_cell_has_the_verdict_of_its_checks(world):
    load_metrics.work(world.home, RUN_ID)
    wanted = ["not_run", "failed", "not_run"]
    assert [row["verdict"] for row in loaded(world, "cells")] == wanted, "nothing was compared yet"
    compared = {"check": "outputs", "expected_rows": 60, "actual_rows": 60}
    checks = [
        compared | {"cell": cell["cell"], "verdict": verdict, "extra": n}
        for cell, verdict, n in zip(world.cells[:2], ("equal", "different"), (0, 1), strict=True)
    ]
    write_raw(world.home, "verdicts", RUN_ID, checks)
    load_metrics.work(world.home, RUN_ID)
    assert [(row["verdict"], row["reason"]) for row in loaded(world, "cells")] == [
        ("equal", None),
        ("different", "outputs: 1 extra"),
        ("not_run", "it never started"),
    ]


def test_invalid_report_is_a_failed_cell(world):
    folder = world.attempt(world.cells[2]["cell"])
    (folder / "report.json").write_text('{"version": 1}')
    load_metrics.work(world.home, RUN_ID)
    row = loaded(world, "cells")[2]
    assert row["status"] == "failed"
    assert row["error"].startswith("report.json is not a run report: spec")


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (RUN_ID, "plan.json is not valid JSON"),
        ("20260101T000000Z-ffffffff", "run 20260101T000000Z-ffffffff does not exist"),
        ("../../etc", "--run '../../etc' is not a run id"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(world, run, line):
    (world.home.run(RUN_ID) / "plan.json").write_text("{")
    command = [sys.executable, "-m", "jobs.load_metrics", "--run", run, "--home", str(world.home.root)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("load_metrics: ")
    assert done.stderr.count("\n") == 1
    assert line in done.stderr
    assert not world.home.raw("cells").exists()
