"""Frees disk space. Only what a run can make again, old logs and leftovers go; the history of runs stays.

`removable` lists outputs and final states of runs, and the oldest workloads, oracles and builds beyond a total size. It
never lists raw results, reports, and the plan, specs and exit codes of a run. It leaves outputs and final states of

- the last seven green runs (`streaming_core/regression/verdict.py` defines green);
- every red run, as evidence, until each of its red cells is acknowledged;
- every run without verdicts, which is in progress or died. Its workloads and oracles stay, whatever their size.

A find of the search for faults stays until a later search of its application no longer shows it. It also stays until
it is acknowledged in every run that has it. Finds of no run stay. A corpus bounds itself.

`free` removes these, and by the rules of the DAG `retention`

| kind | rule |
|---|---|
| `logs` | logs of Spark servers in LOCKSTEP_HOME, and Airflow's logs, older than a number of days |
| `spark-scratch` | scratch files of Spark while no run is in progress, because a server removes its own at its end |

A run in progress, and a red run that is not acknowledged, keep logs and rows of Airflow's database too.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Container, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infra.history.ledger import red_cells, verdicts
from jobs.run_folder import names_in
from streaming_core.regression.decisions import acknowledgements
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.lock import hold, of_home
from streaming_core.regression.plan import left_plan
from streaming_core.regression.status import status_of
from streaming_core.regression.verdict import Verdict, find_cell, is_green
from streaming_core.regression.warehouse import rows
from streaming_core.run.folder import PUBLISHED, WORK

KINDS = ("runs", "finds", "workloads", "oracle", "builds", "logs", "spark-scratch")
DAY = 86400
GREEN_RUNS_KEPT = 7

# The folders of an attempt that prune may remove; every other file of a run stays.
OUTPUTS = (*PUBLISHED, WORK)


@dataclass(frozen=True)
class Item:
    """A removable folder or file: its size in bytes, and why it is removable."""

    path: Path
    size: int
    why: str


def removable(home: Home, cache_bytes: int) -> list[Item]:
    """List everything removable: runs and finds first, then caches, oldest first."""
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
    items += _fixed(home, [run.name for run in runs], acknowledged)
    return items + _beyond(home, cache_bytes, needed)


def _fixed(home: Home, run_ids: list[str], acknowledged: Container[tuple[str, str]]) -> Iterator[Item]:
    """The acknowledged finds that the last search of their application no longer showed."""
    showed: dict[str, list[str]] = {}  # by find, the runs that have it
    searched: dict[str, str] = {}  # by application, the last run that searched it
    for run_id in run_ids:
        searched |= {row["app"]: run_id for row in rows(home, "searches", run_id) or []}
        for row in rows(home, "finds", run_id) or []:
            showed.setdefault(row["cell"], []).append(run_id)
    for app in _folders(home.root / "finds"):
        for folder in _folders(app):
            runs = showed.get(find_cell(app.name, folder.name), [])
            is_fixed = bool(runs) and runs[-1] < searched.get(app.name, "")
            if is_fixed and all((run_id, find_cell(app.name, folder.name)) in acknowledged for run_id in runs):
                yield Item(folder, size(folder), "an acknowledged find that no longer shows")


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
    """The bytes of all files below a folder, while other processes may remove some of them."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


@dataclass(frozen=True)
class Rules:
    """The rules for what stays.

    Attributes:
        days: Age at which logs and rows of Airflow's database are old.
        cache_bytes: Largest total size of workloads, oracles and builds.
        airflow_logs: Airflow's folder of logs; None if they are elsewhere.
    """

    days: int
    cache_bytes: int
    airflow_logs: Path | None = None


def free(home: Home, rules: Rules, dry_run: bool, say: Callable[[str], None] = print) -> dict[str, int]:
    """Remove everything that the rules allow, and say it line by line.

    Args:
        home: LOCKSTEP_HOME.
        rules: The rules.
        dry_run: Remove nothing.
        say: Takes the lines.

    Returns:
        The bytes of each kind.

    Raises:
        OSError: Something could not be removed.
    """
    freed = dict.fromkeys(KINDS, 0)
    # A run in progress writes logs and scratch files, and reads the caches.
    with nullcontext() if dry_run else hold(of_home(home), "retention", say=say):
        protected = evidence(home)
        for kind, item in _items(home, rules, protected):
            if not dry_run:
                remove(item)
            say(f"{item.size / 1e6:10.1f} MB  {item.path}  ({item.why})")
            freed[kind] += item.size
    did = "would free" if dry_run else "freed"
    say(f"{did} {sum(freed.values()) / 1e6:.1f} MB: " + ", ".join(f"{kind} {n / 1e6:.1f}" for kind, n in freed.items()))
    for run_id, reason in protected.items():
        say(f"kept everything of run {run_id}: {reason}")
    return freed


def cutoff(home: Home, days: int) -> datetime:
    """The time before which rows of Airflow's database may go: `days` ago, but before each run of `evidence`."""
    starts = [datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for run_id in evidence(home)]
    return min([datetime.now(UTC) - timedelta(days=days), *starts])


def evidence(home: Home) -> dict[str, str]:
    """The runs that keep everything, oldest first, and why."""
    acknowledged, reasons = acknowledgements(home), {}
    for run in sorted((home.root / "runs").glob("*")):
        if not RUN_ID.fullmatch(run.name):
            continue
        by_cell = verdicts(home, run.name)
        if status_of(home, run.name).state == "in_progress":
            reasons[run.name] = "it is in progress"
        elif left := [cell for cell in red_cells(by_cell or {}) if (run.name, cell) not in acknowledged]:
            reasons[run.name] = f"{len(left)} red cell{'s are' if len(left) > 1 else ' is'} not acknowledged"
    return reasons


def _items(home: Home, rules: Rules, protected: dict[str, str]) -> Iterator[tuple[str, Item]]:
    for item in removable(home, rules.cache_bytes):
        yield item.path.relative_to(home.root).parts[0], item
    origins = {left_plan(home, run_id).get("origin") for run_id in protected}
    reason = f"older than {rules.days} days"
    for path in _logs(home, rules):
        run = path.name.removeprefix("run_id=")
        if run not in origins and not any(run_id in path.name for run_id in protected) and _age_days(path) > rules.days:
            yield "logs", Item(path, size(path) if path.is_dir() else path.stat().st_size, reason)
    scratch = home.root / "spark-scratch"
    if scratch.is_dir() and not scratch.is_symlink():
        yield "spark-scratch", Item(scratch, size(scratch), "no run is in progress")


def _logs(home: Home, rules: Rules) -> Iterator[Path]:
    """Logs of Spark servers, the folder of each run in Airflow's logs, and the folders of a day of its components."""
    yield from sorted(home.log("any").parent.glob("*.log"))
    if rules.airflow_logs is not None:
        yield from sorted(rules.airflow_logs.glob("dag_id=*/run_id=*"))
        yield from sorted(rules.airflow_logs.glob("*/[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"))


def _age_days(path: Path) -> float:
    """The days since the newest change of a file, or of anything below a folder."""
    newest = max(entry.lstat().st_mtime for entry in (path, *path.rglob("*")))
    return (time.time() - newest) / DAY
