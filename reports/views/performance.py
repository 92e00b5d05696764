"""The speed of a run: charts and figures by application, and the history of a cell over builds.

Charts compare like with like. A chart of a run shows cells of one application that took the same events on one host. A
history shows one way of executing the same workload on the same host, which is one series of the mart `throughput`. A
series begins anew when the code of the application or of its generator changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from reports.history.cell import Cell
from reports.history.load import MOST_RUNS, History
from reports.history.text import human_rate, matrix_text, named
from reports.times import started
from reports.views.engines import Comparison
from reports.views.outcome import events
from streaming_core.regression.comparable import Input

MOST_POINTS = 60  # runs of a history, the newest ones
ENGINES = {"x": "threads", "y": "events_per_s", "kind": "bar"}  # the chart of a comparison with other engines
LATENCIES = {"processing": "Processing latency", "end_to_end": "End-to-end latency at the set rate"}


@dataclass(frozen=True)
class Chart:
    """A chart: its title, what it is about (application, events, host), and its file below the reports."""

    title: str
    about: str
    href: str


@dataclass(frozen=True)
class Section:
    """The speed of one application in a run, on one host.

    Attributes:
        app: the application.
        place: the anchor of the section.
        about: events and host.
        best: the fastest cell in total order.
        strategies: name and number (series.py) of each strategy.
        charts: the charts.
        rows: rows of the mart `throughput`.
    """

    app: str
    place: str
    about: str
    best: str
    strategies: list[tuple[str, int]]
    charts: list[Chart]
    rows: list[dict]


@dataclass(frozen=True)
class Measured:
    """A run in the marts: how many cells it measured, its hosts, applications and events."""

    run_id: str
    cells: int
    hosts: list[str]
    apps: list[str]
    matrix: str
    events: str

    @property
    def started(self) -> str:
        """The time of its request."""
        return started(self.run_id)

    @property
    def label(self) -> str:
        """`2026-01-31 02:00 UTC, nightly`: the time of its request, and its named matrix."""
        name = self.matrix.partition(" ")[0] + (" with overrides" if ", overrides " in self.matrix else "")
        return f"{self.started}, {name}" if name else self.started


@dataclass(frozen=True)
class Point:
    """A run in the history of a cell: its row of the mart `throughput`, and its ratio to the compiled loop."""

    row: dict
    to_loop: float | None


class Performance:
    """What the marts say about the speed of the runs of a history."""

    def __init__(self, history: History):
        """Read nothing yet; each mart is read once, when it is needed."""
        self._history = history
        self._drawn: dict[str, tuple[dict[str, str], list[Section]]] = {}

    @cached_property
    def _throughput(self) -> list[dict]:
        return self._mart("throughput")

    @cached_property
    def _latency(self) -> list[dict]:
        return self._mart("latency")

    @cached_property
    def latencies(self) -> dict[tuple[str, str], dict]:
        """The processing latency of each run and cell: its row of the mart `latency`."""
        return {(row["run_id"], row["cell"]): row for row in self._latency if row["kind"] == "processing"}

    @cached_property
    def _speed(self) -> list[dict]:
        return [row for row in self._mart("speed") if row["to_loop"]]

    def _mart(self, name: str) -> list[dict]:
        rows = sorted(self._history.mart(name), key=lambda row: row["run_id"])
        return [row | {"strategy": named(row["strategy"], row["order"])} for row in rows]

    @cached_property
    def _series(self) -> dict[str, list[dict]]:
        found: dict[str, list[dict]] = {}
        for row in self._throughput:
            found.setdefault(row["series"], []).append(row)
        return found

    @cached_property
    def strategies(self) -> list[str]:
        """All that were measured, in the order of their colours."""
        return sorted({row["strategy"] for row in self._throughput})

    @cached_property
    def runs(self) -> list[Measured]:
        """The runs in the marts, newest first."""
        rows: dict[str, list[dict]] = {}
        for row in reversed(self._throughput):
            rows.setdefault(row["run_id"], []).append(row)
        return [self._run(run_id, of_run) for run_id, of_run in rows.items()]

    def _run(self, run_id: str, rows: list[dict]) -> Measured:
        plan = self._history.plan(run_id)
        inputs = self._history.inputs(run_id, plan)
        apps = {row["app"]: inputs[row["cell"]] for row in rows if row["cell"] in inputs}
        hosts = sorted({row["host"] for row in rows})
        return Measured(run_id, len(rows), hosts, sorted({row["app"] for row in rows}), matrix_text(plan), events(apps))

    def elsewhere(self, run_id: str) -> dict[str, str]:
        """The applications that a run did not measure, with the newest run that did."""
        own = {app for one in self.runs if one.run_id == run_id for app in one.apps}
        newest = {app: one.run_id for one in reversed(self.runs) for app in one.apps}
        return {app: newest[app] for app in sorted(newest.keys() - own)}

    def default(self) -> tuple[str | None, str]:
        """The run that the page shows if no run is picked, and why: like the state, it prefers nightlies."""
        measured = [one.run_id for one in self.runs]
        comparable = self._history.comparable(measured[:MOST_RUNS])
        for run_id, one in comparable.items():
            if one.is_nightly:
                return run_id, "the last nightly with measurements"
        if comparable:
            return next(iter(comparable)), "the newest comparable run, because no nightly has measurements"
        return next(iter(measured), None), "the newest run, because no comparable run has measurements"

    def draw(self, run_id: str) -> tuple[dict[str, str], list[Section]]:
        """The charts of a run, file below the reports -> SVG, and its sections."""
        if run_id not in self._drawn:
            svgs: dict[str, str] = {}
            sections = [self._section(svgs, run_id, *group) for group in self._groups(run_id)]
            self._drawn[run_id] = svgs, sections
        return self._drawn[run_id]

    def draw_engines(self, compared: Comparison) -> tuple[dict[str, str], list[Chart]]:
        """The charts of a comparison with other engines: file below the reports -> SVG, and a chart for each group."""
        from reports.charts import benchmark, vega

        numbers = {name: number for number, name in enumerate(compared.names)}
        svgs, found = {}, []
        for number, group in enumerate(compared.groups):
            if points := group.points:
                href = f"{compared.run.run_id}/charts/engines-{slug(group.app)}-{number}.svg"
                svgs[href] = benchmark.draw(points, ENGINES, numbers, (vega.WIDTH, vega.HEIGHT))
                found.append(Chart("Beside other engines", f"{group.app}, {group.about}", href))
        return svgs, found

    def history_of(self, cell: Cell) -> list[Point]:
        """The runs that executed a cell on the same workload and host, oldest first; [] if the cell never ran."""
        facts = cell.facts
        if not facts.get("host"):
            return []
        return self._points(f"{facts['spec_digest']}/{facts['workload_address']}/{facts['host']}", cell.run_id)

    def history_of_row(self, row: dict) -> list[Point]:
        """The same for a row of the mart `throughput`."""
        return self._points(row["series"], row["run_id"])

    def _points(self, series: str, last_run: str) -> list[Point]:
        points = [row for row in self._series.get(series, []) if row["run_id"] <= last_run]
        speeds = self._history.speeds
        ratios = [speeds.get((row["run_id"], row["cell"])) for row in points]
        return [Point(row, speed.to_loop if speed else None) for row, speed in zip(points, ratios, strict=True)]

    def draw_history(self, points: list[Point]) -> str:
        """The history of a cell as SVG."""
        from reports.charts import runs

        return runs.history([point.row for point in points][-MOST_POINTS:], self.strategies)

    def _groups(self, run_id: str) -> Iterator[tuple[str, str, str, list[dict]]]:
        """Place, application, events and host of rows that may stand in one chart, and these rows."""
        inputs = self._history.inputs(run_id, self._history.plan(run_id))
        groups: dict[tuple[str, str], list[dict]] = {}
        for row in self._throughput:
            if row["run_id"] == run_id:
                about = f"{_events(row, inputs)}, {row['host']}"
                groups.setdefault((row["app"], about), []).append(row)
        places: dict[str, int] = {}
        for (app, about), rows in sorted(groups.items()):
            number = places[app] = places.get(app, 0) + 1
            yield app if number == 1 else f"{app}-{number}", app, about, rows

    def _section(
        self, svgs: dict[str, str], run_id: str, place: str, app: str, about: str, rows: list[dict]
    ) -> Section:
        from reports.charts import runs  # its library takes a second to load, and readers of pages need none

        found: list[Chart] = []

        def add(name: str, title: str, draw: Callable[[list[dict], list[str]], str], chosen: list[dict]) -> None:
            href = f"{run_id}/charts/{name}-{slug(place)}.svg"
            svgs[href] = draw(chosen, self.strategies)
            found.append(Chart(title, f"{app}, {about}", href))

        add("throughput", "Throughput by threads", runs.throughput, rows)
        cells = {row["cell"] for row in rows}
        for kind, title in LATENCIES.items():
            of_kind = [r for r in self._latency if r["run_id"] == run_id and r["kind"] == kind and r["cell"] in cells]
            if of_kind:
                add(f"latency-{kind}", title, runs.latency, of_kind)
        for threads in sorted({row["threads"] for row in rows}):
            text = f"{threads} thread{'s' * (threads != 1)}"
            mine = [row for row in rows if row["threads"] == threads]
            ratios = self._ratios(run_id, {row["cell"] for row in mine})
            if len({row["run_id"] for row in ratios}) > 1:
                add(f"speed-t{threads}", f"Ratio to the compiled loop over runs, {text}", runs.speed, ratios)
            past = self._past(run_id, {row["series"] for row in mine})
            if len({row["run_id"] for row in past}) > 1:
                add(f"history-t{threads}", f"History over builds, {text}", runs.history, past)
        best = max(rows, key=lambda row: (row["order"] != "none", row["median_events_per_s"] or 0))
        fastest = (
            f"fastest {human_rate(best['median_events_per_s'])} events/s: {app}/{best['strategy']}/t{best['threads']}"
        )
        numbers = {name: number for number, name in enumerate(self.strategies)}
        strategies = [(name, numbers[name]) for name in sorted({row["strategy"] for row in rows})]
        return Section(app, place, about, fastest, strategies, found, rows)

    def _past(self, run_id: str, series: Iterable[str]) -> list[dict]:
        """The rows of these series up to a run, in its last runs."""
        rows = [row for name in series for row in self._series[name] if row["run_id"] <= run_id]
        return _newest(rows)

    def _ratios(self, run_id: str, cells: set[str]) -> list[dict]:
        """The ratios of these cells up to a run, measured as in that run."""
        series = {row["series"] for row in self._speed if row["run_id"] == run_id and row["cell"] in cells}
        return _newest([row for row in self._speed if row["series"] in series and row["run_id"] <= run_id])


def _newest(rows: list[dict]) -> list[dict]:
    """The rows of the newest runs."""
    kept = set(sorted({row["run_id"] for row in rows})[-MOST_POINTS:])
    return [row for row in rows if row["run_id"] in kept]


def _events(row: dict, inputs: dict[str, Input]) -> str:
    known = inputs.get(row["cell"])
    return known.text if known else f"{row['events']:,} events"


def slug(name: str) -> str:
    """A name as part of a file's name, whatever is in it."""
    return re.sub(r"[^a-z0-9-]", "_", name.lower())[:60]
