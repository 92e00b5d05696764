"""Data of a user's own, as a workload: where it goes, and what is said of it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.checkout import home
from jobs import import_events
from jobs.session import spark_session
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression.request import IMPORT_NAME

SHOWN = 10  # reasons that are told


def import_(
    name: str,
    named: list[Path],
    out: Path | None,
    called: str | None,
    mapping: list[str],
    unit: str | None,
    separator: str | None,
    params: dict[str, Any],
    as_json: bool,
    spark: Any = None,
) -> None:
    """Imports files into an application's workload and prints what came of it.

    Args:
        spark: a session to work on; None: one of its own.

    Raises:
        BadInput: as `import_events.request` and `run`; or no place, or two, for the workload.
    """
    app = registry.load(name)
    if (out is None) == (called is None):
        raise BadInput("say where: --out FOLDER, or --name NAME for regressions to take it by")
    if called is not None:
        if not IMPORT_NAME.fullmatch(called):
            raise BadInput(f"--name {called!r}: letters, digits, _, - and dots, a letter or digit first")
        out = home().imported(name, called)
    assert out is not None
    import_events.check_out(out)
    asked = import_events.request(app, app.bind(params), named, _mapped(mapping), unit, separator)
    with (
        Console(stderr=True).status(f"reading {len(asked.files.paths)} files"),
        spark_session("lockstep import", spark, True) as session,
    ):
        # Spark's own handler makes the job fail, which would be said instead of that it was stopped.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if spark is None and hasattr(session, "sparkContext") and "LOCKSTEP_TRACEBACK" not in os.environ:
            session.sparkContext.setLogLevel("OFF")  # what fails is said in a line
        manifest = import_events.run(session, asked, out)
    if as_json:
        print(json.dumps({"folder": str(out), **manifest}, indent=1, sort_keys=True))
        return
    imported = manifest["imported"]
    files = ", ".join(imported["files"]) if len(imported["files"]) == 1 else f"{len(imported['files'])} files"
    print(f"{out}: {manifest['events']:,} events of {name} from {imported['rows']:,} rows of {files}")
    aside = imported["aside"]
    if aside:
        rows = sum(one["rows"] for one in aside)
        print(f"kept aside in {out / 'aside'}: {rows:,} row{'s' * (rows > 1)}")
    for one in aside[:SHOWN]:
        print(f"{one['rows']:>12,}  {one['reason']} (first: {one['file']}, row {one['row']})")
    if len(aside) > SHOWN:
        print(f"{'':>12}  and {len(aside) - SHOWN} reasons more, in the folder's manifest.json")


def _mapped(given: list[str]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for text in given:
        field, equals, column = text.partition("=")
        if not equals or not field or not column:
            raise BadInput(f"--map {text!r}: write FIELD=COLUMN")
        if field in mapping:
            raise BadInput(f"--map {text!r}: {field} has a column already, {mapping[field]!r}")
        mapping[field] = column
    return mapping
