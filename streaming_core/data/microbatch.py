"""Micro-batches: the events of a live source, as they were recorded.

A live source grows while an application runs. Its reader (jobs/live.py) takes new input in *micro-batches*. It numbers
the events of all micro-batches without gaps, and writes each micro-batch to a folder of its own:

    00000/events/part-*.parquet   the events, in the layout of a workload
    00000/aside/part-*.parquet    the rows that are no events, if there are any
    00000/batch.json              the manifest

A folder appears whole or not at all, and `drop` removes the oldest ones in the same way. The micro-batches together are
the recorded input. At the end of the stream, `seal` makes one workload of them. Its parts do not depend on the
micro-batches.
"""

from __future__ import annotations

import json
import os
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_core import interruption, storage
from streaming_core.data import workload
from streaming_core.data.digest import add, format_digest
from streaming_core.data.parts import Parts, part_path
from streaming_core.errors import BadInput
from streaming_core.language.application import App

MANIFEST = "batch.json"


@dataclass(frozen=True)
class Position:
    """The end of the last micro-batch.

    Attributes:
        batches: Number of micro-batches before.
        total: Number of events before, and the sum of their hashes.
        mark: The highest `ts` so far; None without events, or if events have no `ts`.
    """

    batches: int = 0
    total: tuple[int, int] = (0, 0)
    mark: int | None = None


class MicroBatch(workload.Source):
    """The events of one micro-batch. Its manifest has the keys of `write`."""

    kind, leading, consecutive = "micro-batch", ("seq",), True

    @property
    def position(self) -> Position:
        """The position behind this micro-batch."""
        return Position(self.manifest["number"] + 1, _events(self.manifest["total"]), self.manifest["mark"])

    @property
    def before(self) -> tuple[int, int]:
        """Number of events before this micro-batch, and the sum of their hashes."""
        return _events(self.manifest["before"])


def folder_of(root: Path, number: int) -> Path:
    """The folder of a micro-batch."""
    return root / f"{number:05d}"


def numbers(root: Path) -> range:
    """The numbers of the recorded micro-batches, which have no gaps."""
    names = [int(name) for name in os.listdir(root) if name.isdigit()]
    return range(min(names), max(names) + 1) if names else range(0)


def behind(root: Path, events: int) -> int:
    """The number of the first micro-batch that ends behind this many events. Others may go away meanwhile.

    Raises:
        BadInput: A manifest is damaged.
    """

    def end(number: int) -> int:
        try:
            return manifest_of(root, number)["total"][0]
        except BadInput:
            if folder_of(root, number).exists():
                raise
            return -1

    recorded = numbers(root)
    return recorded.start + bisect_right(recorded, events, key=end)


def read(root: Path, number: int, app: App, params: dict[str, Any]) -> MicroBatch | None:
    """The micro-batch of this number; None if it is not recorded.

    Raises:
        BadInput: The manifest or a part is damaged.
    """
    folder = folder_of(root, number)
    if not folder.exists():
        return None
    batch = MicroBatch(folder, manifest_of(root, number) | {"params": params}, app)
    batch.check_parts()
    return batch


def manifest_of(root: Path, number: int) -> dict[str, Any]:
    """The manifest of a recorded micro-batch, whose keys `write` lists.

    Raises:
        BadInput: It is damaged.
    """
    folder = folder_of(root, number)
    try:
        return json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"micro-batch {folder} is damaged: cannot read {MANIFEST}: {error}") from None


def _events(entry: list[Any]) -> tuple[int, int]:
    """A number of events, and the sum of their hashes, from a manifest."""
    rows, value = entry
    return rows, int(value, 16)


def read_all(root: Path, app: App, params: dict[str, Any], number: int = 0) -> Iterator[MicroBatch]:
    """The recorded micro-batches in order, from this number on."""
    while (batch := read(root, number, app, params)) is not None:
        yield batch
        number += 1


def write(
    root: Path,
    before: Position,
    origin: dict[str, Any],
    fill: Callable[[Path], tuple[list[workload.NewPart], int | None, dict[str, Any]]],
) -> None:
    """Record a micro-batch. The caller is the only writer of `root`.

    Args:
        root: The folder of all micro-batches.
        before: The position at which the micro-batch starts.
        origin: What the reader took; the manifest's `origin`.
        fill: Writes events and rows set aside into a folder. Returns the entries of the parts (workload.write_part),
            the highest `ts`, and the manifest's `imported`.
    """
    with storage.appearing(folder_of(root, before.batches)) as folder:
        parts, mark, imported = fill(folder)
        rows = (0, 0)
        for part in parts:
            rows = add(rows, (part["rows"], int(part["digest"], 16)))
        total = add(before.total, rows)
        marks = [position for position in (before.mark, mark) if position is not None]
        storage.write_json(
            folder / MANIFEST,
            {
                "number": before.batches,
                "start": before.total[0],
                "before": [before.total[0], f"{before.total[1]:016x}"],
                "parts": [{key: dict(part)[key] for key in ("file", "rows")} for part in parts],
                "content_digest": format_digest(*rows),
                "total": [total[0], f"{total[1]:016x}"],
                "mark": max(marks, default=None),
                "origin": origin,
                "imported": imported,
            },
        )


def drop(root: Path, number: int) -> None:
    """Remove a micro-batch. The caller is the only writer of `root`."""
    gone = folder_of(root, number).with_name(f".{number:05d}.old")
    os.rename(folder_of(root, number), gone)
    shutil.rmtree(gone)


def seal(root: Path, out: Path, app: App, params: dict[str, Any], about: dict[str, Any]) -> workload.Workload:
    """Make a workload of all micro-batches that were not dropped, and open it.

    Args:
        root: The folder of all micro-batches.
        out: The workload to write. It must not exist.
        app: The application.
        params: Its parameters.
        about: What the manifest's `imported` tells of the source.

    Raises:
        BadInput: A micro-batch is damaged.
        OSError: The disk is full, or fails. Nothing stays.
    """
    with storage.held(out), storage.appearing(out) as folder:
        files: list[str] = []
        aside: dict[str, dict[str, Any]] = {}
        asides, rows, entries, before, position = 0, 0, [], (0, 0), Position()
        first = numbers(root).start
        for batch in read_all(root, app, params, first):
            interruption.check()
            if batch.manifest["number"] == first:
                before = batch.before
            position = batch.position
            entries += [
                {"file": f"{batch.directory.name}/{part['file']}", "rows": part["rows"]}
                for part in batch.manifest["parts"]
            ]
            imported = batch.manifest["imported"]
            files += imported["files"]
            rows += imported["rows"]
            for entry in imported["aside"]:
                reason = aside.setdefault(entry["reason"], entry | {"rows": 0})
                reason["rows"] += entry["rows"]
            for path in Parts.of(batch.directory / "aside").paths:
                (folder / "aside").mkdir(exist_ok=True)
                os.link(path, part_path(folder / "aside", asides))
                asides += 1
        total = position.total[0] - before[0], position.total[1] - before[1]
        manifest = {"params": params, "parts": entries, "content_digest": format_digest(*total), "start": before[0]}
        recorded = workload.Workload(root, manifest, app)
        parts = [workload.write_part(folder, i, table) for i, table in enumerate(recorded.blocks(workload.CHUNK))]
        if not parts:
            parts = [workload.write_part(folder, 0, recorded.schema.empty_table())]
        reasons = sorted(aside.values(), key=lambda reason: (-reason["rows"], reason["reason"]))
        about = about | {
            "files": files, "rows": rows, "aside": reasons, "batches": position.batches, "start": before[0]
        }  # fmt: skip
        workload.seal_imported(folder, app, params, parts, about)
    return workload.read(out, app, whole=False)
