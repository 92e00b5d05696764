"""The regression, run to its end: by a process of its own, or by the scheduler of the UI that is up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra import checkout
from infra.airflow import home as airflow_home
from infra.checkout import ROOT
from infra.cli.report import print_run
from infra.services.lock import holder, signed
from infra.services.process import POLL_SECONDS, Noted, start
from reports.estimate import expected
from streaming_core.errors import RunFailed
from streaming_core.regression.home import new_run_id
from streaming_core.storage import Lock, write_json

DAG_ID = "streaming_regression"
STAGES = {
    "plan_matrix": "plan the matrix",
    "spark_server": "start Spark",
    "prepare_workloads": "prepare workloads",
    "run_oracle": "run the oracle",
    "run_core": "run the engine",
    "validate_outputs": "compare",
    "load_metrics": "load metrics",
    "expectations": "check expectations",
    "dbt_build": "build the marts",
    "publish_reports": "publish reports",
    "stop_spark": "stop Spark",
    "verdict": "verdict",
}
FINAL = ("success", "failed", "upstream_failed", "skipped", "removed")
MARKS = {"success": ("✓", "green"), "failed": ("✗", "red"), "upstream_failed": ("-", "dim"), "skipped": ("-", "dim")}


class Progress:
    """What is going on, as a live table on a terminal, as one line per finished stage elsewhere."""

    def __init__(self, console: Console, note: str):
        self.console = console
        self.note = note
        self.tasks: dict[tuple[str, int], dict] = {}
        self._printed: set[tuple[str, int]] = set()
        self._since = time.time()

    def take(self, line: dict) -> None:
        """One change of one task."""
        self.tasks[line["task"], line["map_index"]] = line
        if not self.console.is_terminal and line["state"] in FINAL:
            key = (line["task"], line["map_index"])
            if key not in self._printed and line["map_index"] >= -1:
                self._printed.add(key)
                name = line["label"] or STAGES.get(line["task"], line["task"])
                seconds = f"{line['end'] - line['start']:.1f} s" if line["start"] and line["end"] else ""
                self.console.print(f"  {line['state']:<16} {name:<40} {seconds}", highlight=False)

    def expect(self, sentence: str) -> None:
        """How much is planned, and how long that takes."""
        self.note = f"{sentence}; {self.note}"
        if not self.console.is_terminal:
            self.console.print(f"  {sentence}", highlight=False, soft_wrap=True)

    def stages(self) -> list[dict]:
        """Seconds and outcome per stage, in order; the mapped one as a whole."""
        found = []
        for stage, title in STAGES.items():
            found_lines = {index: line for (task, index), line in self.tasks.items() if task == stage}
            # Until a mapped task is expanded one line stands for all of it, and nobody ends that one.
            lines = [line for index, line in found_lines.items() if index >= 0 or len(found_lines) == 1]
            starts = [line["start"] for line in lines if line["start"]]
            ends = [line["end"] for line in lines if line["end"]]
            states = {line["state"] for line in lines}
            state = next((s for s in ("failed", "upstream_failed", "skipped") if s in states), None)
            if state is None:
                state = "success" if states == {"success"} else "running" if starts else ""
            if any(line["state"] not in FINAL for line in lines):
                state = "running" if starts else ""
            seconds = (max(ends) - min(starts)) if starts and ends else None
            found.append(
                {"stage": stage, "title": title, "state": state, "seconds": seconds, "start": min(starts, default=None)}
            )
        return found

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
                self._cells() if stage["stage"] == "run_core" else "",
            )
        footer = Text(f"  {time.time() - self._since:.0f} s  {self.note}", style="dim")
        return Group(table, footer)

    def _cells(self) -> Text:
        lines = [line for (task, index), line in self.tasks.items() if task == "run_core" and index >= 0]
        done = sum(line["state"] in FINAL for line in lines)
        failed = sum(line["state"] == "failed" for line in lines)
        running = next((line["label"] or "" for line in lines if line["state"] == "running"), "")
        text = f"{done} of {len(lines)}" if lines else ""
        return Text(f"{text}{f', {failed} failed' if failed else ''}  {running}")


def follow(conf: dict, there: bool, log: Path, progress: Progress, live: bool, noted: Noted) -> tuple[bool, dict]:
    """Runs the DAG in a process of its own, or `there`, by the scheduler that is up.

    Returns:
        Whether it succeeded, and how Airflow calls it; {} where Airflow never did.

    A signal ends that process, and with it everything it started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    dag_run: dict = {}
    command = [sys.executable, "-m", "infra.airflow.run_dag", str(ROOT / "dags" / f"{DAG_ID}.py"), DAG_ID]
    command += [str(write_end), "--scheduler"] if there else [str(write_end)]
    with open(log, "wb") as out:
        child = start(
            command,
            dies_by=None,
            cwd=ROOT,
            env=airflow_home.environment(),
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            pass_fds=(write_end,),
        )
    os.close(write_end)
    assert child.stdin is not None
    child.stdin.write(json.dumps(conf).encode())
    child.stdin.close()

    def read() -> None:
        with os.fdopen(read_end) as lines:
            for text in lines:
                line = json.loads(text)
                if "run" in line:
                    dag_run.update(line)
                else:
                    progress.take(line)
                    if line["task"] == "plan_matrix" and line["state"] == "success":
                        run_id = new_run_id(dag_run["run"], dag_run["run_after"])
                        progress.expect(expected(checkout.home(), run_id))

    reader = threading.Thread(target=read)
    reader.start()

    def wait() -> None:
        while child.poll() is None and not noted.number:
            time.sleep(POLL_SECONDS)

    try:
        if live and progress.console.is_terminal:
            with Live(progress, console=progress.console, refresh_per_second=4, transient=True):
                wait()
        else:
            wait()
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait()
        reader.join()
    return child.returncode == 0, dag_run


def run(conf: dict, as_json: bool) -> int:
    """Runs the DAG with this conf and prints its table; the exit code: 1 where it is not green.

    Raises:
        RunFailed: it did not get as far as its plan.
    """
    noted = Noted(signal.SIGINT, signal.SIGTERM)
    console = Console(stderr=as_json)
    log = airflow_home.location() / "logs" / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.log"
    occupancy = airflow_home.occupancy()
    there = wait_for_turn(occupancy, console, noted)
    if noted.number:
        console.print("stopped; nothing was started")
        occupancy.leave()
        return 1
    progress = Progress(console, f"log: {log}")
    started = time.time()
    try:
        if there:
            console.print(f"Airflow is up; its scheduler takes the run: {there}", highlight=False)
        else:
            airflow_home.prepare(log.with_suffix(".prepare.log"))
        done, dag_run = False, dict[str, Any]()
        if not noted.number:
            done, dag_run = follow(conf, there is not None, log, progress, not as_json, noted)
        if noted.number:
            if there:
                console.print("stopped watching; the run goes on in Airflow")
            else:
                airflow_home.end_stale_runs()
                console.print("stopped; nothing of the run goes on")
            return 1
    finally:
        occupancy.leave()
    home = checkout.home()
    run_id = new_run_id(dag_run["run"], dag_run["run_after"]) if dag_run else ""
    if not run_id or not (home.run(run_id) / "plan.json").exists():
        raise RunFailed(f"the run did not get as far as its plan; see {log}")
    write_json(
        home.run(run_id) / "stages.json",
        {"seconds": time.time() - started, "log": str(log), "airflow_run": dag_run["run"], "stages": progress.stages()},
    )
    return 0 if print_run(home, run_id, console, as_json) and done else 1


def wait_for_turn(occupancy: Lock, console: Console, noted: Noted) -> str | None:
    """Takes AIRFLOW_HOME for this run; where a UI has it, returns its address instead."""
    told = False
    while not noted.number and not occupancy.take(signed("run")):
        by = holder(occupancy)
        if by.get("owner") == "ui":
            return by["url"]
        if not told:
            console.print(f"waiting: another run (process {by.get('pid', '?')}) is going on", highlight=False)
            told = True
        time.sleep(0.5)
    return None
