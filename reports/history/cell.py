"""One cell of a run: how it was executed, its checks and measurements, and the outcome in words.

`History` (load.py) fills in the rows. A cell derives its verdict from them, so both always agree. Read `Cell` first.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from reports.history.gate import Gate
from reports.history.speed import Speed
from reports.history.text import named
from streaming_core.regression.comparable import Input
from streaming_core.regression.decisions import Decision
from streaming_core.regression.verdict import Verdict, is_green, of, of_find
from streaming_core.run.way import EXECUTORS, RunSpec


class Outcome(NamedTuple):
    """The outcome of a cell: `word` where room is short, `sentence` behind the cell's name."""

    word: str
    sentence: str

    def of(self, count: int) -> str:
        """`1 differs`, `2 differ`, `3 were not compared`: the word of so many cells."""
        word = self.word
        for singular, plural in (("was ", "were "), ("differs", "differ"), ("breaks ", "break ")) if count != 1 else ():
            word = word.replace(singular, plural)
        return f"{count} {word}"


OUTCOMES = {
    "equal": Outcome("equal", "equals the oracle"),
    "different": Outcome("differs", "differs from the oracle"),
    "invariant_broken": Outcome("breaks an invariant", "equals the oracle, but both break an invariant"),
    "failed": Outcome("failed", "failed"),
    "not_run": Outcome("did not run", "did not run"),
    # These have the verdict not_run.
    "not_compared": Outcome("was not compared", "was not compared"),
    "stopped": Outcome("was stopped", "was stopped"),
    "not_comparable": Outcome("bound", "is a bound: it never counts as right or wrong"),
}


@dataclass
class Cell:
    """One planned cell of a run and its outcome.

    Attributes:
        name: its name, which is unique in a run.
        spec: the way of executing.
        workload: the address of its workload.
        is_bound: whether it is a declared bound, which never counts as right or wrong.
        checks: its rows of the raw table `verdicts`.
        violations: its rows of the raw table `violations`.
        samples: its rows of the raw table `samples`.
        facts: its row of the raw table `cells`; {} before the run is loaded.
        speed: the verdict of the trend; None without one, as before the marts are built.
        gate: the verdict of the speed gate; None without one.
        acknowledged: the person that acknowledged the red cell, and the reason.
        run_id: the run that judged it.
        input: the events that it took in that run.
        host: the connection of its host, if every host of the run had this cell (placement `every`).
        find: its row of the raw table `finds`, if the search for faults found it; it was never planned then.
    """

    name: str
    spec: RunSpec
    workload: str
    is_bound: bool
    checks: list[dict] = field(default_factory=list)
    violations: list[dict] = field(default_factory=list)
    samples: list[dict] = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    speed: Speed | None = None
    gate: Gate | None = None
    acknowledged: Decision | None = None
    run_id: str = ""
    input: Input | None = None
    host: str = ""
    find: dict | None = None

    @classmethod
    def of_find(cls, row: dict) -> Cell:
        """A find of the search for faults, which counts as a red cell."""
        facts = of_find(row)._asdict() | {"build": row["build"]}
        spec = RunSpec.parse(row["spec"])
        return cls(row["cell"], spec, "", is_bound=False, facts=facts, run_id=row["run_id"], find=row)

    @property
    def strategy(self) -> str:
        """The name in comparisons of speed: the spec's strategy, and whether it keeps order."""
        return named(self.spec.strategy, self.spec.order)

    @property
    def label(self) -> str:
        """`sl/owners/t2`, `sl/owners/t2 on numa-a`: the short name of a cell; `find sl/0123abcd`: that of a find."""
        if self.find:
            return f"find {self.spec.app}/{self.name.rpartition('.')[2][:8]}"
        on = f" on {self.host}" if self.host else ""
        return f"{self.spec.app}/{self.spec.strategy}/t{self.spec.threads}{on}"

    @property
    def is_of_other_engine(self) -> bool:
        """Whether an engine other than Lockstep's executors runs it."""
        return self.spec.executor not in EXECUTORS

    @cached_property
    def _judged(self) -> Verdict:
        return of(self.facts | {"is_bound": self.is_bound}, self.checks, self.samples)

    @property
    def verdict(self) -> str:
        """One of VERDICTS; of a run that is not loaded yet, as far as it is known."""
        return self._judged.verdict

    @property
    def reason(self) -> str:
        """One line on why it is not equal; empty when it is."""
        return self._judged.reason or ""

    @property
    def outcome(self) -> Outcome:
        """The verdict in words."""
        if self.find and self.find["kind"] == "property":
            return Outcome("breaks a property", "breaks a property")
        by_status = {"ok": "not_compared", "stopped": "stopped"}
        name = by_status.get(self.facts.get("status", ""), "not_run") if self.verdict == "not_run" else self.verdict
        return OUTCOMES[name]

    @property
    def red(self) -> bool:
        """Whether this cell makes its run red."""
        return not is_green([self.verdict])

    @property
    def is_speed_judged(self) -> bool:
        """Whether the trend has a verdict on its speed."""
        return self.speed is not None and self.speed.is_judged

    @property
    def ratio(self) -> float | None:
        """Its ratio to the compiled loop as the trend compares it; None unless its speed is judged."""
        return self.speed.to_loop if self.speed and self.is_speed_judged else None

    def _peak(self, column: str) -> float | None:
        values = [row[column] for row in self.samples if row["kind"] == "peak" and row[column] is not None]
        return statistics.median(values) if values else None

    @property
    def events_per_s(self) -> float | None:
        """Median over the passes at peak rate."""
        return self._peak("events_per_s")

    @cached_property
    def ratios(self) -> list[float]:
        """Speed relative to the compiled loop of each pass at peak rate, the slowest first; [] without that loop."""
        peaks = [row for row in self.samples if row["kind"] == "peak" and row.get("loop_seconds") and row["seconds"]]
        return sorted(row["loop_seconds"] / row["seconds"] for row in peaks)

    @property
    def to_loop(self) -> float | None:
        """Speed relative to the compiled loop, the median over the passes at peak rate; None without that loop."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def p99_us(self) -> float | None:
        """Processing latency, 99th percentile in microseconds, median over the passes at peak rate."""
        return self._peak("processing_p99_us")
