"""Words for the values of a run: builds, matrices, strategies, rates, times and units.

Every function takes plain values and returns text. No function reads a file, apart from `lines`.
"""

from __future__ import annotations

import json
from pathlib import Path

from streaming_core.regression.plan import Plan

NOTHING = "\N{EN DASH}"


def matrix_text(plan: Plan) -> str:
    """`nightly 3f2a91c0, overrides threads`: name and short digest of the named matrix of a plan; empty without one."""
    matrix = plan.get("matrix") or {}
    if not matrix:
        return ""
    overrides = f", overrides {', '.join(matrix['overrides'])}" if matrix["overrides"] else ""
    return f"{matrix['name']} {matrix['digest'][:8]}{overrides}"


def short(build: str | None) -> str:
    """The first nine digits of a revision; a + marks local changes."""
    return (build or "unknown").removesuffix("-dirty")[:9] + ("+" if (build or "").endswith("-dirty") else "")


def revision(ref: str, commit: str) -> str:
    """`v1.2 (abc123456)`: name and revision of a commit; the revision alone if the name is part of it."""
    return short(commit) if commit.startswith(ref) else f"{ref} ({short(commit)})"


def named(strategy: str, order: str | None) -> str:
    """A strategy's name in comparisons of speed, which keep ways without order apart."""
    return f"{strategy.removesuffix('-none')}, no order" if order == "none" else strategy


def human_rate(value: float | None) -> str:
    """`1.24 M`, `84.1 k`, `312`; a dash for nothing."""
    if value is None:
        return NOTHING
    value = float(f"{value:.3g}")  # 999,700 is 1 M, not 1e+03 k
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def human_micros(value: float | None) -> str:
    """Microseconds as `840 µs`, `1.2 ms` or `3.4 s`; a dash for nothing."""
    if value is None:
        return NOTHING
    value = float(f"{value:.3g}")
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    return f"{value / 1e3:.3g} ms" if value >= 1e3 else f"{value:.3g} µs"


def human_nano(value: float | None, unit: str) -> str:
    """Nanoseconds or nanojoules per event: `84.1 ns`, `2,310 nJ`; a dash for nothing."""
    if value is None:
        return NOTHING
    return f"{value:,.0f} n{unit}" if value >= 100 else f"{value:.3g} n{unit}"


def short_json(value: object) -> str:
    """A value as JSON in one line, cut after 400 characters; empty for nothing, which 0 and false are not."""
    text = "" if value in (None, "", [], {}) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else text[:397] + "..."


def words(value: object) -> str:
    """A JSON value in words, without the parts that say nothing: `nodes 0, 1; tables on all nodes in turn`."""
    if isinstance(value, dict):
        named = ((name.replace("_", " "), words(item)) for name, item in value.items())
        return "; ".join(f"{name} {text}" for name, text in named if text)
    if isinstance(value, list):
        return ", ".join(map(words, value))
    return "" if value is None or value is False else str(value)


def lines(path: Path, count: int) -> list[str]:
    """The last lines of a text file; [] when there is none."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
