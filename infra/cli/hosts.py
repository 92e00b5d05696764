"""`lockstep hosts`: look at hosts before a run, and print what was seen."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.airflow import airflow_home, connections
from infra.checkout import ROOT
from streaming_core.cli.options import Json
from streaming_core.errors import BadInput, CommandFailed, ExitCode
from streaming_core.regression.preflight import Preflight

if TYPE_CHECKING:
    from reports.views.hosts import HostRow


def hosts(
    names: Annotated[list[str], typer.Argument(metavar="CONNECTION...", help="Airflow connections of the hosts.")],
    install: Annotated[
        bool, typer.Option("--install", help="First bring the Python packages of the engine to each of them.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Check that hosts can run cells, before a night needs them.

    The command does what a run does first: it brings the build to each host
    that lacks it. It compares packages, clock and LOCKSTEP_HOME with those
    here, and prints what it saw. It exits with 2 if a host cannot run cells.

    Examples:
        lockstep hosts local
        lockstep hosts --install numa01
        lockstep hosts numa01 numa02 --json
    """
    from reports.views.hosts import HostRow

    airflow_home.prepare(airflow_home.location() / "logs" / "components" / "prepare.log")
    preflights = [Preflight(**entry) for entry in _look(names, install)]
    if as_json:
        print(json.dumps([asdict(preflight) for preflight in preflights], indent=1))
    else:
        _print(Console(), [HostRow.of(preflight) for preflight in preflights])
    return ExitCode.BAD_INPUT if any(preflight.reason for preflight in preflights) else 0


def _look(names: Sequence[str], install: bool) -> list[dict]:
    environment = airflow_home.environment() | connections.stored(names)
    command = [sys.executable, "-m", "infra.airflow.hosts", *(["--install"] if install else []), *names]
    last = "the program that looks at the hosts printed nothing"
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.PIPE, text=True) as program,
    ):
        assert program.stderr is not None
        for line in program.stderr:
            last = line.strip() or last
            if install:
                print(line, end="", file=sys.stderr, flush=True)
        code = program.wait()
        out.seek(0)
        answer = out.read().strip().splitlines()
    if code:
        raise (BadInput if code == ExitCode.BAD_INPUT else CommandFailed)(last.removeprefix("hosts: "))
    return json.loads(answer[-1])


def _print(console: Console, rows: list[HostRow]) -> None:
    from reports.views.hosts import FACTS

    for row in rows:
        console.print(Text(f"{row.host}: {row.state}", "" if row.is_fit else "red"), soft_wrap=True)
        table = Table.grid(padding=(0, 2))
        for fact, title in FACTS.items():
            if value := getattr(row, fact):
                table.add_row(f"  {title}", value)
        console.print(table)
        for remedy in row.remedies:
            console.print(Text(f"  steadier: {remedy}"), soft_wrap=True)
