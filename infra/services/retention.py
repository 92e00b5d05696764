"""Frees disk space by rules: what `lockstep prune` removes, old logs, and what killed Spark servers left.

| kind | rule |
|---|---|
| `runs`, `workloads`, `oracle`, `builds` | prune.py |
| `logs` | logs of Spark servers in LOCKSTEP_HOME, and Airflow's logs, older than a number of days |
| `spark-scratch` | scratch files of Spark while no run is in progress, because a server removes its own at its end |

A red run keeps its evidence until each of its red cells is acknowledged: outputs, logs, and rows of Airflow's database.
A run in progress keeps them too. Raw results, decisions, reports and imports always stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infra.services.decisions import red_cells, verdicts
from infra.services.lock import hold
from infra.services.prune import Item, removable, remove, size
from streaming_core.regression.decisions import acknowledgements
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.status import status_of
from streaming_core.storage import left_json

KINDS = ("runs", "workloads", "oracle", "builds", "logs", "spark-scratch")
DAY = 86400


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
    with nullcontext() if dry_run else hold(home, "retention", say):
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
    origins = {left_json(home.run(run_id) / "plan.json").get("origin") for run_id in protected}
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
    newest = max(one.lstat().st_mtime for one in (path, *path.rglob("*")))
    return (time.time() - newest) / DAY
