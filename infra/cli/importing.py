"""`lockstep import`: import a user's files as a workload, and print what became of their rows."""

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

SHOWN = 10  # reasons that are printed


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
    """Import files as a workload of an application, and print the result.

    Args:
        name: The application.
        named: The files and folders to import.
        out: The folder to write. Give either `out` or `called`.
        called: The name of the import in LOCKSTEP_HOME.
        mapping: `FIELD=COLUMN` for fields whose column has another name.
        unit: Unit of integer fields that are read from timestamps.
        separator: Character between the columns of CSV.
        params: Parameters that differ from the application's defaults.
        as_json: Print the manifest as JSON.
        spark: The session to use. Without one, the function starts its own.

    Raises:
        BadInput: Neither or both of `out` and `called` are given, or `import_events` rejects the request.
    """
    app = registry.load(name)
    if (out is None) == (called is None):
        raise BadInput(
            "give either --name NAME, to use the import in regressions, or --out DIR, to write it to a folder"
        )
    if called is not None:
        if not IMPORT_NAME.fullmatch(called):
            raise BadInput(
                f"--name {called!r}: use at most 61 letters, digits, '_', '-' and '.'; begin with a letter or a digit"
            )
        out = home().imported(name, called)
    assert out is not None
    import_events.check_out(out)
    request = import_events.request(app, app.bind(params), named, _mapped(mapping), unit, separator)
    with (
        Console(stderr=True).status(f"reading {len(request.files.paths)} file{'s' * (len(request.files.paths) > 1)}"),
        spark_session("lockstep import", spark, True) as session,
    ):
        # Spark's own handler makes the job fail: the message would name a failed job, not Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if spark is None and hasattr(session, "sparkContext") and "LOCKSTEP_TRACEBACK" not in os.environ:
            session.sparkContext.setLogLevel("OFF")  # an error is reported in one line
        manifest = import_events.run(session, request, out)
    if as_json:
        print(json.dumps({"folder": str(out), **manifest}, indent=1, sort_keys=True))
        return
    imported = manifest["imported"]
    files = ", ".join(imported["files"]) if len(imported["files"]) == 1 else f"{len(imported['files'])} files"
    events, read = (
        f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((manifest["events"], "event"), (imported["rows"], "row"))
    )
    print(f"{out}: {events} for {name}, from {read} of {files}")
    aside = imported["aside"]
    if aside:
        rows = sum(one["rows"] for one in aside)
        print(f"set aside {rows:,} row{'s' * (rows > 1)}, kept in {out / 'aside'}:")
    for one in aside[:SHOWN]:
        print(f"{one['rows']:>12,}  {one['reason']} (first: {one['file']}, row {one['row']})")
    if len(aside) > SHOWN:
        print(f"{'':>12}  and {len(aside) - SHOWN} more reasons: see {out / 'manifest.json'}")


def _mapped(options: list[str]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for text in options:
        field, equals, column = text.partition("=")
        if not equals or not field or not column:
            raise BadInput(f"--map {text!r}: write FIELD=COLUMN, for example --map line=body")
        if field in mapping:
            raise BadInput(f"--map {text!r}: the field {field} is already read from the column {mapping[field]!r}")
        mapping[field] = column
    return mapping
