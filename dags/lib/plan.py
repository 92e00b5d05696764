"""Plans a run at its start and judges it at its end."""

from __future__ import annotations

import json

from dags.lib.form import regression_of
from infra import checkout
from infra.checkout import home
from streaming_core.errors import BadInput
from streaming_core.regression.home import new_run_id
from streaming_core.regression.matrices import request
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.stages import AFTER_CELLS, Stage


def plan_run(context) -> list[dict]:
    """Validates the run's params, writes runs/<run id>/plan.json and names the cells to run. What is refused is a run,
    too, with pages that say why: that is where people look.

    The run id follows from the Airflow run alone, so that a task that is run again finds what it left.

    Returns:
        One mapping per cell: cell, app, workload, spec. The run id goes into the XCom `run_id`.

    Raises:
        AirflowFailException: one line on what is wrong with the params.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from dags.lib import hosts
    from dags.lib.stages import noted
    from reports.estimate import estimate
    from reports.publish import publish
    from streaming_core.regression.matrix import omissions, plan, refuse

    params = dict(context["params"])
    run_id, origin, named = run_id_of(context), context["dag_run"].run_id, params.get("matrix")
    with noted(run_id, Stage.PLAN_MATRIX):
        asked = regression_of(params, context["dag_run"].conf)
        try:
            wanted = request(checkout.MATRICES, home(), asked, named)
            hosts.check(params["host"], params["spark"], home())
            # A task that is cleared and run again finds its own plan.
            regression = wanted.regression
            planned = _planned(run_id, regression) or plan(regression, home(), run_id, origin, wanted.matrix)
        except BadInput as error:
            refuse(home(), run_id, origin, asked | ({"matrix": named} if named else {}), str(error))
            publish(home(), run_id)
            raise AirflowFailException(str(error)) from None
        print(estimate(home(), planned, hosts.name(params["host"], home())))
        for line in omissions(planned):
            print(f"left out: {line}")
    context["ti"].xcom_push("run_id", run_id)
    return [
        {"cell": cell["cell"], "app": cell["spec"]["app"], "workload": cell["workload"], "spec": cell["spec"]}
        for cell in planned["cells"]
    ]


def run_id_of(context) -> str:
    """What Lockstep calls the run."""
    return new_run_id(context["dag_run"].run_id, context["dag_run"].run_after.timestamp())


def _planned(run_id: str, regression: RegressionSpec) -> dict | None:
    try:
        known = json.loads((home().run(run_id) / "plan.json").read_text())
    except FileNotFoundError:
        return None
    return known if known["regression"] == regression.model_dump(mode="json") else None


def judge_run(context) -> dict:
    """The run's verdict: returns the counts per verdict when every planned cell is equal or a declared bound.

    Raises:
        AirflowFailException: with the sentence that the overview page opens with.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from reports.history import History

    ti = context["ti"]
    try:
        run = History(home()).run(run_id_of(context))
    except BadInput:
        raise AirflowFailException(
            "nothing was planned: the run was ended before, or the log of plan_matrix says why"
        ) from None
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(AFTER_CELLS), run_ids=[ti.run_id]).get(ti.run_id, {})
    broken = [name for name in AFTER_CELLS if states.get(name) != "success"]
    if not run.green:
        raise AirflowFailException(run.sentence)
    if broken:
        raise AirflowFailException(f"{run.sentence}; but {', '.join(broken)} did not succeed")
    return run.counts
