"""The tasks that measure cells of a run in two builds: of the DAG `speed_gate`, and of each run.

The task `speed_gate` of a run comes after `stop_spark`, and not before `dbt_build`. Until then, the run's Spark server
holds the lock on LOCKSTEP_HOME. The gate may measure for half an hour, and imports, backups and other commands must not
wait. The price is a second build of the marts, of one month. A run of another DAG would need the same build, and its
result would come after the alert.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from dags.lib.operators import Job, skip_without_plan
from infra.checkout import home
from jobs.run_folder import read_plan
from streaming_core.regression.preflight import preflights_of


class Measurement(Job):
    """Runs a command that measures cells of a run on the hosts that ran them."""

    def environment(self, context: Any) -> dict[str, str]:
        """Beside that of every job, the connections of those hosts, because the command cannot ask Airflow."""
        return super().environment(context) | connections_of(self.run)


class SpeedGate(Measurement):
    """Runs `infra.services.suspects` for a run whose request gives the speed gate time."""

    def __init__(self, *, run: str, **kwargs: Any):
        super().__init__(run=run, arguments=("-m", "infra.services.suspects", "--run", run), **kwargs)

    def execute(self, context: Any) -> None:
        """Measure, unless the gate is off; a slower cell does not fail the task."""
        skip_without_plan(self.run)
        if not read_plan(home(), self.run)["regression"]["gate_minutes"]:
            self.log.info("the speed gate is off: gate_minutes is 0")
            return
        super().execute(context)


def connections_of(run_id: str) -> dict[str, str]:
    """The connections of the other hosts of a run, as variables that Airflow reads them from."""
    variables = {}
    for name in [one.host for one in preflights_of(home(), run_id) if one.is_remote]:
        try:
            variables[f"AIRFLOW_CONN_{name.upper()}"] = BaseHook.get_connection(name).as_json()
        except AirflowNotFoundException:  # the command says what to do
            continue
    return variables
