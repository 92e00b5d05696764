"""The site of the pages: its menu, the names of its files, and how a file is written.

The menu is at the top of every page, those of Great Expectations and of dbt included. All links between pages of runs
come from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from reports.history.cell import Cell
from streaming_core.regression.home import Home
from streaming_core.regression.stages import DAG_ID
from streaming_core.search.find import Find
from streaming_core.storage import write_text


class Entry(NamedTuple):
    """A page of the menu: its name, its path below the reports, and why it may be missing."""

    name: str
    href: str
    missing: str = ""


DATA_DOCS, DBT, DOCS = "data_docs/index.html", "dbt/index.html", "docs/index.html"
GLOSSARY = "docs/glossary.html"
FINDS, QUALITY = "finds.html", "quality.html"
HERE = Path(__file__).parent
# A project has no suites, and so no page of them (copier.yml).
HAS_SUITES = any((HERE.parent / "docs" / "benchmarks").glob("*.json"))
BENCHMARKS = [Entry("Benchmarks", "benchmarks.html", "The command make bench makes this page.")] if HAS_SUITES else []
MENU = (
    Entry("Overview", "index.html"),
    Entry("Runs", "runs.html"),
    Entry("Inputs", "inputs.html"),
    Entry("Performance", "performance.html"),
    Entry("Finds", FINDS),
    *BENCHMARKS,
    Entry("Expectations", DATA_DOCS, "The first run makes this page."),
    Entry("Warehouse", DBT, "The first run that builds the warehouse makes this page."),
    Entry("Docs", DOCS),
)


@dataclass(frozen=True)
class Place:
    """Where a page is, and how it links to the pages of cells and runs.

    Attributes:
        root: leads from the page to the reports: empty, or `../`.
        here: the name of the page in the menu; empty for a page that the menu lacks.
    """

    root: str = ""
    here: str = ""

    @property
    def glossary(self) -> str:
        """The link to the glossary; empty if no documentation is beside the page."""
        return self.root + GLOSSARY

    def of_cell(self, cell: Cell) -> str | None:
        """The link to the page of a cell or of a find; None if the page cannot link to it."""
        if cell.find:
            return self.root + find_name(cell.spec.app, cell.name.rpartition(".")[2])
        return f"{self.root}{cell.run_id}/{cell.name}.html"

    def of_find(self, find: Find) -> str | None:
        """The link to the page of a find; None if the page cannot link to it."""
        return self.root + find_name(find.app, find.digest)

    def of_origin(self, origin: str) -> str | None:
        """The link to Airflow's page of a run, beside which Airflow serves these pages; None if there is none."""
        return f"{self.root}../dags/{DAG_ID}/runs/{quote(origin)}" if origin not in ("", "cli") else None

    def of_run(self, run_id: str) -> str | None:
        """The link to the page of a run; None if the page cannot link to it."""
        return f"{self.root}{run_id}/index.html"


@dataclass(frozen=True)
class SingleFile(Place):
    """The place of a page that readers mail: it links only to cells that it shows itself.

    Attributes:
        shown: the names of these cells.
    """

    shown: frozenset[str] = frozenset()

    @property
    def glossary(self) -> str:
        """Empty: no documentation is beside a mailed file."""
        return ""

    def of_cell(self, cell: Cell) -> str | None:
        """The anchor of a cell that the file shows."""
        return f"#{cell.name}" if cell.name in self.shown else None

    def of_run(self, run_id: str) -> str | None:
        """None: no other run is beside a mailed file."""
        return None

    def of_find(self, find: Find) -> str | None:
        """None: no find is beside a mailed file."""
        return None

    def of_origin(self, origin: str) -> str | None:
        """None: no Airflow is beside a mailed file."""
        return None


@dataclass(frozen=True)
class MenuItem:
    """An entry as a template shows it: its name, its path below the reports, and why that is None."""

    name: str
    href: str | None
    why: str


def entries(home: Home, here: str) -> list[MenuItem]:
    """The entries for a template; a page that does not exist yet has no `href`, and a reason.

    Args:
        home: The LOCKSTEP_HOME with the pages.
        here: The name of the page that the menu is on.
    """

    def exists(entry: Entry) -> bool:
        return not entry.missing or entry.name == here or (home.reports / entry.href).exists()

    return [MenuItem(item.name, item.href if exists(item) else None, item.missing) for item in MENU]


def write(path: Path, text: str) -> None:
    """Put a page in its place, whole or not at all, unless it is there already."""
    try:
        if path.read_text() == text:
            return
    except (OSError, ValueError):
        pass
    write_text(path, text)


def file_name(run_id: str) -> str:
    """The name of a run as one file (attachment.py), in any folder."""
    return f"lockstep-{run_id}.html"


def find_name(app: str, digest: str) -> str:
    """The path of the page of a find below the reports."""
    return f"finds/{app}/{digest}.html"


def beside_name(run_id: str) -> str:
    """The name of the page that compares a run with this one."""
    return f"beside-{run_id}.html"


def profile_name(cell: str) -> str:
    """The name of the page with the profile of a cell."""
    return f"profile-{cell}.html"


def slug(name: str) -> str:
    """A name as part of a file's name, whatever is in it."""
    return re.sub(r"[^a-z0-9-]", "_", name.lower())[:60]
