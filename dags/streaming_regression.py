"""The regression: run every planned cell and compare its result with the sequential oracle."""

from datetime import timedelta

from airflow.sdk import DAG, Asset, TaskGroup, TriggerRule, get_current_context, task

from dags.lib.alerts import Alert
from dags.lib.form import regression_params
from dags.lib.operators import RETRIES, CoreRun, Job, SparkServer, Verdict, stop_server
from dags.lib.plan import judge_run, plan_run, run_id_of
from streaming_core.regression.stages import DAG_ID, Stage

VALIDATED = Asset("lockstep/validated")
RUN = f"{{{{ ti.xcom_pull(task_ids='{Stage.PLAN_MATRIX}', key='run_id') }}}}"
CELL_LIMIT = timedelta(minutes=30)

with DAG(
    dag_id=DAG_ID,
    dag_display_name="1 Regression: every cell against the oracle",
    description="Run the matrix, compare every cell with the sequential oracle, keep the history of its speed.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=regression_params(),
    default_args={"execution_timeout": timedelta(hours=1), "retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(task_id=Stage.PLAN_MATRIX, execution_timeout=timedelta(minutes=5))
    def plan_matrix() -> list[dict]:
        """Validates the form, writes the plan, names the cells."""
        return plan_run(get_current_context())

    def job(stage: Stage, module: str, *arguments: str, **kwargs) -> Job:
        """A task that runs `python -m MODULE ARGUMENTS`."""
        return Job(task_id=stage, run=RUN, arguments=["-m", module, *arguments], **{**RETRIES, **kwargs})

    def group(name: str) -> TaskGroup:
        """A box in Airflow's graph. The ids of the tasks inside stay as they are."""
        return TaskGroup(group_id=name, prefix_group_id=False)

    with group("prepare"):
        # Waits for the lock on LOCKSTEP_HOME, so its timeout is that of the whole run before it.
        spark_server = SparkServer(
            task_id=Stage.SPARK_SERVER,
            run=RUN,
            conn_id="{{ params.spark }}",
            execution_timeout=timedelta(hours=7),
            **RETRIES,
        ).as_setup()
        prepare_workloads = job(Stage.PREPARE_WORKLOADS, "jobs.prepare_workloads", "--run", RUN)
        # On red too: a workload that could not be made does not take the others along.
        run_oracle = job(Stage.RUN_ORACLE, "jobs.run_oracle", "--run", RUN, trigger_rule=TriggerRule.ALL_DONE)

    # One workload without an oracle does not stop the cells of the others; a run without a plan has no cells.
    cells = plan_matrix()
    run_core = CoreRun.partial(
        task_id=Stage.RUN_CORE,
        run=RUN,
        host="{{ params.host }}",
        limit=CELL_LIMIT.total_seconds(),
        execution_timeout=CELL_LIMIT + timedelta(hours=6),  # it may have to wait for the host
        pool="core_runs",
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.cell }}",
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        **RETRIES,
    ).expand_kwargs(cells)

    # From here on everything runs on red too. Each of these depends on every core run itself: one that waited for
    # another task only would start as soon as that one had failed, while cells still run.
    late = {"trigger_rule": TriggerRule.ALL_DONE}
    with group("judge"):
        validate_outputs = job(Stage.VALIDATE_OUTPUTS, "jobs.validate_outputs", "--run", RUN, **late)
        load_metrics = job(Stage.LOAD_METRICS, "jobs.load_metrics", "--run", RUN, spark=False, **late)
        expectations = job(Stage.EXPECTATIONS, "expectations", "--run", RUN, **late)
        dbt_build = job(Stage.DBT_BUILD, "infra.services.warehouse", "--run", RUN, **late)
    publish_reports = job(Stage.PUBLISH_REPORTS, "reports.publish", "--run", RUN, spark=False, **late)

    @task(
        task_id=Stage.STOP_SPARK,
        trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS,
        execution_timeout=timedelta(minutes=5),
    )
    def stop_spark(run: str) -> None:
        """Stops the run's Spark server, which releases LOCKSTEP_HOME."""
        stop_server(run)

    # Fails unless every planned cell is equal to the oracle or a declared bound; nothing else emits the asset. Who ends
    # a run from outside skips all tasks but teardowns, and a run of skipped tasks is a success to Airflow: so this is a
    # teardown, whose failure is the run's.
    verdict = Verdict(
        task_id=Stage.VERDICT,
        run=RUN,
        judge=judge_run,
        outlets=[VALIDATED],
        on_failure_callback=Alert(run_id_of),
        on_success_callback=Alert(run_id_of),
        execution_timeout=timedelta(minutes=5),
        retries=0,
    ).as_teardown(on_failure_fail_dagrun=True)

    end = stop_spark(RUN).as_teardown(setups=spark_server)

    cells >> spark_server >> prepare_workloads >> run_oracle >> run_core
    run_core >> validate_outputs >> load_metrics >> expectations >> dbt_build >> publish_reports >> end >> verdict
    run_core >> [load_metrics, expectations, dbt_build, publish_reports, end, verdict]
    publish_reports >> verdict
