"""The charts of runs: curves over threads, latency, the history over builds, and ratios over runs.

Every function takes rows of one mart, and the names of all strategies of the page, so that a strategy keeps its colour.
A row may have `facts` by name, and the `href` of a page below the reports. In a browser, its point shows the facts and
leads there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from reports.charts import series, vega
from reports.history.text import short

PERCENTILES = {"p50": "p50", "p95": "p95", "p99": "p99", "p99.9": "p999"}  # by how people write them


def throughput(rows: list[dict], strategies: list[str]) -> vega.Specification:
    """Events per second by threads, one line per strategy, a bar from the slowest to the fastest pass.

    Args:
        rows: rows of the mart `throughput` of one run and one application, with `socket`, as in `_curve`. A speed that
            is not judged (`is_judged`) is grey.
        strategies: all strategies of the page, for the colours.
    """
    values = [
        _pick(
            row,
            "strategy",
            "threads",
            "is_judged",
            "socket",
            median="median_events_per_s",
            low="min_events_per_s",
            high="max_events_per_s",
        )
        for row in rows
    ]
    colour = _colour(strategies) | {"condition": {"test": "!datum.is_judged", "value": vega.INK}}
    return vega.chart(values, _curve(values, _rate, colour, _shape(strategies)))


def scaling(rows: list[dict], strategies: list[str]) -> vega.Specification:
    """Ratios to the compiled loop by threads, one line per strategy.

    Args:
        rows: rows as for `throughput`, with `to_loop`.
        strategies: all strategies of the page, for the colours.
    """
    values = [
        _pick(row, "strategy", "threads", "socket", median="to_loop", low="to_loop", high="to_loop") | _facts(row)
        for row in rows
    ]
    return vega.chart(
        values, _curve(values, partial(_ratio, "times the loop"), _colour(strategies), _shape(strategies))
    )


def speedups(rows: list[dict], strategies: list[str]) -> vega.Specification:
    """Speedups of the most threads over one thread, over runs, one line per strategy.

    Args:
        rows: rows with run_id, strategy and speedup.
        strategies: all strategies of the page, for the colours.
    """
    values = [_pick(row, "strategy", "run_id", median="speedup") for row in rows]
    encoding = {"x": _over_runs(rows), "y": _ratio("speedup", "median"), "color": _colour(strategies)}
    return vega.chart(values, _line(encoding, encoding | {"shape": _shape(strategies)}))


def _curve(values: list[dict], y: Callable[[str], dict], colour: dict, shape: dict) -> list[dict]:
    """The layers of a curve over threads.

    Args:
        values: points with threads, median, low and high. `socket` of a point names the sockets that so many threads
            fill; None if they fill none.
        y: makes the axis of a field.
        colour: the encoding of the colour.
        shape: that of the shape of a point.
    """
    counts = sorted({value["threads"] for value in values})
    x = {
        "field": "threads",
        "type": "ordinal",
        "title": "threads",
        "scale": {"domain": counts},
        "axis": {"labelAngle": 0},
    }
    ends = dict(sorted((value["threads"], value["socket"]) for value in values if value["socket"]))
    sockets = {"values": [{"threads": threads, "socket": socket} for threads, socket in ends.items()]}
    rule = {"type": "rule", "strokeDash": [2, 3], "color": vega.INK, "opacity": 0.5}
    text = {"type": "text", "align": "right", "baseline": "top", "dx": -4, "color": vega.INK, "y": 0}
    marks = [
        {"data": sockets, "mark": rule, "encoding": {"x": x}},
        {"data": sockets, "mark": text, "encoding": {"x": x, "text": {"field": "socket"}}},
    ]
    return [
        *(marks if ends else []),
        {
            "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.35},
            "encoding": {"x": x, "y": y("low"), "y2": {"field": "high"}, "color": colour},
        },
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y("median"), "color": colour}},
        {
            **_points(45),
            "encoding": {"x": x, "y": y("median"), "color": colour, "shape": shape, **_tooltip(values)},
        },
    ]


def latency(rows: list[dict], strategies: list[str]) -> vega.Specification:
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
            "legend": {
                "symbolType": "stroke",
                "symbolStrokeColor": vega.INK,
                "symbolStrokeWidth": 1.5,
                "symbolSize": 400,
            },
        },
    }
    plain = {name: value for name, value in encoding.items() if name != "strokeDash"}
    plain |= {"shape": _shape(strategies)}
    return vega.chart(values, _line(encoding, plain))


def history(rows: list[dict], strategies: list[str]) -> vega.Specification:
    """Events per second over builds: a point per run, and a line per strategy through the medians of the builds.

    Args:
        rows: rows of the mart `throughput`, those of one strategy of one series, in the order of their runs.
        strategies: all strategies of the page, for the colours.
    """
    order = list(dict.fromkeys(short(row["build"]) for row in rows))
    values = [
        _pick(row, "strategy", "series", median="median_events_per_s") | {"build": short(row["build"])} | _facts(row)
        for row in rows
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
    points = encoding | {"shape": _shape(strategies)} | _tooltip(values)
    return vega.chart(values, _line(middle, points))


def speed(rows: list[dict], strategies: list[str]) -> vega.Specification:
    """Ratios to the compiled loop over runs, one line per strategy, a bar where a change is said to have begun.

    Args:
        rows: rows of the mart `speed` of one application and one thread count, all runs.
        strategies: all strategies of the page, for the colours.
    """
    values = [_pick(row, "strategy", "run_id", "series", median="to_loop") for row in rows]
    began = {(row["series"], row["since_run"], row["strategy"]) for row in rows if row["since_run"]}
    marks = [{"series": series, "run_id": run_id, "strategy": strategy} for series, run_id, strategy in sorted(began)]
    x = _over_runs(rows)
    y = _ratio("times the loop", "median") | {"scale": {"zero": False}}
    encoding = {"x": x, "y": y, "color": _colour(strategies), "detail": {"field": "series"}}
    points = encoding | {"shape": _shape(strategies)}
    bars = {"x": x, "color": _colour(strategies)}
    layers = _line(encoding, points)
    bar = {"type": "rule", "strokeWidth": 2, "strokeDash": [4, 3], "description": "change"}
    layers += [{"data": {"values": marks}, "mark": bar, "encoding": bars}] if marks else []
    return vega.chart(values, layers)


def _line(encoding: dict, points: dict) -> list[dict]:
    """A line, and its points, which are encoded apart."""
    return [
        {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": encoding},
        {**_points(30), "encoding": points},
    ]


def _points(size: int) -> dict:
    """The mark of points; charts.js knows them by the name."""
    return {"name": "points", "mark": {"type": "point", "filled": True, "size": size, "opacity": 1}}


def _facts(row: dict) -> dict:
    """The facts and the link of the point of a row."""
    return _pick(row, "facts", "href") if "facts" in row else {}


def _tooltip(values: list[dict]) -> dict:
    """The encoding of the tooltip, if the points have facts."""
    names = values[0].get("facts", {}) if values else {}
    tooltip = [{"field": f"facts.{name}", "title": name, "type": "nominal"} for name in names]
    return {"tooltip": tooltip} if tooltip else {}


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


def _ratio(title: str, field: str) -> dict:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"zero": True},
        "axis": {"tickCount": 4, "format": "~r"},
    }


def _colour(strategies: list[str]) -> dict:
    return vega.look("strategy", strategies, [series.colour(i) for i in range(len(strategies))])


def _shape(strategies: list[str]) -> dict:
    return vega.look("strategy", strategies, [series.marker(i) for i in range(len(strategies))])
