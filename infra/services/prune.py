"""Finds and removes large files that a run can make again. The history of runs stays.

`prune` removes outputs and final states of runs, and the oldest workloads, oracles and builds beyond a total size. It
never removes raw results, reports, and the plan, specs and exit codes of a run. It also keeps outputs and final states
of

- the last seven green runs (`streaming_core/regression/verdict.py` defines green);
- every red run, as evidence, until each of its red cells is acknowledged;
- every run without verdicts, which is in progress or died. Its workloads and oracles stay, whatever their size.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from infra.services.decisions import red_cells, verdicts
from jobs.run_folder import names_in
from streaming_core.regression.decisions import acknowledgements
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.verdict import Verdict, is_green
from streaming_core.run.checkpoint import FOLDER, PUBLISHED

GREEN_RUNS_KEPT = 7

# The folders of an attempt that prune may remove; every other file of a run stays.
OUTPUTS = (*PUBLISHED, FOLDER)


@dataclass(frozen=True)
class Item:
    """A removable folder or file: its size in bytes, and why it is removable."""

    path: Path
    size: int
    why: str


def removable(home: Home, cache_bytes: int) -> list[Item]:
    """List everything removable: runs first, then caches, oldest first."""
    runs = sorted(path for path in _folders(home.root / "runs") if RUN_ID.fullmatch(path.name))
    known = {run.name: verdicts(home, run.name) for run in runs}
    green = {name: None if by_cell is None else _is_green(by_cell) for name, by_cell in known.items()}
    acknowledged = acknowledgements(home)
    kept = [run.name for run in runs if green[run.name]][-GREEN_RUNS_KEPT:]
    items = []
    for run in runs:
        if green[run.name] and run.name not in kept:
            reason = f"the run is green, and not among the last {GREEN_RUNS_KEPT}"
        elif green[run.name] is False and _is_acknowledged(run.name, red_cells(known[run.name] or {}), acknowledged):
            reason = "the run is red, and all its red cells are acknowledged"
        else:
            continue
        for attempt in sorted(run.glob("*/attempt-*")):
            items += [Item(attempt / n, size(attempt / n), reason) for n in OUTPUTS if _is_folder(attempt / n)]
    needed = {address for run in runs if green[run.name] is None for address in _addresses(run)}
    return items + _beyond(home, cache_bytes, needed)


def _beyond(home: Home, cache_bytes: int, needed: set[str]) -> list[Item]:
    """The oldest workloads, oracles and builds above `cache_bytes` in all."""
    apps = [app for cache in ("workloads", "oracle") for app in _folders(home.root / cache)]
    entries = [
        entry
        for folder in (*apps, home.root / "builds")
        for entry in _folders(folder)
        # A process is still writing a folder whose name starts with a dot, and will rename it.
        if not entry.name.startswith(".")
    ]
    sizes = {entry: size(entry) for entry in entries}
    total = sum(sizes.values())
    items = []
    for entry in sorted(entries, key=lambda entry: (entry.stat().st_mtime_ns, entry)):
        if total <= cache_bytes:
            break
        if entry.name not in needed:
            items.append(Item(entry, sizes[entry], "among the oldest of the caches"))
            total -= sizes[entry]
    return items


def _is_green(by_cell: dict[str, Verdict]) -> bool:
    return is_green(verdict for verdict, _ in by_cell.values())


def _is_acknowledged(run_id: str, red: list[str], acknowledged: Container[tuple[str, str]]) -> bool:
    """Whether the run has red cells, and all of them are acknowledged."""
    return bool(red) and all((run_id, cell) in acknowledged for cell in red)


def _addresses(run: Path) -> set[str]:
    """Addresses of the workloads and oracles that a run uses."""
    workloads = names_in(run / "plan.json", lambda plan: [item["address"] for item in plan["workloads"]])
    return {*workloads, *names_in(run / "oracles.json", lambda oracles: list(oracles.values()))}


def remove(item: Item) -> None:
    """Remove one item.

    Raises:
        OSError: the item, or part of it, could not be removed.
    """
    if not item.path.is_dir():
        item.path.unlink()
        return
    # Rename first: a concurrent reader finds the whole folder or none of it.
    hidden = item.path.with_name(f".pruned-{item.path.name}")
    if hidden.exists():
        shutil.rmtree(hidden)
    os.rename(item.path, hidden)
    shutil.rmtree(hidden)


def _folders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if _is_folder(entry)] if path.is_dir() else []


def _is_folder(path: Path) -> bool:
    # A link may point out of LOCKSTEP_HOME, where nothing may be removed.
    return path.is_dir() and not path.is_symlink()


def size(path: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
