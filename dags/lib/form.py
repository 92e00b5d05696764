"""The trigger form: the fields of RegressionSpec, the named matrix, and the Airflow connection of Spark.

Titles, descriptions and defaults come from the model. The API server validates the values by the model when a run is
triggered (infra/airflow/plugins), and the task `plan_matrix` validates them again. So a Param has no bounds: Airflow's
form would silently move a number into `minimum` and `maximum`, and cut a text at `maxLength`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from airflow.sdk import DAG, Param, get_parsing_context

from infra import checkout, fields
from infra.airflow import connections
from infra.fields import CHOICES, defaults, description
from infra.hosts.judgement import this_machine
from reports.estimate import of_matrix
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression import matrices, matrix
from streaming_core.regression.fleet import LOCAL
from streaming_core.regression.preflight import latest
from streaming_core.regression.project import TAG, labelled, named
from streaming_core.regression.request import FIELD_OPTIONS, RegressionSpec
from streaming_core.run.way import OPTION_EXECUTORS, Transactional
from streaming_core.storage import left_json

# The form first shows the fields without a section; the sections below them are closed.
SECTIONS = {
    **{field: f"Executor {OPTION_EXECUTORS[option]}" for field, option in FIELD_OPTIONS.items()},
    **dict.fromkeys(("pin", "idle", "oversubscribe"), "Cores"),
    "punctuation": f"Executor {Transactional.name()}",
    "seed": "Workload",
    "params": "Workload",
    "data": "Workload",
    "repetitions": "Measuring",
    "seconds": "Measuring",
    "rate": "Measuring",
    "hosts": "Where",
    "checkpoint": "Where",
    "faults": "Where",
    "placement": "Where",
    "gate_minutes": "Speed gate",
    "gate_against": "Speed gate",
    "find_minutes": "Search for faults",
}
CELL = "gs.transactional.serial.t2.0123abcd"  # for descriptions
# Airflow reads the DAG file, and the lists, every 30 s (min_file_process_interval).
LISTED_LATER = "A new {} appears in the list within a minute."


def regression_params() -> dict[str, Param]:
    """The DAG params of a regression run. All fields may stay empty, as in scheduled runs."""
    properties = RegressionSpec.model_json_schema()["properties"]
    fields = {
        "matrix": Param(
            None,
            type=["string", "null"],
            title="Matrix",
            description="A file of values in dags/matrices. It replaces the defaults of the fields below. Fields that "
            f"you fill in override it. {LISTED_LATER.format('file')}",
            enum=[None, *in_order(matrices.names(checkout.MATRICES))],
            values_display=_about_matrices(),
        )
    }
    fields |= {name: _param(name, properties[name], default) for name, default in defaults().items()}
    fields["data"] = _imports()
    fields["spark"] = spark_param()
    return fields


def in_order(options: Iterable[str]) -> list[str]:
    """The options of a list, each behind those that it contains: the form chooses the first that has the typed text."""
    known = list(options)
    return sorted(known, key=lambda option: sum(other in option for other in known))


def bounds(least: float, most: float) -> list[dict[str, float]]:
    """The `allOf` of a Param with these bounds. The form does not read it, and the API server does."""
    return [{"minimum": least, "maximum": most}]


def _cells_of(fields: dict[str, Any], named: str | None = None) -> int:
    home = checkout.home()
    regression = matrices.request(checkout.MATRICES, home, fields, named).regression
    known = latest(home, regression.hosts) | {LOCAL: this_machine(home)}
    return len(matrix.cells(regression, matrix.imported(regression, home), known)[0])


def _about_matrices() -> dict[str, str]:
    """A line of the form for each valid matrix: its cells, and how long its last run took.

    The cells of a matrix take a quarter of a second. A task parses the DAG file, too, and so does `lockstep run`: they
    show no form.
    """
    if get_parsing_context().task_id is not None or not fields.SHOWS_FORM:
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
    manifests = [(path.parent.name, left_json(path)) for path in checkout.home().root.glob("imported/[!.]*/*.json")]
    names = [f"{about['imported']['application']}/{name}" for name, about in manifests if "imported" in about]
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
        examples=in_order(sorted(names)),
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
    )
    cells = Param(
        None,
        type=["string", "null"],
        title="Cells",
        description=f"Names of cells, such as {CELL}, separated by commas. {about_cells}",
    )
    return {"run": run, "cells": cells}


def _param(name: str, schema: dict, default: Any) -> Param:
    """A field of the model. It starts empty, so that what a person enters overrides the matrix: the default, too."""
    about: dict[str, Any] = {"title": name.replace("_", " ").capitalize(), "description": description(name)}
    if name in SECTIONS:
        about["section"] = SECTIONS[name]
    kinds = [schema["type"], "null"]
    if name in CHOICES:
        about["examples"] = in_order(CHOICES[name])
    elif schema["type"] == "array":  # a text area: it sends each line as a text
        values = f": {', '.join([registry.ALL, *registry.names()])}" if name == "applications" else ""
        about["description"] += f" One per line{values}."
    elif schema["type"] in ("integer", "number"):
        # A line of text, because the wheel of a mouse changes a number field, and a browser rounds a long number.
        kinds.insert(0, "string")
    elif "enum" in schema:
        about["enum"] = [None, *schema["enum"]]
    if default not in ("", {}):
        about["description"] += f" Default: {_text(default)}."
    return Param(None, type=kinds, **about)


def _text(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)
