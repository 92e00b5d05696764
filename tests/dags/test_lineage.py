"""The data sets of each stage, as the OpenLineage provider asks an operator for them."""

import json

import pytest
from openlineage.client.serde import Serde

from dags.lib.operators import Job
from streaming_core.regression.matrix import refuse
from streaming_core.regression.project import named
from streaming_core.regression.stages import Stage
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.past_runs import LAST


@pytest.fixture
def home(lockstep_home):
    """Five nights; the last one has an import of wc, and an oracle of gs alone."""
    past_runs.make(lockstep_home, data={"wc": "tweets"})
    write_json(lockstep_home.run(LAST) / "oracles.json", {f"gs-{past_runs.EVENTS}": "0123"})
    return lockstep_home


def of_task(stage: str, run: str = LAST) -> tuple[list[dict], list[dict]]:
    """Inputs and outputs of a task, as JSON in events."""
    facets = Job(task_id=stage, run=run, arguments=[]).get_openlineage_facets_on_complete(None)
    return tuple([json.loads(Serde.to_json(data_set)) for data_set in sets] for sets in (facets.inputs, facets.outputs))


def test_data_sets_are_files_below_the_home(home):
    inputs, outputs = of_task(Stage.PREPARE_WORKLOADS)
    assert [data_set["name"] for data_set in inputs] == [str(home.imported("tweets"))]
    names = [home.workload(app, f"{app}-{past_runs.EVENTS}") for app in ("gs", "sl")]
    assert [data_set["name"] for data_set in outputs] == [*map(str, names), str(home.workload("wc", "wc-tweets"))]
    assert {data_set["namespace"] for data_set in (*inputs, *outputs)} == {"file"}
    _, outputs = of_task(Stage.RUN_ORACLE)
    assert [data_set["name"] for data_set in outputs] == [str(home.oracle("gs", "0123"))]


def test_run_is_the_version_of_what_it_adds_to(home):
    inputs, outputs = of_task(Stage.VALIDATE_OUTPUTS)
    versions = {
        data_set["name"]: data_set["facets"].get("version", {}).get("datasetVersion")
        for data_set in (*inputs, *outputs)
    }
    assert versions == {
        str(home.root / "runs"): LAST,
        str(home.oracle("gs", "0123")): None,
        str(home.raw("verdicts")): LAST,
        str(home.raw("violations")): LAST,
    }


def test_run_without_a_plan_has_no_data_sets(home):
    refused = "20260106T020000Z-000000aa"
    refuse(home, refused, "scheduled", {"matrix": "nightly"}, "no such host")
    for run in (refused, "20260107T020000Z-000000bb", "None"):
        assert of_task(Stage.DBT_BUILD, run) == ([], [])


def test_stage_that_is_off_has_no_data_sets(home):
    for stage in (Stage.RUN_ON_SPARK, Stage.SPEED_GATE, Stage.FIND):
        assert of_task(stage) == ([], [])
    past_runs.add(home, "20260108T020000Z-000000aa", gate_minutes=1, find_minutes=1)
    for stage, names in ((Stage.SPEED_GATE, ["pairs"]), (Stage.FIND, ["finds", "searches"])):
        _, outputs = of_task(stage, "20260108T020000Z-000000aa")
        assert [data_set["name"] for data_set in outputs] == [str(home.raw(name)) for name in names]


def test_every_stage_that_reads_or_writes_has_the_method(dags):
    tasks = dags[named("streaming_regression")].tasks
    method = "get_openlineage_facets_on_complete"
    with_lineage = {task.task_id for task in tasks if hasattr(getattr(task, "operator_class", task), method)}
    assert set(Stage) - with_lineage == {Stage.PLAN_MATRIX, Stage.SPARK_SERVER, Stage.STOP_SPARK, Stage.VERDICT}
