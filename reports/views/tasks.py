"""What the tasks of a pinned run did: of a pass, per thread, how long each task executed rows and handed them on, and
how long the thread waited (BriskStream, figure 8: execute, others, and what is left).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reports.charts import series

WIDTH, MARGIN, HEIGHT, GAP = 1040, 110, 24, 10  # of the picture, left of its bars, of a bar, between two
CHARACTER = 7  # what a character of a label takes


@dataclass(frozen=True)
class Part:
    """A stretch of a thread's bar."""

    x: float
    width: float
    colour: str
    opacity: float
    label: str
    title: str


@dataclass(frozen=True)
class Bar:
    thread: str
    y: int
    parts: list[Part]


@dataclass(frozen=True)
class Tasks:
    """`rows`: per task what it did, threads in turn; times in nanoseconds of a row, shares of the pass."""

    bars: list[Bar]
    rows: list[dict]
    seconds: float
    width: int = WIDTH
    margin: int = MARGIN
    bar: int = HEIGHT

    @property
    def height(self) -> int:
        return len(self.bars) * (HEIGHT + GAP)

    @classmethod
    def of(cls, report: dict) -> Tasks | None:
        """Of a report, as JSON: of its median pass at peak rate, or of the first pass; None: it has no tasks."""
        passes = [sample for sample in report.get("samples", []) if sample.get("tasks") and sample["seconds"]]
        peaks = [sample for sample in passes if sample["kind"] == "peak"] or passes[:1]
        if not peaks:
            return None
        # The pass that is the report's peak (RunReport.peak), which a plan's prediction was held against.
        chosen = sorted(peaks, key=lambda sample: -sample["seconds"])[len(peaks) // 2]
        tasks, nanoseconds = chosen["tasks"], chosen["seconds"] * 1e9
        numbers = {name: number for number, name in enumerate(dict.fromkeys(_name(task) for task in tasks))}
        rows = [
            task
            | {
                "name": _name(task),
                "series": numbers[_name(task)],
                "execute": task["execute_ns"] / nanoseconds,
                "others": task["others_ns"] / nanoseconds,
                "execute_row": task["execute_ns"] / task["rows_in"] if task["rows_in"] else None,
                "others_row": task["others_ns"] / task["rows_in"] if task["rows_in"] else None,
            }
            for task in tasks
        ]
        cores = report.get("binding") or []
        bars = []
        for thread in range(report["spec"]["threads"]):
            mine = [row for row in rows if row["thread"] == thread]
            core = f", core {cores[thread]}" if thread < len(cores) else ""
            bars.append(Bar(f"thread {thread}{core}", thread * (HEIGHT + GAP), list(_parts(mine))))
        return cls(bars, rows, chosen["seconds"])


def _name(task: dict) -> str:
    """The operator; of those in front of it, what they do for it."""
    return {"keys": f"keys of {task['operator']}", "merge": f"merge for {task['operator']}"}.get(
        task["role"], task["operator"]
    )


def _parts(rows: list[dict]) -> Iterator[Part]:
    # Clocks of tasks and of the pass are different ones: a bar is no longer than it may be.
    whole = (WIDTH - MARGIN) / max(1.0, sum(row["execute"] + row["others"] for row in rows))
    x = float(MARGIN)
    for row in rows:
        for what, opacity, said in (("execute", 1.0, "executing"), ("others", 0.45, "handing on")):
            width = row[what] * whole
            label = row["name"] if what == "execute" and width > CHARACTER * len(row["name"]) + 8 else ""
            yield Part(
                x, width, series.colour(row["series"]), opacity, label, f"{row['name']}, {said}: {row[what]:.1%}"
            )
            x += width
