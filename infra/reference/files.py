"""The generated files and their current text.

Some files are generated whole; in others, only the lines between two markers are. Tests fail while one of them is not
current.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from infra.checkout import ROOT
from infra.reference import api, applications, command_line, dbt, from_sql, warehouse
from streaming_core.engines.contract import Manifest, Report, Task

# Name of a reference page -> the module that writes it. People write the other pages; a test asserts their names.
PAGES = {"api": api, "applications": applications, "command-line": command_line, "warehouse": warehouse}


def files(root: Path = ROOT) -> dict[Path, str]:
    """Path of each generated file -> its current text."""
    docs = root / "docs"
    return (
        dbt.files(root / "dbt")
        | _benchmarks(docs)
        | {docs / "reference" / "engines.schema.json": _schemas()}
        | {docs / "explanation" / "from-sql.md": from_sql.page()}
        | {docs / "reference" / f"{name}.md": module.page() for name, module in PAGES.items()}
    )


def _benchmarks(docs: Path) -> dict[Path, str]:
    """The pages of the committed results, and a chart for each paper; a project has none."""
    if not any(docs.glob("benchmarks/*.json")):
        return {}
    from infra.benchmarks.papers import charts
    from streaming_core.bench.benchmarks_page import pages

    texts = pages(docs / "benchmarks") | charts(docs / "benchmarks")
    return {docs / path: text for path, text in texts.items()}


def _schemas() -> str:
    """The JSON schemas of the contract of external engines."""
    return (
        json.dumps({model.__name__.lower(): model.model_json_schema() for model in (Manifest, Task, Report)}, indent=2)
        + "\n"
    )


def stale(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """The generated files that are not current, and their current text."""
    for path, text in files(root).items():
        if not path.exists() or path.read_text() != text:
            yield path, text


def main() -> int:
    """Write the generated files that are not current, and print their names."""
    for path, text in stale():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(ROOT))
    return 0
