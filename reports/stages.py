"""Where a run's time went: its stages, from the plan to the pages, beside what its cells took in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streaming_core.regression.home import Home
from streaming_core.storage import left_json

WIDTH, HEIGHT = 560, 12  # of a stage's bar
LEAST = 2  # that can be seen


class Span(NamedTuple):
    """`x` and `width` in the picture, `name` for who points at it."""

    x: float
    width: float
    name: str


class Stage(NamedTuple):
    """A task of the run, or its cells together; `seconds` that it was at work."""

    name: str
    seconds: float
    spans: list[Span]


@dataclass(frozen=True)
class Stages:
    """`seconds` from the first one's begin to the last one's end; `cells`, of them, those in which a cell ran."""

    stages: list[Stage]
    seconds: float
    cells: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def around(self) -> float:
        """The part of the time in which no cell ran."""
        return 1 - self.cells / self.seconds

    @classmethod
    def of(cls, home: Home, run_id: str) -> Stages | None:
        """As the run's tasks have noted it (dags/lib/stages.py); None of one that noted nothing. Who writes the pages,
        and what comes behind it, is not among them when they are written."""
        noted = {path.stem: left_json(path) for path in sorted((home.run(run_id) / "stages").glob("*.json"))}
        stages: dict[str, list[tuple[float, float, str]]] = {}
        for name, times in noted.items():
            stages.setdefault(times["stage"], []).append((times["began"], times["ended"], name))
        spans = [span for found in stages.values() for span in found]
        first, last = min((span[0] for span in spans), default=0), max((span[1] for span in spans), default=0)
        if last <= first:
            return None
        scale = WIDTH / (last - first)

        def drawn(began: float, ended: float, name: str) -> Span:
            return Span((began - first) * scale, max(LEAST, (ended - began) * scale), name)

        rows = [
            Stage(stage, sum(ended - began for began, ended, _ in found), [drawn(*span) for span in found])
            for stage, found in sorted(stages.items(), key=lambda item: min(item[1]))
        ]
        return cls(rows, last - first, sum(stage.seconds for stage in rows if stage.name == "run_core"))
