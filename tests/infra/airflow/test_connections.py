"""Connections of Airflow's database, for a program that is no process of Airflow."""

import json
import subprocess

import pytest

from infra.airflow import airflow_home as airflow_home_module
from infra.airflow import connections
from streaming_core.errors import RunFailed
from streaming_core.regression.project import named


@pytest.mark.slow
def test_stored_connection_has_all_its_fields(airflow_home):
    command = [*airflow_home_module.AIRFLOW, "connections", "add", "node-a", "--conn-json"]
    fields = {"conn_type": "ssh", "host": "a.example", "port": 22, "password": "s3cret", "extra": {"python": "/x"}}
    subprocess.run([*command, json.dumps(fields)], env=airflow_home_module.environment(), check=True)
    known = {name: json.loads(text) for name, text in connections.stored([named("local"), "node-a", "nosuch"]).items()}
    assert known[connections.variable(named("local"))]["conn_type"] == "generic"
    assert known.keys() == {connections.variable(named("local")), "AIRFLOW_CONN_NODE-A"}
    stored = known["AIRFLOW_CONN_NODE-A"]
    assert {name: stored[name] for name in ("conn_type", "host", "port", "password")} == {
        name: fields[name] for name in ("conn_type", "host", "port", "password")
    }
    assert json.loads(stored["extra"]) == fields["extra"]


def test_database_that_cannot_be_read_is_one_line(monkeypatch):
    monkeypatch.setattr(connections.airflow_home, "AIRFLOW", ("sh", "-c", "echo no database >&2; exit 1"))
    with pytest.raises(RunFailed, match=r"^Airflow's connections cannot be read: no database$"):
        connections.stored(["node"])
    monkeypatch.setenv("AIRFLOW_CONN_NODE", "{}")
    assert connections.stored(["node"]) == {}, "the environment has it"
