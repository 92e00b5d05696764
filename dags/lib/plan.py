"""Plans a run at its start and judges it at its end."""

from __future__ import annotations

import json

from airflow.sdk import Asset

from dags.lib.form import regression_of
from infra import checkout
from infra.checkout import home
from streaming_core.errors import BadInput
from streaming_core.regression import matrices
from streaming_core.regression.home import new_run_id
from streaming_core.regression.project import named
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.stages import AFTER_CELLS, Stage
from streaming_core.regression.status import conclude, end, recorded
from streaming_core.regression.warehouse import check_versions
from streaming_core.storage import left_json

# A run emits it when every planned cell is equal to the oracle or a declared bound. The event says which run.
VALIDATED = Asset(named("lockstep/validated"))


def plan_run(context) -> list[dict]:
    """Validate the params of a run, write runs/<run id>/plan.json and list its cells.

    A refused request is a run too: its page gives the reason. The run id follows from the Airflow run alone, so a task
    that runs again finds its earlier plan.

    Returns:
        One mapping per cell: cell, app, workload, spec. The run id goes into the XCom `run_id`.

    Raises:
        AirflowFailException: One line on the first fault in the params, or on raw results of another schema version.
            Such a run has no page, because pages read these results.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from dags.lib import hosts
    from infra.services import build
    from reports.estimate import estimate
    from reports.publish import publish, refresh
    from streaming_core.regression.matrix import omissions, plan, refuse

    try:
        check_versions(home())
    except BadInput as error:
        raise AirflowFailException(str(error)) from None
    params = dict(context["params"])
    run_id, origin, matrix = run_id_of(context), context["dag_run"].run_id, params.get("matrix")
    with recorded(home(), run_id, Stage.PLAN_MATRIX):
        fields = regression_of(params, context["dag_run"].conf)
        try:
            request = matrices.request(checkout.MATRICES, home(), fields, matrix)
            hosts.check(params, home())
            # A task that is cleared and run again finds its own plan.
            regression = request.regression
            if regression.gate_against:
                build.resolve(regression.gate_against)
            planned = _planned(run_id, regression) or plan(regression, home(), run_id, origin, request.matrix)
        except BadInput as error:
            refuse(home(), run_id, origin, fields | ({"matrix": matrix} if matrix else {}), str(error))
            end(home(), run_id, "finished")
            publish(home(), run_id)
            raise AirflowFailException(str(error)) from None
        print(estimate(home(), planned, hosts.name(params["host"], home())))
        for line in omissions(planned):
            print(f"left out of the matrix: {line}")
        refresh(home())
    context["ti"].xcom_push("run_id", run_id)
    return [
        {"cell": cell["cell"], "app": cell["spec"]["app"], "workload": cell["workload"], "spec": cell["spec"]}
        for cell in planned["cells"]
    ]


def run_id_of(context) -> str:
    """Lockstep's id of the run."""
    return new_run_id(context["dag_run"].run_id, context["dag_run"].run_after.timestamp())


def _planned(run_id: str, regression: RegressionSpec) -> dict | None:
    try:
        known = json.loads((home().run(run_id) / "plan.json").read_text())
    except FileNotFoundError:
        return None
    return known if known["regression"] == regression.model_dump(mode="json") else None


def judge_run(context) -> dict:
    """Record how the run ended, and judge it. Publish its pages again if their sentence has changed.

    The asset event of a green run has its id, its build, its hosts, and the number of cells per verdict.

    Returns:
        The number of cells per verdict.

    Raises:
        AirflowFailException: The run is red. The message is the first sentence of its page.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from reports.history import History
    from reports.publish import publish

    ti, run_id = context["ti"], run_id_of(context)
    try:
        refused = History(home()).run(run_id).refused
    except BadInput:
        raise AirflowFailException("the run has no plan: the log of plan_matrix says why") from None
    if not refused:
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(AFTER_CELLS), run_ids=[ti.run_id])
        conclude(home(), run_id, states.get(ti.run_id, {}))
    run = History(home()).run(run_id)
    if left_json(home().report(run_id, "summary.json")).get("sentence") != run.sentence:
        try:
            publish(home(), run_id)
        except Exception as error:  # The verdict below matters more than the pages.
            print(f"the pages of the run could not be written: {error}")
    if not run.green:
        raise AirflowFailException(run.sentence)
    about = {"run": run_id, "build": run.build, "matrix": run.matrix, "hosts": list(run.hosts), "cells": run.counts}
    context["outlet_events"][VALIDATED].extra = about
    return run.counts
