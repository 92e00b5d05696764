"""`lockstep follow`: run an application on a live source, and check it with the oracle while it runs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.cli.arguments import Separator
from streaming_core import interruption, storage
from streaming_core.apps import registry
from streaming_core.cli.options import FOLLOW, Columns, Json, Settings, What, grouped, specification, takes
from streaming_core.errors import BadInput
from streaming_core.process.ending import say
from streaming_core.run.report import RunReport

CHECKPOINT = "10s"  # the default interval of live runs


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


@dataclass(frozen=True)
class KeepOptions:
    """The options of `follow` that say what it checks and keeps."""

    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not compare the run with the oracle while it runs.")
    ] = False
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Drop recorded events and outputs that are older, such as 7d, 12h or 30m, once they are verified and "
            "before each checkpoint. Default: keep all.",
        ),
    ] = None


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
    keeping: KeepOptions,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Run an application on a live source: a folder that grows, or a topic.

    Spark Structured Streaming takes new rows in micro-batches. The command
    records their events, and the engine processes them at once. Outputs
    appear in the run folder while the command runs. In a process of low
    priority, the oracle follows the run and compares all outputs; the
    command ends with 1 at the first difference. Stop or kill it at any
    time; the same command resumes from the last checkpoint. The file
    live.html in the run folder shows the progress, as does `lockstep
    status`. At the end of the stream, the folder holds the recorded workload.

    Examples:
        lockstep follow wc --source incoming --out run
        lockstep follow wc --source incoming --out run --keep 7d
    """
    from jobs import live
    from jobs.session import spark_session
    from reports.live_run import page as live_page
    from streaming_core.importing import form
    from streaming_core.run import live as live_run
    from streaming_core.run.live_folder import PAGE, show

    keep = None if keeping.keep is None else _seconds(keeping.keep)
    if not what.endswith(".json"):
        options = {"checkpoint": CHECKPOINT} | options
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

        report = live_run.run(
            live_run.LiveRequest(
                spec,
                origin.about(),
                out,
                feed,
                not keeping.no_verify,
                keep,
                say=lambda line: say("lockstep", line),
                show=lambda status: show(out / PAGE, live_page(status)),
            )
        )
    _print(report, out, as_json)
    return 0


def _seconds(text: str) -> float:
    """A time such as `7d`, in seconds."""
    match = re.fullmatch(r"([0-9]{1,6})([dhms])", text)
    if match is None:
        raise BadInput(f"--keep must be a number of days, hours, minutes or seconds, such as 7d, got {text!r}")
    return int(match[1]) * {"d": 86400, "h": 3600, "m": 60, "s": 1}[match[2]]


def _print(report: RunReport, out: Path, as_json: bool) -> None:
    """Print the result."""
    from streaming_core.data import workload
    from streaming_core.importing import form
    from streaming_core.run.live_folder import VERIFIED, WORKLOAD

    source, sample = out / WORKLOAD, report.verified
    imported = workload.read_manifest(source)["imported"]
    verified = storage.left_json(out / VERIFIED)
    compared = {name: verified[name] for name in ("outputs", "states")} if verified.get("is_complete") else None
    if as_json:
        result = report.model_dump(mode="json") | {"equal": compared, "imported": imported}
        print(json.dumps(result, indent=1, sort_keys=True))
        return
    print(f"{out}: {sample.events} events, {sample.outputs} outputs, digest {sample.digest}")
    print("\n".join(form.live_lines(source, imported)))
    if compared is not None:
        print(f"equal: {compared['outputs']} outputs and {compared['states']} rows of final state")
    elif not imported["start"]:
        print("To check the run against the oracle:")
        print(f"  streaming-core oracle {report.app} --input {source} --out {out / 'oracle'}")
        print(f"  streaming-core diff {out} {out / 'oracle'}")
    if imported["start"]:
        print(f"the events before {imported['start']} were dropped, so the oracle cannot compute the whole run again")
