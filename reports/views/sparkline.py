"""The speed of a cell over builds as a line that fits into a table, with the same in words."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from reports.history.load import Row
from reports.history.text import human_rate

WIDTH, HEIGHT, EDGE = 50, 16, 3  # of the picture, and what the line keeps from its edge
MOST = 20  # builds, the newest ones


@dataclass(frozen=True)
class Point:
    """A run in the history of a cell: its row of the mart `throughput`, and its ratio to the compiled loop."""

    row: Row
    to_loop: float | None


@dataclass(frozen=True)
class Sparkline:
    """A line through one point per build, oldest first.

    Attributes:
        points: the corners, as SVG writes them.
        last: the newest point.
        text: what the line shows.
    """

    points: str
    last: tuple[float, float]
    text: str
    width: int = WIDTH
    height: int = HEIGHT

    @classmethod
    def of(cls, points: Iterable[Point]) -> Self | None:
        """The line of a cell's history; None with fewer than two builds.

        It shows ratios to the compiled loop if all points have one, because these are comparable between nights.
        """
        known = list(points)
        is_ratio = bool(known) and all(point.to_loop is not None for point in known)
        by_build: dict[str, list[float]] = {}
        for point in known:
            value = point.to_loop if is_ratio else point.row["median_events_per_s"]
            if value is not None:
                by_build.setdefault(point.row["build"], []).append(value)
        values = [statistics.median(of_build) for of_build in by_build.values()][-MOST:]
        if len(values) < 2:
            return None
        low, high = min(values), max(values)
        # A tenth is as high as the picture, at least: noise does not look like a change.
        room = max(high - low, 0.1 * high) or 1.0
        middle = (low + high) / 2
        corners = [
            (
                round(EDGE + (WIDTH - 2 * EDGE) * number / (len(values) - 1), 1),
                round(HEIGHT / 2 - (HEIGHT - 2 * EDGE) * (value - middle) / room, 1),
            )
            for number, value in enumerate(values)
        ]
        shown = [f"{value:.3g}" if is_ratio else human_rate(value) for value in (values[0], low, high, values[-1])]
        unit = "times the compiled loop" if is_ratio else "events/s"
        names = ("first", "lowest", "highest", "now")
        figures = ", ".join(f"{name} {value}" for name, value in zip(names, shown, strict=True))
        words = f"Speed over {len(values)} builds: {figures} {unit}"
        return cls(" ".join(f"{x},{y}" for x, y in corners), corners[-1], words)
