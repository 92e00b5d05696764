"""What a person asks in the morning: the last night, the runs in a line each, and which ways have not run lately.

Days are counted back from the newest run, so that a page in a file is the same whenever it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reports.estimate import expected
from reports.history.load import MOST_RUNS, History
from reports.history.run import RunAge
from reports.history.text import matrix_text
from streaming_core.apps import registry
from streaming_core.regression.comparable import is_nightly
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import records, state_of
from streaming_core.run.way import executors_of
from streaming_core.storage import left_json


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
    """The line of a run: from its published summary, else from what is known."""
    kept = left_json(history.home.report(run_id, "summary.json"))
    if kept:
        return Line(run_id, kept["green"], kept["sentence"], kept["matrix"], len(kept["slower"]))
    run = history.run(run_id)
    in_progress = run.status.state == "in_progress"
    return Line(run_id, run.green, run.sentence, run.matrix, len(run.slower), in_progress)


def last_night(history: History) -> Line | None:
    """The newest nightly that is over, also one that was refused or stopped; None before the first."""
    for run_id in reversed(history.run_ids()):
        if is_nightly(history.plan(run_id)) and state_of(history.home, run_id) != "in_progress":
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
    found = []
    for run_id in history.run_ids()[-MOST_RUNS:]:
        if state_of(history.home, run_id) != "in_progress" or (plan := history.plan(run_id)).get("refused"):
            continue
        server = records(history.home, run_id).get(Stage.SPARK_SERVER, {})
        cells = len(plan.get("cells", []))
        about = expected(history.home, run_id) or f"{cells} cell{'s' * (cells != 1)}"
        # The Spark server of a run starts once the run has the lock on LOCKSTEP_HOME.
        found.append(Unfinished(run_id, server.get("ended") is None, matrix_text(plan), about))
    return found


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
    found: dict[str, dict[str, dict[str, RunAge]]] = {
        app: {name: {} for name in executors_of(kind)} for app, kind in kinds.items()
    }
    ids = history.run_ids()
    for run_id in reversed(ids[-MOST_RUNS:]):
        seen = RunAge.before(run_id, ids[-1])
        for app, executor, strategy in history.ways(run_id):
            if executor in found.get(app, {}):
                found[app][executor].setdefault(strategy, seen)
    return Coverage(found, [name for name in registry.names() if name not in kinds])
