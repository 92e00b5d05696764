"""Values, bounds and defaults of the fields of pydantic models, as the tables of the reference show them."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from infra.reference.markdown import code
from streaming_core.errors import bounds_of


def bounds(field: FieldInfo) -> str:
    """The smallest and the largest value of a number."""
    least, most = bounds_of(field)
    return span(least or 0, most)


def span(least: float, most: float | None) -> str:
    """Bounds of a number, both included; without a largest value, `1 or more`."""
    return f"{number(least)} or more" if most is None else f"{number(least)} to {number(most)}"


def number(value: float) -> str:
    """A number with commas, as an integer where it is one."""
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def literal(value: object) -> str:
    """A value as a command line or a file takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def default(field: FieldInfo) -> str:
    """The default of a field."""
    value: Any = field.get_default(call_default_factory=True)
    if value in ({}, [], ""):
        return "empty"
    return ", ".join(map(code, value)) if isinstance(value, list) else code(literal(value))
