"""`lockstep run`: run the regression DAG, show its progress, print the table of the run."""

from __future__ import annotations

import signal
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any
from urllib.error import HTTPError

import typer
from rich.console import Console
from rich.live import Live

from infra import checkout
from infra.airflow import airflow_home
from infra.cli.run_options import OPTIONS, conf
from streaming_core.cli.options import Json, takes
from streaming_core.errors import BadInput, ExitCode, RunFailed
from streaming_core.process import Noted
from streaming_core.regression.lock import signature
from streaming_core.regression.stages import DAG_ID
from streaming_core.storage import write_json

if TYPE_CHECKING:
    from infra.airflow.api_server import Api
    from infra.airflow.regression import AirflowRun
    from infra.cli.progress import Progress

START_SECONDS = 120


@takes(OPTIONS)
def run(
    options: dict[str, Any],
    matrix: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Use the values of dags/matrices/NAME.yaml. The other options override them."
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(metavar="CONNECTION", help="Airflow connection of the Spark master. Default: spark_default."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells, the hosts and the estimated time, and run nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a regression: run every cell of a matrix, and check each result.

    A cell is one application, executed in one way. The command prints a
    table with the speed and the verdict of each cell. It exits with 1 if
    the run is red. While `lockstep ui` is up, its scheduler runs the cells.

    Examples:
        lockstep run --matrix smoke
        lockstep run --applications gs,wc --threads 2 --events 5000
        lockstep run --applications sl --executors transactional --schemes all
        lockstep run --matrix nightly --dry-run
    """
    request = conf(options, matrix) | ({"spark": spark} if spark else {})
    if dry_run:
        from infra.cli.dry_run import dry_run as draft

        draft(checkout.home(), request, as_json)
        return 0
    console = Console(stderr=as_json)
    ended = execute(request, console, is_live=not as_json and console.is_terminal)
    if ended is None:
        return ExitCode.FAILED
    from infra.cli.summary import print_run

    is_green = print_run(checkout.home(), ended.run_id, console, as_json)
    return ExitCode.SUCCESS if is_green and ended.succeeded else ExitCode.FAILED


def execute(request: dict[str, Any], console: Console, is_live: bool = False) -> AirflowRun | None:
    """Run the DAG with this conf, and show its progress; None if a signal ended it.

    Raises:
        RunFailed: The run ended before it was planned.
    """
    from infra.airflow import open_runs
    from infra.airflow.regression import AirflowRun, follow, follow_in, wait_for_turn
    from infra.cli.progress import Progress

    signals = Noted(signal.SIGINT, signal.SIGTERM)
    log = airflow_home.location() / "logs" / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.log"

    def say(line: str) -> None:
        console.print(line, highlight=False)

    occupancy = airflow_home.occupancy()
    progress = Progress(console, f"log: {log}", is_live=is_live)
    with _shown(progress):
        ui = wait_for_turn(occupancy, progress.wait_for, signals)
    if signals.number:
        say("stopped before the run began")
        occupancy.leave()
        return None

    def plan(run_id: str) -> None:
        if not ui:
            occupancy.tell(signature("run", run=run_id))  # runs that wait show its progress
        progress.plan(run_id)

    started = time.time()
    try:
        if ui:
            say(f"Airflow is up at {ui}; its scheduler executes the run")
        else:
            open_runs.end()
            airflow_home.prepare(log.with_suffix(".prepare.log"))
        airflow_run = AirflowRun("", "", False)
        if not signals.number:
            with _shown(progress):
                reports = (signals, progress.take, plan, progress.look)
                airflow_run = follow_in(_log_in(ui), request, *reports) if ui else follow(request, log, *reports)
        if signals.number:
            if ui:
                say(f"stopped watching; the run goes on in Airflow: {ui}")
            else:
                open_runs.end(checkout.user())
                say("stopped the run and all its processes")
            return None
    finally:
        occupancy.leave()
    home, run_id = checkout.home(), airflow_run.run_id
    if not run_id or not (home.run(run_id) / "plan.json").exists():
        raise RunFailed(f"the run ended before it was planned; the log says why: {log}")
    write_json(
        home.run(run_id) / "stages.json",
        {
            "seconds": time.time() - started,
            "log": str(log),
            "airflow_run": airflow_run.airflow_id,
            "stages": progress.stages(),
        },
    )
    return airflow_run


def _log_in(url: str) -> Api:
    """The API of the Airflow that is up, or starts.

    Raises:
        BadInput: It does not know the passwords of AIRFLOW_HOME, because it has another auth manager.
        RunFailed: It does not answer.
    """
    from infra.airflow.api_server import log_in, refusal

    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return log_in(url)
        except HTTPError as error:
            raise BadInput(f"cannot log in to Airflow, trigger the DAG {DAG_ID} at {url}: {refusal(error)}") from None
        except OSError as error:
            if time.monotonic() > deadline:
                raise RunFailed(f"Airflow at {url} does not answer: {refusal(error)}") from None
        time.sleep(0.5)


def _shown(progress: Progress) -> AbstractContextManager:
    """Keep the table of progress on the terminal while the block runs."""
    live = Live(progress, console=progress.console, refresh_per_second=4, transient=True)
    return live if progress.is_live else nullcontext()
