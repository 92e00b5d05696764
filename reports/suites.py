"""The benchmark's suites on the performance page: their charts, and the figures behind them."""

from __future__ import annotations

from pathlib import Path

from reports import benchmarks
from reports.history import NOTHING
from reports.performance import slug
from streaming_core.bench.report import passes

FIVE, NARROW, BROAD = (125, 120), (170, 140), (400, 170)  # charts: five, four, or two in a row
OPTIONAL = ("p99_us", "end_to_end_p99_us", "cpu_ns", "energy_nj", "predicted_per_s")


def draw(folder: Path) -> tuple[dict[str, str], list[dict]]:
    """The suites of a folder of results: file below the reports -> SVG, and the suites for templates."""
    suites = benchmarks.suites(folder)
    svgs: dict[str, str] = {}
    for suite in suites:
        numbers = benchmarks.numbers(suite)
        for experiment in suite["experiments"]:
            groups, labels = _charts(svgs, suite["name"], experiment, numbers)
            legend = [{"label": label, "number": numbers[label]} for label in numbers if label in labels]
            experiment |= {"groups": groups, "legend": legend} | _figures(experiment)
    return svgs, suites


def _charts(
    svgs: dict[str, str], suite: str, experiment: dict, numbers: dict[str, int]
) -> tuple[list[list[dict]], set[str]]:
    """The charts of an experiment by row of the page, and the labels of their lines."""
    from reports import charts  # its library takes a second to load, and readers of pages need none

    labels: set[str] = set()
    groups: list[list[dict]] = []
    for group in filter(None, benchmarks.charts(experiment)):
        if len(group) != 1 or not groups or len(groups[-1]) != 1:  # two single charts share a row
            groups.append([])
        for chart in group:
            href = f"charts/bench-{slug(suite)}-{slug(experiment['name'])}-{len(svgs)}.svg"
            points = benchmarks.points(chart)
            size = FIVE if len(group) == 5 else NARROW if len(group) > 2 else BROAD
            svgs[href] = charts.benchmark(points, chart["plot"], numbers, size)
            about = benchmarks.about(chart, experiment["host"])
            groups[-1].append({"title": chart["title"], "about": about, "href": href})
            labels |= {point["line"] for point in points if "line" in point}
    return groups, labels


def _figures(experiment: dict) -> dict:
    """The table of an experiment."""
    rows = experiment["rows"]
    columns = list(dict.fromkeys(["app", "way", *experiment["varies"], "threads"]))
    columns = [name for name in columns if name != "at_s"]
    return {
        "wrong": sum(row["result"] == "different" for row in rows),
        "columns": columns,
        "predicted": any("predicted_per_s" in row for row in rows) and "predicted_per_s" not in columns,
        "open_loop": any("end_to_end_p99_us" in row for row in rows),
        "energy": any(row.get("energy_nj") is not None for row in rows),
        "lines": [
            dict.fromkeys(OPTIONAL) | row | {"named": [_text(benchmarks.value(row, name)) for name in columns]}
            for row in passes(rows)
        ],
    }


def _text(value: object) -> str:
    return NOTHING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
