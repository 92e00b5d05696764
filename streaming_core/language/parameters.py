"""The parameters of an application: declared, referred to by operators, and named sets of values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

from streaming_core.errors import BadInput, NoSuchName, range_text, unknown
from streaming_core.language.declaration import declares, shown

_KINDS = {bool: "true or false", int: "an integer", float: "a finite number", str: "a text"}
# ASCII digits, without the spaces, underscores and foreign digits that Python accepts.
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


@declares
@dataclass(frozen=True)
class Param:
    """A parameter with its default. The default's type is the parameter's type."""

    default: bool | int | float | str
    doc: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple | None = None

    def check(self, name: str, value: Any) -> bool | int | float | str:
        """Convert `value` to the parameter's type.

        Raises:
            BadInput: wrong type, or outside bounds or choices.
        """
        kind = type(self.default)
        mistyped = BadInput(f"parameter {name} must be {_KINDS[kind]}, got {shown(value)}")
        try:
            if isinstance(value, str) and kind is bool:
                value = {"true": True, "false": False}[value.lower()]
            elif isinstance(value, str):
                value = integer(value) if kind is int else real(value) if kind is float else value
            elif kind is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
        except (KeyError, ValueError):
            raise mistyped from None
        if type(value) is not kind or (kind is float and not isfinite(value)):
            raise mistyped
        if (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum):
            raise BadInput(f"parameter {name} must be {range_text(self.minimum, self.maximum)}, got {value!r}")
        if self.choices is not None and value not in self.choices:
            raise BadInput(f"parameter {name} must be one of {', '.join(map(str, self.choices))}, got {value!r}")
        return value


@dataclass(frozen=True)
class ParamRef:
    """`app.params.window` inside an operator: it stands for the value of the parameter."""

    name: str


class Params:
    """Attribute access to an application's parameters; operators read them as constants."""

    def __init__(self, declared: dict[str, Param]):
        self._declared = declared

    def __getattr__(self, name: str) -> ParamRef:
        if name.startswith("_") or name not in self._declared:
            raise NoSuchName(unknown("parameter", name, self._declared))
        return ParamRef(name)


@declares
@dataclass(frozen=True)
class Profile:
    """A named set of parameter values."""

    doc: str
    params: dict[str, Any]
