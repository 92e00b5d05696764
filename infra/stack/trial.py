"""Trials of a running stack: one regression undisturbed, one that loses a Spark worker, one that loses its scheduler.

The cells run on the SSH host. Every run must end green: all cells equal the oracle.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from infra.stack.programs import HOST, SPARK_WORKERS, WORKERS
from infra.stack.topology import Stack, spark_workers
from reports.history import History
from streaming_core.errors import RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.stages import DAG_ID, Stage

RUNS = f"/api/v2/dags/{DAG_ID}/dagRuns"
SMALL = {"threads": [1, 2], "events": 5000, "repetitions": 1}
SMALL |= {"applications": ["wc", "gs"], "executors": ["pooled", "transactional"], "schemes": ["tstream"]}
# Enough that a stage of Spark goes on for seconds.
LARGE = {"applications": ["wc"], "executors": ["pooled"], "threads": [1], "events": 1_000_000, "batches": [1024]}
LARGE |= {"repetitions": 1}
LIMIT_SECONDS = 1200
POLL_SECONDS = 0.1
SAFE_TO_KILL = SPARK_WORKERS[0]
TASK_RUNS = "execute_workload"  # in the log of a Celery worker
TASK_LOST = "failed because while it was being computed, its executor exited"  # in the log of a Spark driver


class Trial:
    """Runs on a stack, and the faults that happen to them."""

    def __init__(self, stack: Stack):
        """Log in to Airflow.

        Raises:
            BadInput: the stack is not up.
        """
        self._stack = stack
        self._api = stack.api()
        self._history = History(Home(stack.folder.lockstep))

    def steps(self) -> dict[str, Callable[[], str]]:
        """The trials, by name. Each returns a sentence on what happened, or raises RunFailed."""
        return {
            "a regression, with its cells on the SSH host": self.regression,
            "both Celery workers ran tasks of it": self.both_workers,
            "a regression that loses a Spark worker in the middle of a stage": self.without_spark_worker,
            "a regression that loses its scheduler while cells run": self.without_scheduler,
        }

    def regression(self) -> str:
        """An undisturbed run."""
        return self._green(self._trigger(SMALL))

    def both_workers(self) -> str:
        """No worker runs all tasks alone."""
        idle = [name for name in WORKERS if TASK_RUNS not in self._stack.folder.log(name).read_text(errors="replace")]
        if idle:
            raise RunFailed(f"{' and '.join(idle)} ran no task; see {self._stack.folder.logs}")
        return " and ".join(WORKERS)

    def without_spark_worker(self) -> str:
        """A run that loses a Spark worker, with the executor on it, while that executes a task in Python."""
        run = self._trigger(LARGE)
        self._wait(run, lambda: self._executes_python(SAFE_TO_KILL), f"an executor of {SAFE_TO_KILL} executes Python")
        stage = next((task for task, state in self._tasks(run).items() if state == "running"), "?")
        killed = self._kill(SAFE_TO_KILL)
        sentence = self._green(run)
        log = Home(self._stack.folder.lockstep).log(f"spark-{self._run_id(run)}").read_text(errors="replace")
        if TASK_LOST not in log:
            raise RunFailed("Spark lost no task with the worker that the trial killed")
        ports = self._stack.ports
        self._until(lambda: spark_workers(ports) == len(SPARK_WORKERS), "the Spark worker is back", 60)
        return f"killed process {killed} during {stage}; {sentence}"

    def without_scheduler(self) -> str:
        """A run that loses its scheduler. The supervisor starts another one."""
        run = self._trigger(SMALL)
        self._wait(run, lambda: self._tasks(run).get(Stage.RUN_CORE) == "deferred", "a cell runs")
        killed = self._kill("scheduler")
        self._until(
            lambda: (now := self._stack.process("scheduler")) is not None and now.pid != killed, "it is back", 60
        )
        return f"killed process {killed}; {self._green(run)}"

    def _kill(self, program: str) -> int:
        return self._stack.kill(program)

    def _trigger(self, conf: dict) -> str:
        body = {"conf": {**conf, "hosts": [HOST]}, "logical_date": None}
        return self._api.call(RUNS, "POST", body)["dag_run_id"]

    def _green(self, run: str) -> str:
        """Wait for the end of a run; returns its sentence.

        Raises:
            RunFailed: the run is red.
        """
        state = self._wait(run, lambda: self._ended(run), "it has ended")
        result = self._history.run(self._run_id(run))
        if state != "success" or not result.green or not result.cells:
            failed = [task for task, state in self._tasks(run).items() if state == "failed"]
            raise RunFailed(f"{run} is {state}: {result.sentence}; failed tasks: {', '.join(failed) or 'none'}")
        return result.sentence

    def _ended(self, run: str) -> str:
        state = self._api.call(f"{RUNS}/{run}")["state"]
        return state if state in ("success", "failed") else ""

    def _tasks(self, run: str) -> dict[str, str]:
        """Task -> state; of a mapped task, `running` if one of its instances runs."""
        states: dict[str, str] = {}
        for task in self._api.call(f"{RUNS}/{run}/taskInstances")["task_instances"]:
            if states.get(task["task_id"]) != "running":
                states[task["task_id"]] = task["state"] or ""
        return states

    def _run_id(self, run: str) -> str:
        run_id = next((one for one in reversed(self._history.run_ids()) if self._history.origin(one) == run), None)
        if run_id is None:
            raise RunFailed(f"{run} has no plan: the log of its task plan_matrix says why")
        return run_id

    def _executes_python(self, spark_worker: str) -> bool:
        """Whether a Python worker of an executor on this Spark worker uses a CPU now."""
        worker = self._stack.process(spark_worker)
        if worker is None:
            return False
        for process in worker.children(recursive=True):
            try:
                if "pyspark.daemon" in process.cmdline() and process.cpu_percent(0.2) > 10:
                    return True
            except psutil.Error:
                continue
        return False

    def _wait(self, run: str, condition: Callable[[], object], what: str) -> str:
        """Wait until a condition holds, and return its value. A run that ends earlier is a failure."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (value := condition()):
            ended = self._ended(run)
            if ended and not condition():
                raise RunFailed(f"{run} ended ({ended}) before {what}")
            if time.monotonic() > deadline:
                raise RunFailed(f"{run}: not so after {LIMIT_SECONDS} s: {what}")
            time.sleep(POLL_SECONDS)
        return str(value)

    def _until(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise RunFailed(f"not so after {seconds:.0f} s: {what}")
            time.sleep(POLL_SECONDS)
