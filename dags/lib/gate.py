"""The task `speed_gate`: compares suspects of a run with an earlier build, after the run released LOCKSTEP_HOME.

It comes after `stop_spark`, and not before `dbt_build`. Until then, the run's Spark server holds the lock on
LOCKSTEP_HOME. The gate may measure for half an hour, and imports, backups and other commands must not wait. The price
is a second build of the marts, of one month. A run of another DAG would need the same build, and its result would come
after the alert.
"""

from __future__ import annotations

from typing import Any

from dags.lib.operators import Job, skip_without_plan
from infra.checkout import home
from jobs.run_folder import read_plan


class SpeedGate(Job):
    """Runs `infra.services.suspects` for a run whose request gives the speed gate time."""

    def __init__(self, *, run: str, **kwargs: Any):
        """Make the task of a run."""
        super().__init__(run=run, arguments=("-m", "infra.services.suspects", "--run", run), **kwargs)

    def execute(self, context: Any) -> None:
        """Measure, unless the gate is off; a slower cell does not fail the task."""
        skip_without_plan(self.run)
        if not read_plan(home(), self.run)["regression"]["gate_minutes"]:
            self.log.info("the speed gate is off: gate_minutes is 0")
            return
        super().execute(context)
