"""A lane runs cells on its host, continues after a failed one, and leaves cells that it cannot run to other lanes."""

import asyncio
import datetime
import itertools
import json
import os
import signal
import sys
import threading
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from dags.lib.operators import Lane, release_failed
from dags.lib.triggers import UNREACHABLE, CellTrigger, OthersTrigger, pauses
from infra.hosts.shipment import Delivery
from jobs.run_folder import abandon, inherit
from streaming_core.regression import fleet
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.preflight import Preflight, record
from streaming_core.regression.status import records, status_of
from tests.support.event_loop import calls_below
from tests.support.waiting import alive, wait_for

ORIGIN, WHEN = "manual__lane", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
RUN_ID = new_run_id(ORIGIN, WHEN.timestamp())
WORKLOAD = "0123456789abcdef"
# What the engine does in a cell of that name.
ENGINE = """
import os, signal, sys
from pathlib import Path
attempt = Path(sys.argv[sys.argv.index("run") + 1]).parent
cell = attempt.parent.name
if cell.startswith("gone"):
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
if cell.startswith("long"):
    (attempt / "begins").write_text(str(os.getpid()))
    (attempt / "begins").rename(attempt / "begun")
    signal.pause()
if cell.startswith("saves"):
    checkpoints = attempt / ".run" / "checkpoints"
    if not checkpoints.exists():
        checkpoints.mkdir(parents=True)
        (attempt / ".run" / "outputs").mkdir()
        (attempt / ".run" / "outputs" / "part-00000.parquet").write_text("rows")
        (checkpoints / ".unfinished").touch()
        (checkpoints / "checkpoint-7").write_text("seven")
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    known = {path.relative_to(attempt).as_posix(): path.read_text() for path in attempt.glob(".run/*/*")}
    (attempt / "known").write_text(str(sorted(known.items())))
if cell.startswith("bad"):
    print("operator read_row, event 7: out of cheese", file=sys.stderr)
    sys.exit(1)
"""


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    """LOCKSTEP_HOME with connections `here` and `there`: this machine, and another one."""
    engine = tmp_path / "engine.py"
    engine.write_text(ENGINE)
    extra = {"wrapper": [sys.executable, str(engine)], "patience": 7, "lockstep_home": str(tmp_path / "lockstep")}
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "lockstep"))
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps({"conn_type": "generic", "extra": extra}))
    # Nothing is shipped to the other machine, and nothing runs there: no server has this port.
    there = {"conn_type": "ssh", "host": "127.0.0.1", "port": 1, "login": "tester", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps(there))
    delivery = Delivery(PurePosixPath("/there"), 0.0, {"environment": None})
    monkeypatch.setattr("infra.airflow.hosts.SshHost.delivery", delivery)
    return Home(tmp_path / "lockstep")


def plan(home: Home, *cells: str, without_oracle: str = "") -> None:
    """A run on both hosts, with these cells."""
    spec = {"app": "wc", "executor": "pooled"}
    planned = [
        {"cell": cell, "spec": spec, "workload": "missing" if cell == without_oracle else WORKLOAD} for cell in cells
    ]
    folder = home.run(RUN_ID)
    folder.mkdir(parents=True)
    content = {"cells": planned, "workloads": [], "regression": {"hosts": ["unfit", "here", "there"]}}
    (folder / "plan.json").write_text(json.dumps(content))
    (folder / "oracles.json").write_text(json.dumps({WORKLOAD: "0123456789abcdef"}))
    record(home, RUN_ID, [Preflight("unfit", "it is off"), Preflight("here"), Preflight("there")])


def lane(host: str) -> Lane:
    return Lane(task_id="run_core", run=RUN_ID, host=host, limit=60.0)


def deferred(call) -> CellTrigger | OthersTrigger:
    """The trigger that a lane defers to, as the triggerer makes it."""
    with pytest.raises(TaskDeferred) as raised:
        call()
    assert raised.value.method_name == "resume"
    classpath, arguments = raised.value.trigger.serialize()
    assert json.loads(json.dumps(arguments)) == arguments
    return {trigger.__name__: trigger for trigger in (CellTrigger, OthersTrigger)}[classpath.rpartition(".")[2]](
        **arguments
    )


def outcomes(home: Home) -> dict[str, tuple[str, str | None]]:
    return {cell: (claim.host, claim.error) for cell, claim in fleet.claims(home, RUN_ID).items() if claim.is_over}


def test_lane_continues_after_a_failed_cell_and_names_it_at_its_end(home):
    plan(home, "bad.cell", "good.cell", "odd.cell", without_oracle="odd.cell")
    with pytest.raises(AirflowFailException) as failed:
        lane("here").execute({})
    reason = "operator read_row, event 7: out of cheese"
    missing = "it did not run: its workload missing has no oracle"
    assert str(failed.value) == f"2 cells failed: bad.cell: {reason}; odd.cell: {missing}"
    assert outcomes(home) == {"bad.cell": ("here", reason), "good.cell": ("here", None), "odd.cell": ("here", missing)}
    assert {cell: record["error"] for cell, record in records(home, RUN_ID).items()}["bad.cell"] == reason
    assert status_of(home, RUN_ID).cells == 2


def test_cell_with_a_lost_process_runs_three_times(home):
    plan(home, "gone.cell", "good.cell")
    with pytest.raises(AirflowFailException, match=r"^1 cell failed: gone.cell: 3 attempts ended without a result$"):
        lane("here").execute({})
    assert len(list(home.cell(RUN_ID, "gone.cell").glob("*.lost"))) == 3
    assert outcomes(home)["good.cell"] == ("here", None)


KNOWN = [(".run/checkpoints/checkpoint-7", "seven"), (".run/outputs/part-00000.parquet", "rows")]


def test_new_attempt_goes_on_from_the_checkpoint_of_a_lost_one(home):
    plan(home, "saves.cell")
    lane("here").execute({})
    assert outcomes(home) == {"saves.cell": ("here", None)}
    assert (home.attempt(RUN_ID, "saves.cell", 2) / "known").read_text() == str(KNOWN)
    assert not list(home.cell(RUN_ID, "saves.cell").glob("*/.run")), "nothing remains of a cell that is over"


@pytest.mark.parametrize("outputs", [".run/outputs", "outputs"])
def test_only_a_lost_attempt_leaves_its_checkpoint_to_the_next(home, outputs):
    first, second, third = (home.attempt(RUN_ID, "cell", number) for number in (1, 2, 3))
    for attempt, name in ((first, "checkpoint-7"), (second, "checkpoint-9")):
        for file in (attempt / ".run" / "checkpoints" / name, attempt / outputs / "part-00000.parquet"):
            file.parent.mkdir(parents=True)
            file.write_text(name)
    assert inherit(third) is None
    abandon(first)
    assert inherit(third) == inherit(third) == first, "a second call changes nothing"
    files = {path.name: path.read_text() for path in third.glob(".run/*/*")}
    assert files == {"checkpoint-7": "checkpoint-7", "part-00000.parquet": "checkpoint-7"}
    assert inherit(second) == first


def test_lane_that_was_killed_continues_its_cell(home):
    """The driver ends with the process of the lane, as if a person had stopped the cell."""
    plan(home, "saves.cell")
    assert Queue(home, RUN_ID, "here").take()
    attempt = home.attempt(RUN_ID, "saves.cell", 1)
    (attempt / ".run" / "checkpoints").mkdir(parents=True)
    (attempt / ".run" / "checkpoints" / "checkpoint-3").write_text("three")
    (attempt / "exit.json").write_text('{"exit_code": 137, "error": "stopped"}')
    lane("here").execute({})
    known = (home.attempt(RUN_ID, "saves.cell", 2) / "known").read_text()
    assert known == str([(".run/checkpoints/checkpoint-3", "three")])


def test_remote_lane_defers_for_each_cell_and_resumes_with_its_event(home):
    plan(home, "one.cell", "two.cell")
    there = lane("there")
    first = deferred(lambda: there.execute({}))
    assert isinstance(first, CellTrigger)
    assert (first.cell, first.attempt, first.patience) == ("one.cell", "attempt-1", 7)
    attempt = home.attempt(RUN_ID, "one.cell", 1)
    assert first.command[2:4] == ["run", str(attempt)]
    assert (attempt / "spec.json").exists()

    again = deferred(lambda: lane("there").execute({}))
    assert (again.cell, again.attempt) == ("one.cell", "attempt-1"), "a lane that runs again waits for its own cell"

    second = deferred(lambda: there.resume({}, {"cell": "one.cell", "attempt": "attempt-1", "code": 0, "line": ""}))
    assert second.cell == "two.cell"
    with pytest.raises(AirflowFailException, match=r"^1 cell failed: two.cell: no cheese$"):
        there.resume({}, {"cell": "two.cell", "attempt": "attempt-1", "code": 1, "line": "no cheese"})


@pytest.mark.parametrize("code", [75, 128 + signal.SIGKILL])
def test_lost_remote_process_starts_a_new_attempt(home, code):
    plan(home, "one.cell")
    deferred(lambda: lane("there").execute({}))
    event = {"cell": "one.cell", "attempt": "attempt-1", "code": code, "line": ""}
    assert deferred(lambda: lane("there").resume({}, event)).attempt == "attempt-2"


def test_lost_host_passes_its_cell_to_another_lane(home):
    plan(home, "one.cell")
    deferred(lambda: lane("there").execute({}))
    waiting = deferred(lambda: lane("here").execute({}))
    assert isinstance(waiting, OthersTrigger)
    event = {"cell": "one.cell", "attempt": "attempt-1", "lost": "no route to it"}
    with pytest.raises(AirflowFailException, match=r"^host there was lost during one.cell: no route to it$"):
        lane("there").resume({}, event)
    assert fleet.losses(home, RUN_ID) == {"there": "no route to it"}
    assert asyncio.run(anext(waiting.run())).payload == {}
    lane("here").resume({}, {})
    assert outcomes(home) == {"one.cell": ("here", None)}
    assert home.attempt(RUN_ID, "one.cell", 2).is_dir()


def test_file_that_answers_late_does_not_block_the_triggers(home):
    """The claim of the other lane is a pipe: reading it takes until the event loop has done something else."""
    plan(home, "one.cell")
    assert Queue(home, RUN_ID, "there").take()
    claim = home.run(RUN_ID) / "claims" / "one.cell.json"
    claim.unlink()
    os.mkfifo(claim)
    begun, turned, answers = threading.Event(), threading.Event(), []

    def answer() -> None:
        with claim.open("w") as pipe:  # opens once the trigger reads
            begun.set()
            answers.append(turned.wait(20))
            pipe.write(json.dumps(fleet.Claim("there", is_over=True)._asdict()))

    async def wait() -> dict:
        waiting = asyncio.create_task(anext(OthersTrigger(lane=lane("here")._key()).run()))
        while not begun.is_set():
            await asyncio.sleep(0)
        turned.set()
        return (await waiting).payload

    disk = threading.Thread(target=answer)
    disk.start()
    assert asyncio.run(wait()) == {}
    disk.join()
    assert answers == [True]


def test_triggers_touch_no_file_on_the_event_loop(home):
    plan(home, "one.cell")
    remote = deferred(lambda: lane("there").execute({}))
    remote.patience = 0.0
    waiting = deferred(lambda: lane("here").execute({}))

    async def follow() -> None:
        assert "lost" in (await anext(remote.run())).payload
        with pytest.raises(UNREACHABLE):
            await remote.on_kill()
        assert (await anext(waiting.run())).payload == {}

    with calls_below(home.root) as calls:
        asyncio.run(follow())
        assert calls == []

        async def look() -> None:
            assert not Queue(home, RUN_ID, "here").waits

        asyncio.run(look())
        assert calls, "files are watched"


def test_pauses_grow_to_the_longest_and_never_vary():
    steps = [*itertools.islice(pauses(2.0, 15.0), 6)]
    assert steps == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    waited = 0.0
    for pause in itertools.islice(pauses(1.1, 15.0), 60):
        assert pause <= 1 + waited / 10 + 1e-9, "a lane is late by a tenth of its wait at most"
        waited += pause


@pytest.mark.parametrize(("index", "host"), [(0, "here"), (1, "there")])
def test_killed_lane_returns_its_cell(home, index, host):
    plan(home, "one.cell")
    assert Queue(home, RUN_ID, "there").take()
    dag_run = SimpleNamespace(run_id=ORIGIN, run_after=WHEN)
    release_failed({"dag_run": dag_run, "ti": SimpleNamespace(map_index=index)})
    assert ("one.cell" in fleet.claims(home, RUN_ID)) == (host != "there")


def test_lane_stopped_by_a_person_marks_its_cell_stopped(home):
    plan(home, "long.cell", "next.cell")
    here, begun = lane("here"), home.attempt(RUN_ID, "long.cell", 1) / "begun"

    def stop() -> None:
        wait_for(begun.exists, 60)
        here.on_kill()

    person = threading.Thread(target=stop)
    person.start()
    with pytest.raises(AirflowFailException, match=r"long.cell: "):
        here.execute({})
    person.join()
    assert not alive(int(begun.read_text()))
    assert outcomes(home) == {"long.cell": ("here", "stopped")}
    assert Queue(home, RUN_ID, "there").take()["cell"] == "next.cell"
