"""Exit codes, and the three ways in which a command fails. Their message is one line: what, where, what to do.

- `BadInput`: the caller's mistake. Exit code 2; the command wrote nothing.
- `RunFailed`: the input was right and the run failed. Exit code 1.
- `CommandFailed`: the command could not do its work, for example on a full disk. Exit code 3. It says nothing about
  the input or the run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Programs that start without pydantic import this file too.
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

# System errors that are the fault of a path, not of the machine.
_OF_THE_PATH = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EEXIST", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOENT", "ENOTDIR", "EPERM", "EROFS")
)


class ExitCode(IntEnum):
    """The exit codes of every command. A signal n that stops a command makes SIGNAL + n."""

    SUCCESS = 0
    FAILED = 1
    BAD_INPUT = 2
    COMMAND_FAILED = 3
    SIGNAL = 128


class BadInput(ValueError):
    """The caller's mistake (exit code 2)."""


class NoSuchName(BadInput, AttributeError):
    """A method or an attribute that a part of the language does not have."""


class RunFailed(RuntimeError):
    """The input was right and the run failed (exit code 1)."""


class CommandFailed(RuntimeError):
    """The command could not do its work (exit code 3)."""


def refusal(error: OSError, action: str | None = None) -> BadInput | CommandFailed:
    """Make the error to raise for an OSError: BadInput if the path is at fault, else CommandFailed.

    Args:
        error: The OSError.
        action: The action that failed, such as `cannot write FILE`. None: the name of the file, if the error has one.
    """
    # Arrow adds sentences of its own to the reason.
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = action if action is not None else error.filename and os.fsdecode(error.filename)
    kind = BadInput if error.errno in _OF_THE_PATH else CommandFailed
    return kind(f"{where}: {reason}" if where else reason)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'threads'?)` for the known name most like this one; nothing if none is like it."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    near = get_close_matches(name.lower(), names, 1, cutoff=0.7)
    return f" (did you mean {names[near[0]]!r}?)" if near else ""


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return `unknown KIND 'name' (did you mean 'nearest'?); known: one, other`."""
    names = list(known)
    return f"unknown {kind} {name!r}{did_you_mean(str(name), names)}; known: {', '.join(names) or 'none'}"


# Pydantic's type of error, up to the first underscore -> what the value must be.
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "list": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "finite": "a finite number",
}
_LIMITS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def line_of(error: BaseException) -> str:
    """The text of an exception in one line; its type if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


def one_line(
    error: ValidationError,
    skip: int = 0,
    fields: Mapping[str, FieldInfo] | None = None,
    name: Callable[[str], str] = str,
) -> str:
    """Write a pydantic error as one line: `threads must be between 1 and 1024, got 0; seed is missing`.

    Args:
        error: The error.
        skip: Parts to leave out at the start of a field's path: 1 where a discriminated union puts its tag there.
        fields: The fields of the model by name, for their bounds and for the names nearest to an unknown one.
        name: Writes the name of a field: as an option of a command line, for example.
    """
    parts = []
    for item in error.errors():
        # A field that takes one string or another type fails as both: only the failure of the other type is reported.
        path = [str(part) for part in item["loc"][skip:] if "[" not in str(part)]
        if item["type"] == "literal_error" and len(item["loc"]) > 1 and str(item["loc"][-1]).startswith("literal["):
            continue
        where = name(path[0]) if len(path) == 1 else ".".join(path)
        parts.append(_problem(item, where, path, fields or {}))
    return "; ".join(parts)


def _problem(item: ErrorDetails, where: str, path: list[str], fields: Mapping[str, FieldInfo]) -> str:
    """Write one problem of a pydantic error."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = context["discriminator"][1:-1]
        known = context["expected_tags"].replace("'", "").split(", ") if kind == "union_tag_invalid" else []
        return unknown(tag, context["tag"], known) if known else f"{tag} is missing"
    if kind == "missing":
        return f"{where} is missing"
    if kind == "extra_forbidden":
        return unknown("field", path[-1], fields) if len(path) == 1 and fields else f"unknown field {where}"
    if kind == "too_short":
        return f"{where} must have at least {context['min_length']} item{'s' * (context['min_length'] != 1)}"
    expected = _KINDS.get(kind.partition("_")[0], "")
    if kind == "literal_error":
        expected = context["expected"].replace("'", "")
    elif limit := next((limit for limit in _LIMITS if limit in context), None):
        smallest, largest = bounds_of(fields[path[0]]) if len(path) == 1 and path[0] in fields else (None, None)
        nearest = f"{_LIMITS[limit]} {_number(context[limit])}"
        expected = nearest if smallest is None and largest is None else range_text(smallest, largest)
    if expected:
        return f"{where} must be {expected}, got {item['input']!r}".lstrip()
    message = item["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def bounds_of(field: FieldInfo) -> tuple[float | None, float | None]:
    """The smallest and the largest value of a field, both included; None where it has no bound."""
    smallest = next((constraint.ge for constraint in field.metadata if hasattr(constraint, "ge")), None)
    return smallest, next((constraint.le for constraint in field.metadata if hasattr(constraint, "le")), None)


def range_text(smallest: float | None, largest: float | None) -> str:
    """Return `between 1 and 64`, `at least 1` or `at most 64`."""
    if smallest is not None and largest is not None:
        return f"between {_number(smallest)} and {_number(largest)}"
    return f"at least {_number(smallest)}" if smallest is not None else f"at most {_number(largest)}"


def _number(value: float | None) -> str:
    """Write a number without the fraction of a whole one: `3600`, not `3600.0`."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
