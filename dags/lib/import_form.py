"""Imports a user's files for the DAG `import_data`: the form, and the work of the tasks.

The form has the fields of `importing.form.Form`, as `lockstep import` has options. Unlike the command, the
DAG reads only files in the folders of LOCKSTEP_IMPORT_ROOTS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Param

from dags.lib.approvals import fail_in_one_line
from dags.lib.form import bounds, in_order
from infra.checkout import home, import_roots
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.importing import events, form
from streaming_core.regression.provenance import set_aside
from streaming_core.regression.request import IMPORT_NAME

SECTION = "How to read the files"


def import_params() -> dict[str, Param]:
    """The DAG params of an import."""
    folders = ", ".join(map(str, import_roots()))
    return {
        "application": Param(
            type="string",
            title="Application",
            description="The application that will process the events. Required.",
            enum=in_order(registry.names()),
        ),
        "name": Param(
            type="string",
            title="Name",
            description="The name of the import, which the field Data of the regression lists. Required. Letters, "
            "digits, '_', '-' and '.'.",
            pattern=f"^{IMPORT_NAME.pattern}$",
        ),
        "files": _lines(
            "Files",
            f"A file or folder per line, in {folders}. A relative path starts at the first of these folders. For "
            "applications with several sources NAME=PATH, such as Left=left.csv, for each stream.",
        ),
        "map": _lines(
            "Map",
            "FIELD=COLUMN per line, for fields whose column has another name. STREAM.FIELD=COLUMN for one stream.",
            section=SECTION,
        ),
        "separator": Param(
            None,
            type=["string", "null"],
            title="Separator",
            description="The character between the columns of CSV. Default: a comma; in .tsv files a tab.",
            section=SECTION,
        ),
        "tolerance": Param(
            0.0,
            type="number",
            title="Tolerance",
            description="The share of the rows that may be set aside without a warning, from 0 to 1.",
            allOf=bounds(0, 1),
            section=SECTION,
        ),
        "params": Param(
            None,
            type=["object", "null"],
            title="Params",
            description="Parameters of the application that differ from its defaults.",
            section=SECTION,
        ),
    }


def _lines(title: str, description: str, **more: str) -> Param:
    items = {"type": "string"}
    return Param(None, type=["array", "null"], title=title, description=description, items=items, **more)


@fail_in_one_line
def check(params: dict[str, Any]) -> dict[str, Any]:
    """Check the form. It reads the names of columns, but no rows.

    Returns:
        `folder`, where the import will be, and `files`, their number.
    """
    request, out = _request(params)
    return {"folder": str(out), "files": len(request.names)}


def import_files(params: dict[str, Any]) -> dict[str, Any]:
    """Import the files.

    Args:
        params: The form.

    Returns:
        `data`, the name for the field Data of the regression, and the numbers of `events`, `rows` and `set_aside`.
    """
    request, out = _request(params)
    manifest = events.run(request, out)
    for line in form.lines(out, manifest):
        print(line)
    about = manifest["imported"]
    return {
        "data": f"{params['application']}/{out.name}",
        "events": manifest["events"],
        "rows": about["rows"],
        "set_aside": set_aside(about),
    }


def _request(params: dict[str, Any]) -> tuple[events.Request, Path]:
    """The checked request, and the folder of the import."""
    out = form.folder_of(home(), params["name"])
    answers = form.Form(
        params["application"],
        _texts(params, "files"),
        _texts(params, "map"),
        params["separator"],
        params["params"] or {},
        params["tolerance"],
    )
    return form.request(answers, import_roots()), out


def _texts(params: dict[str, Any], name: str) -> list[str]:
    """The lines of a field that are not empty."""
    texts = [text.strip() for text in params[name] or []]
    if wrong := next((text for text in texts if not text.isprintable()), None):
        raise BadInput(f"{name}: {wrong!r} has a character that cannot be printed: rename the file or the column")
    return [text for text in texts if text]
