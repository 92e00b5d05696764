#!/usr/bin/env python3
"""Runs the whole regression and prints its table: `make run`.

Exit codes: 0 every planned cell equals the oracle or is a declared bound, 1 it does not, 2 bad input, 3 the command
itself failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[0] = str(ROOT)

from streaming_core import ending  # noqa: E402

if __name__ == "__main__":
    ending.begin("run")

from rich.console import Console, Group  # noqa: E402
from rich.live import Live  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402

from infra.airflow import home as airflow_home  # noqa: E402
from infra.airflow.occupancy import Occupancy  # noqa: E402
from infra.cli.report import print_run  # noqa: E402
from infra.services.process import POLL_SECONDS, Noted, start  # noqa: E402
from streaming_core.errors import BadInput  # noqa: E402
from streaming_core.regression.home import Home, new_run_id  # noqa: E402
from streaming_core.regression.request import RegressionSpec  # noqa: E402
from streaming_core.storage import write_json  # noqa: E402

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


class OneLineParser(argparse.ArgumentParser):
    """Bad usage is bad input: one line."""

    def error(self, message: str):
        raise BadInput(message)


def parse(argv: list[str]) -> tuple[argparse.Namespace, dict]:
    """Options, and the run's conf: only what was given, so that the form's defaults stay the defaults."""
    parser = OneLineParser(prog="run", description=__doc__.splitlines()[0])
    for name, field in RegressionSpec.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = ",".join(map(str, default)) if isinstance(default, list) else default
        shown = {True: "yes", False: "no"}[default] if isinstance(default, bool) else shown
        parser.add_argument(
            f"--{name}", metavar=_shape(default), help=f"{field.description} [{shown}]".replace("%", "%%")
        )
    parser.add_argument("--host", help="Airflow connection of the host that core runs go to [local]")
    parser.add_argument("--spark", help="Airflow connection of the Spark master [spark_default]")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, nothing else")
    options = parser.parse_args(argv)
    conf = {}
    for name, field in RegressionSpec.model_fields.items():
        given = getattr(options, name)
        if given is not None:
            conf[name] = _value(name, given, field.get_default(call_default_factory=True))
    for name in ("host", "spark"):
        if getattr(options, name):
            conf[name] = getattr(options, name)
    return options, conf


def _shape(default: object) -> str:
    if isinstance(default, dict):
        return "JSON"
    if isinstance(default, bool):
        return "yes|no"
    return "A,B,..." if isinstance(default, list) else "N"


def _value(name: str, text: str, default: object) -> object:
    if isinstance(default, list):
        items = [item.strip() for item in text.split(",") if item.strip()]
        return [_number(name, item) for item in items] if default and isinstance(default[0], int) else items
    if isinstance(default, dict):
        try:
            return json.loads(text)
        except ValueError as error:
            raise BadInput(f"--{name}: not JSON: {error}") from None
    if isinstance(default, bool):
        if text not in ("yes", "no"):
            raise BadInput(f"--{name}: {text!r} is neither yes nor no")
        return text == "yes"
    return _number(name, text)


def _number(name: str, text: str) -> int | float:
    try:
        return float(text) if "." in text or "e" in text.lower() else int(text.replace("_", ""))
    except ValueError:
        raise BadInput(f"--{name}: {text!r} is not a number") from None


def check(conf: dict) -> None:
    """Refuses what plan_matrix would refuse, before anything is started."""
    from streaming_core.regression import matrix

    matrix.cells(RegressionSpec.parse({name: value for name, value in conf.items() if name not in ("host", "spark")}))


class Progress:
    """What is going on, as a live table on a terminal, as one line per finished stage elsewhere."""

    def __init__(self, console: Console):
        self.console = console
        self.tasks: dict[tuple[str, int], dict] = {}
        self.note = ""
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


def follow(command: list[str], conf: dict, log: Path, progress: Progress, live: bool, noted: Noted) -> tuple[int, dict]:
    """Runs the DAG in a process of its own; returns its exit code and how it is called.

    A signal ends that process, and with it everything it started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    read_end, write_end = os.pipe()
    run: dict = {}
    with open(log, "wb") as out:
        child = start(
            [*command[:-1], str(write_end), *command[-1:]]
            if command[-1] == "--scheduler"
            else [*command, str(write_end)],
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
                    run.update(line)
                else:
                    progress.take(line)

    reader = threading.Thread(target=read)
    reader.start()

    def wait() -> None:
        while child.poll() is None and not noted.number:
            time.sleep(POLL_SECONDS)

    try:
        if live:
            with Live(progress, console=progress.console, refresh_per_second=4, transient=True):
                wait()
        else:
            wait()
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait()
        reader.join()
    return child.returncode, run


def main(argv: list[str] | None = None) -> int:
    """The command line; see the module's text."""
    noted = Noted(signal.SIGINT, signal.SIGTERM)
    try:
        options, conf = parse(sys.argv[1:] if argv is None else argv)
        check(conf)
    except BadInput as error:
        print(f"run: {error}", file=sys.stderr)
        return 2
    os.environ.update({name: airflow_home.environment()[name] for name in ("AIRFLOW_HOME", "LOCKSTEP_HOME")})
    home, where = Home(), airflow_home.location()
    console = Console(stderr=options.json)
    log = where / "logs" / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.log"
    occupancy = Occupancy(where)
    command = [sys.executable, "-m", "infra.airflow.run_dag", str(ROOT / "dags" / f"{DAG_ID}.py"), DAG_ID]
    there = wait_for_turn(occupancy, console, noted)
    if noted.number:
        console.print("stopped; nothing was started")
        occupancy.leave()
        return 1
    progress = Progress(console)
    progress.note = f"log: {log}"
    started = time.time()
    try:
        if there:
            console.print(f"Airflow is up; its scheduler takes the run: {there}", highlight=False)
            command.append("--scheduler")
        else:
            airflow_home.prepare(log.with_suffix(".prepare.log"))
        code = 1
        run: dict = {}
        if not noted.number:
            code, run = follow(command, conf, log, progress, console.is_terminal and not options.json, noted)
        if noted.number:
            if there:
                console.print("stopped watching; the run goes on in Airflow")
            else:
                subprocess.run(
                    [*command[:3], "--end-stale-runs"],
                    cwd=ROOT,
                    env=airflow_home.environment(),
                    check=False,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                console.print("stopped; nothing of the run goes on")
            return 1
    except RuntimeError as error:
        print(f"run: {error}", file=sys.stderr)
        return 1
    finally:
        occupancy.leave()
    run_id = new_run_id(run["run"], run["run_after"]) if run else ""
    if not (home.run(run_id) / "plan.json").exists() if run_id else True:
        print(f"run: the run did not get as far as its plan; see {log}", file=sys.stderr)
        return 1
    write_json(
        home.run(run_id) / "stages.json",
        {"seconds": time.time() - started, "log": str(log), "airflow_run": run["run"], "stages": progress.stages()},
    )
    green = print_run(home, run_id, console, as_json=options.json)
    return 0 if code == 0 and green else 1


def wait_for_turn(occupancy: Occupancy, console: Console, noted: Noted) -> str | None:
    """Takes AIRFLOW_HOME for this run; where `make ui` has it, returns its address instead."""
    told = False
    while not noted.number and not occupancy.take("run"):
        holder = occupancy.holder()
        if holder.get("what") == "ui" and holder.get("url"):
            return holder["url"]
        if not told:
            console.print(f"waiting: another run (process {holder.get('pid', '?')}) is going on", highlight=False)
            told = True
        time.sleep(0.5)
    return None


if __name__ == "__main__":
    ending.end("run", main)
