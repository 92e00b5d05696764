"""The page of the warehouse: every table and column, from dbt's YAML and blocks of documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from infra.checkout import ROOT
from infra.reference.dbt import column_docs
from infra.reference.markdown import block, code, next_pages, paragraph, table, text
from infra.reference.markdown import page as whole_page

MODELS = ROOT / "dbt" / "models"
DOC_BLOCK = re.compile(r"\{% docs (\w+) %\}\n(.*?)\n?\{% enddocs %\}", re.DOTALL)
DOC = re.compile(r"\{\{ doc\('(\w+)'\) \}\}")


class Table(NamedTuple):
    """A table and its columns: (name, type, description)."""

    name: str
    description: str
    columns: list[tuple[str, str, str]]


def page() -> str:
    """The text of the page."""
    raw, marts = [*raw_tables()], [*mart_tables()]
    return whole_page(
        "`dbt/models`",
        "The warehouse",
        paragraph(
            "This page lists every table and column of the warehouse, for your own queries. The warehouse holds the "
            "results of all runs, in `LOCKSTEP_HOME/warehouse`."
        ),
        table(
            ("group", "folder", "what it holds"),
            [
                (
                    "[raw tables](#raw-tables)",
                    "`warehouse/raw/NAME`",
                    "the results as runs wrote them; they never change",
                ),
                ("[marts](#marts)", "`warehouse/marts/NAME`", "tables that dbt makes from the raw tables in each run"),
            ],
        ),
        paragraph(
            "Both are Parquet files, which any reader of Parquet reads. Read the marts first: they exclude runs with "
            "broken rows (`quarantine`), and they carry the verdicts."
        ),
        block(
            [
                "import pandas",
                "",
                'speed = pandas.read_parquet(".lockstep/warehouse/marts/throughput")',
                'print(speed.groupby(["app", "strategy"]).median_events_per_s.max())',
            ],
            "python",
        ),
        "## Marts",
        _overview(marts),
        *(part for mart in marts for part in _section(mart)),
        "## Raw tables",
        _overview(raw),
        *(part for relation in raw for part in _section(relation)),
        next_pages(
            "[Speed verdicts](../explanation/speed-verdicts.md): the rules behind the marts `speed` and `gate`.",
            "[Executors and strategies](strategies.md): the values of the columns that describe a cell.",
            "[Command line](command-line.md): `lockstep warehouse` builds the marts again.",
        ),
    )


def raw_tables() -> Iterator[Table]:
    """The raw tables, in the order of their file."""
    (source,) = _yaml(MODELS / "staging" / "raw.yml")["sources"]
    for relation in source["tables"]:
        yield _table(relation, f"raw_{relation['name']}")


def mart_tables() -> Iterator[Table]:
    """The marts, by name."""
    for path in sorted((MODELS / "marts").glob("*.yml")):
        for model in _yaml(path)["models"]:
            yield _table(model, model["name"])


def _yaml(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def _table(declared: dict[str, Any], name: str) -> Table:
    blocks = _blocks()
    columns = [
        (column["name"], _type(column), DOC.sub(lambda match: blocks[match[1]], column["description"]))
        for column in declared["columns"]
    ]
    return Table(name, declared["description"], columns)


def _type(column: dict[str, Any]) -> str:
    never_null = any(constraint["type"] == "not_null" for constraint in column.get("constraints", ()))
    return f"{column['data_type']}, not null" if never_null else column["data_type"]


@cache
def _blocks() -> dict[str, str]:
    """The blocks of documentation by name. Those of a way of executing are generated, so their file may be stale."""
    texts = [column_docs(), *(path.read_text() for path in MODELS.glob("*.md") if path.name != "way.md")]
    return dict(match for text in texts for match in DOC_BLOCK.findall(text))


def _overview(tables: list[Table]) -> str:
    rows = [(f"[{relation.name}](#{relation.name})", text(relation.description)) for relation in tables]
    return table(("table", "what it holds"), rows)


def _section(relation: Table) -> list[str]:
    columns = [(code(name), kind, text(description)) for name, kind, description in relation.columns]
    return [f"### {relation.name}", table(("column", "type", "description"), columns)]
