"""One run through a real scheduler under `make ui`, and the forms that start others.

The run has a wrong, a crashed and a missing cell, a workload that cannot be generated, and an import with late rows.
Tests check the verdict of each, and that the other cells are unaffected.
"""

import csv
import json
import random
import re
import signal
import sqlite3
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from dags.lib.assets import OF_BUILD
from infra.airflow import connections
from reports.history import History
from reports.views.stages import Stages
from streaming_core.regression.fleet import claims
from streaming_core.regression.project import PREFIX, named
from streaming_core.regression.stages import AFTER_PAGES, DAG_ID, Stage
from tests.e2e.scheduled import BUTTON, MOVES, RUNS, Airflow
from tests.reports.content import from_elsewhere
from tests.support import pages
from tests.support.browser import Browser
from tests.support.waiting import wait_for

PATIENCE = 900
PASSWORD = "the password of a connection: no-one must see it"
# The DAGs with a form, and the fields that a person must fill in.
FORMS = {"import_data": {"Name": "mine"}, "speed_gate": {"Against": "HEAD"}, "profile_cell": {"Cell": "x"}}
FORMS |= {name: {} for name in ("streaming_regression", "acknowledge_run", "retention", "back_up_history")}
MINUTE, DELAY = 60_000, 5_000  # milliseconds

FAULTS = {
    "gs.transactional.owners.t2": "wrong",
    "gs.transactional.serial.t2": "crash",
    "wc.pooled.affinity.t2": "vanish",
}
EXPECTED = dict.fromkeys(("clicks/gate/t2", "clicks/spark/t2", "wc/gate/t2", "wc/spark/t2"), "equal")
EXPECTED |= dict.fromkeys(("wc/affinity/t2", "sl/owners/t2", "sl/serial/t2"), "not_run")
EXPECTED |= {"gs/owners/t2": "different", "gs/serial/t2": "failed"}
OPTIONS = {"applications": "gs,sl,wc,clicks", "executors": "transactional,pooled,pinned,spark", "threads": "2"}
OPTIONS |= {"schemes": "owners,serial", "channels": "gate", "plans": "replicated", "events": "3000"}
OPTIONS |= {"data": '{"clicks": "nightly-clicks"}', "repetitions": "1", "seconds": "0"}
OPTIONS["params"] = '{"sl": {"n_items": 1}}'  # a transfer needs two accounts: the generator refuses

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def airflow(copied, user_environment):
    """Airflow of a copy of the checkout, which has one application more, and the DAG of a user."""
    application = copied / "streaming_core" / "apps" / "clicks.py"
    application.write_text(pages.application(pages.WINDOWS, "clicks"))
    (downstream,) = pages.blocks(pages.RESULTS, "python")
    (copied / "dags" / "red_runs.py").write_text(downstream.replace("lockstep/", named("lockstep/")))
    engine = [str(copied / ".venv" / "bin" / "python"), str(copied / "tests" / "e2e" / "erring_engine.py")]
    environment = {
        **user_environment,
        "AIRFLOW_CONN_ERRING": json.dumps({"conn_type": "generic", "extra": {"wrapper": engine}}),
        "AIRFLOW_CONN_NODE": json.dumps({"conn_type": "ssh", "host": "127.0.0.1", "port": 1, "password": PASSWORD}),
        f"AIRFLOW_CONN_{PREFIX.upper()}LOCAL": json.dumps(
            {"conn_type": "generic", "password": PASSWORD, "extra": {"wrapper": engine}}
        ),
        f"AIRFLOW_CONN_{PREFIX.upper()}SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "LOCKSTEP_APP_FAULTS": json.dumps(FAULTS),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    }
    with Airflow(environment, copied) as running:
        yield running


@pytest.fixture(scope="module")
def browser(airflow):
    with Browser((1920, 1600)) as browser:  # Airflow's notice of an error would cover the button of a narrow form
        airflow.log_in(browser)
        yield browser


@pytest.fixture(scope="module")
def clicks(copied):
    """Rows of clicks, some of them late, in a file of the copy."""
    rows = disordered_clicks(1000)
    with (copied / "clicks.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("ts", "user"), *rows])
    return rows


@pytest.fixture(scope="module")
def result(airflow, copied, clicks):
    """What `lockstep run --json` prints of the one run, which has an import."""

    def lockstep(*words):
        command = [copied / ".venv" / "bin" / "lockstep", *words]
        return subprocess.run(
            command, cwd=copied, env=airflow.environment, capture_output=True, text=True, timeout=PATIENCE
        )

    done = lockstep("import", "clicks", "clicks.csv", "--name", "nightly-clicks")
    assert "imported/nightly-clicks: 1,000 events of clicks, from 1,000 rows of clicks.csv" in done.stdout, done.stderr
    done = lockstep("run", "--json", *(word for name, value in OPTIONS.items() for word in (f"--{name}", value)))
    assert done.returncode == 1, done.stderr
    assert f"Airflow is up at {airflow.url}; its scheduler executes the run" in done.stderr
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def home(airflow):
    return airflow.home


@pytest.fixture(scope="module")
def run(home, result):
    return History(home).run(result["run_id"])


def label(cell: dict) -> str:
    return f"{cell['application']}/{cell['strategy']}/t{cell['threads']}"


def test_every_planned_cell_has_its_verdict_and_reason(result):
    assert {label(cell): cell["verdict"] for cell in result["cells"]} == EXPECTED
    assert {verdict: count for verdict, count in result["counts"].items() if count} == Counter(EXPECTED.values())
    assert not result["green"]
    assert result["sentence"].startswith("4 of 9 cells equal the oracle; ")
    for cell in result["cells"]:
        assert (cell["events_per_s"] is not None) == (cell["verdict"] in ("equal", "different")), cell["cell"]
    reasons = {label(cell): cell["reason"] for cell in result["cells"]}
    assert "outputs: 1 different" in reasons["gs/owners/t2"]
    assert "operator read_row, event 7: out of cheese" in reasons["gs/serial/t2"]
    assert reasons["wc/affinity/t2"]
    assert "a transfer between two accounts needs n_items of at least 2, got 1" in reasons["sl/serial/t2"]


def test_failed_stage_has_the_sentence_of_its_error(run):
    failures = run.status.failures
    assert failures["validate_outputs"] == "the run is red: 1 different, 4 equal, 1 failed, 3 not_run"
    assert re.match(r"\d+ of \d+ expectations hold, in \d+ data sets; .* rule ", failures["expectations"])


def test_all_stages_after_the_core_runs_ran(result):
    states = {stage["stage"]: stage["state"] for stage in result["stages"]}
    failed = {"prepare_workloads", "run_oracle", "run_core", "validate_outputs", "expectations", "verdict"}
    assert {stage for stage, state in states.items() if state == "failed"} == failed
    assert {state for stage, state in states.items() if stage not in failed} == {"success"}


def test_time_of_every_stage_is_recorded(home, result, run):
    record = Stages.of(History(home).run(result["run_id"]))
    # The speed gate is off in this run.
    assert {stage.name for stage in record.stages} == {*Stage} - set(AFTER_PAGES)
    (cells,) = [stage for stage in record.stages if stage.name == "run_core"]
    (on_spark,) = [stage for stage in record.stages if stage.name == "run_on_spark"]
    assert {span.name for span in on_spark.spans} == {cell.name for cell in run.cells if ".spark." in cell.name}
    assert {span.name for span in cells.spans} == {
        cell.name
        for cell in run.cells
        if (cell.verdict != "not_run" and ".spark." not in cell.name) or "wc.pooled.affinity.t2" in cell.name
    }
    assert 0 < record.cells < record.seconds
    page = home.report(result["run_id"], "index.html").read_text()
    assert "Where the time went" in page


def test_lost_attempt_is_retried_and_a_failed_one_is_not(home, result):
    def attempts(part: str) -> int:
        (folder,) = [path for path in home.run(result["run_id"]).iterdir() if part in path.name]
        return len([path for path in folder.iterdir() if path.is_dir()])

    assert attempts("wc.pooled.affinity.t2") == 3
    assert attempts("gs.transactional.serial.t2") == 1
    assert attempts("gs.transactional.owners.t2") == 1


def test_pages_show_the_evidence(home, result, run):
    reports = home.reports
    assert run.sentence in (reports / "index.html").read_text()
    wrong = next(cell for cell in run.cells if cell.verdict == "different")
    (row,) = [row for row in wrong.violations if row["check"] == "outputs"]
    assert row["event"]
    assert row["expected"] != row["actual"]
    page = (reports / result["run_id"] / f"{wrong.name}.html").read_text()
    assert "<mark>" in page
    for cell in run.cells:
        assert (reports / result["run_id"] / f"{cell.name}.html").exists()
    summary = json.loads((reports / result["run_id"] / "summary.json").read_text())
    assert {row["verdict"] for row in summary["red"]} == {"different", "failed", "not_run"}
    assert (reports / "data_docs" / "index.html").exists()
    assert (reports / "dbt" / "index.html").exists()


def test_no_page_loads_anything_from_elsewhere(home, result):
    reports = home.reports
    files = [path for path in reports.rglob("*") if path.suffix in (".html", ".svg", ".css")]
    assert {"data_docs", "dbt", "index.html"} <= {path.relative_to(reports).parts[0] for path in files}
    assert list((reports / result["run_id"] / "charts").glob("*.svg"))
    assert {path: links for path in files if (links := from_elsewhere(path))} == {}
    # dbt's page brings a tracker along, and starts it where that is asked for.
    assert '"send_anonymous_usage_stats": false' in (reports / "dbt" / "docs.html").read_text()


def test_warehouse_rolls_up_to_the_same_verdicts(home, run):
    marts = home.root / "warehouse" / "marts"
    rows = [row for path in (marts / "cells").rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    assert {row["cell"]: row["verdict"] for row in rows} == {cell.name: cell.verdict for cell in run.cells}
    measured = [
        row for path in (marts / "throughput").rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert {row["cell"] for row in measured} == {cell.name for cell in run.cells if cell.verdict == "equal"}


def test_lane_fails_at_its_end_and_names_its_failed_cells(airflow, home, result):
    failed = {cell: claim.error for cell, claim in claims(home, result["run_id"]).items() if claim.error}
    assert {cell.rpartition(".")[0] for cell in failed if not cell.startswith("sl.")} == {
        cell for cell, fault in FAULTS.items() if fault in ("crash", "vanish")
    }
    assert all("it did not run: " in error for cell, error in failed.items() if cell.startswith("sl."))
    logs = (Path(airflow.environment["AIRFLOW_HOME"]) / "logs").glob("**/task_id=run_*/**/*.log")
    text = "".join(log.read_text() for log in logs)
    assert f"{len(failed)} cells failed: " in text
    groups = {cell["cell"]: text.count(f"::group::{cell['cell']}") for cell in result["cells"]}
    again = [cell for cell in groups if cell.startswith("wc.pooled.affinity.t2.")]
    assert groups == dict.fromkeys(groups, 1) | dict.fromkeys(again, 3), "each attempt has a group in the log"


def test_scheduler_ran_every_task_and_the_red_run_emits_its_marts_alone(airflow, result):
    (run,) = airflow.call(RUNS)["dag_runs"]
    assert run["state"] == "failed"
    events = airflow.call("/api/v2/assets/events")["asset_events"]
    assert {event["name"] for event in events} == {asset.name for asset in OF_BUILD}
    for event in events:
        about = event["extra"]
        assert (event["source_task_id"], about["run"], about["outcome"]) == ("dbt_build", result["run_id"], "red")
        assert about["cells"] == result["counts"]
    assert result["sentence"] in airflow.call("/lockstep/runs.html", raw=True)
    links = airflow.call(f"{RUNS}/{run['dag_run_id']}/taskInstances/verdict/links")["extra_links"]
    assert result["sentence"] in airflow.call(links["Report"], raw=True)


def test_dag_of_a_user_starts_once_after_its_mart(airflow, result):
    runs = "/api/v2/dags/red_runs/dagRuns"
    wait_for(lambda: [run["state"] for run in airflow.call(runs)["dag_runs"]] == ["success"], PATIENCE)
    (run,) = airflow.call(runs)["dag_runs"]
    entry = f"{runs}/{run['dag_run_id']}/taskInstances/count_verdicts/xcomEntries/return_value"
    assert airflow.call(entry)["value"] == {result["run_id"]: result["counts"]}


def test_import_of_a_disordered_csv_file_keeps_late_rows(home, result, clicks):
    counts, late = clicks_by_hand(clicks)
    assert counts
    assert late
    run_id = result["run_id"]
    plan = json.loads((home.run(run_id) / "plan.json").read_text())
    assert plan["regression"]["data"] == {"clicks": "nightly-clicks"}
    inputs = home.report(run_id, "inputs.html").read_text()
    assert "1 import of 1,000 rows, none set aside" in inputs
    cells = [cell["cell"] for cell in result["cells"] if cell["application"] == "clicks"]
    assert cells
    for cell in cells:
        assert f'<td class="n">{len(late)}</td>' in home.report(run_id, f"{cell}.html").read_text()
    oracles = json.loads((home.run(run_id) / "oracles.json").read_text())
    attempts = [home.attempt(run_id, cell, 1) for cell in cells]
    for folder in (*(home.oracle("clicks", oracle) for oracle in oracles.values()), *attempts):
        if not folder.exists():
            continue  # the oracle of another application
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


def test_every_dag_with_a_form_is_tested(airflow):
    dags = [dag["dag_id"] for dag in airflow.call("/api/v2/dags")["dags"]]
    assert {dag for dag in dags if airflow.call(f"/api/v2/dags/{dag}/details")["params"]} == set(map(named, FORMS))


@pytest.mark.parametrize("name", FORMS)
def test_unchanged_form_starts_a_run(airflow, browser, name):
    dag = named(name)
    airflow.open_form(browser, dag)
    airflow.fill_in(browser, FORMS[name])
    if name == "import_data":
        browser.click(airflow.field("Application", "input"))
        browser.type("wc")
        browser.press("Enter")
    run = started(airflow, browser, dag)
    airflow.end(run)
    assert airflow.call(run)["conf"].get("application", "wc") == "wc", "the exact match comes first"


def test_form_sends_typed_values(airflow, browser):
    airflow.open_form(browser)
    airflow.fill_in(browser, {"Applications": "wc", "Threads": "3\n6\n12", "Events": "700"})
    airflow.open_section(browser, "Executor pooled")
    airflow.fill_in(browser, {"Reorders": ["lock"]})
    airflow.open_section(browser, "Where")
    airflow.fill_in(browser, {"Hosts": "node"})
    run = started(airflow, browser, DAG_ID)
    airflow.end(run)
    conf = airflow.call(run)["conf"]
    assert (conf["applications"], conf["threads"], conf["batches"]) == (["wc"], ["3", "6", "12"], None)
    assert (conf["reorders"], conf["hosts"], conf["events"]) == (["lock"], ["node"], "700")


INVALID = [
    ("streaming_regression", {"pin": 3}, "Invalid input for param pin: 3 is not of type"),
    ("retention", {"days": 3}, "Invalid input for param days: 3 is less than the minimum of 7"),
    ("back_up_history", {"keep": 0}, "Invalid input for param keep: 0 is less than the minimum of 1"),
    ("import_data", {"application": "wc", "name": "../a"}, "Invalid input for param name: '../a' does not match"),
    ("speed_gate", {}, "Invalid input for param against: "),
]


@pytest.mark.parametrize(("dag", "conf", "line"), INVALID)
def test_invalid_param_of_any_dag_is_refused(airflow, dag, conf, line):
    def refusal():
        with pytest.raises(urllib.error.HTTPError) as refused:
            airflow.call(f"/api/v2/dags/{named(dag)}/dagRuns", "POST", {"conf": conf, "logical_date": None})
        detail = json.loads(refused.value.read())["detail"]
        return isinstance(detail, str) and detail  # an object says that SQLite was locked for five seconds

    assert wait_for(refusal, 60).startswith(line)


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


def test_every_process_listens_on_loopback_and_ends_with_the_stop(airflow):
    # Some of Airflow's processes rename themselves, which wipes out their environment: the family tree finds them.
    family = psutil.Process(airflow.process.pid).children(recursive=True)
    assert len(family) > 4
    assert _listening(airflow) <= {"127.0.0.1", "::1"}
    airflow.process.send_signal(signal.SIGINT)
    assert airflow.process.wait(120) == 0
    assert [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    assert [p for p in psutil.process_iter() if _home_of(p) == airflow.environment["LOCKSTEP_HOME"]] == []


def started(airflow: Airflow, browser: Browser, dag: str) -> str:
    """Press Trigger in the open form; returns the path of the run."""
    runs = f"/api/v2/dags/{dag}/dagRuns"

    def known() -> set[str]:
        return {run["dag_run_id"] for run in airflow.call(runs)["dag_runs"] if run["run_type"] == "manual"}

    before, button = known(), BUTTON.format("Trigger")
    browser.wait(f"!{button}.disabled && !{MOVES}")
    browser.click(button)
    (new,) = wait_for(lambda: known() - before, 60)
    return f"{runs}/{new}"


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
    """Everything that a UI and its runs have left, but for machine code and the checkouts of other builds."""
    homes = [Path(airflow.environment[name]) for name in ("AIRFLOW_HOME", "LOCKSTEP_HOME")]
    paths = [path for home in homes for path in home.rglob("*") if not {"compiled", "builds"} & set(path.parts)]
    return [path for path in paths if path.is_file()]


def _home_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("LOCKSTEP_HOME")
    except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
        return None
