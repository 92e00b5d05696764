"""The page of the fields of a regression request, from regression/request.py, and of the matrices."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from infra.checkout import MATRICES
from infra.cli.request import NOT_OPTIONS
from infra.fields import ITEMS
from infra.reference.fields import bounds, default, span
from infra.reference.markdown import block, code, codes, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page
from streaming_core.regression import matrices
from streaming_core.regression.request import ALL, FIELD_OPTIONS, MAX_CELLS, NAMED_VALUES, RegressionSpec
from streaming_core.run.way import EXECUTORS, OPTION_EXECUTORS

RUN_FIELDS = {
    "matrix": ("the name of a matrix", "none", "The matrix that the request starts from. Other fields override it."),
    "spark": (
        "an Airflow connection",
        code("spark_default"),
        "The Spark that checks the results, and runs the cells of executor `spark`.",
    ),
}


def page() -> str:
    """The text of the page."""
    fields = RegressionSpec.model_fields
    general = [name for name in fields if name not in FIELD_OPTIONS]
    parts = [
        paragraph(
            "This page lists the fields of a regression request. A request says which applications run, on which "
            "executors, and with which options. Lockstep runs a cell for each combination."
        ),
        "## Where to write a request",
        table(
            ("place", "form of a field"),
            [
                ("command line", "`lockstep run --applications sl,wc --stealing yes`"),
                ("form in Airflow", "DAG `streaming_regression`, **Trigger**"),
                ("matrix", "a line of `dags/matrices/NAME.yaml`: `applications: [sl, wc]`"),
                ("Airflow's API", 'the `conf` of a new DAG run: `{"applications": ["sl", "wc"]}`'),
            ],
        ),
        paragraph(
            f"On the command line, commas separate the values of a list, and a mapping is JSON. The value `{ALL}` "
            "stands for every value of a list of names. A field for an option of one executor has no effect on cells "
            f"of the others. A request may have at most {MAX_CELLS:,} cells."
        ),
        paragraph(f"`lockstep run` has no options for {codes(NOT_OPTIONS)}; name them in a matrix."),
        "## Fields of every request",
        _table({name: fields[name] for name in general}),
        "## Fields of one run",
        paragraph("`lockstep run`, the form and the API also take these fields. A matrix cannot set them."),
        table(
            ("field", "values", "default", "description"),
            [(code(name), *row) for name, row in RUN_FIELDS.items()],
        ),
    ]
    for executor in EXECUTORS:
        own = {name: fields[name] for name, option in FIELD_OPTIONS.items() if OPTION_EXECUTORS[option] == executor}
        if own:
            parts += [f"## Fields of executor {executor}", _table(own)]
    parts += [
        paragraph("[Executors and strategies](strategies.md) explains the values."),
        "## Matrices",
        paragraph(
            "A matrix is a file with a name, in `dags/matrices`. It sets fields; the others have their defaults. These "
            "matrices come with Lockstep:"
        ),
    ]
    for name in matrices.names(MATRICES):
        parts += [f"### Matrix `{name}`", *_matrix(name)]
    parts.append(
        next_pages(
            "[Run a regression](../how-to/run-a-regression.md): send a request and read its result.",
            "[Add a matrix](../how-to/add-a-matrix.md): give a request a name.",
            "[Applications](applications.md): the parameters for the field `params`.",
        )
    )
    return whole_page("`streaming_core/regression/request.py` and `dags/matrices`", "Regression requests", *parts)


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = [
        (code(name), _values(name, field), default(field), text(field.description or ""))
        for name, field in fields.items()
    ]
    return table(("field", "values", "default", "description"), rows)


def _values(name: str, field: FieldInfo) -> str:
    kind: Any = field.annotation
    if name == "executors":
        return codes(EXECUTORS)
    if named := NAMED_VALUES.get(FIELD_OPTIONS.get(name, "")):
        return codes(named)
    if kind is bool:
        return codes(("true", "false")) + "; `yes`, `no` on the command line"
    if kind in (int, float):
        return bounds(field)
    if kind == list[int]:
        return f"list of numbers, {span(*ITEMS[name])}"
    if get_origin(kind) is Literal:
        return codes(get_args(kind))
    return {list[str]: "list of names", str: "text"}.get(kind, "mapping")


def _matrix(name: str) -> list[str]:
    """The comment at the top of a matrix, and its fields."""
    content = (MATRICES / f"{name}.yaml").read_text().splitlines()
    comment = [line.lstrip("# ") for line in content if line.startswith("#")]
    lines = [line for line in content if line and not line.startswith("#")]
    assert yaml.safe_load("\n".join(lines)) == matrices.load(MATRICES, name).fields
    return [paragraph(text(" ".join(comment))), block(lines, "yaml")]
