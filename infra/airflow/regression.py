"""Runs the regression DAG to its end: in a new process, or through the API of the Airflow that is up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from infra.airflow import airflow_home
from infra.airflow.api_server import Api, refusal
from infra.checkout import ROOT
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import POLL_SECONDS, Noted, start
from streaming_core.regression.home import new_run_id
from streaming_core.regression.lock import holder, signature
from streaming_core.regression.stages import DAG_ID, Stage
from streaming_core.storage import Lock

TaskChange = dict[str, Any]  # a line of infra/airflow/changes.py
SILENCE_SECONDS = 60  # without an answer of the API server, after which it is gone
DAG_RUNS = f"/api/v2/dags/{DAG_ID}/dagRuns"


@dataclass(frozen=True)
class AirflowRun:
    """A finished run of the DAG: Airflow's id of it, Lockstep's id, and whether it succeeded.

    Both ids are empty when Airflow never started the run.
    """

    airflow_id: str
    run_id: str
    succeeded: bool


def wait_for_turn(occupancy: Lock, wait_for: Callable[[str], None], signals: Noted) -> str | None:
    """Take AIRFLOW_HOME for one run.

    Args:
        occupancy: the lock on AIRFLOW_HOME.
        wait_for: called again and again with the run that has it, and with "" at the end.
        signals: the signals that end the wait.

    Returns:
        The address of the UI that holds AIRFLOW_HOME. None once this process holds it, or after a signal.
    """
    while not signals.number and not occupancy.take(signature("run")):
        by = holder(occupancy)
        if by.get("owner") == "ui":
            return by["url"]
        wait_for(by.get("run") or f"another run (process {by.get('pid', '?')})")
        time.sleep(0.5)
    wait_for("")
    return None


def follow(
    conf: dict,
    log: Path,
    signals: Noted,
    on_change: Callable[[TaskChange], None],
    on_plan: Callable[[str], None],
    on_poll: Callable[[], None],
) -> AirflowRun:
    """Run the DAG in a new process and report each change of a task, until the run ends or a signal arrives.

    A signal ends the process, and with it every process that it started.

    Args:
        conf: values for the DAG's params.
        log: file for the output of the process.
        signals: the signals that end the run.
        on_change: called with each change of a task.
        on_plan: called with the run id once the run is planned.
        on_poll: called again and again while the run goes on.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    airflow_id, run_id = "", ""

    def read(descriptor: int) -> None:
        nonlocal airflow_id, run_id
        with os.fdopen(descriptor) as lines:
            for text in lines:
                line = json.loads(text)
                if "run" in line:
                    airflow_id, run_id = line["run"], new_run_id(line["run"], line["run_after"])
                    continue
                on_change(line)
                if line.get("task") == Stage.PLAN_MATRIX and line["state"] == "success":
                    on_plan(run_id)

    with _dag_process(conf, log) as (process, descriptor):
        reader = threading.Thread(target=read, args=(descriptor,))
        reader.start()
        try:
            while process.poll() is None and not signals.number:
                on_poll()
                time.sleep(POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait()
            reader.join()
    return AirflowRun(airflow_id, run_id, process.returncode == 0)


@contextmanager
def _dag_process(conf: dict, log: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """Start infra/airflow/run_dag.py; yields the process and the descriptor to read its lines from."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "infra.airflow.run_dag", str(write_end)]
    with open(log, "wb") as out:
        process = start(
            command,
            dies_by=None,
            cwd=ROOT,
            env=airflow_home.environment(),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            pass_fds=(write_end,),
        )
    os.close(write_end)
    assert process.stdin is not None
    process.stdin.write(json.dumps(conf).encode())
    process.stdin.close()
    yield process, read_end


def follow_in(
    api: Api,
    conf: dict,
    signals: Noted,
    on_change: Callable[[TaskChange], None],
    on_plan: Callable[[str], None],
    on_poll: Callable[[], None],
) -> AirflowRun:
    """Trigger the DAG in the Airflow that is up, and report as `follow`. After a signal, the run goes on.

    Raises:
        BadInput: Airflow refuses the request.
        RunFailed: The API server has gone.
    """
    try:
        run = api.call(DAG_RUNS, "POST", {"logical_date": None, "conf": conf})
    except OSError as error:
        raise BadInput(f"Airflow refuses the run: {refusal(error)}") from None
    airflow_id, run_id = run["dag_run_id"], new_run_id(run["dag_run_id"], _seconds(run["run_after"]) or 0.0)
    path, written, answered = f"{DAG_RUNS}/{quote(airflow_id)}", dict[tuple[str, int], TaskChange](), time.monotonic()
    while not signals.number:
        try:
            run = api.call(path)
            changes = [change for change in _tasks(api, path) if written.get(_key(change)) != change]
            ahead = _ahead(api) if run["state"] == "queued" else ""
        except OSError as error:
            if time.monotonic() > answered + SILENCE_SECONDS:
                raise RunFailed(f"Airflow at {api.url} is gone, and the run with it: {refusal(error)}") from None
            time.sleep(POLL_SECONDS)
            continue
        answered = time.monotonic()
        on_change({"ahead": ahead})
        for change in changes:
            written[_key(change)] = change
            on_change(change)
            if change["task"] == Stage.PLAN_MATRIX and change["state"] == "success":
                on_plan(run_id)
        on_poll()
        if run["state"] in ("success", "failed"):
            break
        time.sleep(POLL_SECONDS)
    return AirflowRun(airflow_id, run_id, run["state"] == "success")


def _tasks(api: Api, run: str) -> Iterator[TaskChange]:
    """The tasks of a run as they are now."""
    for task in api.pages(f"{run}/taskInstances", "task_instances"):
        yield {
            "task": task["task_id"],
            "map_index": task["map_index"],
            "label": task["rendered_map_index"],
            "state": task["state"],
            "start": _seconds(task["start_date"]),
            "end": _seconds(task["end_date"]),
        }


def _key(change: TaskChange) -> tuple[str, int]:
    return change["task"], change["map_index"]


def _ahead(api: Api) -> str:
    """The oldest run that the scheduler executes now; empty without one."""
    runs = api.call(f"{DAG_RUNS}?state=running&order_by=start_date&limit=1")["dag_runs"]
    return new_run_id(runs[0]["dag_run_id"], _seconds(runs[0]["run_after"]) or 0.0) if runs else ""


def _seconds(moment: str | None) -> float | None:
    """Epoch seconds of a moment in an answer."""
    return datetime.fromisoformat(moment).timestamp() if moment else None
