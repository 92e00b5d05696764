"""One command line given to a typer application: its exit code, or what ending.py makes a line of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from streaming_core.errors import BadInput

# Typer's own base of usage errors: it exports only this subclass.
UsageError: Any = typer.BadParameter.__base__


def invoke(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks for; returns the exit code. What it raises ends as ending.py says."""
    try:
        code = app(arguments, prog_name=app.info.name, standalone_mode=False) or 0
    except UsageError as error:
        raise BadInput(f"{error.format_message() or 'a command is missing'} (see --help)") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:
        # Of a pipe that nobody reads typer makes 1, which would be a word on the run.
        raise ended.__context__ or ended from None
    if code == 130:  # typer's own for Ctrl-C
        raise KeyboardInterrupt
    return code
