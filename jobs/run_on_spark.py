"""Runs the cells of executor spark, one after the other, on the Spark of a run.

In:  runs/<run id>/plan.json, oracles.json, workloads/<app>/<address>/.
Out: what a lane leaves: runs/<run id>/<cell>/attempt-N/, with spec.json, outputs, state, report.json, and exit.json as
     the last file; claims/<cell>.json; stages/<cell>.json.

A failed cell does not stop the others. If Spark is lost, the attempt is lost with it. The job then fails with a
ConnectionError, and its next call runs the cells that are not over.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.cluster import run_cell
from jobs.run_folder import STOPPED, abandon, next_attempt, read_complaints, read_oracles
from jobs.session import answers, reason
from jobs.spark_check import check
from streaming_core.errors import BadInput, CommandFailed, ExitCode, RunFailed, line_of
from streaming_core.interruption import Interrupted
from streaming_core.process import time_limit
from streaming_core.regression.fleet import SparkQueue
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_host
from streaming_core.regression.plan import PlannedCell
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import forget, record_begin, record_end
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json

Say = Callable[[str], None]
CODES = {BadInput: ExitCode.BAD_INPUT, RunFailed: ExitCode.FAILED, CommandFailed: ExitCode.COMMAND_FAILED}
CHECK_TASKS = 8  # at least; a cell may have more


@dataclass(frozen=True)
class CellRunner:
    """Runs cells on a Spark, and records them.

    Attributes:
        spark: The session.
        home: LOCKSTEP_HOME.
        run_id: The run.
        queue: Its cells on Spark.
        limit: Seconds after which a cell is stopped.
        say: Takes lines for the log.
    """

    spark: SparkSession
    home: Home
    run_id: str
    queue: SparkQueue
    limit: float
    say: Say

    def refusal(self) -> str:
        """The reason why no cell can run on this Spark; empty if cells can."""
        tasks = max(CHECK_TASKS, *(cell["spec"]["threads"] for cell in self.queue.cells.values()))
        try:
            check(self.spark, self.home, self.queue.host, tasks)
        except BadInput as error:
            return str(error)
        return ""

    def run(self, cell: PlannedCell, refusal: str = "") -> None:
        """Run a cell in a new attempt, and record its end. With a `refusal`, the attempt fails for this reason.

        Raises:
            ConnectionError: Spark does not answer any more. The cell is not over.
        """
        name = cell["cell"]
        # A group of lines in the log, as a lane makes.
        self.say(f"::group::{name}")
        try:
            self._run(cell, refusal)
        finally:
            self.say("::endgroup::")

    def _run(self, cell: PlannedCell, refusal: str) -> None:
        name, spec = cell["cell"], RunSpec.parse(cell["spec"])
        # Without an oracle there can be no verdict, so the cell does not run.
        if cell["workload"] not in read_oracles(self.home, self.run_id):
            missing = f"its workload {cell['workload']} has no oracle"
            why = read_complaints(self.home, self.run_id).get(cell["workload"], missing)
            self.queue.finish(name, f"it did not run: {why}")
            return
        record_begin(self.home, self.run_id, Stage.RUN_ON_SPARK, name)
        attempt = _new_attempt(self.home.cell(self.run_id, name))
        write_json(attempt / "spec.json", spec.model_dump(mode="json"))
        self.say(f"running {name}, {attempt.name}, on Spark")
        began = time.time()
        code, error = ExitCode.SUCCESS, None
        try:
            if refusal:
                raise BadInput(refusal)
            shares = not str(self.spark.conf.get("spark.master")).startswith("local")
            host = hold(of_host(), f"cell {name}", shares, self.say, run=self.run_id)
            with host, _time_limit(self.spark, self.limit):
                run_cell(self.spark, spec, self.home.workload(spec.app, cell["workload"]), attempt, self.say)
        except Interrupted as stopped:
            _write_exit(attempt, stopped.exit_code, STOPPED, began)
            self.queue.finish(name, STOPPED)
            raise
        except Exception as failure:
            if not refusal and not answers(self.spark):
                raise self._lost(attempt, failure) from failure
            code = CODES.get(type(failure), ExitCode.COMMAND_FAILED)
            error = line_of(failure) if type(failure) in CODES else f"{type(failure).__name__}: {reason(failure)}"
        _write_exit(attempt, code, error, began)
        record_end(self.home, self.run_id, name, error)
        self.queue.finish(name, error)
        self.say(f"{name} failed: {error}" if error else f"{name} ended; validate_outputs will check its result")

    def _lost(self, attempt: Path, failure: Exception) -> ConnectionError:
        """Give up an attempt, so that the next call makes a new one; returns the exception to raise."""
        abandon(attempt)
        forget(self.home, self.run_id, attempt.parent.name)
        return ConnectionError(f"connection {self.queue.host}: its Spark does not answer: {reason(failure)}")


def work(spark: SparkSession, home: Home, run_id: str, queue: SparkQueue, limit: float, say: Say) -> str:
    """Run the cells of a queue; returns a line on what ran. It takes the arguments of `CellRunner`.

    Raises:
        RunFailed: Cells failed. The message names them, with the reasons.
        ConnectionError: Spark does not answer any more. The next call goes on with the cells that are not over.
    """
    runner = CellRunner(spark, home, run_id, queue, limit, say)
    queue.renew()
    refusal = "" if queue.is_over else runner.refusal()
    while cell := queue.take():
        runner.run(cell, refusal)
    if failures := queue.failures:
        cells = "; ".join(f"{cell}: {error}" for cell, error in failures.items())
        raise RunFailed(f"{len(failures)} cell{'s' * (len(failures) > 1)} failed: {cells}")
    count = len(queue.cells)
    return f"ran {count} cell{'s' * (count != 1)} on the Spark of connection {queue.host}"


def _new_attempt(folder: Path) -> Path:
    """The folder of a new attempt. An attempt that has not ended was lost with its process."""
    attempt = next_attempt(folder)
    if attempt.is_dir():
        abandon(attempt)
        attempt = next_attempt(folder)
    return attempt


@contextmanager
def _time_limit(spark: SparkSession, seconds: float) -> Iterator[None]:
    """Interrupt the queries of a session after so many seconds.

    Raises:
        RunFailed: The block did not end in time.
    """
    with time_limit(seconds, spark.interruptAll) as is_late:
        try:
            yield
        except Exception as error:
            if is_late.is_set():
                raise RunFailed(f"it did not end within {seconds:.0f} s, so it was stopped") from error
            raise


def _write_exit(attempt: Path, code: int, error: str | None, began: float) -> None:
    """Write exit.json, as the driver of a lane does (infra/hosts/cell.py)."""
    times = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)) for moment in (began, time.time())]
    ends = {"started_at": times[0], "ended_at": times[1], "host": socket.gethostname()}
    write_json(attempt / "exit.json", {"exit_code": int(code), "error": error} | ends)
