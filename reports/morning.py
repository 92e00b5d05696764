"""What a person asks in the morning beside the run itself: every run there was in a line, and what has not been run for
how long. Days are held against the newest run, so that a page says the same whenever it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from reports.history import History, started
from streaming_core.apps import registry
from streaming_core.run.way import executors_of
from streaming_core.storage import left_json

NIGHTLY = "nightly"
STALE = 7  # days after which a way counts as not run lately
LOOKED = 200  # runs that are looked at, the newest first


@dataclass(frozen=True)
class Line:
    """A run in a line: its sentence, the named matrix that it went by, how many cells are slower."""

    run_id: str
    green: bool
    sentence: str
    matrix: str = ""
    slower: int = 0

    @property
    def started(self) -> str:
        return started(self.run_id)


def line(history: History, run_id: str) -> Line:
    """A run as it was published; of one that was not, what is known of it."""
    kept = left_json(history.home.report(run_id, "summary.json"))
    if kept:
        return Line(run_id, kept["green"], kept["sentence"], kept["matrix"], len(kept["slower"]))
    run = history.run(run_id)
    slower = [cell for cell in run.speeds if cell.speed and cell.speed.verdict == "slower"]
    return Line(run_id, run.green, run.sentence, run.matrix, len(slower))


def last_night(history: History) -> Line | None:
    """The newest run that went by the matrix `nightly`, whatever was run since."""
    for run_id in reversed(history.run_ids()):
        plan = left_json(history.home.run(run_id) / "plan.json")
        if (plan.get("matrix") or {}).get("name") == NIGHTLY:
            return line(history, run_id)
    return None


@dataclass(frozen=True)
class Seen:
    """When something ran last: in which run, and how many days before the newest one."""

    run_id: str
    days: int

    @property
    def text(self) -> str:
        """`2026-01-02, 3 days before`."""
        ago = {0: "", 1: ", a day before"}.get(self.days, f", {self.days} days before")
        return f"{started(self.run_id)[:10]}{ago}"

    @property
    def stale(self) -> bool:
        return self.days > STALE


@dataclass(frozen=True)
class Coverage:
    """Per application, and executor that runs it, when each strategy ran last; {} where none ever did. `unread` are
    applications whose files cannot be loaded."""

    ways: dict[str, dict[str, dict[str, Seen]]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def executors(self) -> list[str]:
        """All of which something is said."""
        return list(dict.fromkeys(name for of_app in self.ways.values() for name in of_app))

    @property
    def lately(self) -> list[str]:
        """Applications of which a way ran in the last week."""
        return [
            app
            for app, of_app in self.ways.items()
            if any(not seen.stale for strategies in of_app.values() for seen in strategies.values())
        ]

    @property
    def stale(self) -> list[tuple[str, Seen]]:
        """`sl/lock` and when it ran last, of what has not run for a week; the longest ago first."""
        found = [
            (f"{app}/{strategy}", seen)
            for app, of_app in self.ways.items()
            for strategies in of_app.values()
            for strategy, seen in strategies.items()
            if seen.stale
        ]
        return sorted(found, key=lambda one: (-one[1].days, one[0]))

    @property
    def never(self) -> list[str]:
        """`q1` of an application that never ran, `sl on morsel` of one that never ran on an executor."""
        found = []
        for app, of_app in self.ways.items():
            lacking = [name for name, strategies in of_app.items() if not strategies]
            found += [app] if len(lacking) == len(of_app) else [f"{app} on {name}" for name in lacking]
        return found


def coverage(history: History) -> Coverage:
    """What has been run when, by the rows of cells that got to their end. Bounds count for nothing."""
    kinds = registry.kinds()
    found: dict[str, dict[str, dict[str, Seen]]] = {
        app: {name: {} for name in executors_of(kind)} for app, kind in kinds.items()
    }
    ids = history.run_ids()
    for run_id in reversed(ids[-LOOKED:]):
        seen = Seen(run_id, (_day(ids[-1]) - _day(run_id)).days)
        for app, executor, strategy in history.ways(run_id):
            if executor in found.get(app, {}):
                found[app][executor].setdefault(strategy, seen)
    return Coverage(found, [name for name in registry.names() if name not in kinds])


def _day(run_id: str) -> date:
    return date.fromisoformat(started(run_id)[:10])
