"""Conformance of an engine: its applications, over adversarial workloads, on some numbers of threads.

Lockstep's own executors conform in the same way: `run("pooled", ...)`.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from streaming_core.apps import registry
from streaming_core.conformance import prefix, trial
from streaming_core.conformance.trial import Outcome
from streaming_core.conformance.workloads import Case, cases
from streaming_core.data import comparison
from streaming_core.engines import environment
from streaming_core.engines import registry as engines
from streaming_core.errors import BadInput, ExitCode, RunFailed, unknown
from streaming_core.language.application import App
from streaming_core.run.way import ENGINE_EXECUTORS, MAX_THREADS
from streaming_core.storage import save_json

THREADS = (1, 3)  # three threads share events, keys and batches unevenly
SECONDS = 60.0  # for the search for the event that causes a difference

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One workload on one number of threads.

    Attributes:
        application: The application.
        workload: The name of the workload.
        about: Its difficulty.
        threads: Worker threads.
        batch: Events in a batch.
        params: The parameters that differ from their defaults.
        events: The number of events.
        refused: Events that the workload lacks, because the oracle refuses them.
        outcome: How it ended.
        event: The event that caused the first differing row, with its `seq`. None if there is none, or at the end of
            the stream.
        cause: The smallest number of events that differ. None if it was not searched.
        last: The last of these events.
    """

    application: str
    workload: str
    about: str
    threads: int
    batch: int
    params: dict[str, Any]
    events: int
    refused: int
    outcome: Outcome
    event: dict[str, Any] | None = None
    cause: prefix.Prefix | None = None
    last: dict[str, Any] | None = None


@dataclass
class Report:
    """The result of a conformance run.

    Attributes:
        engine: The engine.
        cells: All cells.
        left_out: Application, workload and reason of each workload that does not exist.
        options: The user's options for events in place of those of a generator.
    """

    engine: str
    cells: list[Cell] = field(default_factory=list)
    left_out: list[tuple[str, str, str]] = field(default_factory=list)
    options: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if all cells are equal, else 1."""
        return ExitCode.SUCCESS if all(cell.outcome.verdict == "equal" for cell in self.cells) else ExitCode.FAILED

    def command(self, cell: Cell) -> str:
        """The command that runs a cell again."""
        words = f"--applications {cell.application} --workloads {cell.workload} --threads {cell.threads}"
        return f"lockstep conformance --engine {self.engine} {words} {shlex.join(self.options)}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "engine": self.engine,
            "verdict": ("conforms", "differs")[self.exit_code],
            "cells": [_plain(cell) | {"command": self.command(cell)} for cell in self.cells],
            "left_out": [
                {"application": app, "workload": name, "reason": reason} for app, name, reason in self.left_out
            ],
        }


def _plain(cell: Cell) -> dict[str, Any]:
    rows = [{"expected": row.expected, "actual": row.actual, "times": row.times} for row in cell.outcome.rows]
    cause = cell.cause and {**vars(cell.cause), "last_event": comparison.plain(cell.last)}
    names = ("application", "workload", "about", "threads", "batch", "params", "events", "refused")
    return {name: getattr(cell, name) for name in names} | {
        "verdict": cell.outcome.verdict,
        "reason": cell.outcome.reason,
        "outputs": cell.outcome.outputs,
        "rows": comparison.plain(rows),
        "event": comparison.plain(cell.event),
        "smallest_prefix": cause,
    }


def run(
    engine: str,
    folder: Path,
    applications: Sequence[str] | Mapping[str, Path] = (),
    workloads: Sequence[str] = (),
    threads: Sequence[int] = (),
    keep: bool = False,
    seconds: float = SECONDS,
    say: Say = lambda line: None,
) -> Report:
    """Run an engine's applications over adversarial workloads.

    Args:
        engine: An engine, or an executor of Lockstep.
        folder: A folder for workloads, oracles and outputs, which is new or empty.
        applications: The applications to run. Empty: all that the engine declares. In a mapping, each has a workload or
            an import, whose events replace those of its generator.
        workloads: The workloads to run. Empty: all.
        threads: The numbers of threads. Empty: 1 and 3, if the engine has as many.
        keep: Whether the files of workloads that differ stay in `folder`.
        seconds: The time for the search for the event that causes a difference, for each workload.
        say: Receives a line about each workload.

    Raises:
        BadInput: The engine, an application or a workload is unknown, the engine is not installed, or `folder` is not
            empty. An application has neither a generator nor a workload.
        CommandFailed: The disk is full, or fails.
    """
    apps, most = _applications(engine, applications)
    if excess := [number for number in threads if number > most]:
        raise BadInput(f"engine {engine} runs on at most {most} thread{'s' * (most > 1)}, got {excess[0]}")
    threads = threads or [number for number in THREADS if number <= most]
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; choose a new folder")
    report = Report(engine)
    sources = applications if isinstance(applications, Mapping) else {}
    for app in apps:
        if not applications and not app.has_generator:
            report.left_out.append((app.name, "all", "it has no generator"))
            continue
        for case in cases(app, workloads, sources.get(app.name)):
            if isinstance(case, tuple):
                report.left_out.append((app.name, *case))
                continue
            try:
                trial.spec_of(engine, app, case, threads[0])
            except BadInput as error:
                report.left_out.append((app.name, case.name, str(error)))
                continue
            place = folder / app.name / case.name
            cells = list(_cells(engine, app, case, threads, place, seconds))
            report.cells += cells
            verdicts = ", ".join(dict.fromkeys(cell.outcome.verdict for cell in cells))
            say(f"{app.name} {case.name}: {verdicts}")
            if not keep or verdicts == "equal":
                shutil.rmtree(place)
            else:
                save_json(place / "cells.json", [_plain(cell) for cell in cells])
    return report


def _applications(engine: str, names: Collection[str]) -> tuple[list[App], int]:
    """The applications to run, and the most threads that the engine has."""
    most = MAX_THREADS
    if engine in ENGINE_EXECUTORS:
        kinds = ENGINE_EXECUTORS[engine].application_kinds
        known = [name for name, kind in registry.kinds().items() if kind in kinds]
    else:
        if engine not in engines.names():
            raise BadInput(unknown("engine", engine, [*engines.names(), *ENGINE_EXECUTORS]))
        loaded = engines.load(engine)
        environment.check(loaded)
        known, most = [*loaded.manifest.applications], loaded.manifest.max_threads
    for name in names:
        if name not in known:
            raise BadInput(f"engine {engine}: {unknown('application', name, known)}")
    return [registry.load(name) for name in names or known], most


def _cells(engine: str, app: App, case: Case, threads: Sequence[int], folder: Path, seconds: float) -> Iterator[Cell]:
    """Run the cells of a workload. Search the causing event of the first one that is not equal."""
    is_searched = False
    for number in threads:
        cell = Cell(
            application=app.name,
            workload=case.name,
            about=case.about,
            threads=number,
            batch=case.batch,
            params=case.params,
            events=case.events.num_rows,
            refused=case.refused,
            outcome=trial.run(engine, app, case, number, folder),
        )
        if cell.outcome.verdict != "equal":
            seq = next((row.seq for row in cell.outcome.rows), None)
            cell = replace(cell, event=_event(case, seq))
            if not is_searched:
                cause = _cause(engine, app, case, number, folder, seq, seconds)
                cell = replace(cell, cause=cause, last=_event(case, cause.events - 1))
                is_searched = True
        yield cell


def _event(case: Case, seq: int | None) -> dict[str, Any] | None:
    """The event of this number; None if there is none, as before the first one and at the end of the stream."""
    if seq is None or not 0 <= seq < case.events.num_rows:
        return None
    return case.events.slice(seq, 1).to_pylist()[0]


def _cause(
    engine: str, app: App, case: Case, threads: int, folder: Path, seq: int | None, seconds: float
) -> prefix.Prefix:
    """Search the smallest prefix that differs. Keep the files of that prefix, and remove those of others."""

    def differs(events: int) -> bool:
        place = folder / f"first-{events}"
        try:
            outcome = trial.run(engine, app, case, threads, place, events)
        except RunFailed:  # the oracle refuses a stream that ends here
            return False
        return outcome.verdict != "equal"

    cause = prefix.smallest(differs, case.events.num_rows, seq, seconds)
    for place in folder.glob("first-*"):
        if place.name != f"first-{cause.events}":
            shutil.rmtree(place)
    return cause
