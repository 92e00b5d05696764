"""Run one command line of a typer application. Errors become exceptions that ending.py writes as one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer

from streaming_core.errors import BadInput

# Typer's own base of usage errors: it exports only this subclass.
UsageError: Any = typer.BadParameter.__base__
# Forms of typer's messages -> ours.
_FORMS = (
    (r"^Invalid value for '([^']+)': Input should be (a valid \w+).*", r"\1 must be \2"),
    (r"^Invalid value for '([^']+)': Input should be less than or equal to (\S+)", r"\1 must be at most \2"),
    (r"^Invalid value for '([^']+)': Input should be greater than or equal to (\S+)", r"\1 must be at least \2"),
    (r"^No such option: (\S+)", r"unknown option \1"),
    (r"^No such command '(.+?)'", r"unknown command '\1'"),
    (r"[. ]+\(?(?:Did you mean|Possible options:|Did you mean one of:) ([^?)]+)[?)]*$", r" (did you mean \1?)"),
)


def invoke(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ending.py turns what it raises into a line and a code."""
    try:
        code = app(arguments, prog_name=app.info.name, standalone_mode=False) or 0
    except UsageError as error:
        raise BadInput(f"{_plain(error.format_message())}; see {_help_of(app, error)}") from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:
        # Typer turns a broken pipe into exit code 1, which stands for a failed run.
        raise ended.__context__ or ended from None
    if code == 130:  # typer's own for Ctrl-C
        raise KeyboardInterrupt
    return code


def _plain(message: str) -> str:
    """Write a message of typer in the form of all other errors: `--threads must be a valid integer`."""
    message = message.strip().removesuffix(".") or "name a command"
    for pattern, ours in _FORMS:
        message = re.sub(pattern, ours, message)
    return message[0].lower() + message[1:]


def _help_of(app: typer.Typer, error: Any) -> str:
    """The command that shows the help for a usage error."""
    path = error.ctx.command_path if error.ctx is not None else app.info.name
    return f"`{path} --help`"
