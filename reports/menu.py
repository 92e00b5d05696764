"""The menu at the top of every page, those of Great Expectations and of dbt included."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from streaming_core.regression.home import Home


class Entry(NamedTuple):
    """A page of the menu; `href` leads there from the folder of the reports; `made_by` is the stage that makes it."""

    name: str
    href: str
    made_by: str = ""


DATA_DOCS, DBT, DOCS = "data_docs/index.html", "dbt/index.html", "docs/index.html"
MENU = (
    Entry("Overview", "index.html"),
    Entry("Runs", "runs.html"),
    Entry("Inputs", "inputs.html"),
    Entry("Performance", "performance.html"),
    Entry("Expectations", DATA_DOCS, "made by the first run"),
    Entry("Warehouse", DBT, "made by the first run that gets as far as its marts"),
    Entry("Docs", DOCS),
)
HERE = Path(__file__).parent


def entries(home: Home, here: str) -> list[dict]:
    """The entries for a template; a page that no run has made yet has no `href`, and says why.

    Args:
        home: The LOCKSTEP_HOME with the pages.
        here: The name of the page that the menu is on.
    """
    made = {one.name for one in MENU if not one.made_by or one.name == here or (home.reports / one.href).exists()}
    return [{"name": one.name, "href": one.href if one.name in made else None, "why": one.made_by} for one in MENU]
