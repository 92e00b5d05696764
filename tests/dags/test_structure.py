"""The structure of the DAGs, whatever their tasks do."""

import ast
import itertools
from datetime import timedelta

import pytest
from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import TriggerRule
from airflow.serialization.serialized_objects import DagSerialization

from dags.lib.form import regression_params
from infra.checkout import MATRICES, ROOT
from infra.fields import regression_of
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression import matrices, matrix
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX, named
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.stages import DAG_ID, ON_SPARK, Stage
from streaming_core.run.way import AXES

STAGES = list(Stage)
AFTER_CORE = STAGES[STAGES.index(Stage.RUN_CORE) + 1 :]


@pytest.fixture
def dag(dags):
    return dags[named("streaming_regression")]


def test_stages_are_complete_and_sequential(dag):
    assert set(dag.task_ids) == set(STAGES)
    for before, after in itertools.pairwise(STAGES):
        assert before in dag.get_task(after).get_flat_relative_ids(upstream=True), f"{after} overlaps with {before}"


def test_verdict_is_the_only_leaf_and_alone_emits_the_asset_of_green_runs(dag):
    assert [task.task_id for task in dag.leaves] == ["verdict"]
    emits = {task.task_id: [asset.name for asset in task.outlets] for task in dag.tasks if task.outlets}
    marts = ("cells", "latency", "quality", "quarantine", "runs", "speed", "throughput", "verdicts")
    assert emits == {
        "dbt_build": [named(f"lockstep/marts/{name}") for name in marts],
        "speed_gate": [named("lockstep/speed_gate")],
        "verdict": [named("lockstep/validated")],
    }


@pytest.mark.parametrize("stage", AFTER_CORE)
def test_stages_after_the_core_runs_wait_for_all_of_them_and_run_on_red(dag, stage):
    task = dag.get_task(stage)
    assert "run_core" in task.upstream_task_ids
    assert stage == Stage.RUN_ON_SPARK or Stage.RUN_ON_SPARK in task.upstream_task_ids
    teardown = stage in ("stop_spark", "verdict")
    wanted = TriggerRule.ALL_DONE_SETUP_SUCCESS if teardown else TriggerRule.ALL_DONE
    assert task.trigger_rule == wanted


def test_server_start_is_a_setup_and_its_stop_a_teardown(dag):
    assert dag.get_task("spark_server").is_setup
    stop = dag.get_task("stop_spark")
    assert stop.is_teardown
    assert "spark_server" in stop.upstream_task_ids
    for stage in STAGES[STAGES.index("prepare_workloads") : STAGES.index("stop_spark")]:
        assert stage in stop.get_flat_relative_ids(upstream=True), f"{stage} may outlive the server"


def test_lanes_are_mapped_over_hosts_and_named_after_them(dag):
    task = dag.get_task("run_core")
    assert task.is_mapped
    assert list(task.expand_input.value) == ["host"]
    assert task.partial_kwargs.get("pool") in (None, "default_pool")
    assert task.partial_kwargs.get("max_active_tis_per_dagrun") is None
    assert task.partial_kwargs["map_index_template"] == "{{ task.host }}"


def test_only_lost_connections_are_retried(dag):
    for task in dag.tasks:
        arguments = task.partial_kwargs if task.is_mapped else vars(task)
        if not arguments["retries"]:
            continue
        policy = arguments["retry_policy"]
        assert policy.evaluate(ConnectionResetError(), 1, 3).action.value == "retry", task.task_id
        for error in (RuntimeError("exit code 1"), ValueError("bad input"), TimeoutError("hung")):
            assert policy.evaluate(error, 1, 3).action.value == "fail", task.task_id


def test_spark_task_uses_an_operator_or_hook_of_the_airflow_provider(dag):
    for stage in Stage:
        task = dag.get_task(stage)
        if task.is_mapped:
            continue
        through = isinstance(task, PySparkOperator) or isinstance(getattr(task, "hook", None), SparkConnectHook)
        assert through == (stage in ON_SPARK), stage
        if through:
            assert task.conn_id == "{{ params.spark }}"


def test_no_other_module_of_the_dags_starts_a_session_by_itself():
    """A session that an operator of the provider did not make would not follow the connection."""
    for path in [*(ROOT / "dags").rglob("*.py"), *(ROOT / "jobs").glob("*.py"), *(ROOT / "expectations").rglob("*.py")]:
        if path not in (ROOT / "jobs" / "session.py", ROOT / "jobs" / "invariants.py"):  # the latter is for commands
            text = path.read_text()
            assert "spark_session(" not in text, path
            assert "builder" not in text or "SparkSession" not in text, path


def test_only_runs_of_the_regression_overlap_and_every_dag_survives_serialization_and_has_timeouts(dags):
    for dag in dags.values():
        assert dag.max_active_runs == (4 if dag.dag_id == DAG_ID else 1)
        again = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        assert set(again.task_ids) == set(dag.task_ids)
        for task in dag.tasks:
            timeout = task.partial_kwargs["execution_timeout"] if task.is_mapped else task.execution_timeout
            most = timedelta(hours=12)
            if isinstance(task, HITLOperator):  # a person may be away
                timeout, most = task.response_timeout, timedelta(days=7)
            assert timedelta(0) < timeout <= most, f"{dag.dag_id}.{task.task_id}"


def test_nightly_starts_the_same_graph_for_every_application(dags, tmp_path):
    night = dags[named("streaming_regression_nightly")]
    (task,) = night.tasks
    assert (task.trigger_dag_id, task.conf) == (DAG_ID, {"matrix": "nightly"})
    cells, left_out = matrix.cells(matrices.request(MATRICES, Home(tmp_path), {}, "nightly").regression)
    assert {cell.app for cell in cells} == set(registry.names())
    assert left_out == []
    assert task.wait_for_completion
    assert (night.timetable.expression, str(night.timetable.timezone)) == ("0 2 * * *", "UTC")
    assert not night.catchup
    (deadline,) = night.deadline
    assert (deadline.interval, deadline.callback.path) == (timedelta(hours=5), "dags.lib.alerts.late")


def test_form_has_every_field_of_the_model_and_all_may_stay_empty(dag):
    params = dag.params
    assert set(params) == {"matrix", *RegressionSpec.model_fields, "spark"}
    sent = params.validate()  # every default against its own JSON schema
    assert RegressionSpec.parse(regression_of(sent)) == RegressionSpec()
    for name in params:
        schema = params.get_param(name).schema
        assert schema["title"], name
        assert params.get_param(name).description, name
    for axis, strategies in AXES.items():
        assert set(params.get_param(f"{axis}s").schema["examples"]) == {"all", *strategies}


def fields_of(dags):
    """(DAG without the prefix, field, its value and schema) of every form."""
    for dag in dags.values():
        for name in dag.params:
            yield dag.dag_id.removeprefix(PREFIX), name, dag.params.get_param(name)


def test_unchanged_form_can_be_sent_unless_a_value_is_really_required(dags):
    """Airflow's form requires each field whose type lacks null, and sends none while one of these is empty."""
    required = set()
    for dag, name, param in fields_of(dags):
        if "null" not in param.schema["type"] and param.resolve(suppress_exception=True) in (None, "", []):
            required.add((dag, name))
            assert "Required." in param.description
    assert required == {
        ("import_data", "application"),
        ("import_data", "name"),
        ("speed_gate", "against"),
        ("profile_cell", "cell"),
    }


def test_form_never_changes_a_typed_value(dags):
    """The form moves a number into `minimum` and `maximum`, cuts a text at `maxLength`, and chooses the first option
    that contains the typed text."""
    for dag, name, param in fields_of(dags):
        assert not {"minimum", "maximum", "maxLength"} & param.schema.keys(), (dag, name)
        options = [str(option) for option in param.schema.get("examples") or param.schema.get("enum") or ()]
        for before, option in itertools.combinations(options, 2):
            assert option not in before, (dag, name)


def test_main_dags_come_first_in_the_list_and_every_dag_has_a_description(dags):
    by_name = sorted(dags.values(), key=lambda dag: dag.dag_display_name)
    names = [dag.dag_id.removeprefix(PREFIX) for dag in by_name]
    main = ["streaming_regression", "streaming_regression_nightly", "acknowledge_run", "speed_gate"]
    main += ["profile_cell", "import_data", "back_up_history", "retention", "freshness", "digest"]
    assert names == main
    for dag in by_name:
        assert dag.dag_display_name != dag.dag_id
        assert dag.description.endswith(".")


def test_form_lists_matrices_and_imports(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    assert regression_params()["matrix"].schema["enum"] == [None, "full", "nightly", "numa", "review", "smoke"]
    assert regression_params()["data"].schema["examples"] == []
    for name, app in (("tweets", "wc"), ("march", "gs"), ("nightly-wc", "wc"), (".unfinished", "wc")):
        (tmp_path / "imported" / name).mkdir(parents=True)
        (tmp_path / "imported" / name / "manifest.json").write_text(f'{{"imported": {{"application": "{app}"}}}}')
    data = regression_params()["data"]
    assert data.schema["examples"] == ["gs/march", "wc/nightly-wc", "wc/tweets"]
    for value in (["wc/tweets", "gs/march"], {"wc": "tweets", "gs": "march"}):
        fields = regression_of({"matrix": None, "data": data.resolve(value)})
        assert RegressionSpec.parse(fields).data == {"wc": "tweets", "gs": "march"}


@pytest.mark.parametrize("matrix", [None, "smoke"])
def test_form_without_an_import_leaves_data_to_the_matrix(matrix):
    sent = {name: param.value for name, param in regression_params().items()} | {"matrix": matrix, "data": []}
    assert "data" not in regression_of(sent)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (["tweets"], "data: an import must have the form APPLICATION/NAME, got 'tweets'"),
        ([7], "data: an import must have the form APPLICATION/NAME, got 7"),
        (["wc/a", "wc/b"], "data: application wc can use only one import, got 'a' and 'b'"),
        (
            ["wc/../b"],
            "data: invalid import wc/../b; use letters, digits, '.', '_' and '-', with a letter or digit first",
        ),
    ],
)
def test_unknown_import_is_refused_in_one_line(data, sentence):
    with pytest.raises(BadInput) as refused:
        RegressionSpec.parse({"data": data})
    assert str(refused.value) == sentence


def test_lines_of_the_form_become_the_values_of_a_list():
    typed = {"applications": ["wc", ""], "threads": [" 12", "3", "", "6"], "hosts": ["node", " "], "events": "5000"}
    regression = RegressionSpec.parse(regression_of(typed))
    assert (regression.applications, regression.threads, regression.hosts) == (["wc"], [3, 6, 12], ["node"])
    assert regression.events == 5000


def test_dag_files_import_only_public_airflow_modules():
    for path in (ROOT / "dags").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("airflow"):
                assert node.module == "airflow.sdk" or node.module.startswith("airflow.providers."), path.name
            assert not isinstance(node, ast.Import), f"{path.name} is wiring only"
