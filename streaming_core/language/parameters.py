"""The parameters of an application: declared, referred to by operators, and named sets of values."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from streaming_core.errors import BadInput


@dataclass(frozen=True)
class Param:
    """A parameter with its default. The default's type is the parameter's type."""

    default: bool | int | float | str
    doc: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple | None = None

    def check(self, name: str, value: Any) -> bool | int | float | str:
        """`value` converted to the parameter's type.

        Raises:
            BadInput: wrong type, or outside bounds or choices.
        """
        wanted = type(self.default)
        try:
            if isinstance(value, str) and wanted is bool:
                value = {"true": True, "false": False}[value.lower()]
            elif isinstance(value, str):
                value = wanted(value)
            elif wanted is float and isinstance(value, int) and not isinstance(value, bool):
                value = float(value)
        except (KeyError, ValueError):
            raise BadInput(f"parameter {name}: {value!r} is not a {wanted.__name__}") from None
        if type(value) is not wanted:
            raise BadInput(f"parameter {name}: {value!r} is not a {wanted.__name__}")
        if wanted is float and not isfinite(value):
            raise BadInput(f"parameter {name}: {value!r} is not finite")
        if self.minimum is not None and value < self.minimum:
            raise BadInput(f"parameter {name}: {value!r} is below the minimum {self.minimum}")
        if self.maximum is not None and value > self.maximum:
            raise BadInput(f"parameter {name}: {value!r} is above the maximum {self.maximum}")
        if self.choices is not None and value not in self.choices:
            raise BadInput(f"parameter {name}: {value!r} is not one of {', '.join(map(str, self.choices))}")
        return value


@dataclass(frozen=True)
class ParamRef:
    """`app.params.window` inside an operator: stands for the value the application is bound with."""

    name: str


class Params:
    """Attribute access to an application's parameters; operators read them as constants."""

    def __init__(self, declared: dict[str, Param]):
        self._declared = declared

    def __getattr__(self, name: str) -> ParamRef:
        if name.startswith("_") or name not in self._declared:
            raise AttributeError(f"no parameter {name!r}; known: {', '.join(self._declared)}")
        return ParamRef(name)


@dataclass(frozen=True)
class Profile:
    """A named set of parameter values."""

    doc: str
    params: dict[str, Any]
