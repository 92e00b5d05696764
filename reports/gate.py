"""The verdict of the speed gate on a cell, in words: the speed of its build, compared with another commit.

The mart `gate` holds it (docs/explanation/speed-verdicts.md). It never turns a run red.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reports.speed import Speed


@dataclass(frozen=True)
class Gate(Speed):
    """A row of the mart `gate`."""

    baseline: str = ""
    baseline_ref: str = ""
    build: str = ""
    pairs: int = 0
    baseline_seconds: float | None = None
    build_seconds: float | None = None
    environment_changed: bool | None = None
    reason: str | None = None

    @property
    def text(self) -> str:
        """As `Speed` has it; `results differ` and `failed` where nothing could be compared."""
        return {"different": "results differ", "failed": "failed"}.get(self.verdict, super().text)

    @property
    def why(self) -> str:
        """What there is to say of it beside `text`, in one line."""
        if self.reason:
            return self.reason
        if self.verdict == "too_short":
            return "its passes take too little time to be compared: take more events"
        said = f"a slowdown of {self.visible} would be found nine times of ten" if self.visible else ""
        return f"{said}; {OTHER_PACKAGES}" if self.environment_changed else said


OTHER_PACKAGES = "both ran with the packages of this build, not with those that the baseline's commit locks"


def sentence(against: str, gates: Iterable[tuple[str, Gate]]) -> str:
    """The verdicts of a run's cells in a sentence; empty if no cell was measured.

    Args:
        against: the baseline, as people write it.
        gates: label and verdict of each measured cell.
    """
    found = list(gates)
    if not found:
        return ""
    counts = Counter(gate.verdict for _, gate in found)
    said = []
    for verdict in ("slower", "faster", "different", "failed"):
        chosen = [(label, gate) for label, gate in found if gate.verdict == verdict]
        for label, gate in chosen[:3]:
            said.append(f"{label} {'is ' if gate.changed else ''}{gate.text}{_interval(gate)}")
        if len(chosen) > 3:
            said.append(f"{len(chosen) - 3} more {verdict}")
    for verdict in ("unchanged", "too_noisy", "too_short"):
        if counts[verdict]:
            said.append(f"{counts[verdict]} {verdict.replace('_', ' ')}")
    return f"Against {against}: " + "; ".join(said)


def _interval(gate: Gate) -> str:
    return f" ({gate.interval})" if gate.interval else ""
