"""One warehouse over a synthetic history, built once for all tests: a build with its own Spark server is slow."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from tests.dbt import own_nodes
from tests.dbt.raw_runs import GREEN, QUARANTINED, RUNS, write_runs

# `lockstep warehouse build` on a copy of the project, then its unit tests, which it leaves out, on the same server.
BUILD_AND_UNIT_TESTS = """
import json, sys
from pathlib import Path
from infra.history import months, marts
from streaming_core.regression.home import Home

months.PROJECT = marts.PROJECT = Path(sys.argv[3])
home = Home()
with marts.spark(home, "test"):
    print(marts._build(home, sys.argv[2]))
    done = marts.dbt(home, "test", "--select", "test_type:unit")
ran = [result for result in done.result if result.node.resource_type == "unit_test"]
results = {result.node.name: [str(result.status), result.message] for result in ran}
json.dump(results, open(sys.argv[1], "w"))
"""


@dataclass
class Built:
    """A home with a built history, the output of the build, and status and message of each unit test."""

    home: Home
    process: subprocess.CompletedProcess
    unit_tests: dict[str, list]

    def mart(self, name: str) -> list[dict]:
        """All rows of a mart, read as the pages read it: without Spark."""
        return read_mart(self.home, name)


def read_mart(home: Home, name: str) -> list[dict]:
    """All rows of a mart."""
    return pq.read_table(home.root / "warehouse" / "marts" / name).to_pylist()


def python(home: Home, *command: str) -> subprocess.CompletedProcess:
    """Runs Python on `home` with its own Spark server, in a process of its own."""
    environment = {**os.environ, "LOCKSTEP_HOME": str(home.root), "PYTHONPATH": str(ROOT)}
    environment.pop("SPARK_REMOTE", None)
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, timeout=1800)


def warehouse(home: Home, command: str) -> subprocess.CompletedProcess:
    """Runs `lockstep warehouse`."""
    return python(home, "-m", "infra.cli", "warehouse", command)


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Built:
    home = Home(tmp_path_factory.mktemp("built"))
    write_runs(home, (*RUNS, QUARANTINED))
    results = home.root / "unit_tests.json"
    project = own_nodes.copy_project(home.root / "project", own_nodes.GREEN)
    process = python(home, "-c", BUILD_AND_UNIT_TESTS, str(results), GREEN, str(project))
    return Built(home, process, json.loads(results.read_text()) if results.exists() else {})
