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
from streaming_core.regression.status import records, status_of
from streaming_core.run.way import executors_of


@dataclass(frozen=True)
class Line:
    """A run in a line: its color (`soft` if in progress), sentence, named matrix, and number of slower cells."""

    run_id: str
    color: str
    sentence: str
    matrix: str = ""
    slower: int = 0
    in_progress: bool = False


def line(history: History, run_id: str) -> Line:
    """The line of a run: from its published summary if it has ended, else from the run itself."""
    summary = history.summary(run_id)
    if summary and not history.is_in_progress(run_id):
        return Line(run_id, summary["color"], summary["sentence"], summary["matrix"], len(summary["slower"]))
    run = history.run(run_id)
    in_progress = run.status.state == "in_progress"
    return Line(run_id, "soft" if in_progress else run.color, run.sentence, run.matrix, len(run.slower), in_progress)


def last_night(history: History) -> Line | None:
    """The newest nightly that is over, also one that was refused or stopped; None before the first."""
    for run_id in reversed(history.run_ids()):
        if is_nightly(history.plan(run_id)) and not history.is_in_progress(run_id):
            return line(history, run_id)
    return None


@dataclass(frozen=True)
class Unfinished:
    """A run in progress, or one that waits for LOCKSTEP_HOME or for its host.

    Attributes:
        run_id: its id.
        waits: whether it waits.
        matrix: its named matrix; empty without one.
        progress: the number of its cells that have run.
        estimate: how long it was to take; empty if unknown.
    """

    run_id: str
    waits: bool
    matrix: str
    progress: str
    estimate: str

    @classmethod
    def of(cls, history: History, run_id: str) -> Unfinished:
        """How far a run is."""
        plan, server = history.plan(run_id), records(history.home, run_id).get(Stage.SPARK_SERVER, {})
        progress = status_of(history.home, run_id).progress(len(plan["cells"])) if plan else "it has no plan yet"
        # The Spark server of a run starts once the run has its share in LOCKSTEP_HOME and in its host.
        waits = server.get("ended") is None
        return cls(run_id, waits, matrix_text(plan), progress, history.estimate(run_id))

    @property
    def sentence(self) -> str:
        """Its progress and its estimate."""
        return self.progress + (f"; estimate: {self.estimate}" if self.estimate else "")


def unfinished(history: History) -> list[Unfinished]:
    """The runs in progress, oldest first."""
    in_progress = [run_id for run_id in history.run_ids()[-MOST_RUNS:] if history.is_in_progress(run_id)]
    return [Unfinished.of(history, run_id) for run_id in in_progress if not history.plan(run_id).get("refused")]


@dataclass(frozen=True)
class Now:
    """The part of the overview that a server renders for each request.

    Attributes:
        night: the last nightly; None before the first.
        days_since_night: how many days it is older than the newest run.
        unfinished: the runs in progress, oldest first.
        queued: the requests in Airflow's queue, as text.
        time: the time of the request; None for a page in a file, which shows no ages.
        is_nightly_on: whether Airflow's schedule of the nightly is known to be on.
    """

    night: Line | None
    days_since_night: int
    unfinished: list[Unfinished]
    queued: Sequence[str]
    time: datetime | None
    is_nightly_on: bool = False

    @classmethod
    def of(cls, history: History, queued: Sequence[str], time: datetime | None, is_nightly_on: bool = False) -> Now:
        """The runs of a history now; the arguments are as in `Now`."""
        night = last_night(history)
        days = RunAge.before(night.run_id, history.run_ids()[-1]).days if night else 0
        return cls(night, days, unfinished(history), queued, time, is_nightly_on)

    @property
    def news(self) -> str:
        """The progress of all runs; empty for a page that stays as it is."""
        return "; ".join([run.progress for run in self.unfinished] + [*self.queued]) if self.time else ""

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
