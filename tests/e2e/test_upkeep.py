"""An import of a million rows through a real scheduler, started from the form."""

import contextlib
import csv
import json
import urllib.error

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streaming_core.data import workload
from streaming_core.regression.home import Home
from streaming_core.regression.project import named
from tests.e2e.scheduled import BUTTON, Airflow, of_this_checkout
from tests.support.browser import Browser
from tests.support.screenshots import SETTLED
from tests.support.waiting import wait_for

IMPORTS = f"/api/v2/dags/{named('import_data')}/dagRuns"
ROWS = 500_000  # of each stream
PATIENCE = 600

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    root = tmp_path_factory.mktemp("upkeep")
    (root / "lockstep" / "inbox").mkdir(parents=True)
    environment = of_this_checkout(root)
    environment.pop("LOCKSTEP_IMPORT_ROOTS", None)
    with Airflow(environment) as running:
        yield running


@pytest.fixture
def home(airflow) -> Home:
    return airflow.home


def ended(airflow: Airflow, run: str) -> dict[str, str]:
    """Waits until a run has ended, and returns the states of its tasks."""
    wait_for(lambda: airflow.call(run)["state"] in ("success", "failed"), PATIENCE)
    return {task["task_id"]: task["state"] for task in airflow.call(f"{run}/taskInstances")["task_instances"]}


def log(airflow: Airflow, run: str) -> str:
    """The logs of all tasks, line by line."""
    messages = []
    for task in ended(airflow, run):
        with contextlib.suppress(urllib.error.HTTPError):  # a task that never began has no log
            content = airflow.call(f"{run}/taskInstances/{task}/logs/1")["content"]
            events = [line for line in content if "event" in line]
            messages += [line["event"] + json.dumps(line.get("error_detail") or "") for line in events]
    return "\n".join(messages)


def test_two_streams_and_a_million_rows_are_imported_from_the_form(airflow, home):
    draws = np.random.default_rng(7)
    integers = lambda low, high: draws.integers(low, high, ROWS)  # noqa: E731
    left = pa.table({"ts": integers(0, 10**9), "x": integers(1, 10_001), "y": draws.random(ROWS) * 10_000})
    columns = {"at": integers(0, 10**9), "a": integers(1, 10_001), "b": draws.random(ROWS) * 10_000}
    right = pa.table(columns | {"c": draws.random(ROWS), "d": draws.random(ROWS) < 0.5})
    pq.write_table(left, home.root / "inbox" / "left.parquet")
    with open(home.root / "inbox" / "right.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(right.column_names)
        rows.writerows(zip(*(column.to_pylist() for column in right.columns), strict=True))
    with Browser((1280, 2000)) as browser:
        airflow.log_in(browser)
        airflow.open_form(browser, named("import_data"))
        browser.wait("[...document.querySelectorAll('[role=dialog] label')].length > 3")
        browser.click(airflow.field("Application", "input, button"))
        browser.type("scalejoin")
        browser.press("Enter")
        browser.click(airflow.field("Name", "input"))
        browser.type("million")
        browser.click(airflow.field("Files", "textarea"))
        browser.type("Left=left.parquet\nRight=right.csv")
        airflow.open_section(browser, "How to read")
        browser.wait(SETTLED)
        browser.click(airflow.field("Map", "textarea"))
        browser.type("Right.ts=at")
        browser.click(BUTTON.format("Trigger"))
        (run,) = wait_for(lambda: airflow.call(IMPORTS)["dag_runs"], 60)
    run = f"{IMPORTS}/{run['dag_run_id']}"
    assert ended(airflow, run) == {"check": "success", "import_files": "success"}, log(airflow, run)
    result = airflow.call(f"{run}/taskInstances/import_files/xcomEntries/return_value")["value"]
    assert result == {"data": "scalejoin/million", "events": 2 * ROWS, "rows": 2 * ROWS, "set_aside": 0}
    events = pa.concat_tables(workload.read(home.imported("million"), "scalejoin").blocks(1 << 20))
    assert pc.all(pc.greater_equal(events["ts"][1:], events["ts"][:-1])).as_py()
    for number, table in enumerate((left, right.rename_columns(["ts", *right.column_names[1:]]))):
        imported = events.filter(pc.equal(events["stream"], number)).select(table.column_names)
        order = pc.sort_indices(table, [("ts", "ascending")])
        assert imported.equals(table.take(order).cast(imported.schema))
