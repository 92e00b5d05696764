"""Invariants: SQL in which `:name` stands for the value of a parameter, which is one value whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Of SQL, what is no place for a value (texts, quoted names, comments), or `:name`.
_QUOTED_OR_VALUE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|:(\w+)""", re.DOTALL)


def with_values(sql: str, values: Mapping[str, Any]) -> str:
    """The SQL with the values of the parameters that it names; what stands in quotes or comments stays."""
    return _QUOTED_OR_VALUE.sub(
        lambda found: _literal(values[found[1]]) if found[1] in values else found[0],
        sql,
    )


def quoted_value(sql: str, names: Iterable[str]) -> str | None:
    """A parameter that the SQL names within quotes, if there is one: a text, which brings its own, would end them."""
    quoted = [found[0] for found in _QUOTED_OR_VALUE.finditer(sql) if found[0][0] in "'\"`"]
    return next((name for name in names if any(re.search(rf":{name}\b", text) for text in quoted)), None)


def _literal(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"({value})" if value < 0 else str(value)  # two signs in a row would begin a comment
