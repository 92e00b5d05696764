"""Renders charts: a Vega-Lite specification in, a static SVG out. The looks that all charts share are here.

Rendering takes 30 ms a picture, so a picture carries a digest of its specification, and no picture is drawn twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import vl_convert

from streaming_core.storage import digest_of

INK = "#7d8590"
MARK = re.compile("<!-- [0-9a-f]+ -->")
# The theme of the page around a picture decides, as far as the browser knows it; else the grey is readable on both.
THEMES = (
    "<style>text{fill:#57606a}.errors_marks line{stroke:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#a3acb6}.errors_marks line{stroke:#a3acb6}}</style>"
)
WIDTH, HEIGHT = 250, 170
_pictures: dict[str, str] = {}  # by mark


Specification = dict[str, Any]  # of Vega-Lite


def chart(
    values: list[dict[str, Any]], layers: list[dict[str, Any]], size: tuple[int, int] = (WIDTH, HEIGHT)
) -> Specification:
    """The specification of a chart.

    Args:
        values: the data of all layers that have none of their own.
        layers: Vega-Lite layers.
        size: width and height in pixels, axes not counted.
    """
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
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": None,
        "width": size[0],
        "height": size[1],
        "data": {"values": values},
        "layer": layers,
        "config": {"axis": {**text, **lines}, "legend": {**text, "orient": "bottom"}, "view": {"stroke": None}},
    }


def look(field: str, names: list[str], looks: list) -> dict[str, Any]:
    """The encoding that gives every name its look; the page has the legend."""
    scale = {"type": "ordinal", "domain": names, "range": looks}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


def reuse(pictures: Iterable[str]) -> None:
    """Take over the pictures of an earlier process, so that this process draws none of them again."""
    for picture in pictures:
        if mark := MARK.search(picture):
            _pictures[mark[0]] = picture


def svg(specification: Specification) -> str:
    """The picture of a chart. It contains a digest of the specification, the themes and the library."""
    text = json.dumps(specification)
    mark = f"<!-- {digest_of([text, THEMES, version('vl-convert-python')])} -->"
    if mark not in _pictures:
        _pictures[mark] = vl_convert.vegalite_to_svg(text).replace(">", f">{mark}{THEMES}", 1)
    return _pictures[mark]
