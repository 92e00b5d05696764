"""Runs the regression DAG to its end: in a new process, or through the scheduler of a running UI."""

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
from pathlib import Path

from infra.airflow import airflow_home
from infra.checkout import ROOT
from streaming_core.process import POLL_SECONDS, Noted, start
from streaming_core.regression.home import new_run_id
from streaming_core.regression.lock import holder, signature
from streaming_core.regression.stages import DAG_ID, Stage
from streaming_core.storage import Lock

TaskChange = dict  # a line of infra/airflow/run_dag.py


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
    with_scheduler: bool,
    log: Path,
    signals: Noted,
    on_change: Callable[[TaskChange], None],
    on_plan: Callable[[str], None],
    on_poll: Callable[[], None],
) -> AirflowRun:
    """Run the DAG with this conf and report each change of a task, until the run ends or a signal arrives.

    A signal ends the DAG's process, and with it every process that it started. A run that the scheduler executes goes
    on.

    Args:
        conf: values for the DAG's params.
        with_scheduler: Let the running scheduler execute the run, and only follow it here.
        log: file for the output of the DAG's process.
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

    with _dag_process(conf, with_scheduler, log) as (process, descriptor):
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
def _dag_process(conf: dict, with_scheduler: bool, log: Path) -> Iterator[tuple[subprocess.Popen, int]]:
    """Start infra/airflow/run_dag.py; yields the process and the descriptor to read its lines from."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "infra.airflow.run_dag", DAG_ID]
    command += [str(write_end), "--scheduler"] if with_scheduler else [str(write_end)]
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
