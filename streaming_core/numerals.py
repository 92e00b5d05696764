"""Numbers that people write: ASCII digits, without the spaces, underscores and foreign digits that Python accepts."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def integer(text: str) -> int:
    """The integer that a text says; raises ValueError if it says none."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"no integer: {text!r}")
    return int(text)


def real(text: str) -> float:
    """The finite number that a text says; raises ValueError if it says none."""
    if not _REAL.fullmatch(text) or (value := float(text)) in (float("inf"), float("-inf")):
        raise ValueError(f"no finite number: {text!r}")
    return value
