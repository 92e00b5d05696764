"""The overview beside the state: the last night, the runs in a line each, and when each way ran last.

Days are counted back from the newest run, so that a page in a file is the same whenever it is read. Only `Now` depends
on the time of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reports import times
from reports.history.load import MOST_RUNS, History
from reports.history.text import matrix_text
from reports.times import RunAge
from streaming_core.apps import registry
from streaming_core.regression.comparable import is_nightly
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import records
from streaming_core.run.way import executors_of


@dataclass(frozen=True)
class Line:
    """A run in a line: its sentence, its named matrix, and the number of slower cells."""

    run_id: str
    green: bool
    sentence: str
    matrix: str = ""
    slower: int = 0
    in_progress: bool = False

    @property
    def look(self) -> str:
        """The style class of its sentence."""
        return "soft" if self.in_progress else "good" if self.green else "bad"


def line(history: History, run_id: str) -> Line:
    """The line of a run: from its published summary, else from the run itself."""
    summary = history.summary(run_id)
    if summary:
        return Line(run_id, summary["green"], summary["sentence"], summary["matrix"], len(summary["slower"]))
    run = history.run(run_id)
    in_progress = run.status.state == "in_progress"
    return Line(run_id, run.green, run.sentence, run.matrix, len(run.slower), in_progress)


def last_night(history: History) -> Line | None:
    """The newest nightly that is over, also one that was refused or stopped; None before the first."""
    for run_id in reversed(history.run_ids()):
        if is_nightly(history.plan(run_id)) and not history.is_in_progress(run_id):
            return line(history, run_id)
    return None


@dataclass(frozen=True)
class Unfinished:
    """A run in progress, or one that waits until another run releases LOCKSTEP_HOME."""

    run_id: str
    waits: bool
    matrix: str
    expected: str


def unfinished(history: History) -> list[Unfinished]:
    """The runs in progress, oldest first."""
    runs = []
    for run_id in history.run_ids()[-MOST_RUNS:]:
        if not history.is_in_progress(run_id) or (plan := history.plan(run_id)).get("refused"):
            continue
        server = records(history.home, run_id).get(Stage.SPARK_SERVER, {})
        cells = len(plan.get("cells", []))
        about = history.estimate(run_id) or f"{cells} cell{'s' * (cells != 1)}"
        # The Spark server of a run starts once the run has the lock on LOCKSTEP_HOME.
        runs.append(Unfinished(run_id, server.get("ended") is None, matrix_text(plan), about))
    return runs


@dataclass(frozen=True)
class Now:
    """The part of the overview that a server renders for each request.

    Attributes:
        night: the last nightly; None before the first.
        days_since_night: how many days it is older than the newest run.
        unfinished: the runs in progress, oldest first.
        queued: the requests in Airflow's queue, as text.
        time: the time of the request; None for a page in a file, which shows no ages.
    """

    night: Line | None
    days_since_night: int
    unfinished: list[Unfinished]
    queued: Sequence[str]
    time: datetime | None

    @classmethod
    def of(cls, history: History, queued: Sequence[str], time: datetime | None) -> Now:
        """The runs of a history now; the arguments are as in `Now`."""
        night = last_night(history)
        days = RunAge.before(night.run_id, history.run_ids()[-1]).days if night else 0
        return cls(night, days, unfinished(history), queued, time)

    @property
    def running(self) -> int:
        """The number of runs that run now."""
        return sum(not run.waits for run in self.unfinished)

    @property
    def waiting(self) -> int:
        """The number of runs and requests that wait."""
        return sum(run.waits for run in self.unfinished) + len(self.queued)

    def age(self, run_id: str) -> str:
        """`3 hours ago`; empty on a page in a file."""
        return times.age(run_id, self.time)


@dataclass(frozen=True)
class Coverage:
    """When each way of each application ran last.

    Attributes:
        ways: by application, executor and strategy; {} for an executor that never ran the application.
        unread: the applications whose files cannot be loaded.
    """

    ways: dict[str, dict[str, dict[str, RunAge]]] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def executors(self) -> list[str]:
        """The executors that support an application."""
        return list(dict.fromkeys(name for of_app in self.ways.values() for name in of_app))


def coverage(history: History) -> Coverage:
    """When each way ran last. Only cells that ran to their end count, and no bounds."""
    kinds = registry.kinds()
    ways: dict[str, dict[str, dict[str, RunAge]]] = {
        app: {name: {} for name in executors_of(kind)} for app, kind in kinds.items()
    }
    ids = history.run_ids()
    for run_id in reversed(ids[-MOST_RUNS:]):
        age = RunAge.before(run_id, ids[-1])
        for app, executor, strategy in history.ways(run_id):
            if executor in ways.get(app, {}):
                ways[app][executor].setdefault(strategy, age)
    return Coverage(ways, [name for name in registry.names() if name not in kinds])
