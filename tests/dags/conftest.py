"""An AIRFLOW_HOME of its own for every test process, made before anything imports Airflow."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from infra.airflow import home

ROOT = Path(__file__).resolve().parents[2]
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
home.write_configuration(home.location())


@pytest.fixture(scope="session")
def airflow_home():
    """AIRFLOW_HOME with its database, connections and pools."""
    home.prepare(home.location() / "prepare.log")
    return home.location()


@pytest.fixture(scope="session")
def dags(airflow_home):
    """dag_id -> DAG of everything in dags/."""
    from airflow.dag_processing.dagbag import DagBag

    sys.path.insert(0, str(ROOT / "dags"))
    bag = DagBag(dag_folder=str(ROOT / "dags"), load_op_links=False)
    assert bag.import_errors == {}
    return bag.dags
