"""Flame graphs: stacks in, a static SVG out. Vega lays out the frames (its transform `partition`) and draws them.

The outermost frame is at the top. The width of a frame is its time. Frames beside each other are in alphabetical order.
A page contains the SVG itself, so that the browser shows the title of a frame.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import vl_convert

WIDTH, ROW = 1040, 19  # of the picture, and of a row of frames
NARROWEST = 1.0  # width of a frame that is drawn
LABELLED = 28  # width from which a frame has a label
COLOURS = {"operators": "#f0a35e", "runtime": "#8fb7de", "Linux": "#b9bec5"}
SAME, MORE, LESS = "#d5d8dc", "#e5604d", "#5b8fd6"
ALL = "all"
SEPARATOR = ";"


@dataclass
class Frame:
    """A frame: its own time, that of the frames inside, and both together in the baseline."""

    own: float = 0.0
    total: float = 0.0
    before: float = 0.0
    path: tuple[str, ...] = field(default=())


def frames(stacks: Mapping[str, float], baseline: Mapping[str, float] | None = None) -> list[Frame]:
    """The frames of stacks, outer ones first; the first is `ALL`.

    Args:
        stacks: nanoseconds per event by stack.
        baseline: those of another build; its stacks have frames too.
    """
    by_path: dict[tuple[str, ...], Frame] = {}

    def add(stack: str, own: float, before: float) -> None:
        path = (ALL, *stack.split(SEPARATOR))
        for depth in range(1, len(path) + 1):
            frame = by_path.setdefault(path[:depth], Frame(path=path[:depth]))
            frame.total += own
            frame.before += before
        by_path[path].own += own

    for stack, value in stacks.items():
        add(stack, value, 0.0)
    for stack, value in (baseline or {}).items():
        add(stack, 0.0, value)
    return sorted(by_path.values(), key=lambda frame: frame.path)


def graph(stacks: Mapping[str, float]) -> str:
    """The flame graph of a build as SVG."""
    all_frames = frames(stacks)
    whole = all_frames[0].total if all_frames else 0.0
    return _draw(
        all_frames,
        [_colour(frame) for frame in all_frames],
        [f"{_name(frame)}: {frame.total:,.1f} ns per event, {frame.total / whole:.1%}" for frame in all_frames],
    )


def difference(stacks: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """The flame graph of a build as SVG. Red frames take more time than in the baseline, blue ones less.

    The colour is full where a frame differs by half of the baseline's whole time.
    """
    all_frames = frames(stacks, baseline)
    whole = all_frames[0].before if all_frames else 0.0
    return _draw(
        all_frames,
        [_between((frame.total - frame.before) / (whole / 2) if whole else 0.0) for frame in all_frames],
        [
            f"{_name(frame)}: {frame.total:,.1f} ns per event, {frame.total - frame.before:+,.1f} ns"
            for frame in all_frames
        ],
    )


def _name(frame: Frame) -> str:
    return frame.path[-1]


def _colour(frame: Frame) -> str:
    if frame.path[-1].startswith("Linux"):
        return COLOURS["Linux"]
    return COLOURS.get(frame.path[1], SAME) if len(frame.path) > 1 else SAME


def _between(share: float) -> str:
    """The colour of a share of the difference, from -1 (less) to 1 (more)."""
    end, weight = (MORE if share > 0 else LESS), min(1.0, abs(share)) ** 0.5
    pairs = ((int(SAME[at : at + 2], 16), int(end[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * weight):02x}" for a, b in pairs)


def _draw(all_frames: list[Frame], colours: list[str], titles: list[str]) -> str:
    """The SVG of frames. A frame without time, which only the baseline has, is not drawn."""
    values = [
        {
            "id": SEPARATOR.join(frame.path),
            "parent": SEPARATOR.join(frame.path[:-1]) or None,
            "name": _name(frame),
            "own": frame.own,
            "colour": colour,
            "title": title,
        }
        for frame, colour, title in zip(all_frames, colours, titles, strict=True)
        if frame.total
    ]
    depth = max((len(frame.path) for frame in all_frames if frame.total), default=0)
    place = {"x": {"field": "x0"}, "y": {"field": "y0"}}
    specification = {
        "$schema": "https://vega.github.io/schema/vega/v5.json",
        "width": WIDTH,
        "height": ROW * depth,
        "data": [
            {
                "name": "frames",
                "values": values,
                "transform": [
                    {"type": "stratify", "key": "id", "parentKey": "parent"},
                    {
                        "type": "partition",
                        "field": "own",
                        "sort": {"field": "data.name"},
                        "size": [{"signal": "width"}, {"signal": "height"}],
                    },
                    {"type": "filter", "expr": f"datum.x1 - datum.x0 >= {NARROWEST}"},
                ],
            }
        ],
        "marks": [
            {
                "type": "rect",
                "from": {"data": "frames"},
                "encode": {
                    "enter": place
                    | {
                        "x2": {"signal": "max(datum.x0 + 0.3, datum.x1 - 0.6)"},
                        "y2": {"signal": "datum.y1 - 1"},
                        "fill": {"field": "colour"},
                        "description": {"field": "title"},
                    }
                },
            },
            {
                "type": "text",
                "from": {"data": "frames"},
                "interactive": False,
                "aria": False,
                "encode": {
                    "enter": place
                    | {
                        "dx": {"value": 4},
                        "dy": {"value": ROW // 2},
                        "baseline": {"value": "middle"},
                        "fontSize": {"value": 11},
                        "fill": {"value": "#14171b"},
                        "limit": {"signal": "datum.x1 - datum.x0 - 7"},
                        "text": {"signal": f"datum.x1 - datum.x0 >= {LABELLED} ? datum.name : ''"},
                    }
                },
            },
        ],
    }
    return _titled(vl_convert.vega_to_svg(json.dumps(specification)))


def _titled(svg: str) -> str:
    """The SVG with titles of frames, which browsers show, in place of Vega's labels; the page says what it shows."""
    svg = re.sub(r'<path aria-label="([^"]*)"[^>]*?( d="[^"]*")([^>]*)/>', _path, svg)
    return re.sub(r' (role|aria-[a-z]+|class|pointer-events)="[^"]*"', "", svg)


def _path(match: re.Match[str]) -> str:
    return f"<path{match[2]}{match[3]}><title>{html.escape(html.unescape(match[1]), quote=False)}</title></path>"
