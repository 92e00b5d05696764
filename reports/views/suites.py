"""The benchmark's suites on the performance page: their charts, and the figures behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from reports import results
from reports.history.text import NOTHING, human_micros, human_nano, human_rate
from reports.views import benchmarks
from reports.views.performance import slug
from streaming_core.bench.report import passes

FIVE, NARROW, BROAD = (125, 120), (170, 140), (400, 170)  # charts: five, four, or two in a row
# Columns of figures, where a row has one: the column, its title and how to write it.
FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("predicted_per_s", "predicted", human_rate),
    ("events_per_s", "events/s", human_rate),
    ("to_loop", "\u00d7 loop", "{:.2f}".format),
    ("to_handwritten", "\u00d7 hand-written", "{:.2f}".format),
    ("p99_us", "p99", human_micros),
    ("offered_per_s", "offered", human_rate),
    ("end_to_end_mean_us", "end-to-end mean", human_micros),
    ("end_to_end_p99_us", "end-to-end p99", human_micros),
    ("cpu_ns", "CPU per event", partial(human_nano, unit="s")),
    ("energy_nj", "energy per event", partial(human_nano, unit="J")),
)


def draw(*folders: Path) -> tuple[dict[str, str], list[dict]]:
    """The suites of these folders of results: file below the reports -> SVG, and the suites for templates."""
    suites = benchmarks.suites(folders, results.sources())
    svgs: dict[str, str] = {}
    names: list[str] = []
    for suite in suites:
        names.append(suite["name"])
        number = names.count(suite["name"])  # of the machine
        suite["place"] = suite["name"] if number == 1 else f"{suite['name']}-{number}"
        numbers = benchmarks.numbers(suite)
        for experiment in suite["experiments"]:
            groups, labels = _charts(svgs, suite, experiment, numbers)
            legend = [{"label": label, "number": numbers[label]} for label in numbers if label in labels]
            experiment |= {"groups": groups, "legend": legend} | _about(experiment) | _figures(experiment)
    return svgs, suites


def _about(experiment: dict) -> dict:
    """What the page says of how an experiment was measured."""
    outdated = experiment["outdated"]
    return {
        "warning": results.warning(outdated) if outdated else "",
        "round_trip": results.round_trip(experiment["host"]),
        "passes": results.passes(experiment),
        "size": results.size(experiment),
    }


def _charts(
    svgs: dict[str, str], suite: dict, experiment: dict, numbers: dict[str, int]
) -> tuple[list[list[dict]], set[str]]:
    """The charts of an experiment by row of the page, and the labels of their lines."""
    from reports.charts import benchmark  # its library takes a second to load, and readers of pages need none

    labels: set[str] = set()
    groups: list[list[dict]] = []
    for group in filter(None, benchmarks.charts(experiment)):
        if len(group) != 1 or not groups or len(groups[-1]) != 1:  # two single charts share a row
            groups.append([])
        for chart in group:
            href = f"charts/bench-{slug(suite['place'])}-{slug(experiment['name'])}-{len(svgs)}.svg"
            points = benchmarks.points(chart)
            size = FIVE if len(group) == 5 else NARROW if len(group) > 2 else BROAD
            svgs[href] = benchmark.draw(points, chart["plot"], numbers, size)
            about = benchmarks.about(chart, results.processor(experiment["host"]))
            groups[-1].append({"title": chart["title"], "about": about, "href": href})
            labels |= {point["line"] for point in points if "line" in point}
    return groups, labels


def _figures(experiment: dict) -> dict:
    """The table of an experiment."""
    rows = experiment["rows"]
    columns = list(dict.fromkeys(["app", "way", *experiment["varies"], "threads"]))
    columns = [name for name in columns if name != "at_s"]
    shown = passes(rows)
    figures = [
        figure
        for figure in FIGURES
        if figure[0] not in columns and any(row.get(figure[0]) is not None for row in shown)
    ]
    return {
        "wrong": sum(row["result"] == "different" for row in rows),
        "columns": columns,
        "figures": [title for _, title, _ in figures],
        "lines": [
            {
                "named": [_text(benchmarks.value(row, name)) for name in columns],
                "cells": [_figure(row, column, write) for column, _, write in figures],
                "result": row["result"],
            }
            for row in shown
        ],
    }


def _figure(row: dict, column: str, write: Callable[[float], str]) -> tuple[str, str]:
    """A figure and its interval, as text."""
    value, ends = row.get(column), results.interval(row, column)
    if value is None:
        return NOTHING, ""
    return write(value), f"({write(ends[0])} to {write(ends[1])})" if ends else ""


def _text(value: object) -> str:
    return NOTHING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
