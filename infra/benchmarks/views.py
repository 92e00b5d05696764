"""The benchmark's suites on the page of benchmarks: their charts, and the figures behind them.

`draw` turns folders of results into suites for the page. measurements.py reads the results and chooses what to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.benchmarks import measurements
from infra.benchmarks.measurements import Experiment
from reports.history.text import NOTHING, human_micros, human_nano, human_rate
from reports.site import slug
from reports.views.performance import Chart
from streaming_core.bench import wording
from streaming_core.bench.race.rounds import Row
from streaming_core.bench.report import passes

FIVE, NARROW, BROAD = (125, 120), (170, 140), (400, 170)  # charts: five, four, or two in a row
# Columns of figures, where a row has one: the column, its title and how to write it.
FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("predicted_per_s", "predicted", human_rate),
    ("events_per_s", "events/s", human_rate),
    ("to_loop", "\u00d7 loop", "{:.2f}".format),
    ("model", "model \u00d7 loop", "{:.2f}".format),
    ("to_one_thread", "\u00d7 one thread", "{:.2f}".format),
    ("to_handwritten", "\u00d7 hand-written", "{:.2f}".format),
    ("p99_us", "p99", human_micros),
    ("offered_per_s", "offered", human_rate),
    ("end_to_end_mean_us", "end-to-end mean", human_micros),
    ("end_to_end_p99_us", "end-to-end p99", human_micros),
    ("cpu_ns", "CPU per event", partial(human_nano, unit="s")),
    ("energy_nj", "energy per event", partial(human_nano, unit="J")),
)


@dataclass(frozen=True)
class LegendLine:
    """A line of a legend, and the number of its series (charts/series.py)."""

    label: str
    number: int


@dataclass(frozen=True)
class FigureLine:
    """A line of the table of figures.

    Attributes:
        named: the texts that name the row.
        cells: each figure and its interval, as text.
        result: the result of the row, a key of `measurements.RESULTS`.
    """

    named: list[str]
    cells: list[tuple[str, str]]
    result: str


@dataclass(frozen=True)
class FigureTable:
    """The figures of an experiment: the columns that name a row, the titles of the figures, and the lines."""

    columns: list[str]
    figures: list[str]
    lines: list[FigureLine]

    @classmethod
    def of(cls, experiment: Experiment) -> FigureTable:
        """The table of an experiment."""
        columns = list(dict.fromkeys(["app", "way", *experiment["varies"], "threads"]))
        columns = [name for name in columns if name != "at_s"]
        rows = passes(experiment["rows"])
        figures = [
            figure
            for figure in FIGURES
            if figure[0] not in columns and any(row.get(figure[0]) is not None for row in rows)
        ]
        lines = [
            FigureLine(
                [_text(measurements.value(row, name)) for name in columns],
                [_figure(row, column, write) for column, _, write in figures],
                row["result"],
            )
            for row in rows
        ]
        return cls(columns, [title for _, title, _ in figures], lines)


@dataclass(frozen=True)
class ExperimentView:
    """An experiment on the page.

    Attributes:
        content: the experiment and the facts of its result, as JSON.
        groups: its charts, by row of the page.
        legend: the lines of its charts.
        table: its figures.
        wrong: how many of its results differ from the loop's.
        round_trip: the round trip between two cores.
        passes: its passes and rounds.
        size: its cells, and the time that they took.
    """

    content: Experiment
    groups: list[list[Chart]]
    legend: list[LegendLine]
    table: FigureTable
    wrong: int
    round_trip: str
    passes: str
    size: str


@dataclass(frozen=True)
class SuiteView:
    """A suite on the page: its name, title, machine, anchor and experiments."""

    name: str
    title: str
    machine: str
    place: str
    experiments: list[ExperimentView]


@dataclass(frozen=True)
class BenchmarksPage:
    """The page of the suites: its heading, the suites, and the results of a row in words."""

    headline: str
    suites: list[SuiteView]
    results: Mapping[str, str]

    @classmethod
    def of(cls, suites: list[SuiteView]) -> BenchmarksPage:
        """The page of some suites."""
        experiments = [experiment for suite in suites for experiment in suite.experiments]
        noun = f"{len(experiments)} experiment{'s' * (len(experiments) != 1)}"
        return cls(f"Benchmarks: {noun}", suites, measurements.RESULTS)


def draw(folders: Iterable[Path]) -> tuple[dict[str, str], list[SuiteView]]:
    """Draw the suites of some folders of results.

    Returns:
        The charts as SVG by their paths below the reports, and the suites.
    """
    svgs: dict[str, str] = {}
    views: list[SuiteView] = []
    for suite in measurements.suites(folders):
        number = 1 + sum(view.name == suite.name for view in views)  # of the machine
        place = suite.name if number == 1 else f"{suite.name}-{number}"
        numbers = measurements.numbers(suite)
        experiments = [_experiment(svgs, place, experiment, numbers) for experiment in suite.experiments]
        views.append(SuiteView(suite.name, suite.title, suite.machine, place, experiments))
    return svgs, views


def _experiment(svgs: dict[str, str], place: str, experiment: Experiment, numbers: Mapping[str, int]) -> ExperimentView:
    """The view of an experiment of the suite at an anchor; adds its charts to `svgs`."""
    groups, labels = _charts(svgs, place, experiment, numbers)
    return ExperimentView(
        content=experiment,
        groups=groups,
        legend=[LegendLine(label, number) for label, number in numbers.items() if label in labels],
        table=FigureTable.of(experiment),
        wrong=sum(row["result"] == "different" for row in experiment["rows"]),
        round_trip=wording.round_trip(experiment["host"]),
        passes=wording.passes(experiment),
        size=wording.size(experiment),
    )


def _charts(
    svgs: dict[str, str], place: str, experiment: Experiment, numbers: Mapping[str, int]
) -> tuple[list[list[Chart]], set[str]]:
    """The charts of an experiment by row of the page, and the labels of their lines."""
    from reports.charts import benchmark  # its library takes a second to load, and readers of pages need none

    labels: set[str] = set()
    groups: list[list[Chart]] = []
    for group in filter(None, measurements.charts(experiment)):
        if len(group) != 1 or not groups or len(groups[-1]) != 1:  # two single charts share a row
            groups.append([])
        for chart in group:
            href = f"charts/bench-{slug(place)}-{slug(experiment['name'])}-{len(svgs)}.svg"
            points = measurements.points(chart)
            size = FIVE if len(group) == 5 else NARROW if len(group) > 2 else BROAD
            svgs[href] = benchmark.draw(points, chart.plot, numbers, size)
            about = measurements.about(chart, wording.processor(experiment["host"]))
            groups[-1].append(Chart(chart.title, about, href))
            labels |= {point["line"] for point in points if "line" in point}
    return groups, labels


def _figure(row: Row, column: str, write: Callable[[float], str]) -> tuple[str, str]:
    """A figure and its interval, as text."""
    value, ends = row.get(column), wording.interval(row, column)
    if value is None:
        return NOTHING, ""
    return write(value), f"({write(ends[0])} to {write(ends[1])})" if ends else ""


def _text(value: object) -> str:
    return NOTHING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
