"""The invariants of an application, asked of one run: as `validate_outputs` asks them of every cell."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from jobs.comparison import row_json
from jobs.invariants import find, views_of
from jobs.session import spark_session
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.comparison import plain
from streaming_core.errors import BadInput
from streaming_core.run.comparison import read_report


def invariants(run: Path, source: Path, as_json: bool, spark: Any = None) -> int:
    """Prints which invariants hold of the run in a folder, and the first rows that break one; the exit code: 1 if any
    is broken, or cannot be evaluated.

    Args:
        source: the workload of the run.
        spark: a session to work on; None: one of its own.

    Raises:
        BadInput: a folder that is not what it should be, or a run of another workload.
    """
    report, manifest = read_report(run), workload.read_manifest(source)
    for key in ("content_digest", "params"):
        if report.workload.get(key) != manifest[key]:
            raise BadInput(f"{source} is not the workload of {run}: its {key} is another")
    app, order = registry.load(report.app), report.spec.get("order", "total")
    asked = [(0, name, sql) for name, sql in app.holds(order, manifest["params"]).items()]
    views = views_of(run, source)
    if missing := app.results(manifest["params"]).keys() - views:
        raise BadInput(f"{run} has no {', '.join(sorted(missing))}: run it with --sink parquet")
    with ExitStack() as sessions:
        held = find(sessions.enter_context(spark_session("lockstep invariants", spark)), asked, {0: views})
    if as_json:
        print(json.dumps({name: asdict(one) | {"rows": plain(one.rows)} for (_, name), one in held.items()}, indent=1))
    console = Console(highlight=False, quiet=as_json)
    for (_, name), one in held.items():
        if one.error:
            said = f"{name}: it could not be evaluated: {one.error}"
        else:
            broken = "1 row breaks it" if one.found == 1 else f"{one.found:,} rows break it"
            said = f"{name}{f': {broken}' if one.found else ''}"
        mark = Text("holds   ", "green") if not (one.found or one.error) else Text("broken  ", "bold red")
        console.print(mark + Text(said), soft_wrap=True)
        for row in one.rows:
            console.print(Text(f"        {row_json(row)}"), soft_wrap=True)
    if not held:
        console.print(f"{app.name} says of no invariant that it must hold of a run in order {order}")
    return 1 if any(one.found or one.error for one in held.values()) else 0
