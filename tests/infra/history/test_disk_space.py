"""Retention frees old data, but no data of a red run or of a run in progress."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.history import disk_space
from infra.history.ledger import acknowledge
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home
from streaming_core.regression.status import end, recorded
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS

OLD, NEW = 100, 10  # days


def write(path: Path, days: int = 0, size: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    for folder in (path, *list(path.parents)[:3]):
        os.utime(folder, (time.time() - days * 86400,) * 2)
    return path


@pytest.fixture
def home(tmp_path) -> Home:
    """Five nights, the last one with red cells; each with an output and a log in Airflow."""
    home = Home(tmp_path / "home")
    past_runs.make(home)
    for run_id in RUN_IDS:
        end(home, run_id, "finished")
        write(home.attempt(run_id, "gs.cell", 1) / "outputs" / "part-00000.parquet")
        write(log_of(tmp_path, run_id), OLD)
    return home


def log_of(folder: Path, run_id: str) -> Path:
    return (
        folder / "airflow" / "dag_id=streaming_regression" / f"run_id=manual__{run_id}" / "task_id=x" / "attempt=1.log"
    )


@pytest.fixture
def rules(tmp_path) -> disk_space.Rules:
    return disk_space.Rules(days=90, cache_bytes=0, airflow_logs=tmp_path / "airflow")


def content(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file() and "lock.json" not in path.name}


def test_old_data_is_removed_and_its_bytes_are_reported_by_kind(home, rules, tmp_path):
    old = {
        "logs": [
            write(home.log("spark-20250101T000000Z-00000000"), OLD, 500),
            write(tmp_path / "airflow" / "dag_processor" / "2025-01-01" / "dags.log", OLD, 700),
            *(log_of(tmp_path, run_id) for run_id in RUN_IDS[:-1]),
        ],
        "spark-scratch": [write(home.root / "spark-scratch" / "blockmgr-1" / "shuffle", 0, 3000)],
        "workloads": [write(home.root / "workloads" / "gs" / "old" / "events.parquet", OLD, 2000)],
        "builds": [write(home.root / "builds" / "abc" / "engine.so", OLD, 4000)],
    }
    write(home.log("spark-cli"), NEW)
    write(tmp_path / "airflow" / "scheduler" / "2026-01-01" / "x.log", NEW)
    before, lines = content(tmp_path), []
    freed = disk_space.free(home, rules, dry_run=True, say=lines.append)
    assert content(tmp_path) == before
    assert any(line.startswith("would free ") for line in lines)
    assert disk_space.free(home, rules, dry_run=False, say=lines.append) == freed
    gone = {path for paths in old.values() for path in paths}
    assert before - content(tmp_path) == gone
    bytes_of = {"workloads": 2000, "builds": 4000, "spark-scratch": 3000, "logs": 5200}
    assert freed == {"runs": 0, "finds": 0, "oracle": 0} | bytes_of
    assert (
        lines[-2]
        == "freed 0.0 MB: runs 0.0, finds 0.0, workloads 0.0, oracle 0.0, builds 0.0, logs 0.0, spark-scratch 0.0"
    )
    assert disk_space.free(home, rules, dry_run=False, say=lines.append) == dict.fromkeys(disk_space.KINDS, 0)


def test_red_run_keeps_everything_until_its_cells_are_acknowledged(home, rules, tmp_path):
    lines: list[str] = []
    disk_space.free(home, rules, dry_run=False, say=lines.append)
    assert log_of(tmp_path, LAST).exists()
    assert (home.attempt(LAST, "gs.cell", 1) / "outputs").exists()
    assert lines[-1] == f"kept everything of run {LAST}: 3 red cells are not acknowledged"
    (cell, *others) = disk_space.red_cells(disk_space.verdicts(home, LAST))
    acknowledge(home, LAST, [cell], "ada", "the disk was full")
    disk_space.free(home, rules, dry_run=False, say=lines.append)
    assert log_of(tmp_path, LAST).exists()
    acknowledge(home, LAST, others, "ada", "the disk was full")
    freed = disk_space.free(home, rules, dry_run=False, say=lines.append)
    assert (freed["logs"], freed["runs"]) == (1000, 1000)
    assert not log_of(tmp_path, LAST).exists()
    assert not (home.attempt(LAST, "gs.cell", 1) / "outputs").exists()
    assert (home.run(LAST) / "plan.json").exists()


def test_run_in_progress_keeps_everything(home, rules, tmp_path):
    (home.run(RUN_IDS[0]) / "status.json").unlink()
    with recorded(home, RUN_IDS[0], "run_core"):
        lines: list[str] = []
        disk_space.free(home, rules, dry_run=True, say=lines.append)
        assert f"kept everything of run {RUN_IDS[0]}: it is in progress" in lines
        assert not any(RUN_IDS[0] in line for line in lines if "MB" in line)


def test_nothing_is_removed_while_a_run_holds_the_home(home, rules, tmp_path):
    lines: list[str] = []

    def stop(line: str) -> None:
        lines.append(line)
        raise InterruptedError

    before = content(tmp_path)
    with hold(of_home(home), "run 7", shared=True), pytest.raises(InterruptedError):
        disk_space.free(home, rules, dry_run=False, say=stop)
    assert lines[0].startswith(f"waiting: {home.root} is in use by run 7 on ")
    assert content(tmp_path) == before


def test_database_keeps_rows_since_the_oldest_red_run(home):
    assert disk_space.cutoff(home, 7) == datetime(2026, 1, 5, 2, tzinfo=UTC)
    acknowledge(home, LAST, None, "ada", "the disk was full")
    age = datetime.now(UTC) - disk_space.cutoff(home, 90)
    assert timedelta(days=90) - timedelta(minutes=1) < age < timedelta(days=90, minutes=1)
