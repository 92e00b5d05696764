"""The fields of a regression's request, for form and command line: descriptions, bounds, fixed values.

Also the fields that the form or a caller of the API sends.
"""

from __future__ import annotations

from typing import Any

from streaming_core.apps.registry import ALL
from streaming_core.errors import bounds_of
from streaming_core.regression.request import FIELD_OPTIONS, NAMED_VALUES, RegressionSpec
from streaming_core.run.way import MAX_BATCH, MAX_THREADS, known_executors

# Fields of one run that are not in RegressionSpec.
OF_RUN = ("matrix", "spark")
LINEAGE = "openlineage"  # the field that Airflow's OpenLineage provider adds to a run that a task triggers

SHOWS_FORM = True  # whether DAG files that this process reads need the texts of the form that take time

# Bounds of each item of a list.
ITEMS = {"threads": (1, MAX_THREADS), "batches": (1, MAX_BATCH)}

# List field -> the values that it takes. Other list fields take any number, or any application.
CHOICES = {
    "executors": [ALL, *known_executors()],
    **{field: [ALL, *NAMED_VALUES[option]] for field, option in FIELD_OPTIONS.items() if option in NAMED_VALUES},
}


def description(name: str) -> str:
    """The description of a field, with its bounds if it has any."""
    field = RegressionSpec.model_fields[name]
    least, most = ITEMS.get(name, bounds_of(field))
    text = field.description or ""
    if least is not None and most is not None:
        return f"{text} {int(least):,} to {int(most):,}."
    return text if least is None else f"{text} At least {int(least):,}."


def defaults() -> dict[str, Any]:
    """The default of every field of RegressionSpec."""
    return {name: field.get_default(call_default_factory=True) for name, field in RegressionSpec.model_fields.items()}


def regression_of(params: dict[str, Any]) -> dict[str, Any]:
    """The fields of RegressionSpec that a run's params set. They override the matrix, and then the defaults.

    The form sends an empty field as null, and the lines of a list as texts, some of them empty.
    """
    fields = {name: value for name, value in params.items() if name not in (*OF_RUN, LINEAGE) and value is not None}
    for name, value in fields.items():
        if isinstance(value, list):
            fields[name] = [item for item in value if not isinstance(item, str) or item.strip()]
    if fields.get("data") == []:  # no import chosen from the list
        del fields["data"]
    return fields
