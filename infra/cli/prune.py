"""Removes what is large and can be made again, and keeps what is history.

Removed are the outputs and final states of runs, and workloads and oracles beyond a size. Kept for ever are the raw
results, the reports, and of every run its plan, its specs, its reports and its exit codes.

- Of the last seven green runs, outputs stay. Which are green, streaming_core/regression/verdict.py says.
- Of a run that is not green they stay until persons have acknowledged each of its red cells: they are the evidence.
- Of a run without verdicts (it is going on, or died) they stay as well.
- Of workloads and oracles the most recently made stay, up to the size given; what a run without verdicts refers to
  stays whatever the size.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.services.lock import hold
from streaming_core.ending import say
from streaming_core.errors import BadInput
from streaming_core.regression.decisions import acknowledgements
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.verdict import Verdict, is_green, of_run
from streaming_core.regression.warehouse import rows

GREEN_RUNS_KEPT = 7
ACKNOWLEDGED = "acknowledged"  # a file in a run's folder said so before there were decisions

# What a prune may remove inside an attempt; every other file of a run folder stays.
OUTPUTS = ("outputs", "state", ".checkpoint")


@dataclass(frozen=True)
class Item:
    """A folder to remove: its size in bytes, and why it may go."""

    path: Path
    size: int
    why: str


def removable(home: Home, cache_bytes: int) -> list[Item]:
    """What is to be removed, runs first, then caches, oldest first; nothing is touched."""
    runs = sorted(path for path in _folders(home.root / "runs") if RUN_ID.fullmatch(path.name))
    known = {run.name: verdicts(home, run.name) for run in runs}
    green = {name: None if found is None else _is_green(found) for name, found in known.items()}
    seen = acknowledgements(home)
    kept = [run.name for run in runs if green[run.name]][-GREEN_RUNS_KEPT:]
    items = []
    for run in runs:
        if green[run.name] and run.name not in kept:
            why = f"green, and not among the last {GREEN_RUNS_KEPT}"
        elif green[run.name] is False and _is_acknowledged(run, red(known[run.name] or {}), seen):
            why = "red, acknowledged"
        else:
            continue
        for attempt in sorted(run.glob("*/attempt-*")):
            items += [Item(attempt / n, _size(attempt / n), why) for n in OUTPUTS if _is_folder(attempt / n)]
    needed = {address for run in runs if green[run.name] is None for address in _addresses(run)}
    return items + _beyond(home, cache_bytes, needed)


def _beyond(home: Home, cache_bytes: int, needed: set[str]) -> list[Item]:
    """The oldest workloads and oracles above `cache_bytes` in all."""
    found = [
        entry
        for cache in ("workloads", "oracle")
        for app in _folders(home.root / cache)
        for entry in _folders(app)
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


def verdicts(home: Home, run_id: str) -> dict[str, Verdict] | None:
    """What became of a run's cells (verdict.py); None when it has not been compared, or not been loaded, yet."""
    cells, checks, samples = (rows(home, table, run_id) for table in ("cells", "verdicts", "samples"))
    if cells is None or checks is None:
        return None
    return of_run(_planned(home.run(run_id)), cells, checks, samples or [])


def red(found: dict[str, Verdict]) -> list[str]:
    """The cells that make a run red."""
    return [name for name, (verdict, _) in found.items() if not is_green([verdict])]


def _is_green(found: dict[str, Verdict]) -> bool:
    return is_green(verdict for verdict, _ in found.values())


def _is_acknowledged(run: Path, wrong: list[str], seen: Container[tuple[str, str]]) -> bool:
    """Whether all of a run's red cells have been seen; of one without any there is nothing to see."""
    return (run / ACKNOWLEDGED).exists() or (bool(wrong) and all((run.name, cell) in seen for cell in wrong))


def _planned(run: Path) -> list[str]:
    """Names of the cells that were planned."""
    return _read(run / "plan.json", lambda plan: [cell["cell"] for cell in plan["cells"]])


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


def remove(item: Item) -> bool:
    """Removes one item and says so; False, with a line on stderr, when it could not."""
    # Out of sight first: who looks meanwhile finds a whole folder or none.
    gone = item.path.with_name(f".pruned-{item.path.name}")
    try:
        if gone.exists():
            shutil.rmtree(gone)
        os.rename(item.path, gone)
        shutil.rmtree(gone)
    except OSError as error:
        say("lockstep", f"cannot remove {item.path}: {error.strerror}")
        return False
    print(_row(item))
    return True


def _row(item: Item) -> str:
    return f"{item.size / 1e6:10.1f} MB  {item.path}  ({item.why})"


def _folders(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if _is_folder(entry)] if path.is_dir() else []


def _is_folder(path: Path) -> bool:
    # A link may lead anywhere; what it leads to is not ours to remove.
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def prune(home: Home, cache_bytes: int, dry_run: bool) -> int:
    """Removes, or only lists, what may go; the exit code: 1 where something could not be removed."""
    if dry_run:
        items = removable(home, cache_bytes)
        for item in items:
            print(_row(item))
        print(f"prune: {_sum(items)} would go")
        return 0
    if not home.root.is_dir():
        raise BadInput(f"LOCKSTEP_HOME={home.root} does not exist")
    # A run that is going on reads the caches and has outputs without verdicts.
    with hold(home, "prune"):
        items = removable(home, cache_bytes)
        gone = [item for item in items if remove(item)]
    print(f"prune: {_sum(gone)} removed")
    return 0 if len(gone) == len(items) else 1


def _sum(items: list[Item]) -> str:
    return f"{len(items)} folders, {sum(item.size for item in items) / 1e6:.1f} MB"
