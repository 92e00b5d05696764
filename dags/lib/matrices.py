"""Named matrices as Airflow's users meet them: saved from a form, listed in a DAG's text."""

from __future__ import annotations

from dags.lib.form import regression_of
from infra.checkout import home
from streaming_core.errors import BadInput
from streaming_core.regression import matrices
from streaming_core.storage import canonical_json


def save_matrix(context) -> str:
    """Keeps the matrix that the form names as the form says; one line on what is kept.

    Raises:
        AirflowFailException: one line on what is wrong with the params.
    """
    from airflow.sdk.exceptions import AirflowFailException

    params, run = dict(context["params"]), context["dag_run"]
    name = params.get("matrix") or ""
    fields = regression_of(params, run.conf)
    try:
        before = {} if params["afresh"] or name not in matrices.names(home()) else matrices.load(home(), name).fields
        saved = matrices.save(home(), name, before | fields, run.triggering_user_name or "")
    except BadInput as error:
        raise AirflowFailException(str(error)) from None
    said = f"matrix {saved.name}, version {saved.version}: {canonical_json(saved.fields)}"
    print(said)
    return said


def table() -> str:
    """Every matrix there is, in Markdown."""
    lines = []
    for name in matrices.names(home()):
        try:
            found = matrices.load(home(), name)
        except BadInput as error:  # a file that somebody has spoilt takes no DAG along
            lines.append(f"| {name} | | {error} |")
            continue
        fields = canonical_json(found.fields).replace("`", "'").replace("|", "\\|")
        lines.append(f"| {name} | {found.version} | `{fields}` |")
    return "\n".join(["| matrix | version | differs from the form's defaults |", "|---|---|---|", *lines])
