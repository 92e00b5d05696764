"""The performance page: charts and figures by application, and the history of a cell over builds.

`Performance` reads the marts and draws charts.

Charts compare like with like. A chart of a run shows cells of one application that took the same events on one host. A
history shows one way of executing the same workload on the same host, which is one series of the mart `throughput`. A
series begins anew when the code of the application or of its generator changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from reports.history.cell import Cell
from reports.history.gate import Gate
from reports.history.load import MOST_RUNS, History, Row
from reports.history.run import Run
from reports.history.speed import Speed, counts
from reports.history.text import NOTHING, human_rate, matrix_text, named, short
from reports.site import slug
from reports.times import started
from reports.views.engines import Comparison
from reports.views.outcome import events
from reports.views.sparkline import Point, Sparkline
from reports.views.tiles import TREND
from streaming_core.regression.comparable import Input

MOST_POINTS = 60  # runs of a history, the newest ones
ENGINES = {"x": "threads", "y": "events_per_s", "kind": "bar"}  # the chart of a comparison with other engines
LATENCIES = {"processing": "Processing latency", "end_to_end": "End-to-end latency at the set rate"}


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: its title.
        about: what it is about: application, events, host.
        href: its picture, a file below the reports.
        specification: that of Vega-Lite if a browser draws it; None if it is a picture only.
    """

    title: str
    about: str
    href: str
    specification: dict | None = None


@dataclass(frozen=True)
class Figures:
    """The figures of a cell.

    Attributes:
        row: its row of the mart `throughput`.
        p50_us: median of the processing latency in microseconds.
        p99_us: 99th percentile of the processing latency in microseconds.
        energy_nj: energy per event in nanojoules; None if not measured.
    """

    row: Row
    p50_us: float | None
    p99_us: float | None
    energy_nj: float | None
    speedup: float | None
    speed: Speed | None
    gate: Gate | None
    line: Sparkline | None


@dataclass(frozen=True)
class Section:
    """The speed of one application in a run, on one host."""

    app: str
    place: str
    about: str
    best: str
    strategies: list[tuple[str, int]]
    charts: list[Chart]
    figures: list[Figures]


@dataclass(frozen=True)
class Drawing:
    """The charts of a run, as SVG by their paths below the reports, and its sections."""

    svgs: dict[str, str]
    sections: list[Section]


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

    def page(self, reports: Path, is_own: bool) -> str | None:
        """The path of its performance page below the reports; None if it has none.

        Args:
            reports: the folder of the reports.
            is_own: whether this page is being written.
        """
        name = f"{self.run_id}/performance.html"
        return name if is_own or (reports / name).exists() else None

    @property
    def label(self) -> str:
        """`2026-01-31 02:00 UTC, nightly`: the time of its request, and its named matrix."""
        name = self.matrix.partition(" ")[0] + (" with overrides" if ", overrides " in self.matrix else "")
        return f"{self.started}, {name}" if name else self.started


Draw = Callable[[list[Row], list[str]], dict]
IN_BROWSER = "scaling"  # the chart of a section that a browser draws


class _Group(NamedTuple):
    """Rows of the mart `throughput` that may stand in one chart; place, app and about are as in `Section`."""

    place: str
    app: str
    about: str
    rows: list[Row]


class Performance:
    """The speed of the runs of a history, from its marts."""

    def __init__(self, history: History):
        """Read nothing yet; each mart is read once, when it is needed."""
        self._history = history
        self._drawings: dict[str, Drawing] = {}  # by run

    @cached_property
    def _throughput(self) -> list[Row]:
        return self._mart("throughput")

    @cached_property
    def _latency(self) -> list[Row]:
        return self._mart("latency")

    @cached_property
    def latencies(self) -> dict[tuple[str, str], Row]:
        """The processing latency of each run and cell: its row of the mart `latency`."""
        return {(row["run_id"], row["cell"]): row for row in self._latency if row["kind"] == "processing"}

    @cached_property
    def _speed(self) -> list[Row]:
        return [row for row in self._mart("speed") if row["to_loop"] and self._is_judged(row)]

    def _mart(self, name: str) -> list[Row]:
        rows = sorted(self._history.mart(name), key=lambda row: row["run_id"])
        return [row | {"strategy": named(row["strategy"], row["order"])} for row in rows]

    @cached_property
    def _series(self) -> dict[str, list[Row]]:
        series: dict[str, list[Row]] = {}
        for row in self._throughput:
            series.setdefault(row["series"], []).append(row)
        return series

    @cached_property
    def strategies(self) -> list[str]:
        """All that were measured, in the order of their colours."""
        return sorted({row["strategy"] for row in self._throughput})

    @cached_property
    def runs(self) -> list[Measured]:
        """The runs in the marts, newest first."""
        rows: dict[str, list[Row]] = {}
        for row in reversed(self._throughput):
            rows.setdefault(row["run_id"], []).append(row)
        return [self._measured(of_run) for of_run in rows.values()]

    def _measured(self, rows: list[Row]) -> Measured:
        """The run of some rows."""
        run_id = rows[0]["run_id"]
        plan = self._history.plan(run_id)
        inputs = self._history.inputs(run_id, plan)
        apps = {row["app"]: inputs[row["cell"]] for row in rows if row["cell"] in inputs}
        hosts = sorted({row["host"] for row in rows})
        return Measured(run_id, len(rows), hosts, sorted({row["app"] for row in rows}), matrix_text(plan), events(apps))

    def has_measured(self, run: Run) -> bool:
        """Whether the marts have figures of a run."""
        return any(past_run.run_id == run.run_id for past_run in self.runs)

    def elsewhere(self, run: Run) -> dict[str, str]:
        """The applications that a run did not measure, with the newest run that did."""
        own = {app for past_run in self.runs if past_run.run_id == run.run_id for app in past_run.apps}
        newest = {app: past_run.run_id for past_run in reversed(self.runs) for app in past_run.apps}
        return {app: newest[app] for app in sorted(newest.keys() - own)}

    def default(self) -> tuple[Run | None, str]:
        """The run that the page shows if no run is picked, and why: like the state, it prefers nightlies."""
        measured = [past_run.run_id for past_run in self.runs]
        comparable = self._history.comparable(measured[:MOST_RUNS])
        for run_id, past_run in comparable.items():
            if past_run.is_nightly:
                return self._history.run(run_id), "the last nightly with measurements"
        if comparable:
            return self._history.run(
                next(iter(comparable))
            ), "the newest comparable run, because no nightly has measurements"
        newest = self._history.run(measured[0]) if measured else None
        return newest, "the newest run, because no comparable run has measurements"

    def draw(self, run: Run) -> Drawing:
        """The charts and sections of a run."""
        if run.run_id not in self._drawings:
            svgs: dict[str, str] = {}
            sections = [self._section(svgs, run, group) for group in self._groups(run)]
            self._drawings[run.run_id] = Drawing(svgs, sections)
        return self._drawings[run.run_id]

    def draw_engines(self, compared: Comparison) -> tuple[dict[str, str], list[Chart]]:
        """The charts of a comparison with other engines: file below the reports -> SVG, and a chart for each group."""
        from reports.charts import benchmark, vega

        numbers = {name: number for number, name in enumerate(compared.names)}
        svgs, cards = {}, []
        for number, group in enumerate(compared.groups):
            if points := group.points:
                href = f"{compared.run.run_id}/charts/engines-{slug(group.app)}-{number}.svg"
                svgs[href] = benchmark.draw(points, ENGINES, numbers, (vega.WIDTH, vega.HEIGHT))
                cards.append(Chart("Beside other engines", f"{group.app}, {group.about}", href))
        return svgs, cards

    def history_of(self, cell: Cell) -> list[Point]:
        """The runs that executed a cell on the same workload and host, oldest first; [] if the cell never ran."""
        facts = cell.facts
        if not facts.get("host"):
            return []
        series = f"{facts['spec_digest']}/{facts['workload_address']}/{facts['host']}"
        return self._points([row for row in self._series.get(series, []) if row["run_id"] <= cell.run_id])

    def history_of_row(self, row: Row) -> list[Point]:
        """The same for a row of the mart `throughput`."""
        return self._points(
            [point for point in self._series.get(row["series"], []) if point["run_id"] <= row["run_id"]]
        )

    def _points(self, rows: list[Row]) -> list[Point]:
        """The points of some rows of a series."""
        speeds = [self._history.speeds.get((row["run_id"], row["cell"])) for row in rows]
        pairs = zip(rows, speeds, strict=True)
        return [Point(row, speed.to_loop if speed and speed.is_judged else None) for row, speed in pairs]

    def draw_history(self, points: list[Point]) -> dict:
        """The specification of the history of a cell. A point leads to its run."""
        from reports.charts import runs

        rows = [self._with_facts(point.row, "index.html") for point in points[-MOST_POINTS:]]
        return runs.history(rows, self.strategies)

    def _with_facts(self, row: Row, page: str) -> Row:
        """A row of the mart `throughput` with what its point says, and the page of its run that it leads to."""
        speed = self._history.speeds.get((row["run_id"], row["cell"]))
        facts = {
            "run": started(row["run_id"]),
            "build": short(row["build"]),
            "strategy": row["strategy"],
            "threads": str(row["threads"]),
            "events/s": human_rate(row["median_events_per_s"]),
            "slowest to fastest": f"{human_rate(row['min_events_per_s'])} to {human_rate(row['max_events_per_s'])}",
            "\u00d7 loop": f"{speed.to_loop:.3g}" if speed and speed.is_judged and speed.to_loop else NOTHING,
            "speed": speed.text if speed else NOTHING,
            "change": speed.interval if speed and speed.interval else NOTHING,
        }
        return row | {"facts": facts, "href": f"{row['run_id']}/{page}"}

    def _groups(self, run: Run) -> Iterator[_Group]:
        """The rows of a run by application, events and host."""
        inputs = self._history.inputs(run.run_id, run.plan)
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in self._throughput:
            if row["run_id"] == run.run_id:
                about = f"{_events(row, inputs)}, {row['host']}"
                groups.setdefault((row["app"], about), []).append(row)
        places: dict[str, int] = {}
        for (app, about), rows in sorted(groups.items()):
            number = places[app] = places.get(app, 0) + 1
            yield _Group(app if number == 1 else f"{app}-{number}", app, about, rows)

    def _section(self, svgs: dict[str, str], run: Run, group: _Group) -> Section:
        """The section of a group; adds its charts to `svgs`."""
        from reports.charts import vega

        rows = group.rows
        charts = []
        for name, title, draw, chosen in self._charts(run, rows):
            href = f"{run.run_id}/charts/{name}-{slug(group.place)}.svg"
            specification = draw(chosen, self.strategies)
            svgs[href] = vega.svg(specification)
            about = f"{group.app}, {group.about}"
            charts.append(Chart(title, about, href, specification if name == IN_BROWSER else None))
        fastest = "no speed has a verdict yet"
        if judged := [row for row in rows if self._is_judged(row)]:
            best = max(judged, key=lambda row: (row["order"] != "none", row["median_events_per_s"] or 0))
            way = f"{group.app}/{best['strategy']}/t{best['threads']}"
            fastest = f"fastest {human_rate(best['median_events_per_s'])} events/s: {way}"
        numbers = {name: number for number, name in enumerate(self.strategies)}
        strategies = [(name, numbers[name]) for name in sorted({row["strategy"] for row in rows})]
        shown = sorted(rows, key=lambda row: (row["executor"], row["strategy"], row["threads"]))
        figures = [self._figures(row, rows) for row in shown]
        return Section(group.app, group.place, group.about, fastest, strategies, charts, figures)

    def _charts(self, run: Run, rows: list[Row]) -> Iterator[tuple[str, str, Draw, list[Row]]]:
        """Name, title, drawing function and rows of each chart of a group's rows."""
        from reports.charts import runs  # its library takes a second to load, and readers of pages need none

        ends = _sockets(run, rows[0]["host"])
        curve = [row | {"is_judged": self._is_judged(row), "socket": ends.get(row["threads"])} for row in rows]
        yield "throughput", "Throughput by threads", runs.throughput, curve
        ratios = [
            self._with_facts(row | {"to_loop": ratio}, f"{row['cell']}.html")
            for row in curve
            if row["is_judged"] and (ratio := self._to_loop(row))
        ]
        if len({row["threads"] for row in ratios}) > 1:
            yield IN_BROWSER, "Ratio to the compiled loop by threads", runs.scaling, ratios
            most, speedups = self._speedups(run, ratios)
            if len({row["run_id"] for row in speedups}) > 1:
                yield "speedups", f"Speedup of {most} threads over runs", runs.speedups, speedups
        cells = {row["cell"] for row in rows}
        measured = [row for row in self._latency if row["run_id"] == run.run_id and row["cell"] in cells]
        for kind, title in LATENCIES.items():
            if of_kind := [row for row in measured if row["kind"] == kind]:
                yield f"latency-{kind}", title, runs.latency, of_kind
        for threads in sorted({row["threads"] for row in rows}):
            text = f"{threads} thread{'s' * (threads != 1)}"
            mine = [row for row in rows if row["threads"] == threads]
            ratios = self._ratios(run, {row["cell"] for row in mine})
            if len({row["run_id"] for row in ratios}) > 1:
                yield f"speed-t{threads}", f"Ratio to the compiled loop over runs, {text}", runs.speed, ratios
            past = self._past(run, sorted({row["series"] for row in mine}))
            if len({row["run_id"] for row in past}) > 1:
                yield f"history-t{threads}", f"History over builds, {text}", runs.history, past

    def _to_loop(self, row: Row) -> float | None:
        """The ratio of a cell to the compiled loop."""
        speed = self._history.speeds.get((row["run_id"], row["cell"]))
        return speed.to_loop if speed is not None else None

    def _speedups(self, run: Run, curve: list[Row]) -> tuple[int, list[Row]]:
        """The most threads of a curve, and their speedups over one thread in the runs up to this one.

        A speedup compares two ratios to the compiled loop, because a shared machine is not as fast every night.
        """
        most = max(row["threads"] for row in curve)
        ways = {row["strategy"]: row["series"] for row in curve if row["threads"] == most}
        alone = {row["strategy"]: row["series"] for row in curve if row["threads"] == 1}
        rows = []
        for way in sorted(ways.keys() & alone.keys()):
            single, many = self._ratios_of(alone[way]), self._ratios_of(ways[way])
            runs = [run_id for run_id in sorted(single.keys() & many.keys()) if run_id <= run.run_id]
            rows += [{"run_id": run_id, "strategy": way, "speedup": many[run_id] / single[run_id]} for run_id in runs]
        return most, _newest(rows)

    def _ratios_of(self, series: str) -> dict[str, float]:
        """The ratios of a series to the compiled loop, by run."""
        rows = [row for row in self._series[series] if self._is_judged(row)]
        return {row["run_id"]: ratio for row in rows if (ratio := self._to_loop(row))}

    def _is_judged(self, row: Row) -> bool:
        speed = self._history.speeds.get((row["run_id"], row["cell"]))
        return speed is not None and speed.is_judged

    def _figures(self, row: Row, rows: list[Row]) -> Figures:
        """The figures of a row among the rows of its group."""
        key = row["run_id"], row["cell"]
        latency = self.latencies.get(key, {})
        way = ("executor", "strategy")
        alone = [other for other in rows if other["threads"] == 1 and all(other[name] == row[name] for name in way)]
        return Figures(
            row=row,
            p50_us=latency.get("p50_us"),
            p99_us=latency.get("p99_us"),
            energy_nj=row.get("energy_nj"),
            speedup=row["speedup"] if all(map(self._is_judged, [row, *alone])) else None,
            speed=self._history.speeds.get(key),
            gate=self._history.gates.get(key),
            line=Sparkline.of(self.history_of_row(row)),
        )

    def _past(self, run: Run, series: Iterable[str]) -> list[Row]:
        """The rows of these series up to a run, in its last runs."""
        return _newest([row for name in series for row in self._series[name] if row["run_id"] <= run.run_id])

    def _ratios(self, run: Run, cells: set[str]) -> list[Row]:
        """The ratios of these cells up to a run, measured as in that run."""
        series = {row["series"] for row in self._speed if row["run_id"] == run.run_id and row["cell"] in cells}
        return _newest([row for row in self._speed if row["series"] in series and row["run_id"] <= run.run_id])


def _sockets(run: Run, machine: str) -> dict[int, str]:
    """The numbers of threads that fill sockets of a machine, with the sockets: `{16: "1 socket", 32: "2 sockets"}`."""
    sockets = next((preflight.sockets for preflight in run.preflights if preflight.machine == machine), [])
    ends = itertools.accumulate(sockets)
    return {end: f"{number} socket{'s' * (number > 1)}" for number, end in enumerate(ends, 1)}


def _newest(rows: list[Row]) -> list[Row]:
    """The rows of the newest runs."""
    kept = set(sorted({row["run_id"] for row in rows})[-MOST_POINTS:])
    return [row for row in rows if row["run_id"] in kept]


def _events(row: Row, inputs: dict[str, Input]) -> str:
    known = inputs.get(row["cell"])
    return known.text if known else f"{row['events']:,} events"


def headline(figures: Sequence[Figures]) -> str:
    """`Speed of 10 cells: 1 slower, 8 unchanged, 1 too noisy`."""
    number = counts(figure.speed for figure in figures)
    words = [f"{number[verdict]} {verdict.replace('_', ' ')}" for verdict in TREND if number[verdict]]
    return f"Speed of {len(figures)} cell{'s' * (len(figures) != 1)}: {', '.join(words) or 'no verdict yet'}"
