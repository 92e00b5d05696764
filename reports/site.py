"""The site of the pages: its menu, the names of its files, and how a file is written.

The menu is at the top of every page, those of Great Expectations and of dbt included. All links between pages of runs
come from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from streaming_core.regression.home import Home
from streaming_core.storage import write_text


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


def write(path: Path, text: str) -> None:
    """Put a page where readers find it, whole or not at all, unless it is there already."""
    try:
        if path.read_text() == text:
            return
    except (OSError, ValueError):
        pass
    write_text(path, text)


def file_name(run_id: str) -> str:
    """The name of the run as one file (attachment.py), in any folder."""
    return f"lockstep-{run_id}.html"


def beside_name(run_id: str) -> str:
    """The name of the page that compares a run with that one."""
    return f"beside-{run_id}.html"
