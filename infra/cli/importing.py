"""`lockstep import`: import a user's files as a workload, and print what became of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra.checkout import home
from infra.cli.arguments import Separator
from streaming_core.cli.options import Columns, Settings, grouped, parameters
from streaming_core.errors import BadInput


@dataclass(frozen=True)
class Destination:
    """The options of `import` that say where the workload goes. A user gives one of them."""

    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the workload to this folder, which must be new or empty.")
    ] = None
    name_in_home: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Keep the workload in LOCKSTEP_HOME under a name, for regressions."
        ),
    ] = None


@dataclass(frozen=True)
class Reading:
    """The options of `import` that say how to read the files."""

    mapping: Columns = None
    separator: Separator = None
    tolerance: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="Share of the rows that may be set aside without a warning."),
    ] = 0.0


@grouped
def import_(
    name: Annotated[str, typer.Argument(metavar="APP", help="An application whose events have these fields.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES",
            help="Parquet, CSV or JSON lines files, or folders; CSV and JSON may be .gz or .bz2. For an application "
            "with several streams, NAME=PATH for each of them.",
        ),
    ],
    destination: Destination,
    reading: Reading,
    settings: Settings = None,
) -> None:
    """Import your own data as a workload.

    Each row becomes an event, or is set aside with a reason. The workload's
    folder holds the rows that were set aside, under aside/. Give either
    --name or --out. A regression runs on an import if you name it with
    --data, and so does every application whose events have the same fields.
    The command sorts the rows by ts.

    Examples:
        lockstep import wc posts.csv --map line=body --name lines
        lockstep import scalejoin Left=a.csv Right=b.csv --name ab
        lockstep run --applications wc --data '{"wc": "lines"}'
    """
    from streaming_core.importing import events, form

    params = parameters(name, None, settings)
    out, kept_as = destination.out, destination.name_in_home
    if (out is None) == (kept_as is None):
        raise BadInput(
            "give either --name NAME, to use the import in regressions, or --out DIR, to write it to a folder"
        )
    out = out or form.folder_of(home(), kept_as or "")
    events.check_out(out)
    request = form.request(form.Form(name, files, reading.mapping or [], reading.separator, params, reading.tolerance))
    count = len(request.names)
    with Console(stderr=True).status(f"reading {count} file{'s' * (count > 1)}"):
        manifest = events.run(request, out)
    print("\n".join(form.lines(out, manifest)))
