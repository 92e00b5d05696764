"""Cells on Spark: each one ends once, with the records of a lane, whatever else fails."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from jobs import run_on_spark
from jobs.run_folder import attempts
from streaming_core.errors import BadInput, RunFailed
from streaming_core.interruption import Interrupted
from streaming_core.regression.fleet import SparkQueue, claims
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import records, status_of
from streaming_core.run.way import Spark
from streaming_core.storage import write_json
from tests.jobs.world import RUN_ID

SPEC = Spark(app="wc")


class Session:
    """A Spark that answers, or is lost."""

    def __init__(self):
        self.is_lost = False
        self.ran: list[str] = []
        self.fails: dict[str, BaseException] = {}
        self.conf = {"spark.master": "local[2]"}

    def range(self, count: int) -> Session:
        if self.is_lost:
            raise ConnectionResetError
        return self

    def interruptAll(self) -> None:
        raise AssertionError("no cell is late")

    def count(self) -> int:
        return 1


@pytest.fixture
def session(monkeypatch) -> Session:
    session = Session()

    def run_cell(spark: Session, spec: Spark, workload: Path, out: Path, say: object) -> None:
        name = out.parent.name
        session.ran.append(name)
        (out / "outputs").mkdir()
        if failure := session.fails.get(name):
            raise failure

    monkeypatch.setattr(run_on_spark, "run_cell", run_cell)
    monkeypatch.setattr(run_on_spark, "check", lambda *_: None)
    return session


@pytest.fixture
def home(tmp_path) -> Home:
    home = Home(tmp_path)
    spec = SPEC.model_dump(mode="json")
    cells = [{"cell": name, "spec": spec, "workload": "feed", "host": "cluster"} for name in ("one", "two", "three")]
    cells.append({"cell": "other", "spec": spec | {"executor": "pooled"}, "workload": "feed"})
    write_json(home.run(RUN_ID) / "plan.json", {"cells": cells, "workloads": []})
    write_json(home.run(RUN_ID) / "oracles.json", {"feed": "truth"})
    return home


def work(session: Session, home: Home, round_: int = 0) -> str:
    queue = SparkQueue(home, RUN_ID, "cluster", round_)
    return run_on_spark.work(session, home, RUN_ID, queue, 60.0, lambda line: None)


def test_cells_run_in_sequence_and_leave_the_records_of_a_lane(session, home):
    assert work(session, home) == "ran 3 cells on the Spark of connection cluster"
    assert session.ran == ["one", "two", "three"]
    assert {name: claim.is_over for name, claim in claims(home, RUN_ID).items()} == dict.fromkeys(session.ran, True)
    left = {name: record["stage"] for name, record in records(home, RUN_ID).items()}
    assert left == dict.fromkeys(session.ran, Stage.RUN_ON_SPARK)
    assert status_of(home, RUN_ID).cells == 3
    attempt = home.attempt(RUN_ID, "one", 1)
    assert json.loads((attempt / "spec.json").read_text()) == SPEC.model_dump(mode="json")
    assert json.loads((attempt / "exit.json").read_text())["exit_code"] == 0


def test_failed_cells_stop_no_others_and_are_named_at_the_end(session, home):
    session.fails = {"one": RunFailed("operator split failed at event 7"), "two": KeyError("words")}
    reasons = "one: operator split failed at event 7; two: KeyError: 'words'"
    with pytest.raises(RunFailed, match=f"^2 cells failed: {reasons}$"):
        work(session, home)
    assert session.ran == ["one", "two", "three"]
    assert json.loads((home.attempt(RUN_ID, "one", 1) / "exit.json").read_text())["exit_code"] == 1
    with pytest.raises(RunFailed, match=r"^2 cells failed"):
        work(session, home)
    assert len(session.ran) == 3, "a retry runs no cell that is over"
    session.fails = {}
    assert work(session, home, round_=1) == "ran 3 cells on the Spark of connection cluster"


def test_retry_after_lost_spark_skips_finished_cells(session, home):
    session.fails = {"two": RuntimeError("the channel closed")}
    session.is_lost = True
    with pytest.raises(ConnectionError, match=r"^connection cluster: its Spark does not answer: the channel closed$"):
        work(session, home)
    session.is_lost, session.fails = False, {}
    assert work(session, home) == "ran 3 cells on the Spark of connection cluster"
    assert session.ran == ["one", "two", "two", "three"]
    planned = json.loads((home.run(RUN_ID) / "plan.json").read_text())["cells"][1]
    assert [(attempt.number, attempt.path.name) for attempt in attempts(home, RUN_ID, planned)] == [
        (1, "attempt-1"),
        (2, "attempt-2"),
    ]


def test_attempt_of_a_killed_process_is_not_continued(session, home):
    SparkQueue(home, RUN_ID, "cluster").take()
    (home.attempt(RUN_ID, "one", 1) / "outputs").mkdir(parents=True)
    work(session, home)
    assert (home.attempt(RUN_ID, "one", 2) / "exit.json").exists()


def test_stopped_cell_is_recorded_and_runs_again_in_the_next_round(session, home):
    session.fails = {"two": Interrupted(15)}
    with pytest.raises(Interrupted):
        work(session, home)
    assert json.loads((home.attempt(RUN_ID, "two", 1) / "exit.json").read_text())["error"] == "stopped"
    session.fails = {}
    work(session, home, round_=1)
    assert session.ran == ["one", "two", "two", "three"]


def test_unfit_spark_fails_every_cell_with_its_reason_and_writes_no_result(session, home, monkeypatch):
    def refuse(*_: object) -> None:
        raise BadInput("connection cluster: its Spark is version 3.5.0")

    monkeypatch.setattr(run_on_spark, "check", refuse)
    with pytest.raises(RunFailed, match=r"3 cells failed: one: connection cluster: its Spark is version 3\.5\.0; two"):
        work(session, home)
    assert session.ran == []
    for cell in json.loads((home.run(RUN_ID) / "plan.json").read_text())["cells"][:3]:
        (attempt,) = attempts(home, RUN_ID, cell)
        assert (attempt.status, attempt.error) == ("failed", "connection cluster: its Spark is version 3.5.0")
        assert sorted(path.name for path in attempt.folder.iterdir()) == ["exit.json", "spec.json"]


def test_cell_without_an_oracle_does_not_run(session, home):
    write_json(home.run(RUN_ID) / "oracles.json", {})
    with pytest.raises(RunFailed, match="one: it did not run: its workload feed has no oracle"):
        work(session, home)
    assert session.ran == []


def test_cell_past_its_timeout_is_interrupted(session, home):
    late = threading.Event()
    session.interruptAll = late.set

    def cancelled() -> None:
        with run_on_spark._time_limit(session, 0.0):
            assert late.wait(60)
            raise RuntimeError("cancelled")

    with pytest.raises(RunFailed, match="it did not end within 0 s"):
        cancelled()
