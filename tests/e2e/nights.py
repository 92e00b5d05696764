"""Nights on the real engine, through the scheduler: unchanged ones, one with a slowdown, one with an ordering bug.

    python -m tests.e2e.nights [--nights 10] [--gated 3] [--sittings 0] [--earlier 17] [--folder FOLDER]

It works in a copy of the checkout, with a small matrix. A night starts as soon as the one before has ended. The page
`docs/explanation/speed-verdicts.md` says what it shows. Leave the machine alone meanwhile. The steps:

1. Seventeen earlier nights, run cell by cell beside an idle Airflow, because a trend needs 15 nights.
2. `--nights` scheduled nights of one build. At least 90 % of the cells must have a verdict, and no cell may be accused.
   In the first `--gated` of them the speed gate compares a cell with the same commit.
3. A commit that makes one operator of `sl` 5 % slower. The gate must name application, way and build in that night.
4. With `--sittings`, the gate measures that cell again and again. It must find the slowdown in 9 of 10 sittings whose
   interval is narrower than 2 %.
5. A commit that delivers two rows in the wrong order. The night must be red.

Every night is late on purpose, so the triggerer has to send the deadline alert. If anything is wrong, the exit code is
1.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

from infra.gate.pairs import one_side
from infra.hosts.build import Build
from reports.history import Cell, History, Run, short
from reports.history.speed import JUDGED
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX, named
from streaming_core.run.way import RunSpec
from tests.e2e.scheduled import RUNS, Airflow
from tests.support import checkout

NIGHTLY = named("streaming_regression_nightly")
EARLIER = 17  # nights; a trend needs 15, and some may be unfit
MATRIX = """applications: [fd, fx, sl]
executors: [transactional, pooled]
schemes: [owners]
threads: [1]
events: 200000
"""
UNCHANGED = "gate_minutes: 3\ngate_against: base\n"  # what the gate needs for a cell, at most
SLOWDOWN = 0.05
PLANTED = "sl/owners/t1"
PLACE = "            src_acct=0,\n"  # in the operator `settle` of sl, for a deposit
SLOWER = "            src_acct=burn(request.amt_acct, {rounds}),\n"
DELIVERY = "        for at in range(0, count, 1 << 16):\n"  # in run/one_pass.py
SWAPPED = "        rows = rows[[1, 0, *range(2, count)]]\n"
CALIBRATIONS = 9  # pairs of processes
NARROW = 0.02  # width of an interval
PATIENCE = 3600  # seconds that a night may take
POLL_SECONDS = 3


# A line of the result: the claim, whether it holds, and the observation.
Outcome = tuple[str, bool, str]


class Sink:
    """A web server on loopback that collects alerts, as Apprise sends them."""

    def __init__(self) -> None:
        self.messages: list[dict] = []
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def alerts(self, kind: str) -> list[str]:
        """The texts of the alerts of a kind."""
        return [
            message["message"] for message in self.messages if kind in message["title"].partition(": ")[2].split(", ")
        ]


class Nights:
    """A copy of the checkout, its Airflow, and the nights that ran there."""

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self.say = say
        self.sink = Sink()
        self.copy = checkout.track(folder / "checkout")
        checkout.equip(self.copy)
        self.home = Home(folder / "lockstep")
        config = {"config": [{"path": f"json://127.0.0.1:{self.sink.server.server_port}/"}]}
        self.environment = checkout.environment(self.copy) | checkout.homes(folder)
        alert = json.dumps({"conn_type": "apprise", "extra": config})
        self.environment[f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_APPRISE"] = alert
        os.environ["LOCKSTEP_HOST_LOCK"] = self.environment["LOCKSTEP_HOST_LOCK"]
        self.airflow: Airflow | None = None

    @contextmanager
    def up(self) -> Iterator[None]:
        """Airflow with its scheduler and triggerer, for the block."""
        self.airflow = Airflow(self.environment, self.copy)
        try:
            yield
        finally:
            self.airflow.stop()

    def edit(self, name: str, before: str, after: str) -> None:
        """Replace a passage of a file of the copy, which must occur once."""
        path = self.copy / name
        text = path.read_text()
        assert text.count(before) == 1, f"{name} has {text.count(before)} times {before!r}"
        path.write_text(text.replace(before, after))

    def commit(self, tag: str, gate: str = "") -> None:
        """Commit the copy under a tag, with this part of the nightly's matrix."""
        (self.copy / "dags" / "matrices" / "nightly.yaml").write_text(MATRIX + gate)
        checkout.commit(self.copy)
        self.command("git", "tag", tag)

    def command(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command in the copy, which must end with one of the exit codes; returns its output."""
        done = subprocess.run(words, cwd=self.copy, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode in codes, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def runs(self) -> list[Run]:
        """The runs of the scheduled nights, oldest first."""
        history = History(self.home)
        return [history.run(run_id) for run_id in history.run_ids() if history.origin(run_id) != "cli"]

    def sleep_through(self, count: int, each: Callable[[int], None] = lambda number: None) -> list[Run]:
        """Have the scheduler start a number of nights in sequence, and wait for their end; returns their runs.

        A night is the run of the regression that the schedule triggers. While the schedule is paused, the scheduled run
        itself does not end: it ends when the schedule goes on.
        """
        before = set(self._nights())
        self._pause(False)
        for number in range(1, count + 1):
            _until(lambda: len(self._nights().keys() - before) >= number)  # noqa: B023 - called in this turn
            if number == count:
                self._pause(True)
            _until(lambda: self._ended(before) >= number)  # noqa: B023
            each(number)
            last = self.runs()[-1]
            self.say(f"night {number} of {count}: {last.sentence}; {last.speed_sentence}; {last.gate_sentence}")
        return self.runs()[-count:]

    def _nights(self) -> dict[str, str]:
        """State by Airflow run of the nights, oldest first."""
        assert self.airflow is not None
        runs = self.airflow.call(f"{RUNS}?limit=200&order_by=run_after")["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in runs if run["run_type"] == "operator_triggered"}

    def _ended(self, before: set[str]) -> int:
        states = [state for run, state in self._nights().items() if run not in before]
        return sum(state in ("success", "failed") for state in states)

    def _pause(self, is_paused: bool) -> None:
        assert self.airflow is not None
        self.airflow.call(f"/api/v2/dags/{NIGHTLY}", "PATCH", {"is_paused": is_paused})


def planted_rounds(nights: Nights, cell: Cell) -> tuple[int, float]:
    """How many rounds of work make the passes of a cell `SLOWDOWN` slower, and how much slower they really make it."""
    workload = nights.home.workload(cell.spec.app, cell.workload)
    spec = RunSpec.parse(cell.spec.model_dump(mode="json"))
    path = nights.copy / "streaming_core" / "apps" / "sl.py"
    plain = path.read_text()
    assert plain.count(PLACE) == 1

    def seconds(rounds: int) -> float:
        path.write_text(plain.replace(PLACE, SLOWER.format(rounds=rounds)) if rounds else plain)
        return one_side(Build("copy", nights.copy), spec, workload, 20).seconds

    def cost(rounds: int) -> float:
        """The change of a pass, in pairs of processes."""
        return median(seconds(rounds) / seconds(0) for _ in range(CALIBRATIONS)) - 1

    many = 256  # enough that noise hardly counts
    rounds = max(1, round(many * SLOWDOWN / cost(many)))
    real = cost(rounds)
    path.write_text(plain)
    return rounds, real


def accused(run: Run) -> list[str]:
    """The slowdowns of a run by the trend and by the gate."""
    trend = [f"{cell.label} {cell.speed.text}" for cell in run.speeds if cell.speed]
    bad = ("slower", "faster", "different", "failed")
    return trend + [f"{label} {gate.text} (gate)" for label, gate in run.gates if gate.verdict in bad]


def unchanged(runs: list[Run], gated: int) -> list[Outcome]:
    """The checks of the unchanged nights."""
    cells = [cell for run in runs for cell in run.cells]
    judged = sum(bool(cell.speed and cell.speed.verdict in JUDGED) for cell in cells)
    measured = [gate for run in runs for _, gate in run.gates if gate.verdict in JUDGED]
    blamed = [f"{run.run_id}: {text}" for run in runs for text in accused(run)]
    red = [run.run_id for run in runs if not run.green]
    return [
        (f"{len(runs)} unchanged nights are green", not red, ", ".join(red) or "all green"),
        ("at least 90 % of their cells are judged", judged >= 0.9 * len(cells), f"{judged} of {len(cells)}"),
        ("no cell is accused", not blamed, "; ".join(blamed) or "none"),
        ("the gate judged a cell in each of its nights", len(measured) >= gated, f"{len(measured)} in {gated} nights"),
    ]


def slowed(nights: Nights, run: Run, real: float) -> list[Outcome]:
    """The checks of the night after the slow commit."""
    build = short(nights.command("git", "rev-parse", "--short", "slow").strip())
    cell = next(cell for cell in run.cells if cell.label == PLANTED)
    verdict = f"{cell.gate.text} ({cell.gate.interval})" if cell.gate else "not measured"
    trend = cell.speed
    named_by_trend = bool(trend and trend.verdict == "slower" and short(trend.since_build) == build)
    others = [text for text in accused(run) if not text.startswith(PLANTED)]
    alerts = [line for text in nights.sink.alerts("slowdown") for line in text.splitlines() if "slower" in line]
    is_named = any(line.startswith(PLANTED) and f"in build {build}" in line for line in alerts)
    is_slower = bool(cell.gate and cell.gate.verdict == "slower")
    since = f"{trend.text} since {short(trend.since_build)}" if trend else "no verdict"
    return [
        ("the slow night is green", run.green, run.sentence),
        (f"the gate finds the planted slowdown of {100 * real:.1f} %", is_slower, f"{PLANTED}: {verdict}"),
        ("the series goes on: its verdict names the build", named_by_trend, since),
        ("no other cell is accused", not others, "; ".join(others) or "none"),
        (f"an alert names {PLANTED} and build {build}", is_named, alerts[-1] if alerts else "no alert"),
    ]


def sit(nights: Nights, run: Run, count: int) -> list[Outcome]:
    """Measure the planted slowdown again and again."""
    name = next(cell.name for cell in run.cells if cell.label == PLANTED)
    narrow = []
    for number in range(1, count + 1):
        words = ("-m", "infra.cli", "gate", "--against", "base", run.run_id, "--cells", name, "--json")
        answer = json.loads(nights.command("python", *words, codes=(0, 1)))  # 1: slower
        (gate,) = [gate for gate in answer["gate"] if gate["cell"] == name]
        width = gate["change_high"] - gate["change_low"] if gate["change"] is not None else 1.0
        nights.say(f"sitting {number} of {count}: {gate['verdict']}, interval {100 * width:.1f} % wide")
        if width < NARROW:
            narrow.append(gate["verdict"] == "slower")
    seen = f"{sum(narrow)} of {len(narrow)} narrow ones, of {count} sittings"
    return [("9 of 10 narrow sittings find it", bool(narrow) and sum(narrow) >= 0.9 * len(narrow), seen)]


def broken(nights: Nights, run: Run) -> list[Outcome]:
    """The checks of the night after the commit with the ordering bug."""
    wrong = [cell.label for cell in run.cells if cell.verdict == "different"]
    alerts = nights.sink.alerts("mismatch") or ["none"]
    return [
        ("the ordering bug is red at once", not run.green and PLANTED in wrong, run.sentence),
        ("an alert says so", PLANTED in alerts[-1], alerts[-1].splitlines()[0]),
    ]


def work(folder: Path, options: argparse.Namespace, say: Callable[[str], None]) -> list[Outcome]:
    """Run all steps; returns a line of the result for each claim."""
    count, gated, sittings = options.nights, options.gated, options.sittings
    nights = Nights(folder, say)
    nights.edit("dags/nightly.py", 'CronTriggerTimetable("0 2 * * *"', 'CronTriggerTimetable("* * * * *"')
    nights.edit("dags/nightly.py", "IN_TIME = timedelta(hours=5)", "IN_TIME = timedelta(seconds=15)")
    nights.edit("dags/nightly.py", "poke_interval=30", "poke_interval=5")
    nights.commit("base", UNCHANGED if gated else "")
    build_base = "from infra import checkout; from infra.hosts import build; "
    build_base += "build.at_commit(checkout.home(), build.resolve('base'), 'base', print)"
    say(nights.command("python", "-c", build_base).strip() or "base is built")
    with nights.up():
        say(nights.command("python", "-m", "tests.e2e.earlier_nights", str(options.earlier)).strip())

        def end_gate(number: int) -> None:
            if number == gated < count:  # the build stays: only the matrix is another one
                nights.commit("ungated")

        outcomes = unchanged(nights.sleep_through(count, end_gate), gated)
        cell = next(cell for cell in nights.runs()[-1].cells if cell.label == PLANTED)
        rounds, real = planted_rounds(nights, cell)
        say(f"planted: {rounds} rounds of work for each deposit of sl, {100 * real:.1f} % of a pass")
        nights.edit("streaming_core/apps/sl.py", PLACE, SLOWER.format(rounds=rounds))
        nights.commit("slow", "gate_minutes: 12\n")
        (slow,) = nights.sleep_through(1)
        outcomes += slowed(nights, slow, real)
        if sittings:
            outcomes += sit(nights, slow, sittings)
        nights.edit("streaming_core/run/one_pass.py", DELIVERY, SWAPPED + DELIVERY)
        nights.commit("broken")
        (red,) = nights.sleep_through(1)
        outcomes += broken(nights, red)
    late = nights.sink.alerts("late")
    outcomes.append(("the triggerer sends deadline alerts", bool(late), f"{len(late)} alerts"))
    return outcomes


def _until(condition: Callable[[], Any]) -> Any:
    """Wait until `condition` is true and return its value. It asks rarely, because the engine is measured meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"nothing happened within {PATIENCE} s"
        time.sleep(POLL_SECONDS)
    return value


def main(argv: list[str]) -> int:
    """Run the steps, and print the result as a table."""
    parser = argparse.ArgumentParser(prog="nights", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nights", type=int, default=10, help="unchanged nights (default: 10)")
    parser.add_argument("--gated", type=int, default=3, help="nights of these in which the gate runs (default: 3)")
    parser.add_argument("--sittings", type=int, default=0, help="measurements of the planted slowdown (default: 0)")
    parser.add_argument("--earlier", type=int, default=EARLIER, help=f"earlier nights (default: {EARLIER})")
    parser.add_argument("--folder", type=Path, help="an empty folder for the copy and its results (default: temporary)")
    options = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGINT):  # Airflow has to end, too
        signal.signal(number, signal.default_int_handler)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="lockstep-nights-"))
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    say(f"everything is in {folder}")
    outcomes = work(folder, options, say)
    for claim, holds, seen in outcomes:
        print("yes" if holds else "NO ", f"{claim}: {seen}")
    return 0 if all(holds for _, holds, _ in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
