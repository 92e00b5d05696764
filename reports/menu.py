"""The menu at the top of every page, those of Great Expectations and of dbt included."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from streaming_core.regression.home import Home


class Entry(NamedTuple):
    """A page of the menu: its name, its path below the reports, and why it may be missing."""

    name: str
    href: str
    missing: str = ""


DATA_DOCS, DBT, DOCS = "data_docs/index.html", "dbt/index.html", "docs/index.html"
GLOSSARY = "docs/glossary.html"
MENU = (
    Entry("Overview", "index.html"),
    Entry("Runs", "runs.html"),
    Entry("Inputs", "inputs.html"),
    Entry("Performance", "performance.html"),
    Entry("Expectations", DATA_DOCS, "The first run makes this page."),
    Entry("Warehouse", DBT, "The first run that builds the warehouse makes this page."),
    Entry("Docs", DOCS),
)
HERE = Path(__file__).parent


def entries(home: Home, here: str) -> list[dict]:
    """The entries for a template; a page that does not exist yet has no `href`, and a reason.

    Args:
        home: The LOCKSTEP_HOME with the pages.
        here: The name of the page that the menu is on.
    """

    def exists(entry: Entry) -> bool:
        return not entry.missing or entry.name == here or (home.reports / entry.href).exists()

    return [{"name": one.name, "href": one.href if exists(one) else None, "why": one.missing} for one in MENU]
