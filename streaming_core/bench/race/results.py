"""The results file of a benchmark, version 2: what it holds, and how a file from elsewhere is checked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from streaming_core.bench.race import facts as host
from streaming_core.bench.race import length
from streaming_core.errors import BadInput, one_line
from streaming_core.run.disturbance import Disturbance
from streaming_core.storage import save_text

VERSION = 2  # of the file; the page of benchmarks reads this version
PARTS = ("suites", "experiments")  # the lists of a file whose elements have rows of their own
QUICK_PROBE = 0.01  # seconds for which each core is watched with --quick


class Record:
    """The record of a benchmark while it runs: host, conditions and time.

    Attributes:
        pass_seconds: The target length of a pass; 0 with `quick`.
    """

    def __init__(self, repetitions: int, quick: bool = False, pinned: bool = False):
        """Measure the facts about this host.

        Args:
            repetitions: Rounds.
            quick: Whether a pass is a single run over few events.
            pinned: Whether every thread is bound to a core.
        """
        self._load, self._began = os.getloadavg()[0], time.monotonic()
        facts = host.facts(repetitions, QUICK_PROBE if quick else host.PROBE_SECONDS)
        self.pass_seconds = 0.0 if quick else length.pass_seconds(facts["host"]["longest_pause_ms"] / 1e3)
        self._facts = {"version": VERSION, "quick": quick, **facts}
        self._pinned, self._disturbance = pinned, Disturbance()

    def results(self, about: dict[str, Any]) -> dict[str, Any]:
        """Return the results so far: facts, conditions, and `about` with experiments or rows."""
        seen = self._disturbance.seen()
        conditions = {
            "pass_seconds": self.pass_seconds,
            "pinned": self._pinned,
            **{name: seen[name] for name in ("steal", "others", "preempted")},
            "load_before": self._load,
            "load_after": os.getloadavg()[0],
        }
        seconds = time.monotonic() - self._began
        return self._facts | {"seconds": seconds, "cells": len(rows(about)), "conditions": conditions} | about


def rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all rows of a results file."""
    experiments = [row for experiment in results.get("experiments", []) for row in experiment["rows"]]
    suites = [row for suite in results.get("suites", []) for row in rows(suite)]
    return [*results.get("results", []), *results.get("files", []), *experiments, *suites]


def save(path: Path, results: dict[str, Any]) -> None:
    """Write a results file. Raises the errors of `storage.save_text`."""
    save_text(path, text_of(results) + "\n")


def text_of(results: dict[str, Any], margin: str = "") -> str:
    """Return results as JSON with a line for each fact and each row, so that people can read and compare files."""
    members = []
    for name, value in sorted(results.items()):
        text = json.dumps(value, sort_keys=True)
        if isinstance(value, list) and value and isinstance(value[0], (dict, str)):
            elements = (
                text_of(item, f"{margin}  ") if name in PARTS else json.dumps(item, sort_keys=True) for item in value
            )
            text = "[\n" + ",\n".join(f"{margin}  {element}" for element in elements) + f"\n{margin} ]"
        members.append(f'{margin} "{name}": {text}')
    return "{\n" + ",\n".join(members) + f"\n{margin}}}"


class _Row(BaseModel):
    """A row; further columns depend on the way and the experiment."""

    app: str
    params: dict[str, Any]
    way: str
    threads: int
    result: Literal["equal", "yardstick", "bound", "expected", "simulated"]
    events_per_s: float | None
    to_loop: float | None
    rates: list[float]


class _Plot(BaseModel):
    x: str
    y: str
    title: str
    by: str
    lines: list[str]
    kind: Literal["line", "bar", "parts", "point"]
    log: bool
    loop: bool
    dashed: str = ""


class _Experiment(BaseModel):
    name: str
    figure: str
    title: str
    plots: list[_Plot]
    varies: list[str]
    notes: list[str]
    conclusions: list[str]
    rows: list[_Row]


class _Host(BaseModel):
    cpu: str
    cores: int = Field(ge=1)


class _Suite(BaseModel):
    version: Literal[2]
    suite: str
    title: str
    quick: bool
    command: str
    build: str
    made_at: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
    seconds: float
    cells: int
    order: list[str]
    threads: list[int]
    repetitions: int = Field(ge=1)
    host: _Host
    topology: dict[str, Any]
    conditions: dict[str, Any]
    experiments: list[_Experiment]


def check(results: Any, where: str, known: Iterable[str]) -> None:
    """Check the results of one suite that were read from a file.

    Args:
        results: The JSON value.
        where: The file, for errors.
        known: The names of suites.

    Raises:
        BadInput: It is not version 2, has wrong results, or lacks something.
    """
    version = results.get("version") if isinstance(results, dict) else None
    if version != VERSION:
        raise BadInput(f"{where}: not a results file of version {VERSION}, but of version {version}")
    if results.get("suite") not in list(known):  # a JSON value need not be hashable
        raise BadInput(f"{where}: unknown suite {results.get('suite')!r}; known: {', '.join(known)}")
    try:
        if wrong := [row for row in rows(results) if row["result"] == "different"]:
            first = f"{wrong[0]['app']} {wrong[0]['way']}"
            raise BadInput(f"{where}: {len(wrong)} results differ from the loop's; the first is {first}")
        _Suite.model_validate(results)
    except ValidationError as error:
        raise BadInput(f"{where}: {one_line(error)}") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"{where}: not the results of a suite: {error}") from None


def read(path: Path) -> Any:
    """Return the JSON value of a file; raise BadInput if it has none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not JSON"
        raise BadInput(f"{path}: cannot be read: {reason}") from None
