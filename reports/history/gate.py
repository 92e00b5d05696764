"""The verdict of the speed gate on a cell, in words: the speed of its build, compared with another commit.

The mart `gate` holds it (docs/explanation/speed-verdicts.md). It never turns a run red.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reports.history.speed import JUDGED, Speed
from streaming_core.regression.home import Home

NOTE = "gate.json"  # a file in a run's folder


@dataclass(frozen=True)
class Gate(Speed):
    """A row of the mart `gate`."""

    baseline: str = ""
    baseline_ref: str = ""
    build: str = ""
    pairs: int = 0
    environment_changed: bool | None = None
    reason: str | None = None

    @property
    def text(self) -> str:
        """As in `Speed`; `results differ` and `failed` if there is no speed to compare."""
        return {"different": "results differ", "failed": "failed"}.get(self.verdict, super().text)

    @property
    def why(self) -> str:
        """The reason for the verdict in one line; empty without one."""
        if self.reason:
            return self.reason
        if self.verdict == "too_short":
            return "its passes are too short to compare: run more events"
        power = f"the speed gate detects a slowdown of {self.visible} in nine of ten cases" if self.visible else ""
        return f"{power}; {OTHER_PACKAGES}" if self.environment_changed else power


def note_path(home: Home, run_id: str) -> Path:
    """The file with the reason for a speed gate that had nothing to compare a run with: `{"note": ...}`."""
    return home.run(run_id) / NOTE


OTHER_PACKAGES = "both builds ran with the packages of this build, not with those of the baseline's lock file"


def sentence(against: str, gates: Iterable[tuple[str, Gate]], note: str = "") -> str:
    """The verdicts of a run's cells in a sentence; empty if the speed gate did not run.

    Args:
        against: name and revision of the baseline.
        gates: label and verdict of each cell that was to be measured.
        note: the reason why the gate had nothing to compare with; empty if it had.
    """
    known = list(gates)
    if not known:
        return f"Speed gate: not judged: {note}" if note else ""
    counts = Counter(gate.verdict for _, gate in known)
    clauses = [] if any(counts[verdict] for verdict in JUDGED) else ["no verdict on speed"]
    for verdict in ("slower", "faster", "different", "failed"):
        chosen = [(label, gate) for label, gate in known if gate.verdict == verdict]
        for label, gate in chosen[:3]:
            clauses.append(f"{label} {'is ' if gate.changed else ''}{gate.text}{_interval(gate)}")
        if len(chosen) > 3:
            clauses.append(f"{len(chosen) - 3} more {verdict}")
    for verdict in ("unchanged", "too_noisy", "too_short"):
        if counts[verdict]:
            clauses.append(f"{counts[verdict]} {verdict.replace('_', ' ')}")
    reasons = Counter(gate.reason for _, gate in known if gate.verdict == "not_judged")
    clauses += [f"{count} not judged ({reason})" for reason, count in reasons.most_common()]
    return f"Against {against}: " + "; ".join(clauses)


def _interval(gate: Gate) -> str:
    return f" ({gate.interval})" if gate.interval else ""
