"""The fields of a regression's request, for form, command line and reference: descriptions, bounds, fixed values."""

from __future__ import annotations

from streaming_core.apps.registry import ALL
from streaming_core.errors import bounds_of
from streaming_core.regression.request import FIELD_OPTIONS, NAMED_VALUES, RegressionSpec
from streaming_core.run.way import MAX_BATCH, MAX_THREADS, known_executors

# Fields of one run that are not in RegressionSpec.
OF_RUN = ("matrix", "spark")

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
        return f"{text} {least:,.0f} to {most:,.0f}."
    return text if least is None else f"{text} At least {least:,.0f}."
