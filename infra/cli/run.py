"""`lockstep run`: run the regression DAG, show its progress, print the table of the run."""

from __future__ import annotations

import signal
import time
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra import checkout
from infra.airflow import home as airflow_home
from infra.airflow.regression import AirflowRun, TaskChange, follow, wait_for_turn
from infra.cli.report import print_run
from reports.history import History
from streaming_core.errors import RunFailed
from streaming_core.process import Noted
from streaming_core.regression.fleet import claims, is_on_spark
from streaming_core.regression.stages import Stage
from streaming_core.storage import left_json, write_json

FINAL = ("success", "failed", "upstream_failed", "skipped", "removed")
MARKS = {"success": ("✓", "green"), "failed": ("✗", "red"), "upstream_failed": ("-", "dim"), "skipped": ("-", "dim")}


class Progress:
    """The stages of a run: a live table on a terminal, elsewhere a line per finished task."""

    def __init__(self, console: Console, note: str):
        self.console = console
        self.note = note
        self.tasks: dict[tuple[str, int], dict] = {}
        self._printed: set[tuple[str, int]] = set()
        self._since = time.time()
        self._run_id = ""
        self._cells: dict[Stage, set[str]] = {}

    def take(self, line: TaskChange) -> None:
        """Show the change of a task."""
        self.tasks[line["task"], line["map_index"]] = line
        if not self.console.is_terminal and line["state"] in FINAL and self._is_shown(line["task"]):
            key = (line["task"], line["map_index"])
            if key not in self._printed and line["map_index"] >= -1:
                self._printed.add(key)
                name = " ".join(filter(None, (Stage(line["task"]).label, line["label"])))
                seconds = f"{line['end'] - line['start']:.1f} s" if line["start"] and line["end"] else ""
                self.console.print(f"  {line['state']:<16} {name:<40} {seconds}", highlight=False)

    def plan(self, run_id: str) -> None:
        """Show how many cells the run has and how long they are expected to take."""
        self._run_id, home = run_id, checkout.home()
        for cell in left_json(home.run(run_id) / "plan.json").get("cells", []):
            stage = Stage.RUN_ON_SPARK if is_on_spark(cell) else Stage.RUN_CORE
            self._cells.setdefault(stage, set()).add(cell["cell"])
        sentence = History(home).estimate(run_id)
        self.note = f"{sentence}; {self.note}"
        if not self.console.is_terminal:
            self.console.print(f"  {sentence}", highlight=False, soft_wrap=True)

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
        footer = Text(f"  {time.time() - self._since:.0f} s  {self.note}", style="dim")
        return Group(table, footer)

    def _is_shown(self, stage: str) -> bool:
        """Whether people see a stage: each one, but that on Spark only in a run with cells there."""
        return stage != Stage.RUN_ON_SPARK or Stage.RUN_ON_SPARK in self._cells

    def _cell_text(self, stage: Stage) -> Text:
        """The number of cells of a stage that are over, and those that run, with their hosts; empty without cells."""
        cells = self._cells.get(stage)
        if not cells:
            return Text("")
        known = {cell: claim for cell, claim in claims(checkout.home(), self._run_id).items() if cell in cells}
        over = [claim for claim in known.values() if claim.is_over]
        failed = sum(claim.error is not None for claim in over)
        running = ", ".join(f"{cell} on {claim.host}" for cell, claim in known.items() if not claim.is_over)
        return Text(f"{len(over)} of {len(cells)}{f', {failed} failed' if failed else ''}  {running}")


def run(conf: dict, as_json: bool) -> int:
    """Run the DAG with this conf and print the table of the run.

    Returns:
        The exit code: 1 if the run is not green.

    Raises:
        RunFailed: the run ended before it was planned.
    """
    signals = Noted(signal.SIGINT, signal.SIGTERM)
    console = Console(stderr=as_json)
    log = airflow_home.location() / "logs" / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.log"

    def say(line: str) -> None:
        console.print(line, highlight=False)

    occupancy = airflow_home.occupancy()
    ui = wait_for_turn(occupancy, say, signals)
    if signals.number:
        say("stopped before the run began")
        occupancy.leave()
        return 1
    progress = Progress(console, f"log: {log}")
    started = time.time()
    try:
        if ui:
            say(f"Airflow is up at {ui}; its scheduler executes the run")
        else:
            airflow_home.prepare(log.with_suffix(".prepare.log"))
        airflow_run = AirflowRun("", "", False)
        if not signals.number:
            with _shown(progress, live=not as_json and console.is_terminal):
                airflow_run = follow(conf, ui is not None, log, signals, progress.take, progress.plan)
        if signals.number:
            if ui:
                say(f"stopped watching; the run goes on in Airflow: {ui}")
            else:
                airflow_home.end_stale_runs(checkout.user())
                say("stopped the run and all its processes")
            return 1
    finally:
        occupancy.leave()
    home, run_id = checkout.home(), airflow_run.run_id
    if not run_id or not (home.run(run_id) / "plan.json").exists():
        raise RunFailed(f"the run ended before it was planned; the log says why: {log}")
    write_json(
        home.run(run_id) / "stages.json",
        {
            "seconds": time.time() - started,
            "log": str(log),
            "airflow_run": airflow_run.airflow_id,
            "stages": progress.stages(),
        },
    )
    return 0 if print_run(home, run_id, console, as_json) and airflow_run.succeeded else 1


def _shown(progress: Progress, live: bool) -> AbstractContextManager:
    """Keep the table of progress on the terminal while the block runs."""
    return Live(progress, console=progress.console, refresh_per_second=4, transient=True) if live else nullcontext()
