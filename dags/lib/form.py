"""The trigger form: the fields of RegressionSpec, the named matrix, and the Airflow connection of Spark.

Titles, descriptions, bounds and defaults come from the model, so the form offers only valid values. The API can send
other values, so the task `plan_matrix` validates them again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context

from infra import checkout
from infra.airflow import connections
from infra.fields import CHOICES, OF_RUN, description
from reports.estimate import of_matrix
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression import matrices, matrix
from streaming_core.regression.fleet import LOCAL
from streaming_core.regression.project import TAG, labelled, named
from streaming_core.regression.request import FIELD_OPTIONS, HOST_NAME, RegressionSpec
from streaming_core.run.way import OPTION_EXECUTORS

# The form first shows the fields without a section; the sections below them are closed.
SECTIONS = {
    **{field: f"Executor {OPTION_EXECUTORS[option]}" for field, option in FIELD_OPTIONS.items()},
    "seed": "Workload",
    "params": "Workload",
    "data": "Workload",
    "repetitions": "Measuring",
    "seconds": "Measuring",
    "rate": "Measuring",
    "hosts": "Where",
    "placement": "Where",
    "gate_minutes": "Speed gate",
    "gate_against": "Speed gate",
}
# The values that the form offers for each list field.
OFFERED = {
    **CHOICES,
    "applications": [registry.ALL, *registry.names()],
    "threads": [1, 2, 4, 8, 16, 32, 64, 128],
    "batches": [1, 16, 64, 256, 1024, 4096],
    "hosts": [registry.ALL, LOCAL],
}
CELL = "gs.transactional.serial.t2.0123abcd"  # for descriptions
# Airflow reads the DAG file, and the lists, every 30 s (min_file_process_interval).
LISTED_LATER = "A new {} appears in the list within a minute."
KEEP = ("minimum", "maximum", "minItems", "maxItems", "enum")


def regression_params() -> dict[str, Param]:
    """The DAG params of a regression run. Every default is valid, because scheduled runs use the defaults."""
    properties = RegressionSpec.model_json_schema()["properties"]
    fields = {
        "matrix": Param(
            None,
            type=["string", "null"],
            title="Matrix",
            description="A file of values in dags/matrices. It replaces the defaults of the fields below. Fields that "
            f"you change override it. {LISTED_LATER.format('file')}",
            enum=[None, *matrices.names(checkout.MATRICES)],
            values_display=_about_matrices(),
        )
    }
    fields |= {name: _param(name, properties[name], default) for name, default in _defaults().items()}
    fields["data"] = _imports()
    fields["spark"] = spark_param()
    return fields


def _cells_of(fields: dict[str, Any], named: str | None = None) -> int:
    regression = matrices.request(checkout.MATRICES, checkout.home(), fields, named).regression
    return len(matrix.cells(regression, matrix.imported(regression, checkout.home()))[0])


def _about_matrices() -> dict[str, str]:
    """A line of the form for each valid matrix: its cells, and how long its last run took.

    The cells of a matrix take a quarter of a second. A task parses the DAG file, too, and shows no form.
    """
    if get_parsing_context().task_id is not None:
        return {}
    texts = {"null": f"none: {_cells_of({})} cells with the defaults"}
    for name in matrices.names(checkout.MATRICES):
        with suppress(BadInput):
            texts[name] = of_matrix(checkout.home(), name, _cells_of({}, name))
    return texts


def spark_param() -> Param:
    """The field `spark`."""
    return Param(
        connections.DEFAULTS["spark"],
        type="string",
        title="Spark",
        pattern=f"^{connections.NAME}$",
        description="The Airflow connection of the Spark to use: type spark for a master, or spark_connect for a Spark "
        "Connect server.",
        examples=[connections.DEFAULTS["spark"]],
        section="Where",
    )


def _imports() -> Param:
    """The field `data`: in the form, a list of imports to choose from; through the API, the object of the model too."""
    names = [f"{path.parent.name}/{path.name}" for path in checkout.home().root.glob("imported/[!.]*/[!.]*")]
    description = (
        "Imports to use instead of generated events, one per application at most. `lockstep import --name` makes one."
    )
    if not names:
        description += " There is no import yet."
    return Param(
        None,
        type=["array", "object", "null"],
        title="Data",
        description=f"{description} {LISTED_LATER.format('import')}",
        examples=sorted(names),
        section=SECTIONS["data"],
    )


def form_dag(name: str, title: str, description: str, documentation: str | None, params: dict[str, Param]) -> DAG:
    """A DAG that a person triggers with a form: one run at a time, without retries.

    Args:
        name: The last part of its id.
        title: Its name on Airflow's pages.
        description: One sentence on what it does.
        documentation: Markdown, the docstring of its file.
        params: The fields of the form.
    """
    return DAG(
        dag_id=named(name),
        dag_display_name=labelled(title),
        description=description,
        doc_md=documentation,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params=params,
        default_args={"retries": 0},
        is_paused_upon_creation=False,
        tags=[TAG],
    )


def run_params(about_run: str, about_cells: str) -> dict[str, Param]:
    """The optional fields for a run and its cells.

    Args:
        about_run: The default of the field for the run.
        about_cells: The default of the field for the cells.
    """
    run = Param(
        None,
        type=["string", "null"],
        title="Run",
        description=f"The id of a run, as the overview shows it. {about_run}",
        maxLength=40,
    )
    cells = Param(
        None,
        type=["string", "null"],
        title="Cells",
        description=f"Names of cells, such as {CELL}, separated by commas. {about_cells}",
    )
    return {"run": run, "cells": cells}


def regression_of(params: dict, conf: dict | None) -> dict:
    """The fields of RegressionSpec in a run's params; with a matrix, only the fields that override it.

    A caller of the API sends only these fields. The form sends every field, so the fields that differ from their
    defaults override the matrix.
    """
    fields = {name: value for name, value in params.items() if name not in OF_RUN and value is not None}
    if fields.get("data") == []:  # no import chosen from the list
        del fields["data"]
    if not params.get("matrix"):
        return fields
    sent = {name: value for name, value in fields.items() if name in (conf or {})}
    defaults = _defaults()
    if defaults.keys() <= (conf or {}).keys():
        return {name: value for name, value in sent.items() if name not in defaults or value != defaults[name]}
    return sent


def _defaults() -> dict[str, Any]:
    """The default of every field of RegressionSpec."""
    return {name: field.get_default(call_default_factory=True) for name, field in RegressionSpec.model_fields.items()}


def _param(name: str, schema: dict, default: object) -> Param:
    kept = {key: schema[key] for key in KEEP if key in schema}
    kept |= {"title": name.replace("_", " ").capitalize(), "description": description(name)}
    if name in SECTIONS:
        kept["section"] = SECTIONS[name]
    if schema["type"] == "array":
        kept["items"] = {"type": schema["items"]["type"]}
        kept["examples"] = OFFERED[name]
        if name in CHOICES:
            kept["items"]["enum"] = CHOICES[name]
        elif name == "hosts":
            kept["items"]["pattern"] = f"^{HOST_NAME.pattern}$"
        elif schema["items"]["type"] == "integer":
            # The form sends values of a list as text; `plan_matrix` reads them as numbers.
            kept["items"] = {"type": ["integer", "string"], "pattern": "^[0-9]+$"}
        return Param(default, type="array", **kept)
    if schema["type"] == "object":
        # The form cannot submit an empty object as a default.
        return Param(default or None, type=["object", "null"], **kept)
    return Param(default, type=schema["type"], **kept)
