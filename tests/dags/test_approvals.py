"""The questions to Airflow's users before a decision, and the effect of their answers."""

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, ParamValidationError

from dags.lib import approvals
from infra.gate import measurement
from infra.hosts.build import Build
from reports.history import History
from streaming_core.regression import decisions
from streaming_core.regression.project import named
from tests.reports import past_runs


def answered(choice: str, why: str = "it is fine") -> dict:
    """The operator's XCom, in the format of Airflow."""
    return {"chosen_options": [choice], "params_input": {"why": why}, "responded_by_user": {"id": "7", "name": "ada"}}


@pytest.mark.parametrize("why", ["", " \n", "x" * 501])
def test_answer_without_a_reason_records_nothing(lockstep_home, why):
    past_runs.make(lockstep_home)
    put = approvals.red_cells("", "")
    with pytest.raises(AirflowFailException, match="reason"):
        approvals.acknowledge(put, answered("Acknowledge", why))
    assert decisions.decisions(lockstep_home) == []


def test_negative_answer_records_nothing(lockstep_home):
    past_runs.make(lockstep_home)
    with pytest.raises(AirflowSkipException, match="ada chose 'Do nothing', so nothing was recorded; reason: later"):
        approvals.acknowledge(approvals.red_cells("", ""), answered(approvals.NO, "later"))
    assert decisions.decisions(lockstep_home) == []


@pytest.mark.parametrize("user", [None, {}, {"id": "", "name": ""}])
def test_response_without_an_airflow_user_records_nothing(lockstep_home, monkeypatch, user):
    monkeypatch.setenv("LOGNAME", "impostor")
    past_runs.make(lockstep_home)
    proposal = approvals.red_cells("", "")
    with pytest.raises(AirflowFailException, match="Airflow does not name the user of this response"):
        approvals.acknowledge(proposal, answered("Acknowledge") | {"responded_by_user": user})
    assert decisions.decisions(lockstep_home) == []


@pytest.mark.slow
def test_only_the_red_cells_of_the_question_are_acknowledged(lockstep_home):
    past_runs.make(lockstep_home)
    every = approvals.red_cells("", "")
    assert every["run"] == past_runs.LAST
    assert every["subject"] == "Acknowledge 3 red cells of the run of 2026-01-05 02:00 UTC?"
    cell = approvals.red_cells(past_runs.LAST, every["cells"][1])
    assert approvals.acknowledge(cell, answered("Acknowledge")) == (
        f"run {past_runs.LAST}: ada acknowledged 1 red cell: it is fine"
    )
    assert list(decisions.acknowledgements(lockstep_home)) == [(past_runs.LAST, every["cells"][1])]


@pytest.mark.parametrize(
    ("run_id", "names", "message"),
    [
        ("../../etc", "", "no run '../../etc'"),
        (past_runs.RUN_IDS[0], "", "has no red cells"),
        (past_runs.LAST, "nosuch", "has no red cell nosuch"),
    ],
)
def test_invalid_request_fails_before_it_asks_a_person(lockstep_home, run_id, names, message):
    past_runs.make(lockstep_home)
    with pytest.raises(AirflowFailException, match=message):
        approvals.red_cells(run_id, names)


@pytest.mark.parametrize(
    ("ref", "run_id", "message"),
    [
        ("nosuch", "", "'nosuch' is not a commit of "),
        ("HEAD", "../../etc", "no run '../../etc'"),
        ("HEAD", "", "is from build abc423def0123456789, but this checkout is build .*: start a run of this checkout"),
    ],
)
def test_unmeasurable_request_fails_before_any_build(lockstep_home, ref, run_id, message):
    past_runs.make(lockstep_home, red=False)
    with pytest.raises(AirflowFailException, match=message):
        approvals.to_measure(ref, run_id, "")
    assert not lockstep_home.build("x").parent.exists()


def test_question_and_measurement_need_a_run(lockstep_home):
    with pytest.raises(AirflowFailException, match="no run has red cells"):
        approvals.red_cells("", "")
    with pytest.raises(AirflowFailException, match="has no run yet"):
        approvals.to_measure("HEAD", "", "")


def test_newest_run_is_measured_by_default(lockstep_home, monkeypatch):
    past_runs.make(lockstep_home, red=False)
    build, host = History(lockstep_home).run(past_runs.LAST).build, "node1"
    monkeypatch.setattr(measurement, "checkout", lambda: Build(build, lockstep_home.root))
    monkeypatch.setattr(measurement, "gethostname", lambda: host)
    newest = approvals.to_measure("HEAD", "", " ")
    assert newest["run"] == past_runs.LAST
    equal = newest["cells"].split(",")
    assert len(equal) > 2
    assert approvals.to_measure("HEAD", past_runs.LAST, f"{equal[1]}, {equal[0]}")["cells"] == ",".join(equal[:2])


@pytest.mark.parametrize(
    ("setting", "users"), [("", None), (" , ", None), ("ann", ["ann"]), (" ann, ben,", ["ann", "ben"])]
)
def test_only_the_configured_approvers_may_respond(monkeypatch, setting, users):
    monkeypatch.setenv("LOCKSTEP_APPROVERS", setting)
    assigned = approvals.question("red_cells", "Acknowledge").assigned_users
    assert (assigned and [user["id"] for user in assigned]) == users


def test_gate_command_receives_commit_run_and_cells(dags):
    dag = dags[named("speed_gate")]
    assert dag.params.get_param("against").schema["title"] == "Against"
    with pytest.raises(ParamValidationError):
        dag.params.validate()
    arguments = dag.get_task("gate").arguments
    assert arguments[:3] == ["-m", "infra.gate.evaluation", "{{ params.against }}"]
