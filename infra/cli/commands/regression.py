"""The command `run`: a whole regression."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infra.checkout import home
from infra.cli.request import OPTIONS, conf
from streaming_core.cli.options import Json, takes

app = typer.Typer()


@app.command()
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
        from infra.cli.dry_run import dry_run as drafted

        drafted(home(), request, as_json)
        return 0
    from infra.cli.run import run as regression

    return regression(request, as_json)
