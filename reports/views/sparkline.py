"""The speed of a cell over builds as a line that fits into a table, with the same in words."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from reports.history.load import Row

WIDTH, HEIGHT, EDGE = 50, 16, 3  # of the picture, and what the line keeps from its edge
MOST = 20  # builds, the newest ones


@dataclass(frozen=True)
class Point:
    """A run in the history of a cell: its row of the mart `throughput`, and its ratio to the loop, if judged."""

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
        """The line of a cell's history; None with fewer than two builds whose ratio to the compiled loop is judged.

        Events per second of two nights are not comparable.
        """
        by_build: dict[str, list[float]] = {}
        for point in points:
            if point.to_loop is not None:
                by_build.setdefault(point.row["build"], []).append(point.to_loop)
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
        names = {"first": values[0], "lowest": low, "highest": high, "now": values[-1]}
        figures = ", ".join(f"{name} {value:.3g}" for name, value in names.items())
        words = f"Speed over {len(values)} builds: {figures} times the compiled loop"
        return cls(" ".join(f"{x},{y}" for x, y in corners), corners[-1], words)
