"""`lockstep import`: import a user's files as a workload, and print what became of their rows."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.checkout import home
from infra.services import importing
from infra.services.importing import Form
from jobs import import_events
from jobs.session import spark_session
from streaming_core.apps import registry
from streaming_core.errors import BadInput


def import_(form: Form, out: Path | None, name: str | None, as_json: bool, spark: Any = None) -> None:
    """Import files as a workload of an application, and print the result.

    Args:
        form: The request.
        out: The folder to write. Give either `out` or `name`.
        name: The name of the import in LOCKSTEP_HOME.
        as_json: Print the manifest as JSON.
        spark: The session to use. Without one, the function starts its own.

    Raises:
        BadInput: Both of `out` and `name` are None, or neither is, or the request is invalid.
    """
    registry.load(form.app)
    if (out is None) == (name is None):
        raise BadInput(
            "give either --name NAME, to use the import in regressions, or --out DIR, to write it to a folder"
        )
    if name is not None:
        out = importing.folder_of(home(), form.app, name)
    assert out is not None
    import_events.check_out(out)
    request = importing.request(form)
    count = len(request.names)
    with (
        Console(stderr=True).status(f"reading {count} file{'s' * (count > 1)}"),
        spark_session("lockstep import", spark, True) as session,
    ):
        # Spark's own handler makes the job fail: the message would name a failed job, not Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if spark is None and hasattr(session, "sparkContext") and "LOCKSTEP_TRACEBACK" not in os.environ:
            session.sparkContext.setLogLevel("OFF")  # an error is reported in one line
        manifest = import_events.run(session, request, out)
    if as_json:
        print(json.dumps({"folder": str(out), **manifest}, indent=1, sort_keys=True))
    else:
        print("\n".join(importing.lines(out, manifest)))
