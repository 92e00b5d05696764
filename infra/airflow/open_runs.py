"""The regressions that the Airflow of this AIRFLOW_HOME executes, as files: AIRFLOW_HOME/open-runs/<run id>.json.

The listener writes a file when a run begins, and removes it when the run ends. So after the processes of Airflow have
ended, the files are those of runs that ended with them. `end` publishes their pages. Airflow itself still takes them
for running, and its scheduler would resume them: `close` fails them through the API, before a scheduler starts.

    python -m infra.airflow.open_runs URL      closes the runs of the API server at this address
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote

from infra.airflow import airflow_home, api_server
from infra.checkout import home
from streaming_core.errors import line_of
from streaming_core.process.ending import say
from streaming_core.regression import status
from streaming_core.regression.home import new_run_id
from streaming_core.regression.stages import DAG_ID, Stage
from streaming_core.storage import left_json, write_json

# They would run after the failure of a run. Airflow clears failed tasks behind one that it marks, so the order counts.
TEARDOWNS = (Stage.STOP_SPARK, Stage.VERDICT)


def add(airflow_run: str, run_after: datetime) -> None:
    """Write the file of a run that begins."""
    write_json(_file(airflow_run, run_after), {"airflow_run": airflow_run})


def remove(airflow_run: str, run_after: datetime) -> None:
    """Remove the file of a run that ends."""
    _file(airflow_run, run_after).unlink(missing_ok=True)


def _file(airflow_run: str, run_after: datetime) -> Path:
    return airflow_home.location() / "open-runs" / f"{new_run_id(airflow_run, run_after.timestamp())}.json"


def files() -> list[Path]:
    """The files of the open runs, the oldest first."""
    return sorted((airflow_home.location() / "open-runs").glob("*.json"))


def end(stopped_by: str | None = None) -> list[str]:
    """Record that the open runs were stopped, or died, and publish their pages. Their processes have ended.

    Args:
        stopped_by: the person that stopped them; None if their process died.

    Returns:
        The runs that have ended now. A run that planned nothing has no pages, and a judged run has ended before.
    """
    from reports.publish import publish  # the listener does without it

    ended = []
    for run_id in (file.stem for file in files()):
        folder = home().run(run_id)
        if (folder / "plan.json").exists() and not (folder / "status.json").exists():
            status.end(home(), run_id, "died" if stopped_by is None else "stopped", by=stopped_by or "")
            ended.append(run_id)
            try:
                publish(home(), run_id)
            except Exception as error:  # the end is recorded, and the caller has more to end
                say("lockstep", f"cannot write the pages of run {run_id}: {line_of(error)}")
    return ended


def close(url: str) -> None:
    """Fail the open runs in Airflow. No scheduler runs.

    Args:
        url: the address of the API server.

    Raises:
        OSError: the server does not answer, or refuses a request.
    """
    if not files():
        return
    api = api_server.log_in(url)
    for file in files():
        run = f"/api/v2/dags/{DAG_ID}/dagRuns/{quote(left_json(file)['airflow_run'])}"
        try:
            states = {task["task_id"]: task["state"] for task in api.pages(f"{run}/taskInstances", "task_instances")}
            for task in TEARDOWNS:
                if states.get(task) not in ("success", "failed", "skipped"):
                    api.call(f"{run}/taskInstances/{task}", "PATCH", {"new_state": "failed"})
            api.call(run, "PATCH", {"state": "failed"})
        except HTTPError as error:
            if error.code != 404:  # a user has deleted the run
                raise
        file.unlink(missing_ok=True)


def main() -> int:
    """End the open runs, and close them once the API server answers."""
    end()
    while files() and not api_server.healthy(sys.argv[1], ["metadatabase"]):
        time.sleep(1)
    close(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
