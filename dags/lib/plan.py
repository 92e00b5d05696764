"""Plans a run at its start and judges it at its end."""

from __future__ import annotations

import json
from typing import Any

from dags.lib.assets import VALIDATED, outcome
from infra import checkout
from infra.airflow import connections
from infra.checkout import home
from infra.fields import regression_of
from streaming_core.errors import BadInput
from streaming_core.regression import fleet, matrices, preflight
from streaming_core.regression.home import new_run_id
from streaming_core.regression.lock import hold, of_warehouse
from streaming_core.regression.plan import Plan
from streaming_core.regression.request import RegressionSpec
from streaming_core.regression.stages import AFTER_CELLS, Stage
from streaming_core.regression.status import conclude, end, forget, recorded, records
from streaming_core.regression.warehouse import check_versions
from streaming_core.storage import left_json


def plan_run(context: Any) -> list[str]:
    """Validate the params of a run, look at its hosts, and write runs/<run id>/plan.json and hosts.json.

    A refused request is a run too: its page gives the reason. The run id follows from the Airflow run alone, so a task
    that runs again finds its earlier plan.

    Returns:
        The connections of the hosts that run its cells. The run id goes into the XCom `run_id`.

    Raises:
        AirflowFailException: One line on the first fault in the params, or on raw results of another schema version.
            Such a run has no page, because pages read these results.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from infra.airflow import hosts
    from infra.hosts import build
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
        fields = regression_of(params)
        try:
            request = matrices.request(checkout.MATRICES, home(), fields, matrix)
            regression = request.regression
            if regression.gate_against:
                build.resolve(regression.gate_against)
            connections.check(params | {"hosts": regression.hosts}, hosts.type_of)
            outcomes = {name: hosts.preflight(name, home()) for name in regression.hosts}
            preflight.record(home(), run_id, outcomes.values())
            reasons = [
                f"host {name} cannot run cells: {result.reason}" for name, result in outcomes.items() if result.reason
            ]
            if len(reasons) == len(outcomes):
                raise BadInput("; ".join(reasons))
            # A task that is cleared and run again finds its own plan.
            planned = _planned(run_id, regression) or plan(
                regression, home(), run_id, origin, request.matrix, params.get("spark") or fleet.SPARK, outcomes
            )
        except BadInput as error:
            refuse(home(), run_id, origin, fields | ({"matrix": matrix} if matrix else {}), str(error))
            end(home(), run_id, "finished")
            publish(home(), run_id)
            raise AirflowFailException(str(error)) from None
        fleet.reset(home(), run_id)
        forget(home(), run_id, *(part for part in records(home(), run_id) if part != Stage.PLAN_MATRIX))
        fit = fleet.fit_hosts(home(), run_id)
        print(estimate(home(), planned, [outcomes[name].machine for name in fit]))
        for name, result in outcomes.items():
            if result.reason:
                print(fleet.why_unused(home(), run_id, name))
            elif result.warning:
                print(f"the speeds of this run may be unsteady: {result.warning} on host {name}")
        for line in omissions(planned):
            print(f"left out of the matrix: {line}")
        refresh(home())
    context["ti"].xcom_push("run_id", run_id)
    return fit


def run_id_of(context: Any) -> str:
    """Lockstep's id of the run."""
    return new_run_id(context["dag_run"].run_id, context["dag_run"].run_after.timestamp())


def _planned(run_id: str, regression: RegressionSpec) -> Plan | None:
    try:
        known = json.loads((home().run(run_id) / "plan.json").read_text())
    except FileNotFoundError:
        return None
    return known if known["regression"] == regression.model_dump(mode="json") else None


def judge_run(context: Any) -> dict:
    """Record how the run ended, and judge it. Publish its pages again if their sentence has changed.

    The asset event of a green run has its outcome.

    Returns:
        The number of cells per verdict.

    Raises:
        AirflowFailException: The run is red. The message is the first sentence of its page.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from dags.lib.monitoring import send_metrics
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
    with hold(of_warehouse(home()), Stage.VERDICT, run=run_id):  # another run may build the marts
        run = History(home()).run(run_id)
    if left_json(home().report(run_id, "summary.json")).get("sentence") != run.sentence:
        try:
            publish(home(), run_id)
        except Exception as error:  # The verdict below matters more than the pages.
            print(f"the pages of the run could not be written: {error}")
    send_metrics(run)
    if not run.green:
        raise AirflowFailException(run.sentence)
    context["outlet_events"][VALIDATED].extra = outcome(run)
    return run.counts
