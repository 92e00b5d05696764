"""A trial: one case, executed and compared. It runs in this process; `laboratory.py` guards against crashes and hangs.

Every run is a real one, into a folder: checkpoints, faults and files are those of users.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streaming_core.data.comparison import Difference
from streaming_core.errors import RunFailed
from streaming_core.language.application import App
from streaming_core.oracle import oracle
from streaming_core.run import engine
from streaming_core.run.comparison import Diff, compare, diff
from streaming_core.run.one_pass import CORES
from streaming_core.run.way import RunSpec
from streaming_core.search import scenario
from streaming_core.search.case import Case, Symptom

_FAILURE = re.compile(r"operator (\w+)(?: failed at|,) event (\d+)(?: in window \[.*?\))?: (\w+)")


@dataclass(frozen=True)
class Failure:
    """How a run fails: the operator, the event, and the type of the exception."""

    operator: str
    event: int
    exception: str

    @staticmethod
    def of(error: RunFailed) -> Failure | None:
        """Read the line of the engine or of the oracle; None if no operator failed."""
        match = _FAILURE.match(str(error))
        return Failure(match[1], int(match[2]), match[3]) if match else None


@dataclass
class Outcome:
    """The outcome of a trial.

    Attributes:
        symptom: How it went wrong; None if it did not.
        reason: One line about it.
        differences: The first differing rows.
    """

    symptom: Symptom | None = None
    reason: str = ""
    differences: list[Difference] = field(default_factory=list)


@dataclass
class Expected:
    """The oracle's result of a workload, or its failure.

    Attributes:
        workload: The folder of the events.
        folder: The folder of the result; it is empty if the oracle failed.
        failure: The failure of an operator; None if there is none.
        branches: The branches of operators that the events reached.
    """

    workload: Path
    folder: Path
    failure: Failure | None = None
    branches: frozenset[int] = frozenset()


def expect(case: Case, root: Path) -> Expected:
    """Write the events of a case below `root`, and compute the oracle's result."""
    expected = Expected(root / "workload", root / "oracle")
    case.write_workload(expected.workload)
    try:
        with scenario.counted_branches() as branches:
            oracle.run(expected.workload, expected.folder, "interpreted")
    except RunFailed as error:
        expected.failure = Failure.of(error)
        if expected.failure is None:
            raise
    expected.branches = frozenset(branches)
    return expected


def run(spec: RunSpec, app: App, expected: Expected, out: Path) -> Outcome:
    """Run one way of executing, and compare the result with the oracle's."""
    spec = spec.model_copy(update={"sink": "parquet"})
    CORES.set(spec.threads)  # more threads than cores all work, because a small machine also has to find races
    try:
        engine.run(spec, expected.workload, out)
    except RunFailed as error:
        return _failed(spec, app, expected, error)
    finally:
        if not (out / "report.json").exists():
            shutil.rmtree(out, ignore_errors=True)
    if expected.failure is not None:
        name = f"{expected.failure.operator} does not fail: {expected.failure.exception}"
        return Outcome(Symptom("failure", name), f"the run does not fail, the oracle does: {expected.failure}")
    return _compared(diff(out, expected.folder))


def _failed(spec: RunSpec, app: App, expected: Expected, error: RunFailed) -> Outcome:
    """Compare the failure of a run with the oracle's."""
    failure = Failure.of(error)
    if failure is None:
        return Outcome(Symptom("failure", "no operator"), str(error))
    if expected.failure is None:
        return Outcome(Symptom("failure", f"{failure.operator}: {failure.exception}"), str(error))
    # One function of a transaction calls the others, and threads may reach a later failure first.
    is_same = app.kind == "transaction" or failure.operator == expected.failure.operator
    is_same = is_same and failure.event == expected.failure.event and failure.exception == expected.failure.exception
    if is_same or (failure.event >= expected.failure.event and not reports_earliest(spec)):
        return Outcome()
    name = (
        f"{failure.operator}: {failure.exception} instead of {expected.failure.operator}: {expected.failure.exception}"
    )
    return Outcome(Symptom("failure", name), f"the run fails with {failure}, the oracle with {expected.failure}")


def reports_earliest(spec: RunSpec) -> bool:
    """Whether a run fails at the earliest event. On other executors, threads may reach a later failure first."""
    # One thread of tstream walks chains one after the other. One thread of pat plans a batch ahead.
    is_in_turn = spec.threads == 1 and spec.option("scheme") not in ("tstream", "pat")
    return spec.order == "total" and (spec.executor == "pinned" or is_in_turn)


def _compared(difference: Diff) -> Outcome:
    """The outcome of a comparison."""
    if difference.reason is not None:
        return Outcome(Symptom("result", "not comparable"), difference.reason)
    if not difference.differences:
        return Outcome()
    table = next(iter(difference.counts))
    if table == "passes":
        table = next((name for difference in difference.differences for name in difference.columns), table)
    if table in ("digest", "rerun"):  # all that a later pass gives of its outputs, unless it differs again
        table = "outputs"
    return Outcome(Symptom("result", table), difference.text().partition("\n")[0], difference.differences)


def loop(case: Case, expected: Expected, folder: Path) -> Outcome:
    """Compare the compiled oracle with the interpreted one."""
    try:
        oracle.run(expected.workload, folder, "compiled")
    except RunFailed as error:
        failure = Failure.of(error)
        if failure is not None and failure == expected.failure:
            return Outcome()
        return Outcome(Symptom("oracle", failure.operator if failure else "the loop"), str(error))
    if expected.failure is not None:
        return Outcome(Symptom("oracle", expected.failure.operator), "the compiled oracle does not fail")
    difference = compare(folder, expected.folder)
    if not difference.differences:
        return Outcome()
    return Outcome(Symptom("oracle", next(iter(difference.counts))), difference.text(), difference.differences)


def properties(case: Case, expected: Expected, names: Sequence[str] = ()) -> Iterator[Outcome]:
    """The properties that the application breaks on these events; of all, or of those with these names."""
    if expected.failure is None:
        for name, reason in scenario.broken(case.app, case.params, case.events, names):
            yield Outcome(Symptom("property", name), reason)
