"""The charts of a data set over runs: a line for each figure, and its usual range as a band."""

from __future__ import annotations

from reports.charts import series, vega

RED = "#cf3f4f"  # of a point whose rule does not hold; it is also larger


def has_band(points: list[dict]) -> bool:
    """Whether a point has a usual range."""
    return any(point["low"] is not None for point in points)


def over_runs(points: list[dict], is_share: bool) -> vega.Specification:
    """Figures over runs, oldest first.

    Args:
        points: `run_id`, `series`, `value`, `low` and `high` of its usual range or None, `success`, `facts`, `href`.
        is_share: whether the figures are shares, from 0 on; else they are numbers of rows.
    """
    runs = sorted({point["run_id"] for point in points})
    names = list(dict.fromkeys(point["series"] for point in points))
    day = "slice(datum.value, 4, 6) + '-' + slice(datum.value, 6, 8)"
    x = {
        "field": "run_id",
        "type": "ordinal",
        "title": "runs, oldest first",
        "sort": runs,
        "scale": {"domain": runs},
        "axis": {"labelExpr": day, "labelAngle": -40, "labelOverlap": True},
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "title": None,
        "scale": {"zero": is_share},
        "axis": {"format": ".2~p" if is_share else ".3~s", "tickCount": 4},
    }
    colour = vega.look("series", names, [series.colour(i) for i in range(len(names))])
    shape = vega.look("series", names, [series.marker(i) for i in range(len(names))])
    tooltip = [{"field": f"facts.{name}", "title": name, "type": "nominal"} for name in points[0]["facts"]]
    broken = {"condition": {"test": "!datum.success", "value": RED}}
    band = {
        "transform": [{"filter": "datum.low !== null"}],
        "mark": {"type": "area", "opacity": 0.18, "description": "usual range"},
        "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour},
    }
    line = {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": x, "y": y, "color": colour}}
    dots = {
        "name": "points",  # charts.js knows them by the name
        "mark": {"type": "point", "filled": True, "opacity": 1},
        "encoding": {
            "x": x,
            "y": y,
            "color": colour | broken,
            "shape": shape,
            "size": {"condition": {"test": "!datum.success", "value": 90}, "value": 35},
            "tooltip": tooltip,
        },
    }
    return vega.chart(points, [*([band] if has_band(points) else []), line, dots])
