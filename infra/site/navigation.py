"""The menu of the documentation site: the pages of mkdocs.yml that exist, then those that it does not name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Replace the menu before mkdocs reads it."""
    docs = Path(config.docs_dir)
    named = set(pages(config.nav))
    others = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    config.nav = existing(config.nav, docs) + [page for page in others if page not in named]
    return config


def pages(nav: list) -> Iterator[str]:
    """The pages that a menu names, in its order."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values():
                yield from [part] if isinstance(part, str) else pages(part)


def existing(nav: list, docs: Path) -> list:
    """The menu without the pages that do not exist and without empty sections."""
    kept: list = []
    for entry in nav:
        if isinstance(entry, str):
            kept += [entry] * (docs / entry).exists()
        else:
            kept += [{title: part} for title, inner in entry.items() if (part := existing(inner, docs))]
    return kept
