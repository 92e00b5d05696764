"""The time of a run by stage, from the plan to the pages, and the part of it that cells took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reports.history.run import Run
from streaming_core.regression.stages import WITH_CELLS

WIDTH, HEIGHT = 560, 12  # of a stage's bar
LEAST = 2  # a width that can be seen


class Span(NamedTuple):
    """`x` and `width` in the picture; `name` is the tooltip."""

    x: float
    width: float
    name: str


class Stage(NamedTuple):
    """A stage: the seconds that its tasks took together, and when they began and ended, in seconds after the first."""

    name: str
    seconds: float
    began: float
    ended: float
    spans: list[Span]


@dataclass(frozen=True)
class Stages:
    """`seconds` from the first begin to the last end; `cells` are the seconds in which a cell ran."""

    stages: list[Stage]
    seconds: float
    cells: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def around(self) -> float:
        """The share of the time in which no cell ran."""
        return 1 - self.cells / self.seconds

    @classmethod
    def of(cls, run: Run) -> Stages | None:
        """The recorded stages of a run that have ended; None without any.

        When the pages are written, the stage that writes them and the stages after it are not among them.
        """
        stages: dict[str, list[tuple[float, float, str]]] = {}
        for name, record in run.records.items():
            if record.get("ended") is not None:
                stages.setdefault(record["stage"], []).append((record["began"], record["ended"], name))
        spans = [span for tasks in stages.values() for span in tasks]
        first, last = min((span[0] for span in spans), default=0), max((span[1] for span in spans), default=0)
        if last <= first:
            return None
        scale = WIDTH / (last - first)

        def drawn(began: float, ended: float, name: str) -> Span:
            return Span((began - first) * scale, max(LEAST, (ended - began) * scale), name)

        rows = [
            Stage(
                stage,
                sum(ended - began for began, ended, _ in tasks),
                min(began for began, _, _ in tasks) - first,
                max(ended for _, ended, _ in tasks) - first,
                [drawn(*span) for span in tasks],
            )
            for stage, tasks in sorted(stages.items(), key=lambda item: min(item[1]))
        ]
        return cls(rows, last - first, _union([span for stage in WITH_CELLS for span in stages.get(stage, [])]))


def _union(spans: list[tuple[float, float, str]]) -> float:
    """The seconds in which at least one of the spans lasted. Lanes run cells at the same time."""
    seconds, reached = 0.0, 0.0
    for began, ended, _ in sorted(spans):
        seconds += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return seconds
