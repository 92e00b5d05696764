"""Oracles are computed once per workload and code, noted for the run, and reused."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import run_oracle
from streaming_core.data import workload
from streaming_core.errors import RunFailed
from streaming_core.oracle import oracle
from streaming_core.regression.home import Home
from tests.jobs.world import RUN_ID, write_json


def planned(home: Home, app: str, events: int, address: str | None = None) -> dict:
    address = address or workload.address(app, {}, events, 7)
    return {"app": app, "params": {}, "events": events, "seed": 7, "address": address}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    entries = [planned(home, "sl", 200), planned(home, "wc", 50)]
    for entry in entries:
        workload.write(entry["app"], {}, entry["events"], 7, home.workload(entry["app"], entry["address"]))
    write_json(home.run(RUN_ID) / "plan.json", {"workloads": entries, "cells": []})
    return home


def run(home: Home, spark: SparkSession) -> str:
    return run_oracle.work(spark, home, RUN_ID)


def noted(home: Home) -> dict[str, str]:
    return json.loads((home.run(RUN_ID) / "oracles.json").read_text())


def test_oracles_equal_those_of_the_command_line_and_are_reused(home, spark, tmp_path):
    assert run(home, spark) == "computed sl, wc"
    first = noted(home)
    assert len(first) == 2
    for app, events in (("sl", 200), ("wc", 50)):
        address = workload.address(app, {}, events, 7)
        oracle_address = first[address]
        alone = oracle.run(home.workload(app, address), tmp_path / "alone" / app)
        manifest = oracle.read_manifest(home.oracle(app, oracle_address))
        assert manifest["address"] == alone["address"] == oracle_address
        assert (manifest["output_digest"], manifest["state_digest"]) == (alone["output_digest"], alone["state_digest"])
    (home.run(RUN_ID) / "oracles.json").unlink()
    assert run(home, spark) == "reused sl, wc"
    assert noted(home) == first


def test_failed_oracle_leaves_other_workloads_alone(home, spark):
    good, damaged = planned(home, "sl", 200), planned(home, "wc", 50)
    part = home.workload("wc", damaged["address"]) / "events" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-10])
    absent = planned(home, "sl", 10, "absent")
    write_json(home.run(RUN_ID) / "plan.json", {"workloads": [good, damaged, absent], "cells": []})
    with pytest.raises(RunFailed, match=r"part-00000\.parquet") as failed:
        run(home, spark)
    assert "\n" not in str(failed.value)
    assert "absent" in str(failed.value)
    assert noted(home).keys() == {good["address"]}
    assert not list((home.root / "oracle").rglob("wc/*"))
