"""Workloads are generated in Spark tasks, appear whole, and are reused."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from jobs import prepare_workloads, run_oracle
from jobs.run_folder import read_complaints, read_oracles, read_plan
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import provenance_of
from tests.jobs.world import RUN_ID, write_json

REQUESTED = [("sl", 300), ("wc", 100)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    entries = [
        {"app": app, "params": {}, "events": events, "seed": 7, "address": workload.address(app, {}, events, 7)}
        for app, events in REQUESTED
    ]
    write_json(home.run(RUN_ID) / "plan.json", {"workloads": entries, "cells": []})
    return home


def run(home: Home, spark: SparkSession) -> str:
    return prepare_workloads.work(spark, home, RUN_ID)


def failure(work: Callable[[SparkSession, Home, str], str], home: Home, spark: SparkSession) -> str:
    """The line of a job that fails."""
    with pytest.raises(RunFailed) as failed:
        work(spark, home, RUN_ID)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_two_runs_at_once_generate_a_workload_once(home, spark):
    entries = read_plan(home, RUN_ID)["workloads"]
    with ThreadPoolExecutor(2) as runs:
        first, second = runs.map(lambda _: prepare_workloads.prepare(spark, home, entries), range(2))
    assert (first[1], second[1]) == ({}, {})
    assert sorted([*first[0], *second[0]]) == sorted(entry["address"] for entry in entries)


@pytest.mark.slow
def test_workloads_equal_those_of_the_command_line_and_are_reused(home, spark, tmp_path):
    assert run(home, spark) == "generated sl, wc"
    for app, events in REQUESTED:
        folder = home.workload(app, workload.address(app, {}, events, 7))
        alone = workload.write(app, {}, events, 7, tmp_path / "alone" / app)
        assert workload.read_manifest(folder) == alone
        assert pq.read_table(folder / "events").equals(pq.read_table(tmp_path / "alone" / app / "events"))
        assert [p.name for p in folder.parent.iterdir()] == [folder.name]
        os.utime(folder / "manifest.json", (1, 1))
    assert run(home, spark) == "reused sl, wc"
    for app, events in REQUESTED:
        manifest = home.workload(app, workload.address(app, {}, events, 7)) / "manifest.json"
        assert manifest.stat().st_mtime == 1


def test_chunks_are_spark_tasks_with_the_same_events(home, spark, monkeypatch):
    whole = workload.generate_chunk("sl", {}, 300, 7, 0, 300)
    monkeypatch.setattr(workload, "chunks", lambda events: [(s, min(s + 80, events)) for s in range(0, events, 80)])
    run(home, spark)
    folder = home.workload("sl", workload.address("sl", {}, 300, 7))
    assert sorted(p.name for p in (folder / "events").iterdir()) == [f"part-{i:05d}.parquet" for i in range(4)]
    assert pq.read_table(folder / "events").equals(whole)


def test_failed_generator_leaves_no_files_and_the_others_finish(home, spark):
    wrong = {"app": "sl", "params": {"n_items": 1}, "events": 10, "seed": 7, "address": "a"}
    right = wrong | {"app": "wc", "params": {}, "address": "b"}
    write_json(home.run(RUN_ID) / "plan.json", {"workloads": [wrong, right], "cells": []})
    assert "n_items" in failure(prepare_workloads.work, home, spark)
    assert list(home.workload("sl", "a").parent.iterdir()) == []
    assert workload.read_manifest(home.workload("wc", "b"))["events"] == 10


def test_invalid_invariant_stops_its_application_before_any_run(home, spark, monkeypatch):
    entry = next(e for e in read_plan(home, RUN_ID)["workloads"] if e["app"] == "wc")
    workload.write("wc", {}, 100, 7, home.workload("wc", entry["address"]))  # of a run before
    monkeypatch.setitem(registry.load("wc").invariants, "typo", "SELECT sqe FROM outputs")
    assert "wc: invariant 'typo': [UNRESOLVED_COLUMN" in failure(prepare_workloads.work, home, spark)
    assert "sqe" in failure(run_oracle.work, home, spark)
    assert entry["address"] not in read_oracles(home, RUN_ID)
    assert len(read_oracles(home, RUN_ID)) == 1, "the other application is run"
    assert "sqe" in read_complaints(home, RUN_ID)[entry["address"]]
    monkeypatch.undo()
    run(home, spark)
    run_oracle.work(spark, home, RUN_ID)
    assert read_complaints(home, RUN_ID) == {}


def test_run_records_where_its_events_come_from_and_what_was_checked(home, spark):
    run(home, spark)
    first = provenance_of(home, RUN_ID)
    assert {
        provenance.app: (provenance.origin, provenance.events, provenance.seed) for provenance in first.values()
    } == {
        "sl": ("generated", 300, 7),
        "wc": ("generated", 100, 7),
    }
    assert {check.result for provenance in first.values() for check in provenance.checks} == {"passed"}
    entry = next(e for e in read_plan(home, RUN_ID)["workloads"] if e["app"] == "wc")
    folder = home.workload("wc", entry["address"])
    events = workload.generate_chunk("wc", {}, 100, 7, 0, 100)
    shutil.rmtree(folder)
    workload.write("wc", {}, 100, 7, folder, [events])  # which nothing has checked
    run(home, spark)
    second = provenance_of(home, RUN_ID)[entry["address"]]
    assert second.origin == "reused"
    results = {check.what: check.result for check in second.checks}
    assert results["the generator makes the same events twice"] == "not checked"
    assert results["the digest of the manifest is right, and each part has its columns and rows"] == "passed"


def test_damaged_workload_is_detected_before_cells_run(home, spark):
    run(home, spark)
    address = workload.address("wc", {}, 100, 7)
    (home.workload("wc", address) / "events" / "part-00000.parquet").unlink()
    assert "part-00000.parquet is missing" in failure(prepare_workloads.work, home, spark)
    provenance = provenance_of(home, RUN_ID)
    assert [check.result for check in provenance[address].checks] == ["failed", *["not checked"] * 3]
    assert {
        check.result for provenance in provenance.values() if provenance.app == "sl" for check in provenance.checks
    } == {"passed"}
