"""The check of executors reports, before the first cell, whatever would make a cell wrong or fail there."""

import pytest

from jobs import spark_check
from jobs.spark_check import check, difference
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home

HERE = {"machine": "driver", "Python": "3.11.2", "pyspark": "4.1.3", "code": "a b", "build": "1234abc"}
HERE |= {"token": "a word", "fault": None}


def test_executors_of_this_machine_are_fit_and_leave_no_files(spark, tmp_path):
    check(spark, Home(tmp_path), "cluster", 3)
    assert list(tmp_path.iterdir()) == []


def test_spark_of_another_version_is_refused_before_a_task_runs(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(spark_check.pyspark, "__version__", "3.5.0")
    with pytest.raises(
        BadInput, match=r"^connection cluster: its Spark is version 4\.\S+, but this checkout has 3.5.0;"
    ):
        check(spark, Home(tmp_path), "cluster", 1)


def test_executor_that_cannot_run_this_checkout_is_refused(spark, tmp_path, monkeypatch):
    def fail(token: str) -> None:
        raise ModuleNotFoundError("No module named 'jobs'")

    monkeypatch.setattr(spark_check, "run_tasks", lambda *_: fail(""))
    message = r"^connection cluster: its executors cannot import this checkout \(No module named 'jobs'\); set their "
    with pytest.raises(BadInput, match=message):
        check(spark, Home(tmp_path), "cluster", 1)


CODE = "has other code (build 99ff, but this checkout is build 1234abc); check out the same commit there, and type "
DIFFERENCES = [
    ({"Python": "3.12.1"}, "has Python 3.12.1, but this machine has 3.11.2; use one version"),
    ({"pyspark": "4.0.0"}, "has pyspark 4.0.0, but this machine has 4.1.3; use one version"),
    ({"code": "a c", "build": "99ff"}, f"{CODE}`make setup`"),
    ({"fault": "no _runtime"}, "cannot load the runtime (no _runtime); type `make setup` in its checkout"),
    ({"token": None}, "does not share LOCKSTEP_HOME; mount the folder /shared there under the same path"),
    ({}, None),
]


@pytest.mark.parametrize(("there", "message"), DIFFERENCES)
def test_difference_has_a_remedy(there, message):
    line = message and f"the executor on node {message}"
    assert difference(HERE, HERE | {"machine": "node"} | there, Home("/shared")) == line
