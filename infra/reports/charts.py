"""The performance charts: Vega-Lite specifications in, static SVG out. No script and no font leaves this machine."""

from __future__ import annotations

import vl_convert

# Colours that keep their distance on white and on near-black, in a fixed order: a strategy has one colour everywhere.
COLOURS = ["#3b82c4", "#e0862f", "#4fa36b", "#b565b8", "#c9556b", "#8a8f98", "#2aa5a0", "#9c8347"]
INK = "#7d8590"
WIDTH, HEIGHT = 250, 170
PERCENTILES = ("p50", "p95", "p99", "p999")


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
                "encoding": {"x": x, "y": _rate("median"), "color": colour},
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
        {"strategy": row["strategy"], "threads": row["threads"], "percentile": name, "us": row[f"{name}_us"]}
        for row in rows
        for name in PERCENTILES
        if row[f"{name}_us"]
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
    return _svg(
        values,
        [
            {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": encoding},
            {"mark": {"type": "point", "filled": True, "size": 25, "opacity": 1}, "encoding": plain},
        ],
    )


def history(rows: list[dict], strategies: list[str]) -> str:
    """Events per second over runs, one line per strategy.

    Args:
        rows: rows of the mart `throughput` of one application and one thread count, all runs.
        strategies: all strategies of the page, for the colours.
    """
    order = sorted({row["run_id"] for row in rows})
    values = [_pick(row, "strategy", "run_id", "series", median="median_events_per_s") for row in rows]
    x = {
        "field": "run_id",
        "type": "ordinal",
        "title": "runs, oldest first",
        "sort": order,
        "axis": {"labels": False, "ticks": False},
    }
    encoding = {"x": x, "y": _rate("median"), "color": _colour(strategies), "detail": {"field": "series"}}
    return _svg(values, [{"mark": {"type": "line", "strokeWidth": 1.5, "point": {"size": 25}}, "encoding": encoding}])


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
    scale = {"domain": strategies, "range": [COLOURS[i % len(COLOURS)] for i in range(len(strategies))]}
    return {"field": "strategy", "type": "nominal", "scale": scale, "legend": None}


def _svg(values: list[dict], layers: list[dict]) -> str:
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
    return vl_convert.vegalite_to_svg(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "background": None,
            "width": WIDTH,
            "height": HEIGHT,
            "data": {"values": values},
            "layer": layers,
            "config": {"axis": {**text, **lines}, "legend": {**text, "orient": "bottom"}, "view": {"stroke": None}},
        }
    )
