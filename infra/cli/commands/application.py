"""The commands about one application: check it or an engine, feed it your own data, check a result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from streaming_core.cli.options import FOLLOW, Json, Settings, grouped, numbers, parameters, specification, takes
from streaming_core.run.way import MAX_THREADS

app = typer.Typer()
Unit = Annotated[
    str | None,
    typer.Option(
        metavar="s|ms|us|ns",
        help="Unit of integer fields that are read from timestamps. Default: refuse timestamps.",
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(metavar="CHAR", help="Character between the columns of CSV. Default: a comma; in .tsv files a tab."),
]


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="APP", help="Application id. `streaming-core apps` lists them.")],
    events: Annotated[int, typer.Option(min=1, metavar="N", help="Number of events to generate.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the generator.")] = 1,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Check an application in about half a minute, on few events.

    The command generates events, runs both oracles, and runs the
    application on 1, 2 and 3 threads with every executor that fits it. It
    compares each result and checks the invariants. It keeps no files and
    measures no speed. It exits with 1 unless every cell is equal.

    Examples:
        lockstep check wc
        lockstep check gs --events 500 --seed 7
    """
    from infra.cli.check import check

    return check(name, events, seed, parameters(name, None, settings), as_json)


@app.command()
def conformance(
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="An engine, as `lockstep engines list` shows it, or an executor of Lockstep."
        ),
    ],
    applications: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Applications. Default: all that the engine runs.")
    ] = None,
    workloads: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Workloads, as the table shows them. Default: all.")
    ] = None,
    threads: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Numbers of worker threads. Default: 1,3.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep workloads, outputs and oracles of what differs in this new folder."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Check an engine on workloads that are easy to get wrong.

    The workloads are small: ties, gaps, skew, empty streams, unusual texts
    and numbers, and others. For each answer that differs from the oracle's,
    the command prints the first differing row and the event that caused it.
    It exits with 1 unless all answers are equal.

    Examples:
        lockstep conformance --engine pooled --applications wc
        lockstep conformance --engine polars --threads 2 --keep wrong
    """
    from infra.cli.conformance import conformance

    chosen = [[*dict.fromkeys(text.split(",") if text else [])] for text in (applications, workloads)]
    counts = numbers("--threads", threads, (1, MAX_THREADS)) if threads else []
    return conformance(engine, chosen[0], chosen[1], [*dict.fromkeys(counts)], keep, as_json)


@dataclass(frozen=True)
class Origin:
    """The arguments of `import` that name the files of the user. A user gives one of them."""

    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES", help="Parquet, CSV or JSON lines files, or folders. CSV and JSON may be .gz or .bz2."
        ),
    ] = None
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="NAME=PATH",
            help="The file or folder of one stream, instead of FILES. Repeat it for each stream of the application.",
        ),
    ] = None


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
class Columns:
    """The options of `import` that say how fields read columns."""

    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN",
            help="Read a field from a column with another name. Repeat for more. Write STREAM.FIELD for one stream.",
        ),
    ] = None
    unit: Unit = None
    separator: Separator = None
    tolerance: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SHARE", help="Share of the rows that may be set aside without a warning."),
    ] = 0.0


@app.command("import")
@grouped
def import_(
    name: Annotated[str, typer.Argument(metavar="APP", help="The application that will process the events.")],
    origin: Origin,
    destination: Destination,
    columns: Columns,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Import your own data as a workload of an application.

    Each row becomes an event, or is set aside with a reason. The workload's
    folder holds the rows that were set aside, under aside/. Give either
    --name or --out. A regression runs on an import if you name it with
    --data. An application with several streams takes --stream NAME=PATH
    for each of them, and orders their rows by ts.

    Examples:
        lockstep import wc posts.csv --map line=body --name lines
        lockstep import scalejoin --stream Left=a.csv --stream Right=b.csv --name ab
        lockstep run --applications wc --data '{"wc": "lines"}'
    """
    from infra.cli.importing import import_
    from infra.services.importing import Form

    params = parameters(name, None, settings)
    form = Form(
        name,
        origin.files or [],
        origin.streams or [],
        columns.mapping or [],
        columns.unit,
        columns.separator,
        params,
        columns.tolerance,
    )
    import_(form, destination.out, destination.name_in_home, as_json)


@dataclass(frozen=True)
class SourceOptions:
    """The options of `follow` that say how to read the source."""

    until_idle: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="End the stream after so many seconds without new rows. 0 processes the rows that exist. "
            "Default: never.",
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Most files, or records of a topic, in a micro-batch. Default: 100, or 100000."
        ),
    ] = None
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from a column with another name."),
    ] = None
    unit: Unit = None
    separator: Separator = None


@app.command()
@grouped
@takes(FOLLOW)
def follow(
    name: Annotated[str, typer.Argument(metavar="APP", help="The application that processes the events.")],
    options: dict[str, Any],
    reading: SourceOptions,
    source: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            help="A folder in which Parquet, CSV or JSON lines files appear, or kafka://HOST:PORT/TOPIC.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Run folder to write. The same command on its folder resumes a run.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="At the end, run the oracle on the recorded events and compare.")
    ] = False,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Run an application on a live source: a folder that grows, or a topic.

    Spark Structured Streaming takes new rows in micro-batches. The command
    records their events, and the engine processes them at once. Outputs
    appear in the run folder while the command runs. Stop or kill it at any
    time; the same command resumes. At the end of the stream, the folder
    holds the recorded workload too, so that the oracle can check the run.

    Examples:
        lockstep follow wc --source incoming --out run
        lockstep follow wc --source incoming --out run --until-idle 0 --verify
    """
    from infra.cli.follow import Reading, follow

    spec = specification(name, options, None, settings, None)
    full_reading = Reading(
        source, reading.mapping or (), reading.unit, reading.separator, reading.limit, reading.until_idle
    )
    return follow(spec, full_reading, out, verify, as_json)


@app.command()
def invariants(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `streaming-core run --out` wrote.")],
    source: Annotated[Path, typer.Option("--input", metavar="DIR", help="The workload of that run.")],
    as_json: Json = False,
) -> int:
    """Check the invariants of an application on the result of one run.

    The command names each invariant that holds, and prints the rows that
    break the others. It exits with 1 if a row breaks an invariant, or if
    an invariant cannot be evaluated.

    Examples:
        streaming-core generate gs --events 5000 --out workload
        streaming-core run gs --input workload --out result
        lockstep invariants result --input workload
    """
    from infra.cli.invariants import invariants

    return invariants(run, source, as_json)
