"""A run through a real scheduler under `make ui`: pages answer, and a stopped task ends its process."""

from __future__ import annotations

import csv
import json
import random
import signal
import sqlite3
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from infra.airflow import connections
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX
from tests.e2e.scheduled import RUNS, Airflow, free_port
from tests.support import pages
from tests.support.browser import CHROMIUM, Browser
from tests.support.waiting import alive, wait_for

PATIENCE = 900
PASSWORD = "the password of a connection: no-one must see it"
NIGHT = "--matrix nightly --applications clicks --parallelisms vsn,sn --repetitions 1 --seconds 0 --gate_minutes 0"
MINUTE, DELAY = 60_000, 5_000  # milliseconds

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def airflow(copied, user_environment, tmp_path_factory):
    """Airflow of a copy of the checkout, which has one application more."""
    application = copied / "streaming_core" / "apps" / "clicks.py"
    application.write_text(pages.application(pages.WINDOWS, "clicks"))
    root = tmp_path_factory.mktemp("scheduler")
    engine = [str(copied / ".venv" / "bin" / "python"), str(copied / "tests" / "e2e" / "erring_engine.py")]
    environment = {
        **user_environment,
        "AIRFLOW_CONN_ERRING": json.dumps({"conn_type": "generic", "extra": {"wrapper": engine}}),
        "AIRFLOW_CONN_NODE": json.dumps({"conn_type": "ssh", "host": "127.0.0.1", "port": 1, "password": PASSWORD}),
        f"AIRFLOW_CONN_{PREFIX.upper()}LOCAL": json.dumps(
            {"conn_type": "generic", "password": PASSWORD, "extra": {"wrapper": engine}}
        ),
        f"AIRFLOW_CONN_{PREFIX.upper()}SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "LOCKSTEP_APP_FAULTS": json.dumps({"wc.pooled.affinity.t2": "hang"}),
        "LOCKSTEP_APP_PIDS": str(root / "pids"),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    }
    running = Airflow(environment, free_port(), copied)
    yield running
    running.stop()


def test_nightly_on_a_disordered_csv_file_keeps_late_rows(airflow, copied, shell):
    rows = disordered_clicks(1000)
    with (copied / "clicks.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("ts", "user"), *rows])
    counts, late = clicks_by_hand(rows)
    assert counts
    assert late

    imported = shell(".venv/bin/lockstep import clicks clicks.csv --name nightly")
    assert "imported/clicks/nightly: 1,000 events for clicks, from 1,000 rows of clicks.csv" in imported
    printed = shell(f".venv/bin/lockstep run {NIGHT}")
    assert f"Airflow is up at {airflow.url}; its scheduler executes the run" in printed
    assert "All 5 cells equal the oracle" in printed.splitlines()
    report = json.loads(shell(".venv/bin/lockstep report --json"))
    assert report["green"]
    assert {cell["verdict"] for cell in report["cells"]} == {"equal"}

    (run,) = airflow.call(RUNS)["dag_runs"]
    assert run["state"] == "success"
    tasks = airflow.tasks(run["dag_run_id"])
    assert tasks.pop(("run_on_spark", -1)) == "skipped", "the run has no cells there"
    assert set(tasks.values()) == {"success"}
    assert "All 5 cells equal the oracle" in airflow.call("/lockstep/runs.html", raw=True)
    assert len(airflow.call("/api/v2/assets/events")["asset_events"]) == 1, "a green run emits the asset"
    links = airflow.call(f"{RUNS}/{run['dag_run_id']}/taskInstances/verdict/links")["extra_links"]
    assert "All 5 cells equal the oracle" in airflow.call(links["Report"], raw=True)

    home, run_id = Home(airflow.environment["LOCKSTEP_HOME"]), report["run_id"]
    plan = json.loads((home.run(run_id) / "plan.json").read_text())
    assert plan["regression"]["data"] == {"clicks": "nightly"}
    (oracle,) = json.loads((home.run(run_id) / "oracles.json").read_text()).values()
    inputs = home.report(run_id, "inputs.html").read_text()
    assert "1 import of 1,000 rows, none set aside; all checks passed" in inputs
    for cell in report["cells"]:
        assert f'<td class="n">{len(late)}</td>' in home.report(run_id, f"{cell['cell']}.html").read_text()
    attempts = [home.attempt(run_id, cell["cell"], 1) for cell in report["cells"]]
    for folder in (home.oracle("clicks", oracle), *attempts):
        outputs = pq.read_table(folder / "outputs").to_pylist()
        counted = {(row["ts"], row["user"].decode()): row["count"] for row in outputs if row["sink"] == 0}
        assert counted == counts, folder
        assert [(row["ts"], row["user"].decode()) for row in outputs if row["sink"] == 1] == late, folder


def disordered_clicks(number: int) -> list[tuple[int, str]]:
    """Clicks of ten minutes: most in order, some within the delay of the application, some far behind it."""
    draw = random.Random(1)
    behind = draw.choices([0, 1_000, DELAY - 1, 2 * MINUTE], [6, 2, 2, 1], k=number)
    return [(max(0, 600 * n - back), draw.choice(["ann", "bob", "cy"])) for n, back in enumerate(behind)]


def clicks_by_hand(rows: list[tuple[int, str]]) -> tuple[dict[tuple[int, str], int], list[tuple[int, str]]]:
    """The clicks per end of a minute and user, and the clicks that come after their minute has expired."""
    counts: Counter[tuple[int, str]] = Counter()
    late, highest = [], 0
    for ts, user in rows:
        highest = max(highest, ts)
        end = ts // MINUTE * MINUTE + MINUTE
        if end <= highest - DELAY:
            late.append((ts, user))
        else:
            counts[end, user] += 1
    return dict(counts), late


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser")
def test_run_has_the_values_of_the_form(airflow):
    chosen = {"Applications": ["wc"], "Executors": ["pooled"], "Threads": ["2", "4"], "Batches": ["16"]}
    known = {run["dag_run_id"] for run in airflow.call(RUNS)["dag_runs"]}
    with Browser() as browser:
        airflow.log_in(browser)
        airflow.open_form(browser)
        airflow.fill_in(browser, chosen, "700")
        new = wait_for(lambda: {run["dag_run_id"] for run in airflow.call(RUNS)["dag_runs"]} - known, PATIENCE)
    run = History(Home(airflow.environment["LOCKSTEP_HOME"]))
    assert wait_for(lambda: _ended(airflow, *new), PATIENCE) == "success"
    request = run.latest().plan["regression"]
    assert (request["applications"], request["executors"]) == (["wc"], ["pooled"])
    assert (request["threads"], request["batches"], request["events"]) == ([2, 4], [16], 700)


@pytest.mark.slow
def test_stopped_run_and_waiting_run_are_red(airflow):
    conf = {"applications": ["wc"], "executors": ["pooled"], "threads": [1], "events": 2000, "repetitions": 1}
    runs = [airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})["dag_run_id"] for _ in range(2)]
    wait_for(lambda: airflow.tasks(runs[0])["plan_matrix", -1] in ("running", "success"), PATIENCE)
    for run in reversed(runs):
        airflow.call(f"{RUNS}/{run}", "PATCH", {"state": "failed"})
    for run in runs:
        assert wait_for(lambda run=run: _ended(airflow, run), PATIENCE) == "failed"
        assert airflow.tasks(run)["verdict", -1] == "failed"


@pytest.mark.slow
def test_bad_params_past_the_form_end_red_with_a_reason(airflow):
    conf = {"applications": ["wc", "nosuch"]}
    run = airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})
    run_id = run["dag_run_id"]
    ended = wait_for(lambda: _ended(airflow, run_id), PATIENCE)
    assert ended == "failed"
    states = airflow.tasks(run_id)
    assert states["plan_matrix", -1] == "failed"
    assert states["verdict", -1] == "failed"
    assert "success" not in states.values()
    log = airflow.call(
        f"{RUNS}/{run_id}/taskInstances/plan_matrix/logs/1?full_content=true",
        raw=True,
    )
    assert "unknown application 'nosuch'" in log


@pytest.mark.slow
def test_stopped_task_ends_its_process_group(airflow):
    conf = {"applications": ["wc"], "executors": ["pooled"], "threads": [2], "events": 2000, "repetitions": 1}
    run = airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})
    run_id, pids = run["dag_run_id"], Path(airflow.environment["LOCKSTEP_APP_PIDS"])
    wait_for(lambda: pids.exists() and pids.read_text().strip(), PATIENCE)
    engine = [int(pid) for pid in pids.read_text().split()]
    assert all(alive(pid) for pid in engine)
    airflow.call(
        f"{RUNS}/{run_id}/taskInstances/run_core/0",
        "PATCH",
        {"new_state": "failed"},
    )
    wait_for(lambda: not any(alive(pid) for pid in engine), PATIENCE)
    assert wait_for(lambda: _ended(airflow, run_id), PATIENCE) == "failed"
    page = airflow.call("/lockstep/runs.html", raw=True)
    assert "0 of 1 cells equal the oracle; wc/affinity/t2 " in page


@pytest.mark.slow
def test_no_command_line_has_a_secret_during_a_run(airflow):
    conf = {"applications": ["wc"], "executors": ["pooled"], "threads": [2], "events": 2000, "repetitions": 1}
    pids = Path(airflow.environment["LOCKSTEP_APP_PIDS"])
    pids.unlink(missing_ok=True)
    run = airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})["dag_run_id"]
    wait_for(lambda: pids.exists() and pids.read_text().strip(), PATIENCE)
    home = Path(airflow.environment["LOCKSTEP_HOME"])
    kept = {home / "spark-server.json", home / "spark-scratch" / "spark.conf"}
    secrets = [*_secrets(airflow), json.loads((home / "spark-server.json").read_text())["token"], airflow.token]
    command_lines = "\n".join(" ".join(_command(process)) for process in psutil.process_iter())
    assert "SparkConnectServer" in command_lines, "the run's processes are among them"
    assert "--skip-serve-logs" in command_lines
    assert not [secret for secret in secrets if secret in command_lines]
    assert not [path for path in _files(airflow) if secrets[-2].encode() in path.read_bytes() and path not in kept]
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    # A run that waits for its Spark server, cells and all, listens on loopback.
    assert _listening(airflow) <= {"127.0.0.1", "::1"}
    airflow.call(f"{RUNS}/{run}", "PATCH", {"state": "failed"})
    assert wait_for(lambda: _ended(airflow, run), PATIENCE) == "failed"


@pytest.mark.slow
def test_unreachable_host_is_reported_without_its_password(airflow):
    conf = {"applications": ["wc"], "executors": ["pooled"], "threads": [1], "events": 2000, "hosts": ["node"]}
    run = airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})["dag_run_id"]
    assert wait_for(lambda: _ended(airflow, run), PATIENCE) == "failed"
    assert "host node cannot run cells" in airflow.call("/lockstep/runs.html", raw=True)


@pytest.mark.slow
def test_secrets_are_only_in_their_private_files(airflow):
    """Neither in logs, pages, plans and results, nor in Airflow's XComs, rendered fields, confs and events."""
    secrets = _secrets(airflow)
    own = {"airflow.cfg", "secrets.json", "passwords.json"}
    for path in _files(airflow):
        content = path.read_bytes()
        if path.name in own and path.parent == Path(airflow.environment["AIRFLOW_HOME"]):
            assert path.stat().st_mode & 0o077 == 0, path
        else:
            assert not [secret for secret in secrets if secret.encode() in content], path
    assert not [secret for secret in secrets if secret in airflow.output]
    database = sqlite3.connect(f"file:{airflow.environment['AIRFLOW_HOME']}/airflow.db?mode=ro", uri=True)
    dumped = "\n".join(database.iterdump())
    assert connections.DEFAULTS["spark"] in dumped
    assert not [secret for secret in secrets if secret in dumped]
    assert Path(airflow.environment["AIRFLOW_HOME"]).stat().st_mode & 0o077 == 0


def test_pages_require_the_login(airflow):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(airflow.url + "/lockstep/")


def test_every_process_listens_on_loopback_and_ends_with_the_stop(airflow):
    # Some of Airflow's processes rename themselves, which wipes out their environment: the family tree finds them.
    family = psutil.Process(airflow.process.pid).children(recursive=True)
    assert len(family) > 4
    assert _listening(airflow) <= {"127.0.0.1", "::1"}
    airflow.process.send_signal(signal.SIGINT)
    assert airflow.process.wait(120) == 0
    assert [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert [p for p in psutil.process_iter() if _home_of(p) == airflow.environment["LOCKSTEP_HOME"]] == []


@pytest.mark.slow
def test_killed_ui_ends_its_airflow(airflow, copied):
    again = Airflow(airflow.environment, free_port(), copied)
    family = psutil.Process(again.process.pid).children(recursive=True)
    again.process.kill()
    again.process.wait()
    wait_for(lambda: not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], PATIENCE)


def _ended(airflow: Airflow, run_id: str) -> str | None:
    state = airflow.call(f"{RUNS}/{run_id}")["state"]
    return state if state in ("success", "failed") else None


def _listening(airflow: Airflow) -> set[str]:
    """The addresses on which processes of `make ui` listen. Its Spark server has left the family: a search adds it."""
    family = psutil.Process(airflow.process.pid).children(recursive=True)
    family += [p for p in psutil.process_iter() if _home_of(p) == airflow.environment["LOCKSTEP_HOME"]]
    addresses = set()
    for process in family:
        try:
            addresses |= {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue  # it has ended
    assert addresses
    return {ip.removeprefix("::ffff:") for ip in addresses}


def _secrets(airflow: Airflow) -> list[str]:
    """All secrets: Airflow's keys, the password of the login, and that of a connection."""
    secrets = json.loads((Path(airflow.environment["AIRFLOW_HOME"]) / "secrets.json").read_text())
    return [*secrets.values(), airflow.login["password"], PASSWORD]


def _files(airflow: Airflow) -> list[Path]:
    """Everything that a UI and its runs have left, but for machine code."""
    homes = [Path(airflow.environment[name]) for name in ("AIRFLOW_HOME", "LOCKSTEP_HOME")]
    return [path for home in homes for path in home.rglob("*") if path.is_file() and "compiled" not in path.parts]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _home_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("LOCKSTEP_HOME")
    except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
        return None
