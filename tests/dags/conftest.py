"""An AIRFLOW_HOME of its own for every test process, made before anything imports Airflow."""

import json
import os
import sys
import tempfile
from types import SimpleNamespace

import pytest

from infra.airflow.airflow_home import location, prepare, write_configuration
from infra.checkout import ROOT
from reports.pages import PROFILE_DAG
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import DAG_ID

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
write_configuration(location())


@pytest.fixture
def lockstep_home(tmp_path, monkeypatch):
    """An empty LOCKSTEP_HOME, and the connections of the form, with a secret in each."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "lockstep"))
    for name, kind in (("LOCAL", "generic"), ("SPARK_DEFAULT", "spark")):
        connection = {"conn_type": kind, "password": "a secret of this connection"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{PREFIX.upper()}{name}", json.dumps(connection))
    return Home(tmp_path / "lockstep")


@pytest.fixture
def hasty(monkeypatch):
    """Airflow waits seconds between its tries to connect."""
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.fixture(scope="session")
def airflow_home():
    """AIRFLOW_HOME with its database, connections and pools."""
    prepare(location() / "prepare.log")
    return location()


@pytest.fixture(scope="session")
def dags(airflow_home):
    """dag_id -> DAG of everything in dags/."""
    from airflow.dag_processing.dagbag import DagBag

    sys.path.insert(0, str(ROOT / "dags"))
    bag = DagBag(dag_folder=str(ROOT / "dags"), load_op_links=False)
    assert bag.import_errors == {}
    return bag.dags


@pytest.fixture(scope="session")
def known_dag(dags):
    """The DAG of the regression. Airflow's database knows it, the nightly DAG, and that behind the button of a cell."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    known = [dags[DAG_ID], dags[f"{DAG_ID}_nightly"], dags[PROFILE_DAG]]
    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)
        session.flush()
        bundle = session.query(DagBundleModel).first().name
        lazy = [LazyDeserializedDAG.from_dag(dag) for dag in known]
        SerializedDAG.bulk_write_to_db(bundle, None, lazy, session=session)
        for dag in lazy:
            SerializedDagModel.write_dag(dag, bundle_name=bundle, session=session)
    return known[0]
