"""Runs that go on at once in one LOCKSTEP_HOME. If one is killed, the others are as if they were alone.

The runs have all of their parts: three times `lockstep run`, and runs of two schedulers that share LOCKSTEP_HOME.
"""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest

from reports.history import History
from streaming_core.regression import warehouse
from streaming_core.regression.fleet import claims
from streaming_core.regression.home import Home
from streaming_core.regression.lock import of_home
from tests.e2e.scheduled import RUNS, Airflow, of_this_checkout
from tests.support.waiting import alive, wait_for

PATIENCE = 900
SMALL = {"applications": ["wc"], "executors": ["pooled"], "threads": [1, 2], "events": 20_000, "repetitions": 1}
SMALL |= {"seconds": 0}
CELLS = 2

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def home(tmp_path, with_compiled) -> Home:
    with_compiled(tmp_path / "lockstep")
    return Home(tmp_path / "lockstep")


def world(tmp_path: Path, name: str) -> dict[str, str]:
    """The variables of a person with an Airflow of their own, in the common LOCKSTEP_HOME."""
    return of_this_checkout(tmp_path, AIRFLOW_HOME=str(tmp_path / name))


def check(home: Home, run_ids: list[str]) -> None:
    """Check the raw results, the marts and the pages of runs that nothing disturbed."""
    history = History(home)
    digests = set()
    for run_id in run_ids:
        cells = warehouse.rows(home, "cells", run_id)
        assert [cell["verdict"] for cell in cells] == ["equal"] * CELLS
        assert {cell["run_id"] for cell in cells} == {run_id}
        digests |= {(cell["output_digest"], cell["workload_address"], cell["oracle_address"]) for cell in cells}
        assert len(warehouse.rows(home, "samples", run_id)) >= CELLS
        assert {row["verdict"] for row in warehouse.rows(home, "verdicts", run_id)} == {"equal"}
        run = history.run(run_id)
        assert run.green, run.sentence
        assert json.loads(home.report(run_id, "summary.json").read_text())["green"]
        for cell in run.cells:
            assert home.report(run_id, f"{cell.name}.html").exists()
        assert run_id in (home.reports / "runs.html").read_text()
    assert len(digests) == 1, "the runs have the same input, and so the same result"
    built = {(row["run_id"], row["cell"]) for row in history.mart("cells")}
    assert {run_id for run_id, _ in built} >= set(run_ids)
    assert len([*home.root.glob("workloads/wc/*/manifest.json")]) == len([*home.root.glob("oracle/wc/*")]) == 1
    assert of_home(home).holders() == []
    assert [*home.root.glob("spark-scratch/*/spark.conf")] == [], "each server has removed its files"


def of_world(home: Home, airflow: str) -> list[str]:
    """The runs of an Airflow that have LOCKSTEP_HOME now."""
    keepers = of_home(home).holders()
    return [
        keeper["owner"]
        for keeper in keepers
        if psutil.Process(keeper["pid"]).environ()["AIRFLOW_HOME"].endswith(airflow)
    ]


def test_two_of_three_runs_are_right_when_the_third_is_killed(tmp_path, home):
    words = [f"--{name}={','.join(map(str, v)) if isinstance(v, list) else v}" for name, v in SMALL.items()]
    command, pipes = [str(Path(sys.executable).parent / "lockstep"), "run", "--json", *words], {"stdout": PIPE}
    runs = [
        subprocess.Popen(command, env=world(tmp_path, f"airflow-{number}"), text=True, stderr=PIPE, **pipes)
        for number in range(3)
    ]
    try:
        wait_for(lambda: len(of_home(home).holders()) == 3, PATIENCE)
        (killed,) = of_world(home, "airflow-2")
        wait_for(lambda: claims(home, killed) or runs[2].poll() is not None, PATIENCE)
        assert runs[2].poll() is None, runs[2].communicate()
        run = psutil.Process(runs[2].pid)
        drivers, below = run.children(), run.children(recursive=True)
        assert drivers
        for process in (run, *drivers):
            process.kill()
        wait_for(lambda: killed not in [holder["owner"] for holder in of_home(home).holders()], PATIENCE)
        wait_for(lambda: not any(alive(process.pid) for process in below), PATIENCE)
        outputs = [run.communicate(timeout=PATIENCE) for run in runs]
        assert [run.returncode for run in runs] == [0, 0, -signal.SIGKILL], outputs
    finally:
        for run in runs:
            run.terminate()
            run.wait(PATIENCE)
    check(home, [json.loads(output)["run_id"] for output, _ in outputs[:2]])
    assert History(home).is_in_progress(killed), "its process could not record its end"


def test_runs_of_two_schedulers_go_on_at_once_and_a_killed_worker_fails_its_run_alone(tmp_path, home):
    with Airflow(world(tmp_path, "airflow-0")) as first, Airflow(world(tmp_path, "airflow-1")) as other:
        runs = [
            (airflow, airflow.call(RUNS, "POST", {"conf": SMALL, "logical_date": None})["dag_run_id"])
            for airflow in (first, other, other)
        ]

        def of(run: tuple[Airflow, str]) -> str:
            return next((name for name in History(home).run_ids() if History(home).origin(name) == run[1]), "")

        wait_for(lambda: len(of_home(home).holders()) == 3, PATIENCE)
        ids = [of(run) for run in runs]
        assert sorted(of_world(home, "airflow-1")) == sorted(ids[1:]), "one scheduler, two runs"
        wait_for(lambda: claims(home, ids[2]), PATIENCE)
        other.end(f"{RUNS}/{runs[2][1]}")

        def state(run: tuple[Airflow, str]) -> str:
            time.sleep(0.5)  # the runs need the processor
            return run[0].call(f"{RUNS}/{run[1]}")["state"]

        states = [wait_for(lambda run=run: (s := state(run)) in ("success", "failed") and s, PATIENCE) for run in runs]
        assert states == ["success", "success", "failed"], [History(home).run(run_id).sentence for run_id in ids]
        wait_for(lambda: not of_home(home).holders(), PATIENCE)
    check(home, ids[:2])
    assert not History(home).run(ids[2]).green
