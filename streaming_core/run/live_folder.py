"""The folder of a live run: its names, its status, and how old micro-batches and outputs leave it."""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_core import storage
from streaming_core.data import microbatch
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput

REQUEST = "live.json"
STATUS = "status.json"
PAGE = "live.html"
VERIFIED = "verified.json"
OUTPUTS = "outputs"
STATE = "state"
WORKLOAD = "workload"
LIVE = ".live"
BATCHES = "batches"
CHECKPOINTS = "checkpoints"
ORACLE = "oracle"
CLOSED = "closed"
LEFT = "left.json"


@dataclass
class Status:
    """The progress of a live run.

    Attributes:
        app: The application.
        source: The path or the URL of the source.
        state: `running`, `stopped`, `failed` or `complete`.
        reason: Why the run failed; empty otherwise.
        started: Seconds since 1970 at which the process began.
        updated: Seconds since 1970 of this status.
        resumed: The event from which the process resumed; None if it began at event 0.
        repeated: Events that it processed again.
        micro_batches: Number of micro-batches so far.
        events: Number of events so far.
        outputs: Number of outputs so far.
        first: The first event that is still recorded.
        checkpoint: Events before the newest checkpoint; None without one.
        checkpoint_time: Seconds since 1970 at which it was made.
        verified: Events up to which the outputs equal the oracle's; None if the run is not verified.
        verified_time: Seconds since 1970 at which they were compared.
        lag: Events that were processed and not yet verified.
        lag_seconds: Seconds since the first of them was processed.
        bytes: Bytes of all files in the folder.
        free_bytes: Bytes that the disk has left.
        peak_memory_bytes: The peak memory of the process.
    """

    app: str
    source: str
    state: str = "running"
    reason: str = ""
    started: float = 0.0
    updated: float = 0.0
    resumed: int | None = None
    repeated: int = 0
    micro_batches: int = 0
    events: int = 0
    outputs: int = 0
    first: int = 0
    checkpoint: int | None = None
    checkpoint_time: float | None = None
    verified: int | None = None
    verified_time: float | None = None
    lag: int = 0
    lag_seconds: float = 0.0
    bytes: int = 0
    free_bytes: int = 0
    peak_memory_bytes: int = 0

    @property
    def extent(self) -> str:
        """The events that are still recorded, in words."""
        return f"events from {self.first:,} on" if self.first else "all events"


def show(path: Path, text: str) -> None:
    """Write a file for readers of a run at work. It is absent or whole, but need not survive a power failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    os.replace(temporary, path)


def read_status(out: Path) -> Status:
    """The status of the live run in a folder. A run without a process is `stopped` unless it ended.

    Raises:
        BadInput: The folder has no live run.
    """
    if not (out / REQUEST).is_file():
        raise BadInput(f"{out} holds no live run; `lockstep follow` makes one")
    request = storage.left_json(out / REQUEST)
    try:
        status = Status(request["options"]["app"], request["source"])
        status = Status(**asdict(status) | storage.left_json(out / STATUS))
    except (KeyError, TypeError):
        raise BadInput(f"{out}: cannot read {REQUEST} or {STATUS}: they have other fields") from None
    if status.state == "running" and storage.Lock(out / ".lock").holder() is None:
        status.state = "stopped"
    return status


class Sizes:
    """The size of a folder, measured anew only as often as that is cheap."""

    def __init__(self, out: Path):
        """Prepare to measure `out`."""
        self._out, self._bytes, self._next = out, 0, 0.0

    def measure(self) -> tuple[int, int]:
        """Bytes of all files in the folder, and bytes that the disk has left."""
        start = time.monotonic()
        if start >= self._next:
            self._bytes = size_of(self._out)
            now = time.monotonic()
            self._next = now + max(10.0, 100 * (now - start))
        return self._bytes, shutil.disk_usage(self._out).free


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder. Files may go away meanwhile."""
    total, folders = 0, [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
    return total


def parts_from(out: Path, events: int) -> Parts:
    """The files with the outputs of event number `events` and later. The first one may have earlier ones, too."""
    paths = Parts.of(out / OUTPUTS).paths
    first = bisect_left(paths, events, key=_first_seq)
    return Parts(paths[max(0, first - 1) :])


def outputs_from(out: Path, events: int) -> Iterator[pa.Table]:
    """The outputs of event number `events` and later, in order.

    Raises:
        BadInput: A part is damaged.
    """
    for table in parts_from(out, events).slices(1 << 16):
        if (rows := table.filter(pc.field("seq") >= events)).num_rows:
            yield rows


def _first_seq(path: Path) -> int:
    """The first event in a part; -1 if it has no rows, or went away because it was old."""
    try:
        for table in Parts([path]).slices(1, ["seq"]):
            return table["seq"][0].as_py()
    except BadInput:
        if path.exists():
            raise
    return -1


def drop(out: Path, limit: int, before: float) -> int | None:
    """Remove micro-batches and outputs of the oldest events. The newest ones stay.

    Args:
        out: The run folder.
        limit: The first event that must stay.
        before: Seconds since 1970. Files that are younger stay.

    Returns:
        The first event that is recorded now; None if nothing was removed.
    """
    root, first = out / LIVE / BATCHES, None
    recorded = microbatch.numbers(root)
    for number in recorded[:-1]:
        following = microbatch.manifest_of(root, number + 1)
        if following["start"] > limit or not _is_older(microbatch.folder_of(root, number), before):
            break
        microbatch.drop(root, number)
        first = following["start"]
    if first is not None:
        paths = Parts.of(out / OUTPUTS).paths
        for path in paths[: bisect_left(paths, first, key=_first_seq)][:-1]:
            path.unlink()
    return first


def _is_older(path: Path, before: float) -> bool:
    return path.stat().st_mtime < before


def request_of(out: Path) -> dict[str, Any]:
    """The request of the live run in a folder."""
    return storage.left_json(out / REQUEST)


def human_bytes(count: int) -> str:
    """A number of bytes in decimal units: `1.2 GB`."""
    value, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
