"""A host goes away in the middle of a cell, and another host of the run continues the cell from its last checkpoint."""

import asyncio
import datetime
import json
import sys
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from dags.lib import triggers
from dags.lib.operators import Lane
from dags.lib.triggers import CellTrigger
from infra.checkout import ROOT
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts, states
from streaming_core.oracle import oracle
from streaming_core.regression.fleet import claims, losses
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.preflight import Preflight, record
from streaming_core.run.checkpoint import file
from streaming_core.run.report import read_report
from tests.e2e.nodes import Node
from tests.support.waiting import wait_for

RUN_ID = new_run_id("manual__takeover", datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp())
WORKLOAD, CELL = "0123456789abcdef", "a.cell"
PATIENCE = 120
EVENTS, INTERVAL = 40_000, 2000
# Runs the engine, and stops its process once it has two checkpoints.
FREEZE = """
import os, signal, subprocess, sys, time
from pathlib import Path
engine = subprocess.Popen(sys.argv[1:])
checkpoints = Path(sys.argv[sys.argv.index("--out") + 1], ".run", "checkpoints")
while engine.poll() is None and len(list(checkpoints.glob("checkpoint-*"))) < 2:
    time.sleep(0.001)
if engine.poll() is None:
    engine.send_signal(signal.SIGSTOP)
    signal.pause()
sys.exit(engine.returncode)
"""


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """The hosts `doomed`, whose engine does not come to its end, and `spare`."""
    environment = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    running = {name: Node(tmp_path / name, environment) for name in ("doomed", "spare")}
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(triggers, "FETCH_SECONDS", 0.2)
    yield running
    for node in running.values():
        node.kill()


def connect(nodes: dict[str, Node], monkeypatch, **extra: str) -> None:
    """Add the connections of the hosts."""
    freeze = nodes["doomed"].folder / "freeze.py"
    freeze.write_text(FREEZE)
    for name, node in nodes.items():
        connection = node.connection([sys.executable, str(freeze)] if name == "doomed" else [], **extra)
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


def plan(home: Home, spec: dict[str, object]) -> Path:
    """A run of one cell on both hosts; returns the folder of the oracle's result."""
    app = registry.load(str(spec["app"]))
    source = home.workload(app.name, WORKLOAD)
    workload.write(app, {}, EVENTS, 7, source)
    expected = home.root / "expected"
    expected.mkdir()
    oracle.compute(workload.read(source, app), expected)
    home.run(RUN_ID).mkdir(parents=True)
    cells = [{"cell": CELL, "spec": spec, "workload": WORKLOAD}]
    content = {"cells": cells, "workloads": [], "regression": {"hosts": ["doomed", "spare"]}}
    (home.run(RUN_ID) / "plan.json").write_text(json.dumps(content))
    (home.run(RUN_ID) / "oracles.json").write_text(json.dumps({WORKLOAD: "0123456789abcdef"}))
    record(home, RUN_ID, [Preflight("doomed"), Preflight("spare")])
    return expected


def lane(host: str) -> Lane:
    return Lane(task_id="run_core", run=RUN_ID, host=host, limit=600.0)


def deferred(call) -> CellTrigger:
    """The trigger that a lane defers to, as the triggerer makes it."""
    with pytest.raises(TaskDeferred) as raised:
        call()
    return CellTrigger(**raised.value.trigger.serialize()[1])


async def event_of(trigger: CellTrigger) -> dict:
    """The event of a trigger."""
    async for event in trigger.run():
        return event.payload
    raise AssertionError("a trigger has an event")


async def kill_once_saved(trigger: CellTrigger, checkpoints: Path, node: Node) -> dict:
    """The event of a trigger whose host is killed when two checkpoints are in this folder."""
    waiting = asyncio.create_task(event_of(trigger))
    await asyncio.to_thread(wait_for, lambda: len(file.paths(checkpoints)) >= 2, PATIENCE)
    await asyncio.to_thread(node.kill)
    return await asyncio.wait_for(waiting, PATIENCE)


@pytest.mark.parametrize("shares_home", [False, True])
@pytest.mark.parametrize(
    "way",
    [
        {"app": "wc", "executor": "pooled", "threads": 2},
        {"app": "wordcount", "executor": "pinned", "threads": 2},
        {"app": "sl", "executor": "transactional", "threads": 2, "punctuation": 100},
    ],
    ids=["dataflow", "windowed", "transactions"],
)
@pytest.mark.slow
def test_other_host_continues_from_the_last_checkpoint(nodes, tmp_path, monkeypatch, way, shares_home):
    home = Home(tmp_path / "home")
    connect(nodes, monkeypatch, **({"lockstep_home": str(home.root)} if shares_home else {}))
    spec = {**way, "params": {}, "sink": "parquet", "repetitions": 0, "seconds": 0, "checkpoint": str(INTERVAL)}
    expected = plan(home, spec)

    trigger = deferred(lambda: lane("doomed").execute({}))
    first, second = (home.attempt(RUN_ID, CELL, number) for number in (1, 2))
    assert (trigger.folder is None) == shares_home
    event = asyncio.run(kill_once_saved(trigger, first / ".run" / "checkpoints", nodes["doomed"]))
    with pytest.raises(AirflowFailException, match=r"^host doomed was lost during a.cell: "):
        lane("doomed").resume({}, event)
    assert losses(home, RUN_ID).keys() == {"doomed"}
    reached = max(int(path.name.rpartition("-")[2]) for path in file.paths(first / ".run" / "checkpoints"))

    spare = lane("spare")
    event = asyncio.run(event_of(deferred(lambda: spare.execute({}))))
    spare.resume({}, event)
    assert claims(home, RUN_ID)[CELL][:4] == ("spare", 0, True, None)
    report = read_report(second)
    assert report.resumed == [reached]
    assert reached >= 2 * INTERVAL, "two intervals are not made again"
    outputs, known = Parts.of(second / "outputs").read(), states(second)
    assert outputs.equals(Parts.of(expected / "outputs").read().cast(outputs.schema))
    assert {name: table.read() for name, table in known.items()} == {
        name: table.read() for name, table in states(expected).items()
    }
    assert not list(home.cell(RUN_ID, CELL).glob("*/.run"))
