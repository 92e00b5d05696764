"""The `lockstep` command: its families of commands, and how it runs a command line.

Each family has a file in `commands/`. A command parses its options, and calls the function that does the work. The
docstring of a command is its help.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from infra.cli.commands import airflow, application, ended_run, engines, home, pages, regression, warehouse
from streaming_core.cli.invocation import invoke

NAME = "lockstep"
app = typer.Typer(
    name=NAME,
    help="Run streaming applications on every executor, and check each result against a single-threaded reference.",
    epilog="Exit codes: 0 success; 1 a run is red, or a cell is slower; 2 bad input; 3 the command itself failed. "
    "LOCKSTEP_TRACEBACK=1 shows where a command failed. Use streaming-core to run one application by hand.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for family in (regression, application, pages, ended_run, home, airflow):  # in the order of `--help`
    app.add_typer(family.app)
app.add_typer(warehouse.app, name="warehouse")
app.add_typer(engines.app, name="engines")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return invoke(app, arguments)
