"""A case once more: in a search, in any checkout, and as a test.

Start at `replay`. `assert_sound` is what the test of a find calls.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core.data import workload
from streaming_core.data.comparison import Difference
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.run.comparison import compare, diff
from streaming_core.run.way import ParamValue, RunSpec
from streaming_core.search.case import Case, Kind, Symptom
from streaming_core.search.laboratory import LOOP, PROPERTIES, Laboratory, Verdict

# The invariants that the results in these folders break, for each folder. A folder has `workload` and `oracle`.
Invariants = Callable[[Sequence[tuple[Case, Path]]], list[list[str]]]
# Makes such a function for an application, for a while.
Beside = Callable[[App], AbstractContextManager[Invariants | None]]
_DOUBT = 0.001  # chance that a fault stays hidden in all trials
_MOST, _FEWEST = 400, 3  # trials: a rate of 1 was measured on few of them
RUN = "run-0"  # the folder of the only run of an examination


@dataclass(frozen=True)
class Replay:
    """The outcome of a case that was tried again.

    Attributes:
        symptom: How it went wrong; None if no trial showed anything.
        reason: One line about it.
        trials: The number of trials up to this one.
        differences: The first differing rows.
        counts: The number of differing rows, by table.
    """

    symptom: Symptom | None = None
    reason: str = ""
    trials: int = 0
    differences: list[Difference] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def trials(case: Case, least: int = _FEWEST) -> int:
    """How often to try a case, at least so often, so that a fault of its rate stays hidden once in a thousand times."""
    if case.symptom is not None and not case.symptom.needs_run:
        return 1
    if not 0 < case.rate < 1:
        return least
    return min(_MOST, max(least, math.ceil(math.log(_DOUBT) / math.log1p(-case.rate))))


def replay(
    case: Case,
    laboratory: Laboratory,
    keep: Path,
    part: str | None = None,
    invariants: Invariants | None = None,
    least: int = _FEWEST,
) -> Replay:
    """Try a case until it goes wrong as it says, as often as its rate demands.

    Args:
        case: The case.
        laboratory: Makes the trials.
        keep: A new folder that gets `workload`, `oracle` and the result of the last trial.
        part: An operator behind which the pipeline ends; None: the whole pipeline.
        invariants: Checks the declared invariants; a case that breaks one needs it.
        least: The number of trials of a case that every trial should show.

    Returns:
        The trial that showed the symptom of the case; else the last one that showed another symptom.

    Raises:
        BadInput: The application does not take the events or the parameters.
        CommandFailed: The disk is full.
    """
    specs, checks = requests(case)
    most = trials(case, least)
    outcome = Replay(trials=most)
    for number in range(1, most + 1):
        shutil.rmtree(keep, ignore_errors=True)
        examination = laboratory.examine(case, specs, checks, keep=keep, part=part)
        if examination.refused is not None:
            raise BadInput(examination.refused)
        for verdict in examination.verdicts:
            outcome = _seen(verdict, number, keep)
            if case.symptom in (None, outcome.symptom):
                return outcome
        if case.symptom is not None and case.symptom.kind == "invariant" and invariants is not None:
            [names] = invariants([(case, keep)])
            if case.symptom.name in names:
                return Replay(case.symptom, case.symptom.sentence, number)
    return outcome


def requests(case: Case) -> tuple[Sequence[RunSpec], Sequence[str]]:
    """The ways and the checks that show the symptom of a case."""
    match case.symptom:
        case Symptom("oracle"):
            return (), (LOOP,)
        case Symptom("invariant"):
            return (), ()
        case Symptom("property", name):
            return (), (f"{PROPERTIES}:{name}",)
    return (case.spec,), ()


def _seen(verdict: Verdict, number: int, keep: Path) -> Replay:
    """A verdict with the rows that differ."""
    symptom = verdict.symptom
    assert symptom is not None
    outcome = None
    if symptom.kind == "result":
        outcome = diff(keep / RUN, keep / "oracle")
    elif symptom.kind == "oracle" and (keep / LOOP / "manifest.json").exists():
        outcome = compare(keep / LOOP, keep / "oracle")
    if outcome is None:
        return Replay(symptom, verdict.reason, number)
    return Replay(symptom, verdict.reason, number, outcome.differences, outcome.counts)


def assert_sound(
    app: str,
    events: Sequence[dict[str, Any]],
    way: dict[str, Any],
    params: dict[str, ParamValue] | None = None,
    symptom: tuple[Kind, str] = ("result", ""),
    rate: float = 1.0,
    invariants: Beside | None = None,
) -> None:
    """Assert that an application handles these events as its oracle does.

    Args:
        app: The application.
        events: The fields of each event.
        way: The way of executing: the fields of a RunSpec that differ from their defaults.
        params: The parameters that differ from their defaults.
        symptom: The kind and the name of the symptom that the events once showed.
        rate: The share of trials that showed it; a low one needs more trials.
        invariants: Makes the function that checks invariants (jobs/invariants.py).

    Raises:
        AssertionError: The application is not sound. The message has the first differing rows.
    """
    spec = RunSpec.parse({"app": app, "params": params or {}, **way})
    case = Case(spec, numbered(spec, events), Symptom(*symptom), rate)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-find-")))
        laboratory = stack.enter_context(Laboratory())
        broken = stack.enter_context(invariants(case.app)) if invariants else None
        outcome = replay(case, laboratory, folder / "trial", invariants=broken)
    if outcome.symptom is not None:
        lines = [outcome.symptom.sentence, outcome.reason]
        lines += [f"  {line}" for difference in outcome.differences for line in difference.lines()]
        raise AssertionError("\n".join(dict.fromkeys(lines)))


def numbered(spec: RunSpec, events: Sequence[dict[str, Any]]) -> pa.Table:
    """The events of an application as a table, numbered from 0.

    Raises:
        BadInput: They do not fit the application's records.
    """
    schema = workload.schema(spec.app, spec.params)
    try:
        return pa.Table.from_pylist([{"seq": seq} | event for seq, event in enumerate(events)], schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(f"the events do not fit application {spec.app}: {error}") from None
