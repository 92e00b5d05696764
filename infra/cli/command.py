"""The `lockstep` command: its commands, and how it runs a command line.

Each command has a file, with its options, its help and its work. At its top, such a file imports only what `--help`
needs or what is quick to import. It imports Spark, dbt, pages and other slow parts where it uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

from infra.cli import (
    acknowledge,
    airflow,
    backup,
    check,
    checkpoint,
    conformance,
    debug,
    doctor,
    engines,
    find,
    follow,
    gate,
    hosts,
    importing,
    invariants,
    profile,
    prune,
    publish,
    report,
    review,
    run,
    service,
    sql,
    status,
    ui,
    version,
    warehouse,
)
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
COMMANDS: dict[str, Callable[..., Any]] = {  # in the order of `--help`
    "run": run.run,
    "check": check.check,
    "find": find.find,
    "conformance": conformance.conformance,
    "import": importing.import_,
    "follow": follow.follow,
    "status": status.status,
    "invariants": invariants.invariants,
    "ui": ui.ui,
    "service": service.service,
    "stop": ui.stop,
    "report": report.report,
    "gate": gate.gate,
    "review": review.review,
    "debug": debug.debug,
    "profile": profile.profile,
    "acknowledge": acknowledge.acknowledge,
    "publish": publish.publish,
    "prune": prune.prune,
    "backup": backup.backup,
    "restore": backup.restore,
    "doctor": doctor.doctor,
    "hosts": hosts.hosts,
    "sql": sql.sql,
    "version": version.version,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.command("airflow", context_settings={"ignore_unknown_options": True})(airflow.airflow)
app.add_typer(warehouse.app, name="warehouse")
app.add_typer(engines.app, name="engines")
app.add_typer(checkpoint.app, name="checkpoint")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return invoke(app, arguments)
