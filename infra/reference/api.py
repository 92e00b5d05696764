"""The page of the results as data: every route, and every field, with its description from dbt's YAML."""

from __future__ import annotations

from typing import Any

from infra.airflow import api
from infra.reference.markdown import block, code, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page
from infra.reference.warehouse import mart_tables

# The fields that no mart has.
OWN = {
    "origin": "The run in Airflow; `cli` for one of the command line.",
    "matrix": "The named matrix of the request, with a digest of its content; empty without one.",
    "state": "`in_progress`, `finished`, `stopped` by a person, or `died` with its process.",
    "color": "The color on the pages: `red`, `amber`, `green`; `soft` while the run is in progress.",
    "sentence": "The outcome in a sentence.",
    "results": "The results of its cells.",
    "speed": "The verdict on its speed; null without one.",
}
# The mart whose columns the fields of an answer are.
MARTS = {"Run": "runs", "Result": "cells", "Speed": "speed"}


def page() -> str:
    """The text of the page."""
    description = api.openapi()
    routes, root = description["paths"], description["servers"][0]["url"]
    columns = {mart.name: {name: about for name, _, about in mart.columns} for mart in mart_tables()}
    return whole_page(
        "`infra/airflow/api.py`",
        "Results as data",
        paragraph(
            "This page lists the addresses at which Airflow's server answers with results as JSON, for dashboards and "
            "scripts. They are read-only. A request needs a login that may see the runs in Airflow."
        ),
        table(
            ("address", "answer"),
            [(code(f"GET {root}{path}"), text(route["get"]["description"])) for path, route in routes.items()],
        ),
        paragraph(
            f"`GET {api.PREFIX}/openapi.json` describes them as OpenAPI, for generators of clients. The parameters of "
            "the lists:"
        ),
        table(("parameter", "default", "meaning"), _parameters(routes)),
        paragraph(
            "An unknown run or cell gets status 404 and a bad parameter 422, each with a line in `detail`. Without a "
            "login the status is 401."
        ),
        block(
            [
                'TOKEN=$(curl -s "$AIRFLOW/auth/token" -H "Content-Type: application/json" \\',
                '  -d "{\\"username\\": \\"$NAME\\", \\"password\\": \\"$PASSWORD\\"}" | jq -r .access_token)',
                f'curl -s "$AIRFLOW{api.PREFIX}/runs?limit=5" -H "Authorization: Bearer $TOKEN"',
            ],
            "bash",
        ),
        *(part for name in MARTS for part in _section(name, description["components"]["schemas"][name], columns)),
        next_pages(
            "[Read results as data](../how-to/read-results-as-data.md): a notebook that draws a trend.",
            "[The warehouse](warehouse.md): all columns, for queries over many runs.",
        ),
    )


def _parameters(routes: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The parameters of the routes that answer with lists: name, defaults, and meaning."""
    defaults: dict[str, list[str]] = {}
    meanings: dict[str, str] = {}
    for path, route in routes.items():
        for param in route["get"].get("parameters", []):
            if param["in"] == "query":
                meanings[param["name"]] = param["description"]
                if value := param["schema"].get("default"):
                    defaults.setdefault(param["name"], []).append(f"{value} of `{path.rpartition('/')[2]}`")
    return [(code(name), ", ".join(defaults.get(name, [])), text(about)) for name, about in meanings.items()]


def _section(name: str, schema: dict[str, Any], columns: dict[str, dict[str, str]]) -> list[str]:
    mart = columns[MARTS[name]]
    rows = [(code(field), text(OWN[field] if field in OWN else mart[field])) for field in schema["properties"]]
    return [f"## {name}", paragraph(text(schema["description"])), table(("field", "meaning"), rows)]
