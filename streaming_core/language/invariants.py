"""The SQL of invariants, in which `:name` stands for the value of a parameter.

The value is always one literal, whatever it contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# In SQL, a part that holds no value (a text, a quoted name, a comment), or `:name`.
_QUOTED_OR_VALUE = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|:(\w+)""", re.DOTALL)


def with_values(sql: str, values: Mapping[str, Any]) -> str:
    """Return the SQL with the values of the parameters that it names; quotes and comments stay as they are."""
    return _QUOTED_OR_VALUE.sub(
        lambda match: _literal(values[match[1]]) if match[1] in values else match[0],
        sql,
    )


def quoted_value(sql: str, names: Iterable[str]) -> str | None:
    """Return a parameter that the SQL names within quotes, or None.

    The value of a text has quotes of its own, which would end these.
    """
    quoted = [match[0] for match in _QUOTED_OR_VALUE.finditer(sql) if match[0][0] in "'\"`"]
    return next((name for name in names if any(re.search(rf":{name}\b", text) for text in quoted)), None)


def _literal(value: bool | int | float | str) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"({value})" if value < 0 else str(value)  # two signs in a row would begin a comment
