"""Run a regression: execute every cell of a matrix, and compare each result with the single-threaded oracle.

A *cell* is one application, executed in one way: an executor, its strategies, a batch size and a number of threads. The
run also measures the speed of each cell, tests the results with expectations, and publishes pages under **Lockstep**.

## When to use it

Trigger it by hand to check a change. `lockstep run` triggers the same DAG. The DAG `streaming_regression_nightly`
triggers it every night.

## The form

Every field has a default, so you can trigger the DAG with an unchanged form. The log of `plan_matrix` estimates how
long the run takes.

| section | fields |
|---|---|
| first fields | `Matrix`: a file of values for the other fields. The fields that you change override it. |
| | `Applications`, `Executors`, `Threads`, `Batches`: a cell for each combination that fits. |
| | `Events`: number of generated events per application. |
| Executor ... | The strategies and options of one executor. A list adds a cell for each value. |
| Cores | Whether threads are bound to cores, how they wait, and whether they may outnumber the cores. |
| Workload | `Seed` and `Params` of the generators, or `Data`: your imported events. |
| Measuring | Repetitions, and the seconds that they take at least. |
| Where | Airflow connections of the hosts that run the cells, and of the Spark master. |
| | `Placement`: any free host takes the next cell, or every host runs each cell. |
| Speed gate | Minutes that the speed gate may take after the run, and the commit to compare with. |
| Search for faults | Minutes that the search for faults may take after the speed gate. |

For a quick check, choose the matrix `smoke`. It takes a few minutes.

## If the run is red

1. Open the tab **Lockstep** of the run. Its first sentence names the red cells and the failed stages.
2. If a result differs, open the page of that cell. It shows the first rows that differ, and the events behind them.
3. If a stage failed, open the log of its task. The last line gives the reason.
4. If a host was left out or lost, the page gives the reason. Other hosts run its cells, unless the placement is
   `every`. If a task says that another connection was lost, Airflow has tried it three times. Trigger the run again.
5. If you know the cause and want to keep the run, acknowledge its red cells with the DAG `acknowledge_run`.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, TaskGroup, TriggerRule, get_current_context, task

from dags.lib import jobs
from dags.lib.alerts import Alert
from dags.lib.assets import OF_BUILD, VALIDATED
from dags.lib.form import regression_params
from dags.lib.operators import RETRIES, Job, Lane, Search, SpeedGate, Verdict, release_failed
from dags.lib.plan import judge_run, plan_run, run_id_of
from dags.lib.spark import SparkCells, SparkCommand, SparkJob, SparkServer, stop_server
from streaming_core.regression.project import TAG, labelled
from streaming_core.regression.stages import DAG_ID, Stage

RUN = f"{{{{ ti.xcom_pull(task_ids='{Stage.PLAN_MATRIX}', key='run_id') }}}}"
SPARK = "{{ params.spark }}"
CELL_LIMIT = timedelta(minutes=30)
# What each task does, which Airflow shows beside its log.
TASKS = {
    Stage.PLAN_MATRIX: "Checks the form and the hosts, and writes the plan of the run. It leaves out hosts that cannot "
    "run cells. It fails if the request is invalid. Its error names the field.",
    Stage.SPARK_SERVER: "Starts the Spark server of this run. It waits for commands that need LOCKSTEP_HOME alone, and "
    "for a measurement on this machine.",
    Stage.PREPARE_WORKLOADS: "Generates the events of each application, or copies your imported events. It reuses "
    "workloads of earlier runs. It also checks that Spark can evaluate the invariants.",
    Stage.RUN_ORACLE: "Computes the expected result of each workload on one thread. It reuses earlier results.",
    Stage.RUN_CORE: "Runs cells on one host, one after the other, and measures them. It succeeds if each engine ends "
    "without an error. The task `validate_outputs` checks the results.",
    Stage.RUN_ON_SPARK: "Runs the cells of executor `spark` on the Spark of this run, one after the other. It is "
    "skipped if the run has no such cells.",
    Stage.VALIDATE_OUTPUTS: "Compares the result of each cell with the oracle, and checks the invariants. It fails if "
    "a result differs.",
    Stage.LOAD_METRICS: "Writes the measurements and the verdict of each cell into the raw warehouse.",
    Stage.EXPECTATIONS: "Tests the tables and outputs of the run with Great Expectations.",
    Stage.DBT_BUILD: "Builds the marts with dbt, and tests them. The marts hold the history of speed.",
    Stage.PUBLISH_REPORTS: "Writes the pages of the run, the overview and the performance page.",
    Stage.STOP_SPARK: "Stops the Spark server of the run.",
    Stage.SPEED_GATE: "Compares suspects with the build of the last green night, for `gate_minutes` at most. By "
    "default it does nothing. A slower cell does not fail it.",
    Stage.FIND: "Makes red cells smaller and searches applications for other faults, for `find_minutes` at most. By "
    "default it does nothing. Each find counts as a red cell.",
    Stage.VERDICT: "Fails the run unless every stage succeeded, and every cell is equal to the oracle or is a bound, "
    "and the search found nothing. It sends the alerts.",
}

with DAG(
    dag_id=DAG_ID,
    dag_display_name=labelled("1 Regression: check every cell against the oracle"),
    description="Run every cell of a matrix, compare its result with the oracle, and record its speed.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,  # Airflow's setting max_active_runs_per_dag limits the runs at once
    params=regression_params(),
    # A stage may wait for cells of other runs on its host, and for their writes of the warehouse.
    default_args={"execution_timeout": timedelta(hours=3), "retries": 0},
    is_paused_upon_creation=False,
    tags=[TAG],
) as dag:

    @task(task_id=Stage.PLAN_MATRIX, execution_timeout=timedelta(minutes=5), doc_md=TASKS[Stage.PLAN_MATRIX])
    def plan_matrix() -> list[str]:
        """Check the form and the hosts, write the plan of the run, and list the hosts that run its cells."""
        return plan_run(get_current_context())

    def spark_job(stage: Stage, function: Callable, **kwargs: Any) -> SparkJob:
        """A task that calls a function with a session on the run's Spark server."""
        return SparkJob(
            task_id=stage, run=RUN, conn_id=SPARK, python_callable=function, doc_md=TASKS[stage], **RETRIES, **kwargs
        )

    def command(kind: type[Job], stage: Stage, module: str, **kwargs: Any) -> Job:
        """A task that runs `python -m MODULE --run RUN`."""
        arguments = ("-m", module, "--run", RUN)
        return kind(task_id=stage, run=RUN, arguments=arguments, doc_md=TASKS[stage], **RETRIES, **kwargs)

    def group(name: str) -> TaskGroup:
        """A box in Airflow's graph. The tasks inside keep their ids."""
        return TaskGroup(group_id=name, prefix_group_id=False)

    with group("prepare"):
        # It may wait for a command that waits for the runs in progress, so its timeout allows for a whole run.
        spark_server = SparkServer(
            task_id=Stage.SPARK_SERVER,
            run=RUN,
            conn_id=SPARK,
            execution_timeout=timedelta(hours=7),
            doc_md=TASKS[Stage.SPARK_SERVER],
            **RETRIES,
        ).as_setup()
        prepare_workloads = spark_job(Stage.PREPARE_WORKLOADS, jobs.prepare_workloads)
        # It runs after a failure too, because other workloads may be ready.
        run_oracle = spark_job(Stage.RUN_ORACLE, jobs.run_oracle, trigger_rule=TriggerRule.ALL_DONE)

    # A task per host takes cells from the run's queue. If one workload has no oracle, the cells of the others still
    # run. A run without a plan has no lanes.
    lanes = plan_matrix()
    run_core = Lane.partial(
        task_id=Stage.RUN_CORE,
        run=RUN,
        limit=CELL_LIMIT.total_seconds(),
        execution_timeout=timedelta(hours=12),  # all cells of this machine, or the pieces between two deferrals
        on_failure_callback=release_failed,
        map_index_template="{{ task.host }}",
        doc_md=TASKS[Stage.RUN_CORE],
        trigger_rule=TriggerRule.ALL_DONE_MIN_ONE_SUCCESS,
        **RETRIES,
    ).expand(host=lanes)

    # The following tasks run after a failure too. Each one depends on all core runs. With a dependency on the task
    # before it alone, it would start as soon as that task fails, while cells still run.
    late = {"trigger_rule": TriggerRule.ALL_DONE}
    run_on_spark = SparkCells(
        task_id=Stage.RUN_ON_SPARK,
        run=RUN,
        conn_id=SPARK,
        python_callable=jobs.run_on_spark,
        limit=CELL_LIMIT.total_seconds(),
        execution_timeout=timedelta(hours=12),
        doc_md=TASKS[Stage.RUN_ON_SPARK],
        **RETRIES,
        **late,
    )
    with group("judge"):
        validate_outputs = spark_job(Stage.VALIDATE_OUTPUTS, jobs.validate_outputs, **late)
        load_metrics = command(Job, Stage.LOAD_METRICS, "jobs.load_metrics", **late)
        expectations = spark_job(Stage.EXPECTATIONS, jobs.expectations, **late)
        dbt_build = command(
            SparkCommand, Stage.DBT_BUILD, "infra.history.marts", conn_id=SPARK, outlets=OF_BUILD, **late
        )
    publish_reports = command(Job, Stage.PUBLISH_REPORTS, "reports.publish", **late)

    @task(
        task_id=Stage.STOP_SPARK,
        trigger_rule=TriggerRule.ALL_DONE_SETUP_SUCCESS,
        execution_timeout=timedelta(minutes=5),
        doc_md=TASKS[Stage.STOP_SPARK],
    )
    def stop_spark(run: str) -> None:
        """Stop the run's Spark server, which ends its share in LOCKSTEP_HOME."""
        stop_server(run)

    speed_gate = SpeedGate(
        task_id=Stage.SPEED_GATE,
        run=RUN,
        execution_timeout=timedelta(hours=12),  # it may wait for the host and for the warehouse
        doc_md=TASKS[Stage.SPEED_GATE],
        **late,
    )

    find = Search(
        task_id=Stage.FIND,
        run=RUN,
        execution_timeout=timedelta(hours=12),  # as that of the speed gate
        doc_md=TASKS[Stage.FIND],
        **late,
    )

    # It fails unless every planned cell is equal to the oracle or a declared bound. If a person ends a run, Airflow
    # skips all tasks but teardowns, and a run of skipped tasks succeeds. So this task is a teardown, and its failure
    # fails the run.
    verdict = Verdict(
        task_id=Stage.VERDICT,
        run=RUN,
        judge=judge_run,
        outlets=[VALIDATED],
        on_failure_callback=Alert(run_id_of),
        on_success_callback=Alert(run_id_of),
        execution_timeout=timedelta(minutes=30),  # it may wait for the warehouse
        doc_md=TASKS[Stage.VERDICT],
        retries=0,
    ).as_teardown(on_failure_fail_dagrun=True)

    end = stop_spark(RUN).as_teardown(setups=spark_server)

    lanes >> spark_server >> prepare_workloads >> run_oracle >> run_core
    run_core >> run_on_spark >> validate_outputs >> load_metrics >> expectations >> dbt_build >> publish_reports
    publish_reports >> end >> speed_gate >> find >> verdict
    for cells in (run_core, run_on_spark):
        cells >> [validate_outputs, load_metrics, expectations, dbt_build, publish_reports]
        cells >> [end, speed_gate, find, verdict]
    publish_reports >> verdict
