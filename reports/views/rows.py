"""Two rows side by side, with the values marked that differ."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from markupsafe import Markup

from reports.history.text import NOTHING


def marked(expected: str | None, actual: str | None) -> tuple[Markup | str, Markup | str]:
    """Two rows as `name: value` lines, the values that differ marked."""
    left, right = _fields(expected), _fields(actual)
    if left is None or right is None:
        shown = [_plain(row) if row is not None else text for row, text in ((left, expected), (right, actual))]
        return shown[0] or NOTHING, shown[1] or NOTHING
    return _plain(left, right), _plain(right, left)


def _fields(text: str | None) -> dict | None:
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _plain(row: dict[str, Any], other: dict | None = None) -> Markup:
    """A row as `name: value` lines. Values that the other row does not share are marked."""
    out = []
    for name, value in row.items():
        shown = escape(json.dumps(value, ensure_ascii=False))
        if other is not None and (name not in other or other[name] != value):
            shown = f"<mark>{shown}</mark>"
        out.append(f"{escape(name)}: {shown}")
    return Markup("\n".join(out))
