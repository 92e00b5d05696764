"""The performance charts: Vega-Lite specifications in, static SVG out. No script and no font leaves this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import vl_convert

from reports import series
from reports.history import short
from streaming_core.storage import digest_of

INK = "#7d8590"
MARK = re.compile("<!-- [0-9a-f]+ -->")
_known: dict[str, str] = {}  # picture by its mark
# The theme of the page around a picture decides, as far as the browser knows it; else the grey is readable on both.
THEMES = (
    "<style>text{fill:#57606a}.errors_marks line{stroke:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#a3acb6}.errors_marks line{stroke:#a3acb6}}</style>"
)
WIDTH, HEIGHT = 250, 170
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
    "batches": ("share of batches", 1, "~%", False),
    "plans": ("share of plans", 1, "~%", False),
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
    "steps": ("ns, all threads", 1, "~s", False),
    "reports_per_s": ("reports/s", 1, "~s", False),
    "breakdown": ("ns, all threads", 1, "~s", False),
}  # column: title, factor, format, whether its scale is logarithmic
AXES = {
    "mp_ratio": "share of multi-partition transactions",
    "mp_len": "partitions of a transaction",
    "read_ratio": "share of reads",
    "theta": "Zipf exponent",
    "punctuation": "events between punctuations",
    "work_ns": "dummy work of an operation, ns",
    "instances": "replicas of the operator",
    "batch": "events in a batch",
    "sigma": "deviation of the keys",
    "cost_us": "cost of an operator, us",
    "sel": "tuples out of one",
    "load": "share of the peak rate",
    "heuristic": None,
    "queue": None,
    "placement": None,
    "way": None,
    "switched": None,
    "at_s": "seconds",
    "states": "states at the end",
    "pool": "pool: shared ...",
    "predicted_per_s": "predicted events/s",
    "execute_ns": "ns a row",
    "machine": None,
    "sockets": "sockets",
    "of_found": "throughput, of the plan found",
}
PERCENTILES = {"p50": "p50", "p95": "p95", "p99": "p99", "p99.9": "p999"}  # by how people write them


def throughput(rows: list[dict], strategies: list[str]) -> str:
    """Events per second by threads, one line per strategy, a bar from the slowest to the fastest pass.

    Args:
        rows: rows of the mart `throughput` of one run and one application.
        strategies: all strategies of the page, for the colours.
    """
    values = [
        _pick(row, "strategy", "threads", median="median_events_per_s", low="min_events_per_s", high="max_events_per_s")
        for row in rows
    ]
    x = {"field": "threads", "type": "ordinal", "title": "threads", "axis": {"labelAngle": 0}}
    colour = _colour(strategies)
    shape = _shape(strategies)
    return _svg(
        values,
        [
            {
                "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35},
                "encoding": {"x": x, "y": _rate("low"), "y2": {"field": "high"}, "color": colour},
            },
            {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": _rate("median"), "color": colour}},
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"x": x, "y": _rate("median"), "color": colour, "shape": shape},
            },
        ],
    )


def latency(rows: list[dict], strategies: list[str]) -> str:
    """Latency percentiles on a logarithmic scale, one line per strategy and thread count.

    Args:
        rows: rows of the mart `latency` of one run, one application and one kind.
        strategies: all strategies of the page, for the colours.
    """
    values = [
        {"strategy": row["strategy"], "threads": row["threads"], "percentile": name, "us": row[f"{column}_us"]}
        for row in rows
        for name, column in PERCENTILES.items()
        if row[f"{column}_us"]
    ]
    encoding = {
        "x": {
            "field": "percentile",
            "type": "ordinal",
            "title": None,
            "sort": list(PERCENTILES),
            "axis": {"labelAngle": 0},
        },
        "y": {
            "field": "us",
            "type": "quantitative",
            "title": "µs",
            "scale": {"type": "log"},
            "axis": {"format": "~s", "values": [10.0**n for n in range(8)]},
        },
        "color": _colour(strategies),
        "detail": {"field": "threads"},
        "strokeDash": {
            "field": "threads",
            "type": "ordinal",
            "title": "threads",
            "legend": {"symbolType": "stroke", "symbolStrokeColor": INK, "symbolStrokeWidth": 1.5, "symbolSize": 400},
        },
    }
    plain = {name: value for name, value in encoding.items() if name != "strokeDash"}
    plain |= {"shape": _shape(strategies)}
    return _svg(values, _line(encoding, plain))


def _line(encoding: dict, points: dict) -> list[dict]:
    """A line, and its points, which are encoded apart."""
    return [
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": encoding},
        {"mark": {"type": "point", "filled": True, "size": 30, "opacity": 1}, "encoding": points},
    ]


def _over_runs(rows: list[dict]) -> dict:
    order = sorted({row["run_id"] for row in rows})
    return {
        "field": "run_id",
        "type": "ordinal",
        "title": "runs, oldest first",
        "sort": order,
        "scale": {"domain": order},
        "axis": {"labels": False, "ticks": False},
    }


def history(rows: list[dict], strategies: list[str]) -> str:
    """Events per second over builds: a point per run, and a line per strategy through the medians of the builds.

    Args:
        rows: rows of the mart `throughput`, those of one strategy of one series, in the order of their runs.
        strategies: all strategies of the page, for the colours.
    """
    order = list(dict.fromkeys(short(row["build"]) for row in rows))
    values = [
        _pick(row, "strategy", "series", median="median_events_per_s") | {"build": short(row["build"])} for row in rows
    ]
    x = {
        "field": "build",
        "type": "ordinal",
        "title": "builds, oldest first",
        "sort": order,
        "scale": {"domain": order},
        "axis": {"labelAngle": -40, "labelOverlap": True},
    }
    encoding = {"x": x, "y": _rate("median"), "color": _colour(strategies)}
    middle = encoding | {"y": _rate("median") | {"aggregate": "median"}, "detail": {"field": "series"}}
    return _svg(values, _line(middle, encoding | {"shape": _shape(strategies)}))


def speed(rows: list[dict], strategies: list[str]) -> str:
    """Ratios to the compiled loop over runs, one line per strategy, a bar where a change is said to have begun.

    Args:
        rows: rows of the mart `speed` of one application and one thread count, all runs.
        strategies: all strategies of the page, for the colours.
    """
    values = [_pick(row, "strategy", "run_id", "series", median="to_loop") for row in rows]
    began = {(row["series"], row["since_run"], row["strategy"]) for row in rows if row["since_run"]}
    marks = [{"series": series, "run_id": run_id, "strategy": strategy} for series, run_id, strategy in sorted(began)]
    x = _over_runs(rows)
    y = {
        "field": "median",
        "type": "quantitative",
        "title": "times the loop",
        "scale": {"zero": False},
        "axis": {"tickCount": 4, "format": "~r"},
    }
    encoding = {"x": x, "y": y, "color": _colour(strategies), "detail": {"field": "series"}}
    points = encoding | {"shape": _shape(strategies)}
    bars = {"x": x, "color": _colour(strategies)}
    layers = _line(encoding, points)
    bar = {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3], "description": "change"}
    layers += [{"data": {"values": marks}, "mark": bar, "encoding": bars}] if marks else []
    return _svg(values, layers)


def benchmark(points: list[dict], plot: dict, numbers: dict[str, int], size: tuple[int, int]) -> str:
    """One chart of a benchmark suite.

    Args:
        points: `x`, `y`, `line`; `dashed`: the line is what others are measured by, or a bound; `level`: it is one
            height at every x. The ends of an error bar are `low` and `high`. Stacked bars have `part` and its `order`
            instead.
        plot: as the suite's JSON declares it.
        numbers: of every line, which series of the page it is.
        size: width and height, axes not counted.
    """
    title, factor, shape, logarithmic = UNITS.get(plot["y"], (plot["y"], 1, "~s", False))
    logarithmic = logarithmic and plot["kind"] == "line"  # a bar stands on zero
    values = [
        point | {name: point[name] * factor for name in ("y", "low", "high") if name in point} for point in points
    ]
    y: dict[str, Any] = {
        "field": "y",
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log"} if logarithmic else {"zero": True},
        "axis": {"format": shape, **({"values": [10.0**n for n in range(-3, 6)]} if logarithmic else {"tickCount": 4})},
    }
    named = AXES.get(plot["x"], plot["x"])
    names = {"labelAngle": -40, "labelOverlap": False}
    if plot["kind"] == "parts":
        names_of_parts = list(dict.fromkeys(point["part"] for point in points))
        parts = list(PARTS) if set(names_of_parts) <= set(PARTS) else names_of_parts
        numbers_of_parts = PART_SERIES if parts == list(PARTS) else range(len(parts))
        colour = {
            "field": "part",
            "type": "nominal",
            "title": None,
            "sort": parts,
            # No clock tells a thread's time in remote memory apart: it is a model's (runtime, memory/placement.rs).
            "legend": {"columns": 3, "labelExpr": "datum.label == 'remote' ? 'remote (estimate)' : datum.label"},
            "scale": {"domain": parts, "range": [series.colour(i) for i in numbers_of_parts]},
        }
        x = {"field": "x", "type": "nominal", "title": named, "sort": None, "axis": names}
        order = {"field": "order", "type": "quantitative"}
        return _svg(values, [{"mark": "bar", "encoding": {"x": x, "y": y, "color": colour, "order": order}}], size)
    lines = list(dict.fromkeys(point["line"] for point in points))
    shown = [numbers[line] for line in lines]
    colour = _told_apart("line", lines, [series.colour(number) for number in shown])
    if plot["kind"] == "bar":
        x = {"field": "x", "type": "nominal", "title": named, "sort": None, "axis": names}
        beside = {"xOffset": {"field": "line", "sort": lines}} if any(p["x"] != p["line"] for p in points) else {}
        look = {"color": colour, "stroke": colour, "fillOpacity": _told_apart("line", lines, series.fillings(shown))}
        bars = {"mark": "bar", "encoding": {"x": x, "y": y, **look, **beside}}
        return _svg(values, [bars, *_errors(values, x, y, beside, logarithmic)], size)
    x = {"field": "x", "type": "quantitative", "title": named, "axis": {"tickCount": 5}}
    if plot["kind"] == "point":
        most = max(max(value["x"], value["y"]) for value in values)
        equal = {"values": [{"x": 0, "y": 0}, {"x": most, "y": most}]}
        x = x | {"axis": {"tickCount": 5, "format": shape}}
        shapes = _told_apart("line", lines, [series.marker(number) for number in shown])
        dot = {"type": "point", "filled": True, "size": 35, "opacity": 0.8}
        diagonal = {"type": "line", "strokeWidth": 1, "strokeDash": [4, 3], "color": "#8b929c"}
        layers = [
            {"data": equal, "mark": diagonal, "encoding": {"x": x, "y": y}},
            *_errors(values, x, y, {"color": colour}),
            {"data": {"values": values}, "mark": dot, "encoding": {"x": x, "y": y, "color": colour, "shape": shapes}},
        ]
        return _svg(values, layers, size)
    if plot["log"]:
        shape = "~s" if min(point["x"] for point in points) >= 1 else "~r"
        x |= {"scale": {"type": "log"}, "axis": {"format": shape, "values": [10.0**n for n in range(-3, 8)]}}
    if plot["x"] == "threads":
        x |= {"type": "ordinal", "axis": {"labelAngle": 0}}
    solid, dashed = ([v for v in values if v["dashed"] == flag] for flag in (False, True))
    layers = []
    for data, mark in ((solid, {}), (dashed, {"strokeDash": [4, 3]})):
        level, curve = ([v for v in data if v["level"] == flag] for flag in (True, False))
        if level:
            rule = {"type": "rule", "strokeWidth": 1.5, **mark}
            layers += _errors(level, None, y, {"color": colour}, logarithmic)
            layers.append({"data": {"values": level}, "mark": rule, "encoding": {"y": y, "color": colour}})
        if curve:
            encoding = {"x": x, "y": y, "color": colour}
            marked = encoding | {"shape": _told_apart("line", lines, [series.marker(number) for number in shown])}
            line = {"type": "line", "strokeWidth": 1.5, **mark}
            point = {"type": "point", "filled": True, "size": 35, "opacity": 1}
            layers.append({"data": {"values": curve}, "mark": line, "encoding": encoding})
            layers += _errors(curve, x, y, {"color": colour}, logarithmic)
            layers.append({"data": {"values": curve}, "mark": point, "encoding": marked})
    return _svg(values, layers, size)


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


def _pick(row: dict, *same: str, **renamed: str) -> dict:
    return {name: row[name] for name in same} | {name: row[source] for name, source in renamed.items()}


def _rate(field: str) -> dict:
    return {
        "field": field,
        "type": "quantitative",
        "title": "events/s",
        "scale": {"zero": True},
        "axis": {"format": "~s", "tickCount": 4},
    }


def _colour(strategies: list[str]) -> dict:
    return _told_apart("strategy", strategies, [series.colour(i) for i in range(len(strategies))])


def _shape(strategies: list[str]) -> dict:
    return _told_apart("strategy", strategies, [series.marker(i) for i in range(len(strategies))])


def _told_apart(field: str, names: list[str], looks: list) -> dict:
    """The encoding that gives every name its look; the page has the legend."""
    scale = {"type": "ordinal", "domain": names, "range": looks}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


def _svg(values: list[dict], layers: list[dict], size: tuple[int, int] = (WIDTH, HEIGHT)) -> str:
    text = {
        "labelColor": INK,
        "titleColor": INK,
        "labelFont": "sans-serif",
        "titleFont": "sans-serif",
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelFontSize": 11,
        "titleFontSize": 11,
    }
    lines = {
        "gridColor": INK,
        "gridOpacity": 0.18,
        "domainColor": INK,
        "domainOpacity": 0.4,
        "tickColor": INK,
        "tickOpacity": 0.4,
    }
    specification = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": None,
        "width": size[0],
        "height": size[1],
        "data": {"values": values},
        "layer": layers,
        "config": {"axis": {**text, **lines}, "legend": {**text, "orient": "bottom"}, "view": {"stroke": None}},
    }
    return _drawn(json.dumps(specification))


def reuse(pictures: Iterable[str]) -> None:
    """Take pictures of an earlier process, so that this one draws none of them again: a picture takes 30 ms."""
    for picture in pictures:
        if mark := MARK.search(picture):
            _known[mark[0]] = picture


def _drawn(specification: str) -> str:
    """The picture of a specification. It contains a digest of what it was drawn from."""
    mark = f"<!-- {digest_of([specification, THEMES, version('vl-convert-python')])} -->"
    if mark not in _known:
        _known[mark] = vl_convert.vegalite_to_svg(specification).replace(">", f">{mark}{THEMES}", 1)
    return _known[mark]
