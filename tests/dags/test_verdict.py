"""No run is green without a verdict: neither a refused request, nor a run that a person ends."""

import datetime
import json

import pytest
from airflow.utils.state import DagRunState, TaskInstanceState

from infra.airflow import connections
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.regression.project import named
from tests.support.draws import some

# A DAG keeps the conf of its last test.
DEFAULTS = connections.DEFAULTS


@pytest.fixture
def dag(dags):
    return dags[named("streaming_regression")]


@pytest.fixture
def lockstep_home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "lockstep"))
    return Home(tmp_path / "lockstep")


@pytest.mark.slow
def test_refused_request_is_a_red_run_with_the_reason_on_its_page(dag, lockstep_home):
    conf = DEFAULTS | {"applications": ["nosuch"], "threads": ["2", 1]}
    run = dag.test(run_conf=conf)
    assert run.state == DagRunState.FAILED
    states = {task.task_id: task.state for task in run.get_task_instances()}
    assert {name for name, state in states.items() if state == "failed"} == {"plan_matrix", "verdict"}
    assert "success" not in states.values()
    latest = History(lockstep_home).latest()
    assert (latest.origin, latest.green, latest.cells) == (run.run_id, False, [])
    assert latest.sentence.startswith("Refused: unknown application 'nosuch'; known: ")
    for page in ("runs.html", f"{latest.run_id}/index.html"):
        text = (lockstep_home.reports / page).read_text()
        assert "Refused: unknown application" in text
        assert "nosuch" in text
    summary = json.loads((lockstep_home.reports / latest.run_id / "summary.json").read_text())
    assert (summary["green"], summary["sentence"]) == (False, latest.sentence)


@pytest.mark.parametrize("begun", some([True, False]))
@pytest.mark.parametrize("ended", some(["success", "failed"]))
def test_manually_ended_run_still_gets_its_verdict_and_fails(known_dag, begun, ended):
    from airflow.api.common import mark_tasks
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    now = datetime.datetime.now(datetime.UTC)
    with create_session() as session:
        kept = SerializedDagModel.get_dag(known_dag.dag_id, session=session)
        about = {"run_type": DagRunType.MANUAL, "triggered_by": DagRunTriggeredByType.TEST, "run_after": now}
        about |= {"state": DagRunState.RUNNING if begun else DagRunState.QUEUED, "session": session}
        run = kept.create_dagrun(run_id=f"ended-{begun}-{ended}", **about)
        tasks = {task.task_id: task for task in run.get_task_instances(session=session)}
        if begun:
            tasks["plan_matrix"].state = TaskInstanceState.RUNNING
        session.commit()
        end = getattr(mark_tasks, f"set_dag_run_state_to_{ended}")
        end(dag=kept, run_id=run.run_id, commit=True, session=session)
        session.commit()
        tasks = {task.task_id: task for task in run.get_task_instances(session=session)}
        assert tasks["verdict"].state is None
        tasks["verdict"].set_state(TaskInstanceState.FAILED, session=session)
        tasks["stop_spark"].set_state(TaskInstanceState.SKIPPED, session=session)
        run.dag = kept
        run.update_state(session=session)
        assert run.state == DagRunState.FAILED
