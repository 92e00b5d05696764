"""The commands about LOCKSTEP_HOME: its size, its backups, its file system, its version, its history."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.checkout import home
from streaming_core.cli.options import Json
from streaming_core.errors import BadInput

app = typer.Typer()
CACHE_GB = 20.0


@app.command()
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what the command would remove, and remove nothing.")
    ] = False,
    cache_gb: Annotated[
        float,
        typer.Option(
            metavar="GB", help="Largest total size of workloads, oracles and builds, in gigabytes (1e9 bytes)."
        ),
    ] = CACHE_GB,
) -> int:
    """Remove old outputs and caches, which a run can make again.

    Figures, verdicts and pages of all runs stay. Outputs stay for the last
    seven green runs, and for a red run until you acknowledge its red cells.

    Examples:
        lockstep prune --dry-run
        lockstep prune --cache-gb 5
    """
    if not 0 <= cache_gb < 1e9:
        raise BadInput(f"--cache-gb must be between 0 and 1e9, got {cache_gb:g}")
    from infra.cli.prune import prune as removed

    return removed(home(), int(cache_gb * 1e9), dry_run)


@app.command()
def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write, such as NAME.tar.gz. It must be new.")
    ],
    as_json: Json = False,
) -> None:
    """Back up the history and the decisions of LOCKSTEP_HOME into one file.

    The file holds raw results, acknowledgements, the plans and reports of
    runs, expectation results, benchmarks and imports. It leaves out what a
    command can make again: workloads, oracles, builds, compiled kernels,
    marts, pages, and the outputs of runs. The command waits while a run is
    in progress.

    Examples:
        lockstep backup history.tar.gz
    """
    from infra.cli.backup import backup

    backup(home(), file, as_json)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `lockstep backup` wrote.")],
    as_json: Json = False,
) -> None:
    """Restore a backup into LOCKSTEP_HOME, which must be missing or empty.

    The command checks the whole file first. It restores everything or
    nothing. It makes no marts and no pages, but prints the commands that
    do.

    Examples:
        lockstep restore history.tar.gz
        LOCKSTEP_HOME=restored lockstep restore history.tar.gz
    """
    from infra.cli.backup import restore

    restore(home(), file, as_json)


@app.command()
def doctor(as_json: Json = False) -> int:
    """Check that the file system of LOCKSTEP_HOME does what Lockstep needs.

    The command tries renames, locks, fsync, names and clocks in a temporary
    folder there. It also checks whether this checkout can read the raw
    results. Run it on each host that shares the folder. It exits with 1 if
    it finds a fault. `make doctor` checks the machine instead.

    Examples:
        lockstep doctor
        LOCKSTEP_HOME=/mnt/lockstep lockstep doctor
    """
    from infra.cli.doctor import doctor

    return doctor(home(), as_json)


@app.command()
def hosts(
    names: Annotated[list[str], typer.Argument(metavar="CONNECTION...", help="Airflow connections of the hosts.")],
    as_json: Json = False,
) -> int:
    """Check that hosts can run cells, before a night needs them.

    The command does what a run does first: it brings the build to each host
    that lacks it. It compares packages, clock and LOCKSTEP_HOME with those
    here, and prints what it saw. It exits with 2 if a host cannot run cells.

    Examples:
        lockstep hosts local
        lockstep hosts numa01 numa02 --json
    """
    from infra.cli.hosts import hosts

    return hosts(names, as_json)


@app.command()
def sql(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One statement in DuckDB's SQL. Default: list the tables.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Query the history of all runs with SQL, or list its tables.

    A query names the tables as dbt does: marts such as throughput, and
    raw tables such as raw_cells. It can only read them. It reads and
    writes no other file, and loads no extension.

    Examples:
        lockstep sql
        lockstep sql "SELECT verdict, count(*) FROM cells GROUP BY ALL"
    """
    from infra.cli.sql import sql as queried

    queried(home(), query, as_json)


@app.command()
def version(as_json: Json = False) -> int:
    """Print the versions of Lockstep, Python and the packages.

    Add the output to a report of a problem.

    Examples:
        lockstep version
        lockstep version --json
    """
    from infra.cli.version import version

    return version(as_json)
