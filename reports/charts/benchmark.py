"""The charts of the benchmark's suites: lines, bars, stacked bars and scatter plots, with error bars.

`draw` draws a chart of any kind. Each kind has a function of its own below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reports.charts import series, vega

PARTS = ("useful", "sync", "lock", "remote", "other")
PART_SERIES = (2, 1, 4, 3, 5)
UNITS = {
    "events_per_s": ("events/s", 1, "~s", False),
    "p99_us": ("ms", 1e-3, "~r", True),
    "processing_mean_us": ("ms", 1e-3, "~r", True),
    "end_to_end_mean_us": ("ms", 1e-3, "~r", True),
    "processing_p99_us": ("ms", 1e-3, "~r", True),
    "end_to_end_p99_us": ("ms", 1e-3, "~r", True),
    "predicted_per_s": ("predicted events/s", 1, "~s", False),
    "comparisons_per_s": ("comparisons/s", 1, "~s", False),
    "switch_p99_us": ("ms", 1e-3, "~r", True),
    "loaded_switch_p99_us": ("ms", 1e-3, "~r", True),
    "offered_per_s": ("rows/s", 1, "~s", False),
    "replicas": ("replicas", 1, "~r", False),
    "work": ("share", 1, "~%", False),
    "pending": ("s", 1, "~r", False),
    "to_loop": ("over the loop", 1, "~r", False),
    "cpu_ns": ("CPU ns an event", 1, "~s", False),
    "energy_nj": ("nJ an event", 1, "~s", False),
    "breakdown": ("ns, all threads", 1, "~s", False),
}  # column: title, factor, format, whether its scale is logarithmic
AXES = {
    "mp_ratio": "share of multi-partition transactions",
    "mp_len": "partitions of a transaction",
    "read_ratio": "share of reads",
    "theta": "Zipf exponent",
    "punctuation": "events between punctuations",
    "instances": "replicas of the operator",
    "batch": "events in a batch",
    "sigma": "deviation of the keys",
    "cost_us": "cost of an operator, us",
    "sel": "tuples out of one",
    "load": "share of the peak rate",
    "heuristic": None,
    "queue": None,
    "case": None,
    "placement": None,
    "way": None,
    "at_s": "seconds",
    "states": "states at the end",
    "pool": "pool: shared ...",
    "predicted_per_s": "predicted events/s",
}

Values = list[dict[str, Any]]
DASHED = {"strokeDash": [4, 3]}


def draw(points: Values, plot: dict[str, Any], numbers: Mapping[str, int], size: tuple[int, int]) -> str:
    """Draw one chart of a benchmark suite.

    Args:
        points: `x`, `y`, `line`; `dashed`: the line is the yardstick of others, or a bound; `level`: it is one
            height at every x. The ends of an error bar are `low` and `high`. Stacked bars have `part` and its `order`
            instead.
        plot: as the suite's JSON declares it.
        numbers: the series of the page that each line is.
        size: width and height, axes not counted.
    """
    chart = _Chart.of(points, plot, numbers)
    layers = {"parts": _stacked_bars, "bar": _bars, "point": _scatter}.get(plot["kind"], _curves)(chart)
    return vega.svg(vega.chart(chart.values, layers, size))


@dataclass(frozen=True)
class _Chart:
    """The parts of a chart that do not depend on its kind.

    Attributes:
        values: the points, in the unit of the axis.
        plot: as the suite's JSON declares it.
        y: the encoding of y.
        format: how the axis writes a value of y.
        is_logarithmic: whether the scale of y has no zero.
        lines: the names of the lines.
        series: the series of the page that each line is.
    """

    values: Values
    plot: dict[str, Any]
    y: dict[str, Any]
    format: str
    is_logarithmic: bool
    lines: list[str]
    series: list[int]

    @classmethod
    def of(cls, points: Values, plot: dict[str, Any], numbers: Mapping[str, int]) -> _Chart:
        """The chart of some points; the arguments are those of `draw`."""
        title, factor, shape, logarithmic = UNITS.get(plot["y"], (plot["y"], 1, "~s", False))
        logarithmic = logarithmic and plot["kind"] == "line"  # a bar stands on zero
        values = [
            point | {name: point[name] * factor for name in ("y", "low", "high") if name in point} for point in points
        ]
        ticks: dict[str, Any] = {"values": [10.0**n for n in range(-3, 6)]} if logarithmic else {"tickCount": 4}
        scale: dict[str, Any] = {"type": "log"} if logarithmic else {"zero": True}
        y = {
            "field": "y",
            "type": "quantitative",
            "title": title,
            "scale": scale,
            "axis": {"format": shape, **ticks},
        }
        lines = list(dict.fromkeys(point["line"] for point in points if "line" in point))
        return cls(values, plot, y, shape, logarithmic, lines, [numbers[line] for line in lines])

    @property
    def x_title(self) -> str | None:
        """The title of the x axis; None if the values speak for themselves."""
        return AXES.get(self.plot["x"], self.plot["x"])

    @property
    def x_names(self) -> dict[str, Any]:
        """The encoding of an x that holds names."""
        axis = {"labelAngle": -40, "labelOverlap": False}
        return {"field": "x", "type": "nominal", "title": self.x_title, "sort": None, "axis": axis}

    @property
    def colour(self) -> dict[str, Any]:
        """The encoding of a line's colour."""
        return vega.look("line", self.lines, [series.colour(number) for number in self.series])

    @property
    def marker(self) -> dict[str, Any]:
        """The encoding of a line's marker."""
        return vega.look("line", self.lines, [series.marker(number) for number in self.series])


def _stacked_bars(chart: _Chart) -> Values:
    """Bars of parts. The parts of a run's time have the same colours in all charts."""
    names = list(dict.fromkeys(value["part"] for value in chart.values))
    parts = list(PARTS) if set(names) <= set(PARTS) else names
    numbers: Iterable[int] = PART_SERIES if parts == list(PARTS) else range(len(parts))
    colour = {
        "field": "part",
        "type": "nominal",
        "title": None,
        "sort": parts,
        # No clock separates a thread's time in remote memory: the time comes from a model (memory/placement.rs).
        "legend": {"columns": 3, "labelExpr": "datum.label == 'remote' ? 'remote (estimate)' : datum.label"},
        "scale": {"domain": parts, "range": [series.colour(number) for number in numbers]},
    }
    order = {"field": "order", "type": "quantitative"}
    return [{"mark": "bar", "encoding": {"x": chart.x_names, "y": chart.y, "color": colour, "order": order}}]


def _bars(chart: _Chart) -> Values:
    """A bar for each line, side by side if several lines share an x."""
    is_grouped = any(value["x"] != value["line"] for value in chart.values)
    beside: dict[str, Any] = {"xOffset": {"field": "line", "sort": chart.lines}} if is_grouped else {}
    fillings = vega.look("line", chart.lines, series.fillings(chart.series))
    looks = {"color": chart.colour, "stroke": chart.colour, "fillOpacity": fillings}
    bars = {"mark": "bar", "encoding": {"x": chart.x_names, "y": chart.y, **looks, **beside}}
    return [bars, *_errors(chart.values, chart.x_names, chart.y, beside, chart.is_logarithmic)]


def _scatter(chart: _Chart) -> Values:
    """A dot for each point, and the diagonal where x and y are equal."""
    most = max(max(value["x"], value["y"]) for value in chart.values)
    diagonal = {"values": [{"x": 0, "y": 0}, {"x": most, "y": most}]}
    x = _numbers(chart) | {"axis": {"tickCount": 5, "format": chart.format}}
    dot = {"type": "point", "filled": True, "size": 35, "opacity": 0.8}
    stroke = {"type": "line", "strokeWidth": 1, **DASHED, "color": "#8b929c"}
    looks = {"color": chart.colour, "shape": chart.marker}
    return [
        {"data": diagonal, "mark": stroke, "encoding": {"x": x, "y": chart.y}},
        *_errors(chart.values, x, chart.y, {"color": chart.colour}),
        {"data": {"values": chart.values}, "mark": dot, "encoding": {"x": x, "y": chart.y, **looks}},
    ]


def _curves(chart: _Chart) -> Values:
    """A curve for each line, and a rule for each line that has one height at every x."""
    x, y, colour = _numbers(chart), chart.y, chart.colour
    if chart.plot["log"]:
        shape = "~s" if min(value["x"] for value in chart.values) >= 1 else "~r"
        x |= {"scale": {"type": "log"}, "axis": {"format": shape, "values": [10.0**n for n in range(-3, 8)]}}
    if chart.plot["x"] == "threads":
        x |= {"type": "ordinal", "axis": {"labelAngle": 0}}
    layers: Values = []
    for is_dashed in (False, True):
        values = [value for value in chart.values if value["dashed"] == is_dashed]
        level, curve = ([value for value in values if value["level"] == is_level] for is_level in (True, False))
        dashes = DASHED if is_dashed else {}
        if level:
            rule = {"type": "rule", "strokeWidth": 1.5, **dashes}
            layers += _errors(level, None, y, {"color": colour}, chart.is_logarithmic)
            layers.append({"data": {"values": level}, "mark": rule, "encoding": {"y": y, "color": colour}})
        if curve:
            encoding = {"x": x, "y": y, "color": colour}
            line = {"type": "line", "strokeWidth": 1.5, **dashes}
            point = {"type": "point", "filled": True, "size": 35, "opacity": 1}
            layers.append({"data": {"values": curve}, "mark": line, "encoding": encoding})
            layers += _errors(curve, x, y, {"color": colour}, chart.is_logarithmic)
            layers.append({"data": {"values": curve}, "mark": point, "encoding": encoding | {"shape": chart.marker}})
    return layers


def _numbers(chart: _Chart) -> dict[str, Any]:
    """The encoding of an x that holds numbers."""
    return {"field": "x", "type": "quantitative", "title": chart.x_title, "axis": {"tickCount": 5}}


def _errors(values: list[dict], x: dict | None, y: dict, more: dict, logarithmic: bool = False) -> list[dict]:
    """The error bars of some points, from `low` to `high`; without x, a band over the whole width.

    Args:
        values: the points.
        x: the encoding of x.
        y: the encoding of y.
        more: further encodings. Without a colour, bars have that of the page's text.
        logarithmic: whether the scale of y has no zero.
    """
    known = [value for value in values if value.get("low") is not None and (value["low"] > 0 or not logarithmic)]
    if not known:
        return []
    ends = {"y": y | {"field": "low"}, "y2": {"field": "high"}}
    if x is None:
        band = {"type": "rect", "opacity": 0.18, "description": "interval"}
        return [{"data": {"values": known}, "mark": band, "encoding": ends | more}]
    bar = {"type": "rule", "strokeWidth": 1.5 if "color" not in more else 3, "description": "interval"}
    bar |= {"opacity": 0.4} if "color" in more else {}
    return [
        {
            "data": {"values": known},
            "mark": bar,
            "encoding": {"x": x, **ends, **more},
            **({} if "color" in more else {"name": "errors"}),
        }
    ]
