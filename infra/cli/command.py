"""Commands and their options; each only parses, calls what does the work and shows what that returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.airflow.home import DEFAULT_PORT
from infra.checkout import home, user
from infra.cli.request import OPTIONS, conf
from streaming_core.cli.invocation import invoke
from streaming_core.cli.options import Json, Settings, parameters, takes
from streaming_core.errors import BadInput

NAME = "lockstep"
CACHE_GB = 20.0

app = typer.Typer(
    name=NAME,
    help="Runs applications in every way, compares each result with the oracle's, shows and keeps what came of it.",
    epilog="Exit codes: 0 done and green, 1 red or failed, 2 bad input, 3 the command itself failed (full disk, no "
    "memory); LOCKSTEP_TRACEBACK=1 then shows where. Applications are run one by one with streaming-core.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Reason = Annotated[str, typer.Option("--reason", metavar="WHY", help="Why; it is kept, with your name.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="A run, as `lockstep report` names it.")]


@app.command()
@takes(OPTIONS)
def run(
    given: dict[str, Any],
    matrix: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take the fields of dags/matrices/NAME.yaml; other options win.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Airflow connection of where cells run. Default: local.")] = None,
    spark: Annotated[
        str | None, typer.Option(help="Airflow connection of the Spark master. Default: spark_default.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Run applications in every way that is asked for, compare each result with the oracle's, print a table."""
    asked = conf(given, matrix) | {name: value for name, value in (("host", host), ("spark", spark)) if value}
    from infra.cli.run import run as regression

    return regression(asked, as_json)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="APP", help="The application.")],
    events: Annotated[int, typer.Option(min=1, metavar="N", help="Of its generator.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of its generator.")] = 1,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Run an application in every way that fits it, on few events: both oracles, its invariants, a table."""
    from infra.cli.check import check

    return check(name, events, seed, parameters(name, None, settings), as_json)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(metavar="APP", help="The application whose events they become.")],
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES", help="Parquet, CSV (also .gz, .bz2) or JSON lines, or folders.")
    ],
    out: Annotated[Path | None, typer.Option(help="Workload to write; must be new or empty.")] = None,
    called: Annotated[
        str | None, typer.Option("--name", help="Keep it under this name, by which regressions take it (--data).")
    ] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN", help="A field whose column is named otherwise.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(metavar="s|ms|us|ns", help="What integers count that are made of times (ISO 8601).")
    ] = None,
    separator: Annotated[str | None, typer.Option(help="Of CSV columns. Default: a comma, of .tsv a tab.")] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Make a workload of data of your own. What does not fit is counted, and kept aside with reasons."""
    from infra.cli.importing import import_

    import_(name, files, out, called, mapping or [], unit, separator, parameters(name, None, settings), as_json)


@app.command()
def invariants(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `streaming-core run` has made.")],
    source: Annotated[Path, typer.Option("--input", metavar="DIR", help="Its workload.")],
    as_json: Json = False,
) -> int:
    """Say which invariants hold of one run, and show the rows that break the others. Exit code 1: there are such."""
    from infra.cli.invariants import invariants

    return invariants(run, source, as_json)


@app.command()
def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port on loopback.")] = DEFAULT_PORT,
) -> int:
    """Start Airflow on this machine, with the form and the reports, until Ctrl-C or `stop`."""
    from infra.cli.ui import serve

    return serve(port)


@app.command()
def service(
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port on loopback.")] = DEFAULT_PORT,
) -> None:
    """Write a systemd unit of yours that keeps the UI up without a terminal, and say how it is started."""
    from infra.cli.service import service

    service(port)


@app.command()
def stop() -> int:
    """Stop the Airflow that `ui` has started, from wherever."""
    from infra.cli.ui import stop

    return stop()


@app.command()
def report(
    run_id: Annotated[str | None, typer.Argument(metavar="RUN_ID", help="Default: the last run.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="OUT.html", help="Write it to one file as well, to be mailed.")
    ] = None,
    beside: Annotated[
        str | None, typer.Option(metavar="RUN_ID", help="Write a page of it beside that run as well.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print the table of a run, and where its reports are. Exit code 1: it was not green."""
    from infra.cli.report import report as shown

    return shown(home(), run_id, as_json, file, beside)


@app.command()
def gate(
    against: Annotated[
        str, typer.Option(metavar="REF", help="The commit to measure beside: a branch, a tag or a commit.")
    ],
    run_id: Annotated[str | None, typer.Argument(metavar="RUN_ID", help="Default: the last run.")] = None,
    cells: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Its cells to measure. Default: all that equal the oracle.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure a run's cells in this checkout beside another commit, in turns, some minutes a cell.

    The commit is built first, which takes about a minute once. Exit code 1: a cell is slower, or cannot be compared.
    """
    from infra.cli.gate import gate as measured

    return measured(home(), against, run_id, named_cells(cells), as_json)


@app.command()
def acknowledge(
    run_id: RunId,
    why: Reason,
    cells: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Of its red cells these. Default: all of them.")
    ] = None,
) -> None:
    """Say that a run's red cells have been seen. They stay red; once all are, prune may remove their outputs."""
    from infra.services.decisions import acknowledge as acknowledged
    from reports.publish import publish

    print(acknowledged(home(), run_id, named_cells(cells), user(), why))
    publish(home(), run_id)


@app.command()
def publish(
    run_id: Annotated[str | None, typer.Option("--run", metavar="RUN_ID", help="Write this run's pages, too.")] = None,
) -> None:
    """Write the performance page and the overview anew. Runs and `make bench` do so when they end."""
    from reports import publish

    if run_id is None:
        print(f"performance page: {publish.performance(home())}")
    else:
        print(f"publish: {publish.publish(home(), run_id)}")


@app.command()
def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    cache_gb: Annotated[
        float, typer.Option(metavar="GB", help="Size that workloads, oracles and builds may have together.")
    ] = CACHE_GB,
) -> int:
    """Remove old outputs and caches; raw results and reports stay.

    Outputs of the last seven green runs stay, too, and those of a red one until its red cells are acknowledged.
    """
    if not 0 <= cache_gb < 1e9:
        raise BadInput(f"--cache-gb must lie in 0..1e9, got {cache_gb:g}")
    from infra.cli.prune import prune as removed

    return removed(home(), int(cache_gb * 1e9), dry_run)


warehouse = typer.Typer(help="Make the marts, and their documentation, from the raw results of all runs.")
app.add_typer(warehouse, name="warehouse")


@warehouse.command()
def build() -> None:
    """Make every mart anew and test every constraint."""
    from infra.services.warehouse import build

    print(build(home()))


@warehouse.command()
def rebuild() -> None:
    """Remove metastore and marts first, then build."""
    from infra.services.warehouse import rebuild

    print(rebuild(home()))


@warehouse.command()
def freshness() -> None:
    """Say how old the newest results are; exit code 1 where that is too old."""
    from infra.services.warehouse import freshness

    print(freshness(home()))


def named_cells(text: str | None) -> list[str] | None:
    """Names of cells, as an option has them; None where it was not given."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInput("--cells: name at least one")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks for; returns the exit code."""
    return invoke(app, arguments)
