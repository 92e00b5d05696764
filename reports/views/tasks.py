"""The tasks of a pinned run, as a bar for each thread.

A task executes rows and hands them on. The rest of the thread's time is waiting. These are the parts of figure 8 of
BriskStream: execute, others, and the remaining time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    """The bar of a thread: its name, its distance from the top, and its parts."""

    thread: str
    y: int
    parts: list[Part]


@dataclass(frozen=True)
class TaskRow:
    """A task and its thread.

    Attributes:
        name: the operator, or the name of the work in front of it.
        thread: the number of the thread.
        series: the series whose colour it has.
        rows_in: the rows that it took.
        rows_out: the rows that it handed on.
        execute: the share of the pass in which it executed rows.
        others: the share of the pass in which it handed rows on.
        execute_row: nanoseconds to execute a row; None without rows.
        others_row: nanoseconds to hand a row on; None without rows.
    """

    name: str
    thread: int
    series: int
    rows_in: int
    rows_out: int
    execute: float
    others: float
    execute_row: float | None
    others_row: float | None


@dataclass(frozen=True)
class Tasks:
    """The tasks of a pass.

    Attributes:
        bars: a bar for each thread.
        rows: the tasks, in the order of the report.
        seconds: the time of the pass.
        width: the width of the picture.
        margin: the width left of its bars.
        bar: the height of a bar.
    """

    bars: list[Bar]
    rows: list[TaskRow]
    seconds: float
    width: int = WIDTH
    margin: int = MARGIN
    bar: int = HEIGHT

    @property
    def height(self) -> int:
        """The height of the picture."""
        return len(self.bars) * (HEIGHT + GAP)

    @classmethod
    def of(cls, report: dict[str, Any]) -> Tasks | None:
        """The tasks of the median pass at peak rate, or of the first pass.

        Args:
            report: the content of a report.json.

        Returns:
            None if the report has no tasks.
        """
        passes = [sample for sample in report.get("samples", []) if sample.get("tasks") and sample["seconds"]]
        peaks = [sample for sample in passes if sample["kind"] == "peak"] or passes[:1]
        if not peaks:
            return None
        # The pass that is the report's peak (RunReport.peak), with which a plan's prediction was compared.
        chosen = sorted(peaks, key=lambda sample: -sample["seconds"])[len(peaks) // 2]
        rows = _rows(chosen["tasks"], chosen["seconds"] * 1e9)
        cores = report.get("binding") or []
        bars = []
        for thread in range(report["spec"]["threads"]):
            core = f", core {cores[thread]}" if thread < len(cores) else ""
            parts = _parts([row for row in rows if row.thread == thread])
            bars.append(Bar(f"thread {thread}{core}", thread * (HEIGHT + GAP), list(parts)))
        return cls(bars, rows, chosen["seconds"])


def _rows(tasks: list[dict[str, Any]], nanoseconds: float) -> list[TaskRow]:
    """The tasks of a pass that took so many nanoseconds."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(_name(task) for task in tasks))}
    return [
        TaskRow(
            name=_name(task),
            thread=task["thread"],
            series=numbers[_name(task)],
            rows_in=task["rows_in"],
            rows_out=task["rows_out"],
            execute=task["execute_ns"] / nanoseconds,
            others=task["others_ns"] / nanoseconds,
            execute_row=task["execute_ns"] / task["rows_in"] if task["rows_in"] else None,
            others_row=task["others_ns"] / task["rows_in"] if task["rows_in"] else None,
        )
        for task in tasks
    ]


def _name(task: dict[str, Any]) -> str:
    """The operator; for a task in front of it, the work that the task does for it."""
    names = {"keys": f"keys of {task['operator']}", "merge": f"merge for {task['operator']}"}
    return names.get(task["role"], task["operator"])


def _parts(rows: list[TaskRow]) -> Iterator[Part]:
    # The clocks of the tasks differ from the clock of the pass, so the sum may exceed 1. A bar never exceeds its width.
    whole = (WIDTH - MARGIN) / max(1.0, sum(row.execute + row.others for row in rows))
    x = float(MARGIN)
    for row in rows:
        colour, width = series.colour(row.series), row.execute * whole
        label = row.name if width > CHARACTER * len(row.name) + 8 else ""
        yield Part(x, width, colour, 1.0, label, f"{row.name}, executing: {row.execute:.1%}")
        x += width
        width = row.others * whole
        yield Part(x, width, colour, 0.45, "", f"{row.name}, handing on: {row.others:.1%}")
        x += width
