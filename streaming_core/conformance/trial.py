"""A trial: a workload, or its first events, on an engine, and the comparison of its outputs with the oracle's.

A trial's folder holds `workload`, `oracle`, and `threads-N`, the folder of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from streaming_core.conformance.workloads import Case, write
from streaming_core.data import comparison
from streaming_core.data.comparison import OUTPUT_KEY, Difference
from streaming_core.data.parts import Parts
from streaming_core.errors import RunFailed
from streaming_core.language.application import App
from streaming_core.oracle import oracle
from streaming_core.run import engine, external
from streaming_core.run.comparison import Diff, diff
from streaming_core.run.way import External, RunSpec

LIMIT = 120.0  # seconds that an engine may take for a workload, even if its manifest allows more
SHOWN = 3  # rows of either side that an outcome keeps of a difference without order

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes:
        verdict: `equal`, `different`, or `failed` if the engine crashed, hung, or broke the contract.
        reason: The numbers of differing rows, or the failure; empty if equal.
        outputs: The number of outputs that the oracle has.
        rows: The first row that differs, of outputs in order. Without order, the first rows that are missing or extra.
    """

    verdict: Literal["equal", "different", "failed"]
    reason: str = ""
    outputs: int = 0
    rows: tuple[Sides, ...] = field(default=())


@dataclass(frozen=True)
class Sides:
    """A row on both sides.

    Attributes:
        expected: The oracle's row; None if it has none there.
        actual: The engine's row; None if it has none there.
        times: How many such rows are missing or extra.
    """

    expected: Row | None
    actual: Row | None
    times: int = 1

    @property
    def seq(self) -> int | None:
        """The number of the event that caused the row; None for outputs without order."""
        return (self.expected or self.actual or {}).get("seq")


def run(executor: str, app: App, case: Case, threads: int, folder: Path, events: int | None = None) -> Outcome:
    """Run a workload, or its first `events` events, on an executor, and compare the outputs with the oracle's.

    Args:
        executor: An engine, or an executor of Lockstep.
        app: The application.
        case: The workload.
        threads: Worker threads.
        folder: The folder of the trial. Trials with other numbers of threads may share it.
        events: The number of events; None for all.

    Raises:
        BadInput: The executor does not run the application.
        RunFailed: The oracle fails on these events.
        CommandFailed: The disk is full, or fails.
    """
    source, expected, out = folder / "workload", folder / "oracle", folder / f"threads-{threads}"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(app, case, source, events)
    outputs = oracle.run(source, expected, "interpreted")["outputs"]["rows"]
    spec = spec_of(executor, app, case, threads)
    try:
        if isinstance(spec, External):
            external.run(spec, source, out, limit=LIMIT)
        else:
            engine.run(spec, source, out)
    except RunFailed as error:
        return Outcome("failed", str(error), outputs)
    difference = diff(out, expected)
    if difference.reason is not None:
        return Outcome("failed", difference.reason, outputs)
    if not difference.differences:
        return Outcome("equal", "", outputs)
    counts = ", ".join(f"{count} in {table}" for table, count in difference.counts.items())
    return Outcome("different", counts, outputs, tuple(_rows(difference, out, expected, app, spec.order)))


def spec_of(executor: str, app: App, case: Case, threads: int) -> RunSpec:
    """The spec of a trial: outputs as files, and a second pass, which shows state that outlives a pass.

    Raises:
        BadInput: There is no such executor, or it does not run the application.
    """
    fields = {"executor": executor, "app": app.name, "params": case.params, "threads": threads, "batch": case.batch}
    spec = RunSpec.parse(fields | {"sink": "parquet", "repetitions": 1, "seconds": 0.0})
    spec.check(app)
    return spec


def _rows(difference: Diff, out: Path, expected: Path, app: App, order: str) -> Iterable[Sides]:
    """The first rows of outputs that differ; none if the difference lies elsewhere."""
    theirs, ours = (Parts.of(folder / "outputs") for folder in (expected, out))
    if "outputs" not in difference.counts or not ours.paths:
        return
    total = theirs.rows + ours.rows
    if order == "none":
        assert app.unordered is not None  # RunSpec.check
        names = [*app.unordered.columns]
        several = comparison.in_buckets("outputs", theirs, ours, names, keep=total).differences
        for kind in ("missing", "extra"):
            for row in [row for row in several if row.kind == kind][:SHOWN]:
                yield _unordered(row)
        return
    their_rows, our_rows = theirs.read(theirs.schema.names), ours.read(theirs.schema.names)
    ordered = our_rows.sort_by([(name, "ascending") for name in OUTPUT_KEY])
    by_key = comparison.in_memory("outputs", their_rows, ordered, keep=total).differences
    if by_key:
        yield _ordered(min(by_key, key=lambda difference: tuple(difference.row[name] for name in OUTPUT_KEY)))
        return
    for left, right in zip(
        their_rows.to_pylist(), our_rows.to_pylist(), strict=True
    ):  # the rows are right, their order is not
        if any(left[name] != right[name] for name in OUTPUT_KEY):
            yield Sides(left, right)
            return


def _ordered(difference: Difference) -> Sides:
    expected, actual = (
        None if side is None else difference.row | side for side in (difference.expected, difference.actual)
    )
    return Sides(expected, actual)


def _unordered(difference: Difference) -> Sides:
    missing = difference.kind == "missing"
    times = (difference.expected if missing else difference.actual)["times"]
    return Sides(difference.row, None, times) if missing else Sides(None, difference.row, times)
