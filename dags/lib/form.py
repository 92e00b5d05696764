"""The trigger form: one field per field of RegressionSpec, the named matrix, and the two Airflow connections of a run.

Titles, descriptions, bounds and defaults come from the model, so the form cannot offer what the model refuses. The
form is a convenience all the same: the API can send anything, and `plan_matrix` validates again.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from infra import checkout
from infra.airflow import connections
from streaming_core.apps import registry
from streaming_core.regression import matrices
from streaming_core.regression.request import FIELD_OPTIONS, NAMED_VALUES, RegressionSpec
from streaming_core.run.way import EXECUTORS, OPTION_EXECUTORS

# The form shows fields without a section first, and opens it; it closes the sections.
SECTIONS = {
    **{field: f"Executor {OPTION_EXECUTORS[option]}" for field, option in FIELD_OPTIONS.items()},
    "seed": "Workload",
    "params": "Workload",
    "data": "Workload",
    "repetitions": "Measuring",
    "seconds": "Measuring",
    "rate": "Measuring",
}
# List fields that take nothing but these values.
CLOSED_CHOICES = {
    "executors": [registry.ALL, *EXECUTORS],
    **{
        field: [registry.ALL, *NAMED_VALUES[option]]
        for field, option in FIELD_OPTIONS.items()
        if option in NAMED_VALUES
    },
}
# The values that the form offers for each list field.
CHOICES = {
    **CLOSED_CHOICES,
    "applications": [registry.ALL, *registry.names()],
    "threads": [1, 2, 4, 8, 16, 32, 64, 128],
    "batches": [1, 16, 64, 256, 1024, 4096],
}
# What a form has beside the fields of RegressionSpec.
NO_FIELDS = {"matrix", "host", "spark"}
# Airflow reads the DAG file, and with it the lists, every 30 s (min_file_process_interval).
LISTED_LATER = "A new {} appears in the list within a minute."
KEEP = ("description", "minimum", "maximum", "minItems", "maxItems")


def regression_params() -> dict[str, Param]:
    """DAG params of a regression run; every default is valid, because scheduled runs use the defaults."""
    properties = RegressionSpec.model_json_schema()["properties"]
    fields = {
        "matrix": Param(
            None,
            type=["string", "null"],
            title="Matrix",
            description="A file of dags/matrices. Its values replace the defaults below; fields that you change win. "
            f"{LISTED_LATER.format('file')}",
            enum=[None, *matrices.names(checkout.MATRICES)],
            values_display={"null": "none"},
        )
    }
    fields |= {name: _param(name, properties[name], default) for name, default in _defaults().items()}
    fields["data"] = _imports()
    fields["host"] = Param(
        connections.DEFAULTS["host"],
        type="string",
        title="Host",
        pattern=f"^{connections.NAME}$",
        description="The machine that runs the cells: 'local', or the name of an SSH connection (Admin, Connections). "
        "A name that Airflow does not have is refused before the run starts.",
        examples=[connections.DEFAULTS["host"]],
        section="Where",
    )
    fields["spark"] = Param(
        connections.DEFAULTS["spark"],
        type="string",
        title="Spark",
        pattern=f"^{connections.NAME}$",
        description="Airflow connection of the Spark master that the run starts its server on.",
        examples=[connections.DEFAULTS["spark"]],
        section="Where",
    )
    return fields


def _imports() -> Param:
    """The field `data`: in the form, a list of imports to choose from; through the API, the object of the model too."""
    names = [f"{path.parent.name}/{path.name}" for path in checkout.home().root.glob("imported/[!.]*/[!.]*")]
    description = (
        "Your own events instead of generated ones: at most one import per application (lockstep import --name)."
    )
    if not names:
        description += " No import exists yet."
    return Param(
        None,
        type=["array", "object", "null"],
        title="Data",
        description=f"{description} {LISTED_LATER.format('import')}",
        examples=sorted(names),
        section=SECTIONS["data"],
    )


def run_params(about_run: str, about_cells: str) -> dict[str, Param]:
    """A run, and cells of it, neither of which has to be named."""
    run = Param(None, type=["string", "null"], title="Run", description=about_run, maxLength=40)
    cells = Param(
        None, type=["string", "null"], title="Cells", description=f"{about_cells} Separate their names with commas."
    )
    return {"run": run, "cells": cells}


def regression_of(params: dict, conf: dict | None) -> dict:
    """The RegressionSpec fields among a run's params. Beside a matrix, only the fields that override it.

    A caller of the API sends only those. The form sends every field: there the ones that differ from the defaults
    override the matrix.
    """
    fields = {name: value for name, value in params.items() if name not in NO_FIELDS and value is not None}
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
    """Of every field of RegressionSpec."""
    return {name: field.get_default(call_default_factory=True) for name, field in RegressionSpec.model_fields.items()}


def _param(name: str, schema: dict, default: object) -> Param:
    kept = {key: schema[key] for key in KEEP if key in schema}
    kept["title"] = name.capitalize()
    if name in SECTIONS:
        kept["section"] = SECTIONS[name]
    if schema["type"] == "array":
        kept["items"] = {"type": schema["items"]["type"]}
        kept["examples"] = CHOICES[name]
        if name in CLOSED_CHOICES:
            kept["items"]["enum"] = CHOICES[name]
        elif schema["items"]["type"] == "integer":
            # What a person chooses from a list, the form sends as text; `plan_matrix` reads numbers.
            kept["items"] = {"type": ["integer", "string"], "pattern": "^[0-9]+$"}
        return Param(default, type="array", **kept)
    if schema["type"] == "object":
        # An empty object as default could not be submitted from the form.
        return Param(default or None, type=["object", "null"], **kept)
    return Param(default, type=schema["type"], **kept)
