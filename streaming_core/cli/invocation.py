"""Run one command line of a typer application. Errors become exceptions that ending.py writes as one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import typer

from streaming_core.errors import BadInput
from streaming_core.language.parameters import integer, real

# Typer's own base of usage errors: it exports only this subclass.
UsageError: Any = typer.BadParameter.__base__
# Types of options -> the name of the numbers that they take, and the reader of a text.
_NUMBERS = {int: ("integer", integer), float: ("number", real)}
# Forms of typer's messages -> ours.
_FORMS = (
    (r"^Invalid value for '([^']+)': must", r"\1 must"),
    (r"^Invalid value for '([^']+)': Input should be (a valid \w+).*", r"\1 must be \2"),
    (r"^Invalid value for '([^']+)': Input should be less than or equal to (\S+)", r"\1 must be at most \2"),
    (r"^Invalid value for '([^']+)': Input should be greater than or equal to (\S+)", r"\1 must be at least \2"),
    (r"^No such option: (\S+)", r"unknown option \1"),
    (r"^No such command '(.+?)'", r"unknown command '\1'"),
    (r"[. ]+\(?(?:Did you mean|Possible options:|Did you mean one of:) ([^?)]+)[?)]*$", r" (did you mean \1?)"),
)


def invoke(app: typer.Typer, arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; ending.py turns what it raises into a line and a code."""
    command = typer.main.get_command(app)
    _check_values(command)
    try:
        code = command(arguments, prog_name=app.info.name, standalone_mode=False) or 0
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


def _check_values(command: Any) -> None:
    """Let all options and arguments below a command refuse empty texts, and numbers that only Python accepts."""
    for below in getattr(command, "commands", {}).values():
        _check_values(below)
    if not command.ignore_unknown_options:  # options of another program can be empty
        for parameter in command.params:
            parameter.process_value = partial(_checked, parameter, parameter.process_value)


def _checked(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """The value of a parameter, as typer's `process` makes it of one text or of several."""
    kind = parameter.type_descriptor.annotation
    for text in value if isinstance(value, list | tuple) else [value]:
        if text == "":
            raise typer.BadParameter("must not be empty", context, parameter)
        try:
            if isinstance(text, str) and kind in _NUMBERS:
                _NUMBERS[kind][1](text)
        except ValueError:
            raise typer.BadParameter(
                f"Input should be a valid {_NUMBERS[kind][0]}: {text!r}", context, parameter
            ) from None
    return process(context, value)


def _plain(message: str) -> str:
    """Write a message of typer in the form of all other errors: `--threads must be a valid integer`."""
    message = message.strip().removesuffix(".") or "name a command"
    for pattern, ours in _FORMS:
        message = re.sub(pattern, ours, message)
    return message if message[:2].isupper() else message[0].lower() + message[1:]  # `APP` keeps its letters


def _help_of(app: typer.Typer, error: Any) -> str:
    """The command that shows the help for a usage error."""
    path = error.ctx.command_path if error.ctx is not None else app.info.name
    return f"`{path} --help`"
