"""Runs the regression to its end in this process, with `dag.test`: one task after the other, without a scheduler.

    python -m infra.airflow.run_dag FD      conf as JSON on standard input, lines of JSON to the descriptor FD

Exit code: 0 if the run succeeded, else 1. The first line is {"run": <Airflow run id>, "run_after": <epoch seconds>}.
Then follows a line for each change of a task (changes.py).

`lockstep run` uses it while no Airflow is up. It could start Airflow's processes for the length of the run instead. But
these need 82 seconds of processor time until they are healthy, and 23 seconds on two idle cores. This process needs 33
for a run of one cell, up to its expectations. (Airflow 3.3; processor times on a busy machine with two cores.)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from airflow.sdk import BaseHook, DagRunState
from airflow.sdk.exceptions import AirflowNotFoundException

from infra import fields
from infra.airflow import changes, open_runs
from streaming_core.regression.fleet import SPARK
from streaming_core.regression.home import new_run_id
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import DAG_ID, Stage


def run(conf: dict, descriptor: int) -> bool:
    """Run the tasks in this process, and write the lines. What the tasks start ends with this process.

    Args:
        conf: values for the params of the DAG.
        descriptor: the file to write the lines to.

    Returns:
        Whether the run succeeded.
    """
    os.environ["LOCKSTEP_WATCH"] = str(os.getpid())
    fields.SHOWS_FORM = False
    # The file has the name of the DAG, without the prefix of the project.
    dag: Any = import_module(f"dags.{DAG_ID.removeprefix(PREFIX)}").dag
    started = datetime.now(UTC)

    def begin(airflow_run: str) -> None:
        changes.say({"run": airflow_run, "run_after": started.timestamp()})
        open_runs.add(airflow_run, started)
        with suppress(AirflowNotFoundException):  # the run refuses it
            connection = BaseHook.get_connection(conf.get("spark") or SPARK)
            server = dag.task_dict[Stage.SPARK_SERVER]
            run_id = new_run_id(airflow_run, started.timestamp())
            threading.Thread(target=server.start_early, args=(run_id, connection)).start()

    changes.write_to(descriptor, begin)
    ended = dag.test(run_after=started, run_conf=conf)
    changes.conclude(ended.get_task_instances())
    return ended.state == DagRunState.SUCCESS


def main() -> int:
    """Run the command line; the module's docstring describes it."""
    # A task in this process would treat an interrupt as its own failure, and the next task would start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return 0 if run(json.load(sys.stdin), int(sys.argv[1])) else 1


if __name__ == "__main__":
    sys.exit(main())
