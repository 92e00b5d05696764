"""The page of a live run: how far it is, up to which event it is verified, its last checkpoint, its disk."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from reports.site import HERE
from reports.views.tiles import Tile
from streaming_core.regression.project import TITLE
from streaming_core.run.live_folder import Status, human_bytes

SECONDS = 5  # between two updates of the page
LATE_SECONDS = 60.0  # from this lag on, the page shows the verification as late
LOOKS = {"running": ("▶", "busy"), "stopped": ("○", "open"), "failed": ("✗", "bad"), "complete": ("✓", "good")}


def page(status: Status) -> str:
    """The page, as HTML with styles inside. It loads itself again while the run is at work."""
    return _template().render(
        status=status,
        script="",  # the page is one file
        tiles=_tiles(status),
        style=Markup((HERE / "style.css").read_text()),
        seconds=SECONDS,
        moments={"started": _moment(status.started), "updated": _moment(status.updated)},
        size=human_bytes,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("live_run.html", globals={"project": TITLE})


def _tiles(status: Status) -> list[Tile]:
    mark, look = LOOKS[status.state]
    tiles = [
        Tile(mark, f"{status.events:,}", "events", f"{status.state}; {status.outputs:,} outputs so far", "#facts", look)
    ]
    if status.verified is None:
        tiles.append(Tile("○", "not", "verified", "started with --no-verify", "#facts", "open"))
    else:
        is_late = status.lag_seconds >= LATE_SECONDS
        detail = f"{status.lag:,} events behind, {status.lag_seconds:.1f} s" if status.lag else "no event behind"
        kind = ("!", "open") if is_late else ("✓", "good")
        tiles.append(Tile(kind[0], f"{status.verified:,}", "verified", detail, "#facts", kind[1]))
    if status.checkpoint is None:
        tiles.append(Tile("○", "no", "checkpoint", "a resumed run begins at the first event", "#facts", "open"))
    else:
        age = max(0.0, status.updated - (status.checkpoint_time or status.updated))
        detail = f"the last checkpoint, {age:.0f} s old"
        tiles.append(Tile("✓", f"{status.checkpoint:,}", "in a checkpoint", detail, "#facts", "good"))
    disk = f"{status.extent}; {human_bytes(status.free_bytes)} free"
    tiles.append(Tile("▤", human_bytes(status.bytes), "on disk", disk, "#facts"))
    return tiles


def _moment(seconds: float) -> Markup:
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup(f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M:%S} UTC</time>')
