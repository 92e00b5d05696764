"""What is known about past runs, read from LOCKSTEP_HOME: the plan, the raw warehouse and the marts. Reads only.

A run shows itself as far as it got: cells come from its plan, each with the best answer there is to whether it is
right, and with figures where it was measured.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from reports import gate, speed, times
from reports.gate import Gate
from reports.speed import Speed
from streaming_core.errors import BadInput
from streaming_core.regression import decisions, warehouse
from streaming_core.regression.comparable import Input, is_comparable, is_nightly, loaded_input, planned_inputs
from streaming_core.regression.decisions import Decision
from streaming_core.regression.fleet import is_of_engine
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import Status, records, state_of, status_of
from streaming_core.regression.verdict import VERDICTS, WRONG, Verdict, is_green, of
from streaming_core.run.way import RunSpec
from streaming_core.storage import left_json

NOTHING = "\N{EN DASH}"
LOOKED_BACK = 200  # runs, for since when a cell is red


class Outcome(NamedTuple):
    """The outcome of a cell: `word` where room is short, `sentence` behind the cell's name."""

    word: str
    sentence: str


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

    `checks`, `violations` and `samples` are rows of the raw tables; `facts` is its row of raw cells, {} before loading;
    `speed` and `gate`, the verdicts on its speed over the nights and beside another commit, are there once the marts
    are, of a cell that is equal and was measured so. `acknowledged`: by whom and why its redness was acknowledged.
    `run_id` and `input`: the run that judged it, and the events that it took there. `host`: the connection of its host,
    if every host of the run had this cell (placement `every`).
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

    @property
    def strategy(self) -> str:
        """The name in comparisons of speed: the spec's strategy, and whether it keeps order."""
        return named(self.spec.strategy, self.spec.order)

    @property
    def label(self) -> str:
        """`sl/owners/t2`, `sl/owners/t2 on numa-a`: the short name of a cell."""
        on = f" on {self.host}" if self.host else ""
        return f"{self.spec.app}/{self.spec.strategy}/t{self.spec.threads}{on}"

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
        by_status = {"ok": "not_compared", "stopped": "stopped"}
        name = by_status.get(self.facts.get("status", ""), "not_run") if self.verdict == "not_run" else self.verdict
        return OUTCOMES[name]

    @property
    def red(self) -> bool:
        """Whether this cell makes its run red."""
        return not is_green([self.verdict])

    def _peak(self, column: str) -> float | None:
        values = [row[column] for row in self.samples if row["kind"] == "peak" and row[column] is not None]
        return statistics.median(values) if values else None

    @property
    def events_per_s(self) -> float | None:
        """Median over the passes at peak rate."""
        return self._peak("events_per_s")

    @property
    def to_loop(self) -> float | None:
        """Speed relative to the compiled loop, the median over the passes at peak rate; None without that loop."""
        peaks = [row for row in self.samples if row["kind"] == "peak" and row.get("loop_seconds") and row["seconds"]]
        return statistics.median(row["loop_seconds"] / row["seconds"] for row in peaks) if peaks else None

    @property
    def p99_us(self) -> float | None:
        """Processing latency, 99th percentile in microseconds, median over the passes at peak rate."""
        return self._peak("processing_p99_us")


@dataclass
class Results:
    """The results of cells, in words: whether each is right, and how fast it is.

    Attributes:
        cells: the cells, those of one application next to each other.
        green_builds: by name of a wrong cell, the build since which it is wrong, if an earlier one was better.
        red_since: by name of a red cell, the first run of the unbroken series in which it is red.
    """

    cells: list[Cell]
    green_builds: dict[str, str] = field(default_factory=dict)
    red_since: dict[str, str] = field(default_factory=dict)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Cells per verdict, every verdict named."""
        counts = Counter(cell.verdict for cell in self.cells)
        return {verdict: counts.get(verdict, 0) for verdict in VERDICTS}

    @property
    def build(self) -> str:
        """Revision of the engine that ran; empty when nothing did."""
        return next((cell.facts["build"] for cell in self.cells if cell.facts.get("build")), "")

    @property
    def hosts(self) -> list[str]:
        """Names of the machines that core runs went to."""
        return sorted({cell.facts["host"] for cell in self.cells if cell.facts.get("host")})

    @property
    def inputs(self) -> dict[str, Input]:
        """The events of each application."""
        return {cell.spec.app: cell.input for cell in self.cells if cell.input}

    def _sentence(self, failed_stages: Iterable[Stage]) -> str:
        """How many cells are right, which are not, and which stages failed."""
        judged = [cell for cell in self.cells if not cell.is_bound]
        bounds = [cell for cell in self.cells if cell.is_bound]
        equal = sum(cell.verdict == "equal" for cell in judged)
        text = f"{equal} of {len(judged)} cells equal{'s' * (equal == 1)} the oracle"
        if self.counts["invariant_broken"]:
            text += f" and keep{'s its' if equal == 1 else ' their'} invariants"
        if equal == len(judged):
            text = "The one cell equals the oracle" if equal == 1 else f"All {equal} cells equal the oracle"
        red = [cell for cell in self.cells if cell.red]
        if red:
            text += "; " + "; ".join(self._complaint(cell) for cell in red[:3])
            if len(red) > 3:
                text += f"; and {len(red) - 3} more"
        elif bounds:
            text += f" ({len(bounds)} bound{'s' * (len(bounds) > 1)} beside them)"
        labels = list(dict.fromkeys(stage.label for stage in failed_stages))
        return f"{text}; but {', '.join(labels)} failed" if labels else text

    @property
    def speeds(self) -> list[Cell]:
        """The cells whose speed has changed: slower ones first, then what was found last."""
        changed = [cell for cell in self.cells if cell.speed and cell.speed.changed]
        last = sorted(changed, key=lambda cell: (cell.speed and cell.speed.found_run) or "", reverse=True)
        return sorted(last, key=lambda cell: cell.speed is not None and cell.speed.verdict == "faster")

    @property
    def speed_sentence(self) -> str:
        """The speed of its cells in one sentence. Speed turns no run red."""
        known = [(cell.label, short(cell.speed.since_build), cell.speed) for cell in self.cells if cell.speed]
        return speed.sentence(known, sum(cell.verdict == "equal" for cell in self.cells))

    @property
    def speed_heading(self) -> str:
        """The heading of the speed section of its page."""
        return speed.heading(cell.speed for cell in self.cells if cell.speed)

    @property
    def gate_note(self) -> str:
        """Why the speed gate had nothing to compare with; empty if it had, or did not run."""
        return ""

    @property
    def gates(self) -> list[tuple[str, Gate]]:
        """Label and verdict of each cell that the gate measured, or was to measure."""
        return [(cell.label, cell.gate) for cell in self.cells if cell.gate]

    @property
    def against(self) -> str:
        """`v1.2 (abc123456)`: the commit that the gate measured too; empty if it measured no cell."""
        return next((revision(one.baseline_ref, one.baseline) for _, one in self.gates), "")

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
        """The cell of that name."""
        return next((cell for cell in self.cells if cell.name == name), None)


@dataclass(kw_only=True)
class Run(Results):
    """One run of the matrix."""

    run_id: str
    plan: dict
    status: Status = field(default_factory=Status)
    note: str = ""

    @property
    def gate_note(self) -> str:
        """Why the speed gate had nothing to compare with; empty if it had, or did not run."""
        return self.note

    @property
    def green(self) -> bool:
        """Whether the run finished, no stage failed, and every planned cell is equal or a declared bound."""
        finished = self.status.state == "finished" and not self.status.failures
        return finished and is_green(cell.verdict for cell in self.cells)

    @property
    def faulty_cells(self) -> list[Cell]:
        """The red cells. A run that ended early says so in its sentence, so its cells that never ran are no faults."""
        finished = self.status.state == "finished"
        return [cell for cell in self.cells if cell.red and (finished or cell.verdict != "not_run")]

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
        return started(self.run_id)

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
        """Why nothing of it was run; empty if it was accepted."""
        return self.plan.get("refused", "")

    @property
    def sentence(self) -> str:
        """What a person needs to know first."""
        if self.refused:
            return f"Refused: {self.refused}"
        return self._sentence(self.failures) if self.status.state == "finished" else self._unfinished()

    def _unfinished(self) -> str:
        cells = f"{self.status.cells} of {len(self.cells)} cells"
        if self.status.state == "in_progress":
            return f"In progress: {cells} have run"
        ended = datetime.fromtimestamp(self.status.ended or 0, UTC)
        when = f"at {times.text(ended)} after {cells}"
        if self.status.state == "died":
            return f"Died {when}: its process ended"
        return f"Stopped{f' by {self.status.by}' if self.status.by else ''} {when}"


class Comparable(NamedTuple):
    """A comparable run: whether it is a nightly, and the input of each cell."""

    is_nightly: bool
    inputs: dict[str, Input]


class History:
    """All runs below one LOCKSTEP_HOME."""

    def __init__(self, home: Home):
        """Read nothing yet."""
        self.home = home

    def run_ids(self) -> list[str]:
        """Every run that was planned or loaded, oldest first."""
        planned = {path.parent.name for path in self.home.root.glob("runs/*/plan.json")}
        loaded = {path.name.removeprefix("run_id=") for path in self.home.raw("cells").glob("run_id=*")}
        return sorted(run_id for run_id in planned | loaded if RUN_ID.fullmatch(run_id))

    def plan(self, run_id: str) -> dict:
        """The content of a run's plan.json; {} when it is gone."""
        return left_json(self.home.run(run_id) / "plan.json")

    def origin(self, run_id: str) -> str | None:
        """The Airflow run behind a run, or `cli`; None when its plan is gone."""
        return self.plan(run_id).get("origin")

    def inputs(self, run_id: str, plan: dict) -> dict[str, Input]:
        """The input of each cell of a run, by the cell's name, from its plan, else from its raw rows."""
        return planned_inputs(plan) if plan else {row["cell"]: loaded_input(row) for row in self.rows("cells", run_id)}

    def comparable(self, run_ids: Iterable[str]) -> dict[str, Comparable]:
        """The comparable ones of these runs, in their order."""
        found = {}
        for run_id in run_ids:
            plan = self.plan(run_id)
            inputs = self.inputs(run_id, plan)
            if is_comparable(plan, state_of(self.home, run_id), len(inputs)):
                found[run_id] = Comparable(is_nightly(plan), inputs)
        return found

    def latest(self) -> Run | None:
        """The newest run, or None before the first."""
        ids = self.run_ids()
        return self.run(ids[-1]) if ids else None

    def run(self, run_id: str) -> Run:
        """One run, as far as it got.

        Raises:
            BadInput: there is no such run.
        """
        run = self._read(run_id)
        if any(cell.red for cell in run.cells):
            run.red_since, run.green_builds = self._first_red(run)
        return run

    def _read(self, run_id: str) -> Run:
        plan = self.plan(run_id)
        inputs = self.inputs(run_id, plan)
        facts = {row["cell"]: row for row in self.rows("cells", run_id)}
        if not plan and not facts:
            raise BadInput(f"no run {run_id}")
        cells = [
            Cell(
                planned["cell"],
                RunSpec.parse(planned["spec"]),
                planned["workload"],
                planned["is_bound"],
                host=planned.get("host", "") if is_of_engine(planned) else "",
            )
            for planned in plan.get("cells", [])
        ] or [
            Cell(name, warehouse.spec_of(row), row["workload_address"], row["is_bound"])
            for name, row in sorted(facts.items())
        ]
        status, tasks = status_of(self.home, run_id), records(self.home, run_id)
        by_name = {cell.name: cell for cell in cells}
        for table, put in (("verdicts", "checks"), ("violations", "violations"), ("samples", "samples")):
            for row in self.rows(table, run_id):
                if row["cell"] in by_name:
                    getattr(by_name[row["cell"]], put).append(row)
        for cell in cells:
            # A loaded run has a row of every cell that it planned; one without is not half known but not there.
            cell.facts = facts.get(
                cell.name, {"status": "not_run"} if facts else _unloaded(status, tasks.get(cell.name))
            )
            cell.speed = self.speeds.get((run_id, cell.name))
            cell.gate = self.gates.get((run_id, cell.name))
            cell.violations.sort(key=lambda row: (row["check"], row["rank"]))
            cell.acknowledged = self.acknowledgements.get((run_id, cell.name)) if cell.red else None
            cell.run_id, cell.input = run_id, inputs.get(cell.name)
        note = left_json(gate.note_path(self.home, run_id)).get("note", "")
        if error := (tasks.get(Stage.SPEED_GATE) or {}).get("error"):
            note = f"the task {Stage.SPEED_GATE} failed: {error}"
        return Run(run_id=run_id, plan=plan, cells=cells, status=status, note=note)

    def _first_red(self, run: Run) -> tuple[dict[str, str], dict[str, str]]:
        """The fields `red_since` and `green_builds` of `Results`.

        Only a better result on the same input interrupts a series of wrong ones; a run that was stopped does not. A
        build that was equal before is not the one since which a cell is wrong.
        """
        wrong = {cell.name: cell.facts.get("build", "") for cell in run.cells if cell.verdict in WRONG}
        since = {cell.name: run.run_id for cell in run.cells if cell.red}
        open_cells, inputs = set(since), {cell.name: cell.input for cell in run.cells}
        for run_id in list(reversed([r for r in self.run_ids() if r < run.run_id]))[:LOOKED_BACK]:
            if not open_cells:
                break
            before = self._read(run_id)
            if before.status.state != "finished":
                continue
            for name in list(open_cells):
                cell = before.cell(name)
                if (
                    cell is None
                    or cell.input != inputs[name]
                    or (name in wrong and cell.verdict in ("not_run", "failed"))
                ):
                    continue
                if cell.verdict in WRONG or (cell.red and name not in wrong):
                    since[name] = run_id
                    if name in wrong:
                        wrong[name] = cell.facts.get("build") or wrong[name]
                else:
                    open_cells.discard(name)
                    if name in wrong and cell.facts.get("build") == wrong[name]:
                        wrong[name] = ""
        # A cell that never was equal differs in this build; it does so "since" a build only after a better one.
        return since, {name: build for name, build in wrong.items() if name not in open_cells and build}

    @cached_property
    def speeds(self) -> dict[tuple[str, str], Speed]:
        """The verdicts on speed, by run and cell; none before the marts are made."""
        return {(row["run_id"], row["cell"]): Speed.of(row) for row in self.mart("speed")}

    @cached_property
    def gates(self) -> dict[tuple[str, str], Gate]:
        """The verdicts of the gate, by run and cell; none before the marts are made."""
        return {(row["run_id"], row["cell"]): Gate.of(row) for row in self.mart("gate")}

    @cached_property
    def quarantine(self) -> dict[str, str]:
        """Why no mart has rows of a run, by run: `samples: seconds > 0`. Empty until the marts are built."""
        reasons: dict[str, list[str]] = {}
        for row in sorted(self.mart("quarantine"), key=lambda row: row["table_name"]):
            reasons.setdefault(row["run_id"], []).append(f"{row['table_name']}: {row['reason']}")
        return {run_id: "; ".join(tables) for run_id, tables in reasons.items()}

    @cached_property
    def _decided(self) -> tuple[dict[tuple[str, str], Decision], str]:
        try:
            return decisions.acknowledgements(self.home), ""
        except BadInput as error:
            return {}, str(error)

    @property
    def acknowledgements(self) -> dict[tuple[str, str], Decision]:
        """The acknowledgements of red cells, by run and cell; {} if their entries were changed."""
        return self._decided[0]

    @property
    def decisions_fault(self) -> str:
        """What is wrong with the entries of decisions; empty if nothing is. Pages show it, and no acknowledgement."""
        return self._decided[1]

    def ways(self, run_id: str) -> set[tuple[str, str, str]]:
        """Application, executor and strategy of the cells of a run that ran to their end and are no bounds."""
        ran = [row for row in self.rows("cells", run_id) if row["status"] == "ok" and not row["is_bound"]]
        return {(row["app"], row["executor"], named(row["strategy"], row["order"])) for row in ran}

    def rows(self, table: str, run_id: str) -> list[dict]:
        """One run's rows of a raw table; [] when it has none."""
        return warehouse.rows(self.home, table, run_id) or []

    def mart(self, name: str) -> list[dict]:
        """All rows of a mart; [] when dbt has not built it."""
        folder = self.home.root / "warehouse" / "marts" / name
        files = sorted(path for path in folder.rglob("*.parquet") if path.name[0] not in "._")
        return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


def _unloaded(status: Status, record: dict | None) -> dict:
    """What is known of a cell before its run is loaded, from the record of its task."""
    if record is None:
        return {}
    if record["ended"] is not None:
        return {} if record["error"] else {"status": "ok"}
    return {"status": "stopped"} if status.state in ("stopped", "died") else {}


def matrix_text(plan: dict) -> str:
    """`nightly 3f2a91c0, overrides threads`: name and short digest of the named matrix of a plan; empty without one."""
    matrix = plan.get("matrix") or {}
    if not matrix:
        return ""
    overrides = f", overrides {', '.join(matrix['overrides'])}" if matrix["overrides"] else ""
    return f"{matrix['name']} {matrix['digest'][:8]}{overrides}"


def started(run_id: str) -> str:
    """`2026-01-31 02:00 UTC`: the time in a run id."""
    return times.text(times.of_run(run_id))


def short(build: str | None) -> str:
    """The first nine digits of a revision; a + marks local changes."""
    return (build or "unknown").removesuffix("-dirty")[:9] + ("+" if (build or "").endswith("-dirty") else "")


def revision(ref: str, commit: str) -> str:
    """`v1.2 (abc123456)`: name and revision of a commit; the revision alone if the name is part of it."""
    return short(commit) if commit.startswith(ref) else f"{ref} ({short(commit)})"


def named(strategy: str, order: str | None) -> str:
    """A strategy's name in comparisons of speed, which keep ways without order apart."""
    return f"{strategy.removesuffix('-none')}, no order" if order == "none" else strategy


def human_rate(value: float | None) -> str:
    """`1.24 M`, `84.1 k`, `312`; a dash for nothing."""
    if value is None:
        return NOTHING
    value = float(f"{value:.3g}")  # 999,700 is 1 M, not 1e+03 k
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def human_micros(value: float | None) -> str:
    """Microseconds as `840 µs`, `1.2 ms` or `3.4 s`; a dash for nothing."""
    if value is None:
        return NOTHING
    value = float(f"{value:.3g}")
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    return f"{value / 1e3:.3g} ms" if value >= 1e3 else f"{value:.3g} µs"


def human_nano(value: float | None, unit: str) -> str:
    """Nanoseconds or nanojoules per event: `84.1 ns`, `2,310 nJ`; a dash for nothing."""
    if value is None:
        return NOTHING
    return f"{value:,.0f} n{unit}" if value >= 100 else f"{value:.3g} n{unit}"


def short_json(value: object) -> str:
    """A value as JSON in one line, cut after 400 characters; empty for nothing."""
    text = json.dumps(value, ensure_ascii=False) if value else ""
    return text if len(text) <= 400 else text[:397] + "..."


def lines(path: Path, count: int) -> list[str]:
    """The last lines of a text file; [] when there is none."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
