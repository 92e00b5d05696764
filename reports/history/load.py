"""Reads past runs from LOCKSTEP_HOME: plans, raw tables and marts. It writes nothing.

`History.run` turns a run id into a `Run`, as far as that run got. Its cells come from its plan. Each cell has the best
verdict that its files allow, and figures if it was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from reports.history import gate
from reports.history.cell import Cell
from reports.history.gate import Gate
from reports.history.run import Run
from reports.history.searched import Searched
from reports.history.speed import Speed
from reports.history.text import named
from streaming_core.errors import BadInput
from streaming_core.regression import decisions, warehouse
from streaming_core.regression.comparable import Input, is_comparable, is_nightly, loaded_input, planned_inputs
from streaming_core.regression.decisions import Decision
from streaming_core.regression.fleet import is_of_engine
from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.plan import Plan, left_plan
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import Status, state_of, status_of
from streaming_core.regression.verdict import WRONG, is_green
from streaming_core.run.way import RunSpec
from streaming_core.storage import left_json

Row = dict[str, Any]  # a row of a raw table or a mart, by column
MOST_RUNS = 200  # the newest runs, to which every search in the past is limited


class Comparable(NamedTuple):
    """A comparable run.

    Attributes:
        is_nightly: whether it is a nightly.
        inputs: the input of each cell, by the cell's name.
        keys: by the cell's name, the name that it has with any number of repetitions.
    """

    is_nightly: bool
    inputs: dict[str, Input]
    keys: dict[str, str]


class History:
    """All runs below one LOCKSTEP_HOME."""

    def __init__(self, home: Home):
        self.home = home
        self._keys: dict[str, str] = {}  # as in `Comparable`, of all runs that were read
        self._verdicts: dict[str, dict[str, str]] = {}  # by run and cell

    def run_ids(self) -> list[str]:
        """The ids of all runs with a plan or raw rows, oldest first."""
        planned = {path.parent.name for path in self.home.root.glob("runs/*/plan.json")}
        loaded = {path.name.removeprefix("run_id=") for path in self.home.raw("cells").glob("run_id=*")}
        return sorted(run_id for run_id in planned | loaded if RUN_ID.fullmatch(run_id))

    def plan(self, run_id: str) -> Plan:
        """The content of a run's plan.json; {} without it."""
        return left_plan(self.home, run_id)

    def origin(self, run_id: str) -> str | None:
        """The Airflow run behind a run, or `cli`; None without a plan."""
        return self.plan(run_id).get("origin")

    def inputs(self, run_id: str, plan: Plan) -> dict[str, Input]:
        """The input of each cell of a run, by the cell's name, from its plan, else from its raw rows."""
        return planned_inputs(plan) if plan else {row["cell"]: loaded_input(row) for row in self.rows("cells", run_id)}

    def estimate(self, run_id: str) -> str:
        """The estimate of a run's time (estimate.py), as a sentence; empty without one."""
        return left_json(self.home.run(run_id) / "estimate.json").get("sentence", "")

    def summary(self, run_id: str) -> dict:
        """The summary beside the pages of a run (publish.py); {} without pages."""
        return left_json(self.home.report(run_id, "summary.json"))

    def is_in_progress(self, run_id: str) -> bool:
        """Whether a run goes on."""
        return state_of(self.home, run_id) == "in_progress"

    def comparable(self, run_ids: Iterable[str]) -> dict[str, Comparable]:
        """The comparable ones of these runs, in their order."""
        runs = {}
        for run_id in run_ids:
            plan = self.plan(run_id)
            inputs = self.inputs(run_id, plan)
            if is_comparable(plan, state_of(self.home, run_id), len(inputs)):
                self._add_keys(plan)
                keys = {name: self._keys.get(name, name) for name in inputs}
                runs[run_id] = Comparable(is_nightly(plan), inputs, keys)
        return runs

    def _add_keys(self, plan: Plan) -> None:
        for planned in plan.get("cells", []):
            name = planned["cell"]
            if name not in self._keys:
                spec = RunSpec.parse(planned["spec"])
                once = spec.model_copy(update={"repetitions": 0, "seconds": 0})
                self._keys[name] = once.cell + name.removeprefix(spec.cell)  # what follows is the host

    def is_red(self, run_id: str, cell: str) -> bool:
        """Whether a cell of a finished run is red."""
        if run_id not in self._verdicts:
            self._verdicts[run_id] = {row["cell"]: row["verdict"] for row in self.rows("cells", run_id)}
        return not is_green([self._verdicts[run_id].get(cell, "not_run")])

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
        if run.finds:
            ids = [past_id for past_id in self.run_ids()[-MOST_RUNS:] if past_id <= run_id]
            since = {row["cell"]: past_id for past_id in reversed(ids) for row in self.rows("finds", past_id)}
            run.red_since |= {find.name: since.get(find.name, run_id) for find in run.finds}
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
        status = status_of(self.home, run_id)
        note = left_json(self.home.run(run_id) / gate.NOTE).get("note", "")
        run = Run(home=self.home, run_id=run_id, plan=plan, cells=cells, status=status, note=note)
        tasks = run.records
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
            if status.state != "in_progress":  # no mart has a row of it, and its page is often read
                cell.speed = self.speeds.get((run_id, cell.name))
                cell.gate = self.gates.get((run_id, cell.name))
            cell.violations.sort(key=lambda row: (row["check"], row["rank"]))
            cell.acknowledged = self.acknowledgements.get((run_id, cell.name)) if cell.red else None
            cell.run_id, cell.input = run_id, inputs.get(cell.name)
        run.finds = [Cell.of_find(row) for row in self.rows("finds", run_id)]
        for find in run.finds:
            find.acknowledged = self.acknowledgements.get((run_id, find.name))
        run.searched = Searched(self.rows("searches", run_id))
        if error := (tasks.get(Stage.FIND) or {}).get("error"):
            run.searched.note = f"the task {Stage.FIND} failed: {error}"
        if error := (tasks.get(Stage.SPEED_GATE) or {}).get("error"):
            run.note = f"the task {Stage.SPEED_GATE} failed: {error}"
        return run

    def _first_red(self, run: Run) -> tuple[dict[str, str], dict[str, str]]:
        """The fields `red_since` and `green_builds` of `Results`.

        Only a better result on the same input interrupts a series of wrong ones; a run that was stopped does not. A
        build that was equal before is not the one since which a cell is wrong.
        """
        wrong = {cell.name: cell.facts.get("build", "") for cell in run.cells if cell.verdict in WRONG}
        since = {cell.name: run.run_id for cell in run.cells if cell.red}
        open_cells, inputs = set(since), {cell.name: cell.input for cell in run.cells}
        for run_id in list(reversed([r for r in self.run_ids() if r < run.run_id]))[:MOST_RUNS]:
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
        """The verdicts on speed, by run and cell; none without marts."""
        return {(row["run_id"], row["cell"]): Speed.of(row) for row in self.mart("speed")}

    @cached_property
    def gates(self) -> dict[tuple[str, str], Gate]:
        """The verdicts of the gate, by run and cell; none without marts."""
        return {(row["run_id"], row["cell"]): Gate.of(row) for row in self.mart("gate")}

    @cached_property
    def quarantine(self) -> dict[str, str]:
        """The reasons for runs that no mart has, by run: `samples: seconds > 0`. {} without marts."""
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
        """The acknowledgements of red cells, by run and cell; {} if their record is damaged."""
        return self._decided[0]

    @property
    def decisions_fault(self) -> str:
        """The damage to the record of decisions; empty without any. Pages show it instead of acknowledgements."""
        return self._decided[1]

    def ways(self, run_id: str) -> set[tuple[str, str, str]]:
        """Application, executor and strategy of the cells of a run that ran to their end and are no bounds."""
        ran = [row for row in self.rows("cells", run_id) if row["status"] == "ok" and not row["is_bound"]]
        return {(row["app"], row["executor"], named(row["strategy"], row["order"])) for row in ran}

    def rows(self, table: str, run_id: str) -> list[Row]:
        """One run's rows of a raw table; [] when it has none."""
        return warehouse.rows(self.home, table, run_id) or []

    def mart(self, name: str) -> list[Row]:
        """All rows of a mart; [] if dbt has not built it; raises BadInput if a file of it is damaged."""
        folder = self.home.root / "warehouse" / "marts" / name
        while True:
            try:
                with readable(folder):
                    return [row for path in mart_files(folder) for row in pq.ParquetFile(path).read().to_pylist()]
            except FileNotFoundError:  # dbt has replaced it meanwhile
                continue


def mart_files(mart: Path) -> list[Path]:
    """The Parquet files of a mart, without those that Spark is writing."""
    return sorted(path for path in mart.rglob("*.parquet") if path.name[0] not in "._")


@contextmanager
def readable(mart: Path) -> Iterator[None]:
    """Raise BadInput for a damaged file of a mart that is read during the block."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise BadInput(f"{mart}: {why}; `lockstep warehouse rebuild` makes it again") from None


def _unloaded(status: Status, record: dict | None) -> dict:
    """The facts of a cell before its run has raw rows, from the record of its task."""
    if record is None:
        return {}
    if record["ended"] is not None:
        return {} if record["error"] else {"status": "ok"}
    return {"status": "stopped"} if status.state in ("stopped", "died") else {}
