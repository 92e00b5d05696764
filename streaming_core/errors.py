"""The three ways a command can fail, and the one line that says it.

`BadInput` is the caller's mistake: one line that says what is wrong and what to do, exit code 2, nothing written.
`RunFailed` is a run that was well specified and did not succeed: exit code 1.
`CommandFailed` says nothing of either: the command could not do its work (a full disk, no memory), exit code 3.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError  # known to who calls: what starts without it imports this file, too

# The system's answers to a path that cannot be what it was given for, whatever the state of the machine.
_OF_THE_PATH = frozenset(
    getattr(errno, name)
    for name in ("EACCES", "EEXIST", "EISDIR", "ELOOP", "ENAMETOOLONG", "ENOENT", "ENOTDIR", "EPERM", "EROFS")
)


class BadInput(ValueError):
    """The request cannot be carried out as it stands (exit code 2)."""


class RunFailed(RuntimeError):
    """A well-specified run did not succeed (exit code 1)."""


class CommandFailed(RuntimeError):
    """The command itself failed, which says nothing of what it was about (exit code 3)."""


def refusal(error: OSError, what: str | None = None) -> BadInput | CommandFailed:
    """What to raise for a call of the system that failed: bad input where the path is at fault, else a failed command.

    Args:
        what: says what could not be done; None: the file's name, if the error has one.
    """
    # Arrow puts sentences of its own around what the system said.
    reason = os.strerror(error.errno) if error.errno else str(error)
    where = what if what is not None else error.filename and os.fsdecode(error.filename)
    kind = BadInput if error.errno in _OF_THE_PATH else CommandFailed
    return kind(f"{where}: {reason}" if where else reason)


def one_line(
    error: ValidationError, skip: int = 0, bounds: Mapping[str, tuple[float | None, float | None]] | None = None
) -> str:
    """A pydantic error as one line: `field: message; field: message`.

    Args:
        error: The error.
        skip: Parts to leave out at the start of a field's path: 1 where a discriminated union puts its tag there.
        bounds: Field -> its smallest and its largest value, for errors about them.
    """
    parts = []
    for item in error.errors():
        # A field that takes one string or another type fails as both: only the failure of the other type is reported.
        where = ".".join(str(p) for p in item["loc"][skip:] if "[" not in str(p))
        if item["type"] == "literal_error" and len(item["loc"]) > 1 and str(item["loc"][-1]).startswith("literal["):
            continue
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "union_tag_invalid":
            known = item["ctx"]["expected_tags"].replace("'", "")
            message = f"unknown {item['ctx']['discriminator'][1:-1]} {item['ctx']['tag']!r}; known: {known}"
        elif item["type"] in ("greater_than_equal", "less_than_equal") and where in (bounds or {}):
            message = f"must be {_range(*(bounds or {})[where])}, got {item['input']!r}"
        elif item["type"] == "union_tag_not_found":
            message = f"{item['ctx']['discriminator'][1:-1]}: Field required"
        parts.append(f"{where}: {message}" if where else message)
    return "; ".join(parts)


def _range(smallest: float | None, largest: float | None) -> str:
    if smallest is not None and largest is not None:
        return f"between {smallest} and {largest}"
    return f"at least {smallest}" if smallest is not None else f"at most {largest}"
