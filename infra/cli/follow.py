"""`lockstep follow`: run an application on a live source, and check the run with the oracle at its end."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.services import importing
from jobs import live
from jobs.session import spark_session
from streaming_core import interruption
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.ending import say
from streaming_core.errors import BadInput
from streaming_core.oracle import oracle
from streaming_core.run import live as live_run
from streaming_core.run.comparison import diff
from streaming_core.run.report import RunReport
from streaming_core.run.way import RunSpec

NAME = "lockstep"


@dataclass(frozen=True)
class Reading:
    """The source of a live run, and how to read it, as the user writes it.

    Attributes:
        source: A folder, or `kafka://HOST:PORT/TOPIC`.
        mapping: `FIELD=COLUMN` for fields whose column has another name.
        unit: Unit of integer fields that are read from timestamps.
        separator: Character between the columns of CSV.
        limit: Most files, or records of a topic, in a micro-batch; None means the default.
        until_idle: Seconds without new rows after which the stream ends; None means never.
    """

    source: str
    mapping: Sequence[str] = ()
    unit: str | None = None
    separator: str | None = None
    limit: int | None = None
    until_idle: float | None = None


def follow(spec: RunSpec, reading: Reading, out: Path, verify: bool, as_json: bool, spark: Any = None) -> int:
    """Run an application on a live source, and print the result.

    Args:
        spec: The options of the run.
        reading: How to read the source.
        out: The run folder.
        verify: Whether to compare the result with the oracle's.
        as_json: Print the report as JSON.
        spark: The session to use. Without one, the function starts its own.

    Returns:
        The exit code: 1 if the result differs from the oracle's.

    Raises:
        BadInput: The request cannot be carried out.
        RunFailed: An operator failed.
        CommandFailed: The disk is full, or Spark fails.
    """
    app = registry.load(spec.app)
    if "SPARK_REMOTE" in os.environ:
        raise BadInput("a live run needs Spark in its own process: unset SPARK_REMOTE")
    source = live.source_of(
        app,
        app.bind(spec.params),
        reading.source,
        mapping=importing.columns(reading.mapping),
        unit=reading.unit,
        separator=reading.separator,
    )
    source.check(out)
    with ExitStack() as stack:

        def feed(folder: Path) -> Generator[None, None, None]:
            session = stack.enter_context(spark_session("lockstep follow", spark, True))
            if spark is None and "LOCKSTEP_TRACEBACK" not in os.environ:
                session.sparkContext.setLogLevel("OFF")  # an error is reported in one line
            with interruption.heeded():  # Spark's own handler would make the job fail
                yield from live.feed(session, source, folder, reading.limit or source.limit, reading.until_idle)

        report = live_run.run(spec, source.about(), out, feed, lambda line: say(NAME, line))
    return _finish(report, out, verify, as_json)


def _finish(report: RunReport, out: Path, verify: bool, as_json: bool) -> int:
    """Print the result, and compare it with the oracle's if the user asks for it; return the exit code."""
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
        print("\n".join(importing.live_lines(source, imported)))
        if difference is not None:
            print(difference.text())
        else:
            print("To check the run against the oracle:")
            print(f"  streaming-core oracle {report.app} --input {source} --out {expected}")
            print(f"  streaming-core diff {out} {expected}")
    return difference.exit_code if difference is not None else 0
