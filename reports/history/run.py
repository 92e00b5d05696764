"""A run, and the results that a run and the state (state.py) have in common.

`Results` sums up cells: how many are right, and how fast they are. `Run` adds the plan, the status and the files of one
run. Code that has a run passes it on. Only `History.run` (load.py) turns an id into a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from reports import times
from reports.history import gate, speed
from reports.history.cell import Cell
from reports.history.gate import Gate
from reports.history.searched import Searched
from reports.history.text import matrix_text, revision, short
from streaming_core.regression import fleet
from streaming_core.regression.comparable import Input
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan
from streaming_core.regression.preflight import Preflight, preflights_of
from streaming_core.regression.provenance import Provenance, provenance_of
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import Status
from streaming_core.regression.status import records as stage_records
from streaming_core.regression.verdict import VERDICTS, WRONG, is_green


class Tally(NamedTuple):
    """The cells behind the numbers of tiles and sentences. A bound that is red counts as any red cell.

    Attributes:
        judged: the cells that count: all but the bounds.
        equal: those that equal the oracle.
        bounds: the bounds.
        wrong: the red cells with a verdict.
        open: the red cells without one.
    """

    judged: list[Cell]
    equal: list[Cell]
    bounds: list[Cell]
    wrong: list[Cell]
    open: list[Cell]


@dataclass
class Results(ABC):
    """The results of cells, in words: whether each is right, and how fast it is.

    Attributes:
        cells: the cells, those of one application next to each other.
        green_builds: by name of a wrong cell, the build since which it is wrong, if an earlier one was better.
        red_since: by name of a red cell, the first run of the unbroken series in which it is red.
        finds: what the search for faults found, each as a red cell.
        searched: what the search for faults tried.
    """

    cells: list[Cell]
    green_builds: dict[str, str] = field(default_factory=dict)
    red_since: dict[str, str] = field(default_factory=dict)
    finds: list[Cell] = field(default_factory=list)
    searched: Searched = field(default_factory=Searched)

    @property
    @abstractmethod
    def green(self) -> bool:
        """Whether all is right."""

    @property
    @abstractmethod
    def warnings(self) -> list[str]:
        """What a person should look at although nothing is wrong: imports that set aside more rows than tolerated."""

    @property
    def color(self) -> str:
        """Its color on pages: red; amber if it is green but has warnings; else green."""
        return "red" if not self.green else "amber" if self.warnings else "green"

    @cached_property
    def counts(self) -> dict[str, int]:
        """Cells per verdict, every verdict named."""
        counts = Counter(cell.verdict for cell in self.cells)
        return {verdict: counts.get(verdict, 0) for verdict in VERDICTS}

    @cached_property
    def tally(self) -> Tally:
        """The cells by what they count as."""
        red = [cell for cell in self.cells if cell.red]
        return Tally(
            judged=[cell for cell in self.cells if not cell.is_bound],
            equal=[cell for cell in self.cells if cell.verdict == "equal"],
            bounds=[cell for cell in self.cells if cell.is_bound],
            wrong=[cell for cell in red if cell.verdict != "not_run"],
            open=[cell for cell in red if cell.verdict == "not_run"],
        )

    @cached_property
    def speed_counts(self) -> Counter[str]:
        """Right cells per verdict on speed."""
        return speed.counts(cell.speed for cell in self.tally.equal)

    @property
    def build(self) -> str:
        """Revision of the engine that ran; empty when nothing did."""
        return next((cell.facts["build"] for cell in self.cells if cell.facts.get("build")), "")

    def build_of(self, cell: Cell) -> str | None:
        """The build since which a cell is red. That of a cell without a report is the one of its run."""
        ran = [other.facts.get("build") for other in (cell, *self.cells) if other.run_id == cell.run_id]
        return next(filter(None, [self.green_builds.get(cell.name), *ran]), None)

    @property
    def hosts(self) -> list[str]:
        """Names of the machines that core runs went to."""
        return sorted({cell.facts["host"] for cell in self.cells if cell.facts.get("host")})

    @property
    def inputs(self) -> dict[str, Input]:
        """The events of each application."""
        return {cell.spec.app: cell.input for cell in self.cells if cell.input}

    def _sentence(self, failed_stages: Iterable[Stage]) -> str:
        """The number of right cells, the wrong cells, and the failed stages, in a sentence."""
        tally, equal = self.tally, len(self.tally.equal)
        text = f"{equal} of {len(tally.judged)} cells equal{'s' * (equal == 1)} the oracle"
        if self.counts["invariant_broken"]:
            text += f" and keep{'s its' if equal == 1 else ' their'} invariants"
        if equal == len(tally.judged):
            text = "The one cell equals the oracle" if equal == 1 else f"All {equal} cells equal the oracle"
        red = [*(cell for cell in self.cells if cell.red), *self.finds]
        if red:
            text += "; " + "; ".join(self._complaint(cell) for cell in red[:3])
            if len(red) > 3:
                text += f"; and {len(red) - 3} more"
        elif bounds := len(tally.bounds):
            text += f" ({bounds} bound{'s' * (bounds > 1)} beside them)"
        labels = list(dict.fromkeys(stage.label for stage in failed_stages))
        text = f"{text}; but {', '.join(labels)} failed" if labels else text
        return "; but ".join([text, *self.warnings])

    @property
    def speeds(self) -> list[Cell]:
        """The cells whose speed has changed: slower ones first, then the newest changes."""
        changed = [cell for cell in self.cells if cell.speed and cell.speed.changed]
        last = sorted(changed, key=lambda cell: (cell.speed and cell.speed.detected_in) or "", reverse=True)
        return sorted(last, key=lambda cell: cell.speed is not None and cell.speed.verdict == "faster")

    @property
    def speed_sentence(self) -> str:
        """The speed of its cells in one sentence. Speed turns no run red."""
        return speed.sentence(
            (cell.label, short(cell.speed.since_build) if cell.speed else "", cell.speed) for cell in self.tally.equal
        )

    @property
    def speed_heading(self) -> str:
        """The heading of the speed section of its page."""
        return speed.heading(self.speed_counts)

    @property
    def gate_note(self) -> str:
        """The reason for a speed gate without a baseline; empty if it had one, or did not run."""
        return ""

    @property
    def gates(self) -> list[tuple[str, Gate]]:
        """Label and verdict of each cell that the gate measured, or was to measure."""
        return [(cell.label, cell.gate) for cell in self.cells if cell.gate]

    @property
    def against(self) -> str:
        """`v1.2 (abc123456)`: the commit that the gate measured too; empty if it measured no cell."""
        return next((revision(verdict.baseline_ref, verdict.baseline) for _, verdict in self.gates), "")

    @property
    def gated(self) -> list[Cell]:
        """The cells that differ from the other commit, or were not judged: slower ones first."""
        words = ("slower", "different", "failed", "faster", "not_judged")
        changed = [cell for cell in self.cells if cell.gate and cell.gate.verdict in words]
        return sorted(changed, key=lambda cell: words.index(cell.gate.verdict) if cell.gate else 0)

    @property
    def slower(self) -> list[Cell]:
        """The cells that the trend or the gate calls slower."""
        trend = [cell for cell in self.speeds if cell.speed and cell.speed.verdict == "slower"]
        return trend + [
            cell for cell in self.gated if cell.gate and cell.gate.verdict == "slower" and cell not in trend
        ]

    @property
    def gate_sentence(self) -> str:
        """The speed of its build compared with another commit, in one sentence. It turns no run red."""
        return gate.sentence(self.against, self.gates, self.gate_note)

    def _complaint(self, cell: Cell) -> str:
        text = f"{cell.label} {cell.outcome.word}"
        since = self.green_builds.get(cell.name)
        if cell.verdict in WRONG and cell.facts.get("build"):
            text += f" since build {short(since)}" if since else f" in build {short(cell.facts['build'])}"
        return text

    def cell(self, name: str) -> Cell | None:
        """The cell or the find of that name."""
        return next((cell for cell in (*self.cells, *self.finds) if cell.name == name), None)


@dataclass(kw_only=True)
class Run(Results):
    """One run of the matrix.

    Attributes:
        home: the LOCKSTEP_HOME that has its files.
        run_id: its id, which other runs and links know it by.
        plan: the content of its plan.json; {} if that file is gone.
        status: how far it got.
        note: why the speed gate had nothing to compare with.
    """

    home: Home
    run_id: str
    plan: Plan
    status: Status = field(default_factory=Status)
    note: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its plan, records and attempts."""
        return self.home.run(self.run_id)

    def report(self, name: str) -> Path:
        """The file of one of its pages."""
        return self.home.report(self.run_id, name)

    def attempts(self, cell: Cell) -> Path:
        """The folder of all attempts at a cell."""
        return self.home.cell(self.run_id, cell.name)

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """The records of its tasks, by task."""
        return stage_records(self.home, self.run_id)

    @cached_property
    def preflights(self) -> list[Preflight]:
        """The checks of its hosts before the first cell."""
        return preflights_of(self.home, self.run_id)

    @cached_property
    def provenance(self) -> dict[str, Provenance]:
        """The origins of its workloads, by address."""
        return provenance_of(self.home, self.run_id)

    @cached_property
    def claims(self) -> dict[str, fleet.Claim]:
        """The claims of hosts on its cells, by cell."""
        return fleet.claims(self.home, self.run_id)

    @cached_property
    def losses(self) -> dict[str, str]:
        """The hosts that it lost, with the reasons."""
        return fleet.losses(self.home, self.run_id)

    def why_unused(self, host: str) -> str | None:
        """The reason why a host can run none of its cells; None if it can."""
        return fleet.why_unused(self.home, self.run_id, host)

    @property
    def gate_note(self) -> str:
        """The reason for a speed gate without a baseline; empty if it had one, or did not run."""
        return self.note

    @property
    def green(self) -> bool:
        """Whether the run finished, no stage failed, every planned cell is equal or a bound, and nothing was found."""
        finished = self.status.state == "finished" and not self.status.failures
        return finished and not self.finds and is_green(cell.verdict for cell in self.cells)

    @property
    def warnings(self) -> list[str]:
        """The warnings about its inputs."""
        return self.warnings_about(self.cells)

    def warnings_about(self, cells: Iterable[Cell]) -> list[str]:
        """The warnings about the inputs of some of its cells."""
        workloads = dict.fromkeys(cell.workload for cell in cells)
        known = [self.provenance[address] for address in workloads if address in self.provenance]
        return [f"the import {source.app}/{source.name} set aside {source.excess}" for source in known if source.excess]

    @property
    def faulty_cells(self) -> list[Cell]:
        """The red cells and the finds.

        A run that ended early says so in its sentence, so its cells that never ran are no faults.
        """
        finished = self.status.state == "finished"
        return [cell for cell in self.cells if cell.red and (finished or cell.verdict != "not_run")] + self.finds

    @property
    def failures(self) -> dict[Stage, str]:
        """The failed stages and why they failed, without those that fail because a cell is red."""
        red = any(cell.red for cell in self.cells)
        return {
            stage: error
            for stage, error in self.status.failures.items()
            if not (red and stage in (Stage.VALIDATE_OUTPUTS, Stage.EXPECTATIONS))
        }

    @property
    def started(self) -> str:
        """The time of its request: `2026-01-31 02:00 UTC`."""
        return times.started(self.run_id)

    @property
    def origin(self) -> str:
        """The Airflow run it belongs to, or `cli`."""
        return self.plan.get("origin", "")

    @property
    def matrix(self) -> str:
        """The named matrix of its request; empty without one."""
        return matrix_text(self.plan)

    @property
    def refused(self) -> str:
        """The reason for a refusal of its request; empty if it was accepted."""
        return self.plan.get("refused", "")

    @property
    def sentence(self) -> str:
        """Its sentence for the top of a page."""
        if self.refused:
            return f"Refused: {self.refused}"
        return self._sentence(self.failures) if self.status.state == "finished" else self._unfinished()

    def _unfinished(self) -> str:
        if self.status.state == "in_progress":
            return f"In progress: {self.status.progress(len(self.cells))}"
        cells = f"{self.status.cells} of {len(self.cells)} cells"
        ended = datetime.fromtimestamp(self.status.ended or 0, UTC)
        when = f"at {times.text(ended)} after {cells}"
        if self.status.state == "died":
            return f"Died {when}: its process ended"
        return f"Stopped{f' by {self.status.by}' if self.status.by else ''} {when}"
