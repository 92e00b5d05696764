"""What the engine's own benchmark has measured, for the performance page: the newest figures of every experiment.

Reads the results that are committed in docs/benchmarks, and those that `streaming-core bench --suite NAME` and
`--import` leave in reports/bench. A file that cannot be read, or that another version of the engine has written, is
passed over.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reports import results
from reports.charts import series
from streaming_core.bench.report import VERSION, value
from streaming_core.storage import left_json

RESULTS = {
    "equal": "equal",
    "yardstick": "yardstick",
    "bound": "a bound",
    "different": "differs",
    "simulated": "simulated",
    "measured": "measured",
}
# What an experiment takes from the result that it is part of, because it may have been run by itself.
FACTS = ("made_at", "build", "host", "topology", "conditions", "repetitions", "quick", "seconds", "cells", "sources")


def suites(folders: Iterable[Path], current: dict[str, str]) -> list[dict[str, Any]]:
    """Suites by name and machine, each with its experiments: of an experiment, the newest measurement on that machine.

    A measurement with `--quick` counts only if there is no other. An experiment has the facts of its result, and the
    `outdated` components of it.

    Args:
        folders: where results are.
        current: the digests of all components in the checkout.
    """
    read = [result for folder in folders for path in sorted(folder.glob("*.json")) if (result := _read(path))]
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for result in sorted(read, key=lambda result: (not result["quick"], result["made_at"])):
        key = result["suite"], results.machine(result)
        suite = newest.setdefault(key, {"name": key[0], "machine": key[1], "experiments": {}})
        suite["title"] = result["title"]
        facts = {fact: result[fact] for fact in FACTS} | {"outdated": results.outdated(result, current)}
        # The order of the newest file counts, because only it knows of experiments that came later.
        known = suite["experiments"]
        for experiment in result["experiments"]:
            known[experiment["name"]] = experiment | facts
        order = result["order"] + [name for name in known if name not in result["order"]]
        suite["experiments"] = {name: known[name] for name in order if name in known}
    return [newest[key] | {"experiments": list(newest[key]["experiments"].values())} for key in sorted(newest)]


def _read(path: Path) -> dict[str, Any] | None:
    result = left_json(path)
    is_suite = result.get("version") == VERSION and "suite" in result
    return result if is_suite and all(fact in result for fact in FACTS) else None


def numbers(suite: dict[str, Any]) -> dict[str, int]:
    """Which series of the page every line of a suite is (series.py), in the order in which they first appear.

    The loop, which all are measured by, is the grey one, and no other line is.
    """
    labels: dict[str, int] = {"loop": series.GREY}
    free = (number for number in itertools.count() if number % len(series.COLOURS) != series.GREY)
    for experiment in suite["experiments"]:
        for plot in experiment["plots"]:
            for row in experiment["rows"]:
                if plot["kind"] != "parts" and (name := label(row, plot)) not in labels:
                    labels[name] = next(free)
    return labels


def label(row: dict[str, Any], plot: dict[str, Any]) -> str:
    """What tells a row's line from others of its chart."""
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


def charts(experiment: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The charts of an experiment, by plot: a plot and the rows shown, one per value of the column it is told apart by.

    A result that is not the loop's is no figure and in no chart.
    """
    right = [row for row in experiment["rows"] if row["result"] != "different"]
    drawn: list[list[dict[str, Any]]] = []
    for plot in experiment["plots"]:
        rows = [row for row in right if plot["loop"] or row["way"] != "loop"]
        if plot["kind"] == "parts":
            rows = [row for row in rows if row.get(plot["y"])]
            if "threads" not in (plot["x"], plot["by"]):  # one bar at each x: that of the most threads
                most = max((row["threads"] for row in rows), default=1)
                rows = [row for row in rows if row["threads"] == most]
        else:
            rows = [row for row in rows if row.get(plot["y"]) is not None and value(row, plot["x"]) is not None]
        drawn.append([])
        for group in dict.fromkeys(value(row, plot["by"]) if plot["by"] else "" for row in rows):
            chosen = [row for row in rows if not plot["by"] or value(row, plot["by"]) == group]
            title = f"{group}: {plot['title']}" if plot["by"] else plot["title"]
            drawn[-1].append({"plot": plot, "rows": chosen, "title": title})
    return drawn


def about(chart: dict[str, Any], machine: str) -> str:
    """`gs, sl; 1,000 to 100,000 events; a processor, 2 cores`: the applications, events and machine of a chart."""
    apps = ", ".join(sorted({str(row["app"]) for row in chart["rows"]}))
    counts = [row["events"] for row in chart["rows"] if "events" in row]
    if not counts:
        return f"{apps}; simulated"
    ends = sorted({min(counts), max(counts)})
    events = " to ".join(f"{count:,}" for count in ends)
    return f"{apps}; {events} event{'s' * (ends != [1])}; {machine}"


def points(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """What a chart draws, as charts.benchmark takes it."""
    plot, drawn = chart["plot"], []
    for row in chart["rows"]:
        x = value(row, plot["x"])
        x = x.removeprefix("shared_") if isinstance(x, str) else x
        if plot["kind"] == "parts":
            parts = enumerate(row[plot["y"]].items())
            drawn += [{"x": x, "y": spent, "part": part, "order": order} for order, (part, spent) in parts]
        else:
            dashed = row["result"] not in ("equal", "measured")
            point = {"x": x, "y": row[plot["y"]], "line": label(row, plot), "dashed": dashed}
            if ends := results.interval(row, plot["y"]):
                point["low"], point["high"] = ends
            # What does not vary with threads is a level to be held against.
            point["level"] = row["way"] == "loop" and plot["x"] == "threads"
            drawn.append(point)
    return drawn
