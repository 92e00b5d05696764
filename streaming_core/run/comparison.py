"""The comparison of a run with the oracle's result: every row, column and bit, the order, all final tables and counts.

It compares outputs in delivered order, a slice at a time. If rows are missing, added or out of order, it matches them
by (seq, sub), a range of seq at a time. So it can name the difference. It compares floats by their bits.

An empty stream makes no rows. Two sides without rows are equal if they have the same columns and digests. A regression
that compared nothing is a matter of jobs/validate_outputs.py. No rows on one side only is a difference.

Start at `diff`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core.data import comparison
from streaming_core.data.comparison import SHOWN, Difference, Differences
from streaming_core.data.parts import Parts, states
from streaming_core.errors import BadInput, ExitCode, refusal
from streaming_core.oracle import oracle
from streaming_core.run import recording
from streaming_core.run.report import RunReport, Sample, read_report
from streaming_core.run.way import executor_of


@dataclass
class Diff:
    """The outcome of a comparison.

    Attributes:
        run: Folder of the run.
        oracle: Folder of the oracle's result.
        reason: Why the two cannot be compared; None if they can.
        operator: The operator whose input both recorded; None if they are no recordings.
        outputs: Rows that the oracle has.
        states: Rows of final state that the oracle has; None if the run leaves no state.
        counts: Number of differing rows, by table.
        differences: The first of them.
    """

    run: str
    oracle: str
    reason: str | None = None
    operator: str | None = None
    outputs: int = 0
    states: int | None = 0
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 equal, 1 different, 2 not comparable."""
        if self.reason:
            return ExitCode.BAD_INPUT
        return ExitCode.FAILED if self.differences else ExitCode.SUCCESS

    def text(self) -> str:
        """The outcome as text for people."""
        if self.reason:
            return f"not comparable: {self.reason}"
        compared = f"{self.outputs} outputs"
        if self.states is not None:
            compared += f" and {self.states} rows of final state"
        if self.operator:
            compared = f"{self.outputs} input rows of operator {self.operator}"
        if not self.differences:
            return f"equal: {compared}{'' if self.outputs or self.states else ' on both sides'}"
        counts = ", ".join(f"{n} in {table}" for table, n in self.counts.items())
        lines = [f"different: {counts} (expected {compared})"]
        lines += [f"  {line}" for d in self.differences for line in d.lines()]
        if (hidden := sum(self.counts.values()) - len(self.differences)) > 0:
            lines.append(f"  and {hidden} more")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        return {
            "verdict": ("equal", "different", "not_comparable")[self.exit_code],
            "reason": self.reason,
            "run": self.run,
            "oracle": self.oracle,
            "operator": self.operator,
            "outputs": self.outputs,
            "states": self.states,
            "counts": self.counts,
            "differences": [
                {name: comparison.plain(value) for name, value in side.items() if value is not None}
                for difference in self.differences
                for side in difference.sides()
            ],
        }

    def add(self, table: str, differences: list[Difference], count: int) -> None:
        """Count differences of a table, and keep the first ones."""
        if count:
            self.counts[table] = self.counts.get(table, 0) + count
            kept = sum(d.table == table for d in self.differences)
            self.differences += differences[: max(0, SHOWN - kept)]

    def take(self, rows: Differences) -> None:
        """Add the differences between the rows of two tables."""
        self.add(rows.table, rows.differences, rows.counts.total())


def diff(run_dir: Path | str, oracle_dir: Path | str) -> Diff:
    """Compare a run with the oracle's result, or two recordings of an operator's input.

    Args:
        run_dir: The folder of the run (an attempt's folder), or of a recording from a run.
        oracle_dir: The folder of the oracle's result, or of a recording from the oracle.

    Returns:
        The outcome. If the two cannot be compared, it has the reason and exit code 2; nothing is raised.
    """
    run_dir, oracle_dir = Path(run_dir), Path(oracle_dir)
    outcome = Diff(str(run_dir), str(oracle_dir))
    try:
        if recording.is_recording(run_dir) or recording.is_recording(oracle_dir):
            _recordings(outcome, run_dir, oracle_dir)
            return outcome
        manifest = oracle.read_manifest(oracle_dir)
        report = read_report(run_dir)
        outcome.reason = _incomparable(run_dir, report, manifest)
        if outcome.reason is None:
            agrees = manifest["unordered"] if report.spec.get("order") == "none" else None
            _rows(outcome, "outputs", run_dir, oracle_dir, agrees and agrees["columns"])
            if report.rerun and report.rerun.differs:
                _rows(outcome, "outputs", run_dir / "rerun", oracle_dir, agrees and agrees["columns"], "rerun")
            if gives_state := executor_of(report.spec["executor"]).gives_state:
                _states(outcome, run_dir, oracle_dir, agrees and agrees["states"])
            else:
                outcome.states = None
            counts = expected_counts(manifest, gives_state)
            _samples(outcome, report, agrees or manifest, counts, ordered=agrees is None)
    except BadInput as error:
        outcome.reason = str(error)
    except OSError as error:
        outcome.reason = str(refusal(error))
    return outcome


def compare(run_dir: Path, oracle_dir: Path) -> Diff:
    """Compare the outputs, in order, and the final states in two folders that are known to be comparable."""
    outcome = Diff(str(run_dir), str(oracle_dir))
    _rows(outcome, "outputs", run_dir, oracle_dir)
    _states(outcome, run_dir, oracle_dir)
    return outcome


def _recordings(outcome: Diff, run_dir: Path, oracle_dir: Path) -> None:
    ours, theirs = recording.read_manifest(run_dir), recording.read_manifest(oracle_dir)
    for name, left, right in (
        *((key, ours[key], theirs[key]) for key in ("app", "operator", "code_digest")),
        *((f"workload {key}", ours["workload"][key], theirs["workload"][key]) for key in ("content_digest", "params")),
    ):
        if left != right:
            outcome.reason = f"the recordings have different {name}: {left} and {right}"
            return
    outcome.operator = ours["operator"]
    _rows(outcome, "rows", run_dir, oracle_dir)


def _incomparable(run_dir: Path, report: RunReport, manifest: dict) -> str | None:
    if report.app != manifest["app"]:
        return f"the run executed application {report.app}, but the oracle {manifest['app']}"
    if start := report.workload.get("start"):
        return f"the live run dropped its events before {start}; verified.json says what was verified while it ran"
    for key in ("content_digest", "params"):
        ours, theirs = report.workload.get(key), manifest["workload"].get(key)
        if ours != theirs:
            return f"the workloads differ: {key} is {ours} for the run and {theirs} for the oracle"
    if report.code_digest != manifest["code_digest"]:
        codes = f"{report.code_digest} for the run and {manifest['code_digest']} for the oracle"
        return f"the application changed: its code is {codes}"
    if report.is_bound:
        return "the run used scheme no_lock, which gives a bound and no result"
    if report.spec.get("order") == "none" and not manifest.get("unordered"):
        return "the run kept no order, and the application does not declare what agrees without order"
    if not (run_dir / "outputs").is_dir():
        return "the run wrote no outputs; run it again with --sink parquet"
    return None


# --- outputs, state and passes ---------------------------------------------------------------------------------------


def _rows(
    outcome: Diff, name: str, run_dir: Path, oracle_dir: Path, unordered: list[str] | None = None, table: str = ""
) -> None:
    """Compare the rows in the folders of this name, in order; without order, the columns `unordered` as multisets.

    The differences are those of `table`, by default of `name`.
    """
    expected, actual, table = Parts.of(oracle_dir / name), Parts.of(run_dir / name), table or name
    if not expected.paths:
        raise BadInput(f"{oracle_dir}: folder {name} is empty")
    outcome.outputs = expected.rows
    if not actual.paths:  # a complete run has a file even without rows
        nothing = Difference(table, "table", {}, f"{expected.rows} rows", "no file")
        outcome.add(table, [nothing], max(1, expected.rows))
        return
    names = _columns(outcome, table, expected.schema, actual.schema, unordered)
    if names is None:
        return
    if unordered is not None:
        outcome.take(comparison.in_buckets(table, expected, actual, names))
        return
    outcome.take(comparison.matched(table, expected, actual, names))


def _states(outcome: Diff, run_dir: Path, oracle_dir: Path, only: list[str] | None = None) -> None:
    theirs, ours = states(oracle_dir), states(run_dir)
    for name in sorted(theirs.keys() | ours.keys() if only is None else only):
        table = f"state {name}"
        if name not in theirs or name not in ours:
            sides = ("no such table", "a table") if name not in theirs else ("a table", "no file")
            outcome.add(table, [Difference(table, "table", {}, *sides)], 1)
            continue
        expected, actual = theirs[name], ours[name]
        outcome.states = (outcome.states or 0) + expected.rows
        names = _columns(outcome, table, expected.schema, actual.schema)
        if names is not None:
            outcome.take(comparison.matched(table, expected, actual, names))


def _columns(
    outcome: Diff, table: str, expected: pa.Schema, actual: pa.Schema, needed: list[str] | None = None
) -> list[str] | None:
    """The columns to compare: `needed`, or else the common ones; None if only one side has a column that is needed."""
    faults = comparison.columns(table, expected, actual, needed)
    outcome.add(table, faults, len(faults))
    wrong = {name for fault in faults for name in fault.columns}
    if wrong.intersection(needed or comparison.keys_of(expected.names)):
        return None
    return needed or [name for name in expected.names if name not in wrong]


def _samples(outcome: Diff, report: RunReport, manifest: dict, counts: dict[str, int], ordered: bool) -> None:
    """Compare the digest, the counts and the order of every pass with the oracle's, and the digest of the state."""
    wrong: list[tuple] = []
    for sample in report.samples:
        where = {"pass": f"{sample.kind} {sample.repetition}"}
        if sample.digest != manifest["output_digest"]:
            wrong.append((where, manifest["output_digest"], sample.digest, ("digest",)))
        wrong += [(where, expected, actual, (name,)) for name, expected, actual in wrong_counts(sample, counts)]
        if ordered and not sample.in_order:
            wrong.append((where, "in order", "out of order", ("order",)))
    if report.state_digest is not None and report.state_digest != manifest["state_digest"]:
        wrong.append(({}, manifest["state_digest"], report.state_digest, ("state_digest",)))
    outcome.add("passes", [Difference("passes", "digest", *fault) for fault in wrong], len(wrong))


def expected_counts(manifest: dict, gives_state: bool) -> dict[str, int]:
    """The counts that a run must report. An engine that gives neither state nor counts reports outputs alone."""
    counts = oracle.expected_counts(manifest)
    return counts if gives_state else {"outputs": counts["outputs"]}


def wrong_counts(sample: Sample, counts: dict[str, int]) -> list[tuple[str, int, int]]:
    """The counts of a pass that differ from the oracle's: name, the oracle's count, the pass's count."""
    return [
        (name, expected, actual) for name, expected in counts.items() if (actual := getattr(sample, name)) != expected
    ]
