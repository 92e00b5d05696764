"""The results of the engine's benchmark: the newest figures of every experiment, for the page of benchmarks.

The module reads the committed results in docs/benchmarks. It also reads those that `streaming-core bench --suite NAME`
and `--import` leave in reports/bench. It skips a file that it cannot read, and a file of another version of the engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.charts import series
from streaming_core.bench import wording
from streaming_core.bench.race.rounds import Row
from streaming_core.bench.report import VERSION, claim_cells, value
from streaming_core.storage import left_json

RESULTS = {
    "equal": "equal",
    "yardstick": "yardstick",
    "bound": "a bound",
    "expected": "expected by a model",
    "simulated": "simulated",
    "different": "differs",
}
# What an experiment takes from the result that it is part of, because it may have been run by itself.
FACTS = ("made_at", "build", "host", "topology", "conditions", "repetitions", "quick", "seconds", "cells")


Experiment = dict[str, Any]  # of a result's JSON, with the FACTS of the result, and the table of its `claims`


@dataclass(frozen=True)
class Suite:
    """A suite on one machine: of each experiment, the newest measurement."""

    name: str
    machine: str
    title: str
    experiments: list[Experiment]


@dataclass(frozen=True)
class Chart:
    """A chart of an experiment: its plot, as the suite declares it, the rows that it shows, and its title."""

    plot: dict[str, Any]
    rows: list[Row]
    title: str


def suites(folders: Iterable[Path]) -> list[Suite]:
    """Read the suites, sorted by name and machine.

    A measurement with `--quick` counts only if there is no other.

    Args:
        folders: the folders of the results.
    """
    read = [result for folder in folders for path in sorted(folder.glob("*.json")) if (result := _read(path))]
    by_key: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in sorted(read, key=lambda result: (not result["quick"], result["made_at"])):
        by_key.setdefault((result["suite"], wording.machine(result)), []).append(result)
    return [
        Suite(name, machine, of_key[-1]["title"], _newest(of_key)) for (name, machine), of_key in sorted(by_key.items())
    ]


def _newest(of_suite: list[dict[str, Any]]) -> list[Experiment]:
    """The newest measurement of each experiment, from the results of a suite, oldest first."""
    known: dict[str, Experiment] = {}
    for result in of_suite:
        facts = {fact: result[fact] for fact in FACTS}
        for experiment in result["experiments"]:
            known[experiment["name"]] = experiment | facts | {"claims": claim_cells(result, experiment)}
        # The order of the newest file counts, because only it has the experiments that came later.
        order = result["order"] + [name for name in known if name not in result["order"]]
        known = {name: known[name] for name in order if name in known}
    return list(known.values())


def _read(path: Path) -> dict[str, Any] | None:
    result = left_json(path)
    is_suite = result.get("version") == VERSION and "suite" in result
    return result if is_suite and all(fact in result for fact in FACTS) else None


def numbers(suite: Suite) -> dict[str, int]:
    """The series of the page (charts/series.py) that each line of a suite is, in the order in which lines appear.

    The loop, to which the ways are compared, is the grey series. No other line is grey.
    """
    labels: dict[str, int] = {"loop": series.GREY}
    free = (number for number in itertools.count() if number % len(series.COLOURS) != series.GREY)
    for experiment in suite.experiments:
        for plot in experiment["plots"]:
            for row in experiment["rows"]:
                if plot["kind"] != "parts" and (name := label(row, plot)) not in labels:
                    labels[name] = next(free)
    return labels


def label(row: Row, plot: dict[str, Any]) -> str:
    """The label of a row's line in its chart."""
    if row["way"] == "loop" and "app" not in plot["lines"]:
        return "loop"
    words = []
    for name in plot["lines"]:
        text = value(row, name)
        if name == "threads":
            text = f"{text} thread{'s' * (text != 1)}"
        elif name == "batch":
            text = f"batches of {text}"
        elif isinstance(text, bool):
            text = name if text else f"no {name}"
        words.append(str(text))
    return ", ".join(words)


def charts(experiment: Experiment) -> list[list[Chart]]:
    """The charts of an experiment, by plot: one for each value of the column that the plot is split by.

    No chart shows a result that differs from the loop's.
    """
    right = [row for row in experiment["rows"] if row["result"] != "different"]
    drawn: list[list[Chart]] = []
    for plot in experiment["plots"]:
        rows = [row for row in right if plot["loop"] or row["way"] != "loop"]
        if plot["kind"] == "parts":
            rows = [row for row in rows if row.get(plot["y"])]
            if "threads" not in (plot["x"], plot["by"]):  # one bar at each x: that of the most threads
                most = max((row["threads"] for row in rows), default=1)
                rows = [row for row in rows if row["threads"] == most]
        else:
            ys = (plot["y"], plot.get("dashed", ""))
            rows = [row for row in rows if value(row, plot["x"]) is not None]
            rows = [row for row in rows if any(row.get(y) is not None for y in ys)]
        drawn.append([])
        for group in dict.fromkeys(value(row, plot["by"]) if plot["by"] else "" for row in rows):
            chosen = [row for row in rows if not plot["by"] or value(row, plot["by"]) == group]
            title = f"{group}: {plot['title']}" if plot["by"] else plot["title"]
            drawn[-1].append(Chart(plot, chosen, title))
    return drawn


def about(chart: Chart, machine: str) -> str:
    """`gs, sl; 1,000 to 100,000 events; a processor, 2 cores`: the applications, events and machine of a chart.

    Rows that a model expects have no events.
    """
    parts = [", ".join(sorted({str(row["app"]) for row in chart.rows}))]
    if counts := {row["events"] for row in chart.rows if "events" in row}:
        ends = " to ".join(f"{count:,}" for count in sorted({min(counts), max(counts)}))
        parts.append(f"{ends} event{'s' * (counts != {1})}")
    return "; ".join([*parts, machine])


def points(chart: Chart) -> list[dict[str, Any]]:
    """The points of a chart, in the form that charts/benchmark.py takes."""
    plot, drawn = chart.plot, []
    for row in chart.rows:
        x = value(row, plot["x"])
        x = x.removeprefix("shared_") if isinstance(x, str) else x
        if plot["kind"] == "parts":
            parts = enumerate(row[plot["y"]].items())
            drawn += [{"x": x, "y": spent, "part": part, "order": order} for order, (part, spent) in parts]
            continue
        line = {"x": x, "line": label(row, plot), "level": False}
        if (model := row.get(plot.get("dashed", ""))) is not None:
            drawn.append(line | {"y": model, "dashed": True})
        if row.get(plot["y"]) is not None:
            point = line | {"y": row[plot["y"]], "dashed": row["result"] != "equal"}
            if ends := wording.interval(row, plot["y"]):
                point["low"], point["high"] = ends
            # The loop does not vary with threads, so it is a level that readers compare with.
            point["level"] = row["way"] == "loop" and plot["x"] == "threads"
            drawn.append(point)
    return drawn
