"""`lockstep invariants`: check the invariants of an application on one run, as a regression does for every cell."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from streaming_core.apps import registry
from streaming_core.cli.options import Json
from streaming_core.errors import BadInput
from streaming_core.run.report import read_report

LABELS = {"content_digest": "events", "params": "parameters"}  # of a workload


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
    from jobs.comparison import row_json
    from jobs.invariants import evaluate, views_of
    from jobs.session import spark_session
    from streaming_core.data import workload
    from streaming_core.data.comparison import plain

    report = read_report(run)
    app, order = registry.load(report.app), report.spec.get("order", "total")
    manifest = workload.bound(source, workload.read_manifest(source), app, report.workload.get("params"))
    for key in ("content_digest", "params"):
        if report.workload.get(key) != manifest[key]:
            raise BadInput(f"--input {source} is not the workload of {run}: their {LABELS[key]} differ")
    queries = [(0, name, sql) for name, sql in app.required_invariants(order, manifest["params"]).items()]
    views = views_of(run, source)
    if missing := app.results(manifest["params"]).keys() - views:
        raise BadInput(f"{run} has no {', '.join(sorted(missing))}: run the application again with --sink parquet")
    with ExitStack() as sessions:
        results = evaluate(sessions.enter_context(spark_session("lockstep invariants")), queries, {0: views})
    if as_json:
        print(json.dumps({name: asdict(v) | {"rows": plain(v.rows)} for (_, name), v in results.items()}, indent=1))
    console = Console(highlight=False, quiet=as_json)
    for (_, name), violations in results.items():
        if violations.error:
            text = f"{name}: cannot be evaluated: {violations.error}"
        else:
            broken = "1 row breaks it" if violations.count == 1 else f"{violations.count:,} rows break it"
            text = f"{name}{f': {broken}' if violations.count else ''}"
        mark = Text("holds   ", "green") if not (violations.count or violations.error) else Text("broken  ", "bold red")
        console.print(mark + Text(text), soft_wrap=True)
        for row in violations.rows:
            console.print(Text(f"        {row_json(row)}"), soft_wrap=True)
    if not results:
        console.print(f"{app.name} declares no invariant for runs with order {order}")
    return 1 if any(violations.count or violations.error for violations in results.values()) else 0
