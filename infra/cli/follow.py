"""`lockstep follow`: run an application on a live source, and check the run with the oracle at its end."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.cli.arguments import Separator
from streaming_core import interruption
from streaming_core.apps import registry
from streaming_core.cli.options import FOLLOW, Columns, Json, Settings, What, grouped, specification, takes
from streaming_core.errors import BadInput
from streaming_core.process.ending import say
from streaming_core.run.report import RunReport


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
    mapping: Columns = None
    separator: Separator = None


@grouped
@takes(FOLLOW)
def follow(
    what: What,
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
    from jobs import live
    from jobs.session import spark_session
    from streaming_core.importing import form
    from streaming_core.run import live as live_run

    # A live run is one pass, which writes its outputs.
    spec = specification(what, options, None, settings, None).model_copy(update={"sink": "parquet"})
    app = registry.load(spec.app)
    if "SPARK_REMOTE" in os.environ:
        raise BadInput("a live run needs Spark in its own process: unset SPARK_REMOTE")
    origin = live.source_of(
        app,
        app.bind(spec.params),
        source,
        mapping=form.columns(reading.mapping or ()),
        separator=reading.separator,
    )
    origin.check(out)
    with ExitStack() as stack:

        def feed(folder: Path) -> Generator[None, None, None]:
            session = stack.enter_context(spark_session("lockstep follow"))
            with interruption.heeded():  # Spark's own handler would make the job fail
                yield from live.feed(session, origin, folder, reading.limit or origin.limit, reading.until_idle)

        report = live_run.run(spec, origin.about(), out, feed, lambda line: say("lockstep", line))
    return _finish(report, out, verify, as_json)


def _finish(report: RunReport, out: Path, verify: bool, as_json: bool) -> int:
    """Print the result, and compare it with the oracle's if the user asks for it; return the exit code."""
    from streaming_core.data import workload
    from streaming_core.importing import form
    from streaming_core.oracle import oracle
    from streaming_core.run import live as live_run
    from streaming_core.run.comparison import diff

    source, expected = out / live_run.WORKLOAD, out / "oracle"
    difference = None
    if verify:
        oracle.run(source, expected)
        difference = diff(out, expected)
    imported = workload.read_manifest(source)["imported"]
    if as_json:
        compared = difference.as_dict() if difference is not None else None
        print(
            json.dumps(
                {**report.model_dump(mode="json"), "comparison": compared, "imported": imported},
                indent=1,
                sort_keys=True,
            )
        )
    else:
        sample = report.verified
        print(f"{out}: {sample.events} events, {sample.outputs} outputs, digest {sample.digest}")
        print("\n".join(form.live_lines(source, imported)))
        if difference is not None:
            print(difference.text())
        else:
            print("To check the run against the oracle:")
            print(f"  streaming-core oracle {report.app} --input {source} --out {expected}")
            print(f"  streaming-core diff {out} {expected}")
    return difference.exit_code if difference is not None else 0
