"""Finds and removes large files that a run can make again. History stays.

Removable are outputs and final states of runs, and the oldest workloads, oracles and builds beyond a total size. Raw
results, reports and every run's plan, specs and exit codes stay for ever. Outputs and final states also stay for

- the last seven green runs (`streaming_core/regression/verdict.py` defines green);
- every red run, as evidence, until each of its red cells is acknowledged;
- every run without verdicts: it is in progress, or it died. Its workloads and oracles stay, whatever their size.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.services.decisions import red_cells, verdicts
from streaming_core.errors import BadInput
from streaming_core.regression.decisions import acknowledgements
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.verdict import Verdict, is_green

GREEN_RUNS_KEPT = 7

# What a prune may remove inside an attempt; every other file of a run folder stays.
OUTPUTS = ("outputs", "state", ".checkpoint")


@dataclass(frozen=True)
class Item:
    """A removable folder: its size in bytes, and why it is removable."""

    path: Path
    size: int
    why: str


def removable(home: Home, cache_bytes: int) -> list[Item]:
    """List everything removable: runs first, then caches, oldest first."""
    runs = sorted(path for path in _folders(home.root / "runs") if RUN_ID.fullmatch(path.name))
    known = {run.name: verdicts(home, run.name) for run in runs}
    green = {name: None if found is None else _is_green(found) for name, found in known.items()}
    seen = acknowledgements(home)
    kept = [run.name for run in runs if green[run.name]][-GREEN_RUNS_KEPT:]
    items = []
    for run in runs:
        if green[run.name] and run.name not in kept:
            why = f"green, and not among the last {GREEN_RUNS_KEPT}"
        elif green[run.name] is False and _is_acknowledged(run.name, red_cells(known[run.name] or {}), seen):
            why = "red, acknowledged"
        else:
            continue
        for attempt in sorted(run.glob("*/attempt-*")):
            items += [Item(attempt / n, _size(attempt / n), why) for n in OUTPUTS if _is_folder(attempt / n)]
    needed = {address for run in runs if green[run.name] is None for address in _addresses(run)}
    return items + _beyond(home, cache_bytes, needed)


def _beyond(home: Home, cache_bytes: int, needed: set[str]) -> list[Item]:
    """The oldest workloads, oracles and builds above `cache_bytes` in all."""
    apps = [app for cache in ("workloads", "oracle") for app in _folders(home.root / cache)]
    found = [
        entry
        for folder in (*apps, home.root / "builds")
        for entry in _folders(folder)
        # A name that starts with a dot is being written by a process that will rename it.
        if not entry.name.startswith(".")
    ]
    sizes = {entry: _size(entry) for entry in found}
    total = sum(sizes.values())
    items = []
    for entry in sorted(found, key=lambda entry: (entry.stat().st_mtime_ns, entry)):
        if total <= cache_bytes:
            break
        if entry.name not in needed:
            items.append(Item(entry, sizes[entry], "oldest of the caches"))
            total -= sizes[entry]
    return items


def _is_green(found: dict[str, Verdict]) -> bool:
    return is_green(verdict for verdict, _ in found.values())


def _is_acknowledged(run_id: str, red: list[str], seen: Container[tuple[str, str]]) -> bool:
    """Whether the run has red cells, and all of them are acknowledged."""
    return bool(red) and all((run_id, cell) in seen for cell in red)


def _addresses(run: Path) -> set[str]:
    """Workloads and oracles a run refers to."""
    workloads = _read(run / "plan.json", lambda plan: [item["address"] for item in plan["workloads"]])
    return {*workloads, *_read(run / "oracles.json", lambda oracles: list(oracles.values()))}


def _read(path: Path, choose: Callable[[Any], list[str]]) -> list[str]:
    """What is chosen from a JSON file of a run; nothing where there is no file."""
    try:
        return choose(json.loads(path.read_text()))
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BadInput(f"{path} is damaged; repair or remove {path.parent} by hand") from None


def remove(item: Item) -> None:
    """Remove one item.

    Raises:
        OSError: the item, or part of it, could not be removed.
    """
    # Rename first: a concurrent reader finds the whole folder or none of it.
    hidden = item.path.with_name(f".pruned-{item.path.name}")
    if hidden.exists():
        shutil.rmtree(hidden)
    os.rename(item.path, hidden)
    shutil.rmtree(hidden)


def _folders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if _is_folder(entry)] if path.is_dir() else []


def _is_folder(path: Path) -> bool:
    # A link may lead anywhere; what it leads to is not ours to remove.
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
