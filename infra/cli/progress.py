"""The progress of `lockstep run`: the stages and cells of a run while it goes on."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from infra import checkout
from infra.airflow.regression import TaskChange
from reports.estimate import duration
from reports.history import History
from reports.views.overview import Unfinished
from streaming_core.regression.fleet import LOCAL, claims, is_on_spark
from streaming_core.regression.home import RUN_ID
from streaming_core.regression.lock import of_home, of_host, of_warehouse
from streaming_core.regression.plan import left_plan
from streaming_core.regression.stages import AFTER_PAGES, WITH_CELLS, Stage

FINAL = ("success", "failed", "upstream_failed", "skipped", "removed")
LOOK_SECONDS = 1.0  # between two looks at the run that this one waits for, and at the cells
LINE_SECONDS = 10.0  # between two lines about the cells
MARKS = {"success": ("✓", "green"), "failed": ("✗", "red"), "upstream_failed": ("-", "dim"), "skipped": ("-", "dim")}


class Progress:
    """The stages of a run: a live table on a terminal, elsewhere a line per finished task."""

    def __init__(self, console: Console, note: str, is_live: bool):
        self.console = console
        self.note = note
        self.is_live = is_live
        self.tasks: dict[tuple[str, int], dict] = {}
        self._printed: set[tuple[str, int]] = set()
        self._since = time.time()
        self._run_id = ""
        self._cells: dict[Stage, set[str]] = {}
        self._ahead = ""
        self._waits = ""
        self._looked = self._line_at = 0.0
        self._news = ""

    def take(self, line: TaskChange) -> None:
        """Show the change of a task."""
        if "ahead" in line:
            self._ahead = line["ahead"]
            return
        self.tasks[line["task"], line["map_index"]] = line
        if not self.is_live and line["state"] in FINAL and self._is_shown(line["task"]):
            key = (line["task"], line["map_index"])
            if key not in self._printed and line["map_index"] >= -1:
                self._printed.add(key)
                name = " ".join(filter(None, (Stage(line["task"]).label, line["label"])))
                seconds = f"{line['end'] - line['start']:.1f} s" if line["start"] and line["end"] else ""
                self.console.print(f"  {line['state']:<16} {name:<40} {seconds}", highlight=False)

    def plan(self, run_id: str) -> None:
        """Show how many cells the run has and how long they are expected to take."""
        self._run_id, home = run_id, checkout.home()
        for cell in left_plan(home, run_id).get("cells", []):
            stage = Stage.RUN_ON_SPARK if is_on_spark(cell) else Stage.RUN_CORE
            self._cells.setdefault(stage, set()).add(cell["cell"])
        sentence = History(home).estimate(run_id)
        self.note = f"{sentence}; {self.note}"
        self._print(sentence)

    def look(self) -> None:
        """Show how many cells are over, and what this run waits for, if it waits: in Airflow, or for a lock."""
        if time.monotonic() < self._looked + LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        self.wait_for(self._ahead or self._owner_ahead())
        if not self.is_live and time.monotonic() > self._line_at + LINE_SECONDS:
            news = "; ".join(filter(None, (self._cells_over(stage)[0] for stage in self._cells)))
            if news not in ("", self._news):
                self._print(news)
                self._line_at, self._news = time.monotonic(), news

    def _owner_ahead(self) -> str:
        """The run, or the command, that a task of this run waits for on this machine; empty if none waits."""
        running = {Stage(task) for (task, _), line in self.tasks.items() if line["state"] == "running"}
        mine = claims(checkout.home(), self._run_id).values() if Stage.RUN_CORE in running else ()
        measures = any(claim.host == LOCAL and not claim.is_over for claim in mine)
        locks = [of_home(checkout.home())] if Stage.SPARK_SERVER in running else []
        if measures or running - {Stage.PLAN_MATRIX, *WITH_CELLS, *AFTER_PAGES}:
            locks.append(of_host())
        if Stage.DBT_BUILD in running or Stage.PUBLISH_REPORTS in running:
            locks.append(of_warehouse(checkout.home()))
        for lock in locks:
            if self._run_id not in map(_user, lock.holders()):
                users = filter(None, map(_user, lock.ahead(shared=not measures)))
                if (other := next(users, self._run_id)) != self._run_id:
                    return other
        return ""

    def wait_for(self, other: str) -> None:
        """Show that this run waits for another run, with its progress, or for a command; "" ends that."""
        line = f"waiting until {other} ends" if other else ""
        if RUN_ID.fullmatch(other):
            line = f"waiting for run {other}: {Unfinished.of(History(checkout.home()), other).sentence}"
        if line not in ("", self._waits):
            self._print(line)
        self._waits = line

    def _print(self, line: str) -> None:
        if not self.is_live:
            self.console.print(f"  {line}", highlight=False, soft_wrap=True)

    def stages(self) -> list[dict]:
        """State and seconds of each stage, in order. The tasks of a mapped stage count as one."""
        summary = []
        for stage in filter(self._is_shown, Stage):
            by_index = {index: line for (task, index), line in self.tasks.items() if task == stage}
            # Until Airflow expands a mapped task, it has one row for all instances. That row never gets a final state.
            lines = [line for index, line in by_index.items() if index >= 0 or len(by_index) == 1]
            starts = [line["start"] for line in lines if line["start"]]
            ends = [line["end"] for line in lines if line["end"]]
            states = {line["state"] for line in lines}
            state = next((s for s in ("failed", "upstream_failed", "skipped") if s in states), None)
            if state is None:
                state = "success" if states == {"success"} else "running" if starts else ""
            if any(line["state"] not in FINAL for line in lines):
                state = "running" if starts else ""
            seconds = (max(ends) - min(starts)) if starts and ends else None
            start = min(starts, default=None)
            summary.append(
                {"stage": str(stage), "title": stage.label, "state": state, "seconds": seconds, "start": start}
            )
        return summary

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2))
        table.add_column(width=1)
        table.add_column(min_width=22)
        table.add_column(justify="right", min_width=8)
        table.add_column(overflow="ellipsis", no_wrap=True)
        for stage in self.stages():
            mark, style = MARKS.get(stage["state"], ("·", "dim"))
            seconds = stage["seconds"]
            if stage["state"] == "running":
                mark, style = "▸", "bold cyan"
                seconds = time.time() - stage["start"]
            table.add_row(
                Text(mark, style),
                Text(stage["title"], style),
                f"{seconds:.1f} s" if seconds is not None else "",
                self._cell_text(Stage(stage["stage"])),
            )
        footer = Text(f"  {time.time() - self._since:.0f} s  {self._waits or self.note}", style="dim")
        return Group(table, footer)

    def _is_shown(self, stage: str) -> bool:
        """Whether people see a stage: each one, but that on Spark only in a run with cells there."""
        return stage != Stage.RUN_ON_SPARK or Stage.RUN_ON_SPARK in self._cells

    def _cell_text(self, stage: Stage) -> Text:
        """What `_cells_over` says of a stage, and its cells that run, with their hosts."""
        over, running = self._cells_over(stage)
        return Text(f"{over}  {', '.join(f'{cell} on {host}' for cell, host in running.items())}" if over else "")

    def _cells_over(self, stage: Stage) -> tuple[str, dict[str, str]]:
        """How many cells of a stage are over and left, how long these take, and the hosts of those that run.

        The sentence is empty if no cell of the stage has begun.
        """
        cells = self._cells.get(stage, set())
        known = {cell: claim for cell, claim in claims(checkout.home(), self._run_id).items() if cell in cells}
        over = [claim for claim in known.values() if claim.is_over]
        if not known:
            return "", {}
        parts = [f"{len(over)} of {len(cells)} cells have run"]
        if failed := sum(claim.error is not None for claim in over):
            parts.append(f"{failed} failed")
        if left := len(cells) - len(over):
            began = min(
                (line["start"] for (task, _), line in self.tasks.items() if task == stage and line["start"]), default=0
            )
            took = f": about {duration((time.time() - began) / len(over) * left)}" if over and began else ""
            parts.append(f"{left} left{took}")
        return ", ".join(parts), {cell: claim.host for cell, claim in known.items() if not claim.is_over}


def _user(user: dict[str, str]) -> str:
    """The run of a lock's signature, or its owner if it belongs to no run."""
    return user.get("run", user.get("owner", ""))
