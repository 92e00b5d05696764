"""A short regression by the command line: every stage once, on Spark too, with one wrong cell.

test_scheduler.py has the long one, under a scheduler and with every kind of fault.
"""

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from reports.history import History
from streaming_core.regression.home import Home
from tests.e2e.scheduled import erring, of_this_checkout

pytestmark = pytest.mark.e2e
OPTIONS = {"applications": "gs,wc", "executors": "transactional,spark", "schemes": "owners,serial", "threads": "2"}
OPTIONS |= {"events": "2000", "repetitions": "1", "seconds": "0"}
EXPECTED = {"gs.transactional.owners": "different", "gs.transactional.serial": "equal", "wc.spark.spark": "equal"}


def test_wrong_cell_is_red_in_the_result_on_its_page_and_in_the_warehouse(tmp_path, with_compiled):
    with_compiled(tmp_path / "lockstep")
    environment = of_this_checkout(tmp_path, **erring(tmp_path, **{"gs.transactional.owners": "wrong"}))
    words = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "infra.cli", "run", "--json", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout)
    assert {cell["cell"].partition(".t2.")[0]: cell["verdict"] for cell in result["cells"]} == EXPECTED
    assert result["sentence"].startswith("2 of 3 cells equal the oracle; ")
    (wrong,) = (cell for cell in result["cells"] if cell["verdict"] == "different")
    assert "outputs: 1 different" in wrong["reason"]
    states = {stage["stage"]: stage["state"] for stage in result["stages"]}
    failed = {"validate_outputs", "expectations", "verdict"}
    assert {stage for stage, state in states.items() if state == "failed"} == failed
    assert {state for stage, state in states.items() if stage not in failed} == {"success"}
    home = Home(tmp_path / "lockstep")
    run = History(home).run(result["run_id"])
    assert run.sentence in (home.reports / "index.html").read_text()
    assert "<mark>" in home.report(result["run_id"], f"{wrong['cell']}.html").read_text()
    assert (home.reports / "data_docs" / "index.html").exists()
    marts = (home.root / "warehouse" / "marts" / "cells").rglob("*.parquet")
    rows = [row for path in marts for row in pq.ParquetFile(path).read().to_pylist()]
    assert {row["cell"]: row["verdict"] for row in rows} == {cell.name: cell.verdict for cell in run.cells}
