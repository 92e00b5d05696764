"""What the engine's own benchmark has found, for the performance page: the newest figures of every experiment.

Reads the JSON that `streaming-core bench --suite NAME` leaves in reports/bench; a file that cannot be read, or that
another version of the engine has written, is passed over.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from reports import series
from streaming_core.bench.report import VERSION, value

RESULTS = {
    "equal": "equal",
    "yardstick": "yardstick",
    "bound": "a bound",
    "different": "differs",
    "simulated": "simulated",
    "measured": "measured",
}


def suites(folder: Path) -> list[dict[str, Any]]:
    """Suites by name, each with its experiments: of an experiment, the newest measurement there is.

    An experiment has its own `made_at`, `build`, `host`, `topology`, `repetitions`: it may be run by itself.
    """
    newest: dict[str, dict[str, Any]] = {}
    for found in sorted(filter(None, map(_read, folder.glob("*.json"))), key=lambda found: found["made_at"]):
        suite = newest.setdefault(found["suite"], {"name": found["suite"], "experiments": {}})
        suite["title"] = found["title"]
        facts = {key: found[key] for key in ("made_at", "build", "host", "topology", "repetitions")}
        # The order of the newest file counts, because only it knows of experiments that came later.
        known = suite["experiments"]
        for experiment in found["experiments"]:
            known[experiment["name"]] = experiment | facts
        order = found["order"] + [name for name in known if name not in found["order"]]
        suite["experiments"] = {name: known[name] for name in order if name in known}
    return [newest[name] | {"experiments": list(newest[name]["experiments"].values())} for name in sorted(newest)]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "suite" in found and found.get("version") == VERSION else None


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
        found = value(row, name)
        if name == "threads":
            found = f"{found} thread{'s' * (found != 1)}"
        elif name == "batch":
            found = f"batches of {found}"
        elif isinstance(found, bool):
            found = name if found else f"no {name}"
        words.append(str(found))
    return ", ".join(words)


def charts(experiment: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The charts of an experiment, by plot: a plot and the rows shown, one per value of the column it is told apart by.

    A result that is not the loop's is no figure and in no chart.
    """
    right = [row for row in experiment["rows"] if row["result"] != "different"]
    found: list[list[dict[str, Any]]] = []
    for plot in experiment["plots"]:
        rows = [row for row in right if plot["loop"] or row["way"] != "loop"]
        if plot["kind"] == "parts":
            most = max((row["threads"] for row in rows), default=1)
            rows = [row for row in rows if row["threads"] == most and "breakdown" in row]
        else:
            rows = [row for row in rows if row.get(plot["y"]) is not None and value(row, plot["x"]) is not None]
        found.append([])
        for group in dict.fromkeys(value(row, plot["by"]) if plot["by"] else "" for row in rows):
            chosen = [row for row in rows if not plot["by"] or value(row, plot["by"]) == group]
            title = f"{group}: {plot['title']}" if plot["by"] else plot["title"]
            found[-1].append({"plot": plot, "rows": chosen, "title": title})
    return found


def about(chart: dict[str, Any], host: dict[str, Any]) -> str:
    """`gs, sl; 1,000 to 100,000 events; a processor`: the applications, events and host of a chart."""
    apps = ", ".join(sorted({str(row["app"]) for row in chart["rows"]}))
    counts = [row["events"] for row in chart["rows"] if "events" in row]
    if not counts:
        return f"{apps}; simulated"
    ends = sorted({min(counts), max(counts)})
    events = " to ".join(f"{count:,}" for count in ends)
    return f"{apps}; {events} event{'s' * (ends != [1])}; {host['cpu']}"


def points(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """What a chart draws, as charts.benchmark takes it."""
    plot, found = chart["plot"], []
    for row in chart["rows"]:
        x = value(row, plot["x"])
        x = x.removeprefix("shared_") if isinstance(x, str) else x
        if plot["kind"] == "parts":
            parts = enumerate(row["breakdown"].items())
            found += [{"x": x, "y": spent, "part": part, "order": order} for order, (part, spent) in parts]
        else:
            dashed = row["result"] not in ("equal", "measured")
            found.append({"x": x, "y": row[plot["y"]], "line": label(row, plot), "dashed": dashed})
            # What does not vary with threads is a level to be held against.
            found[-1]["level"] = row["way"] == "loop" and plot["x"] == "threads"
    return found
