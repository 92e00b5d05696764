"""Renders the pages of suites and results for Great Expectations.

The configuration of the site (`expectations/files.py`) names these classes as `renderer`, `view` and
`site_index_builder`. A renderer turns a suite or a result into a `Page`, the view turns that into HTML. They read only
what Great Expectations writes as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from expectations.history import error_of
from reports.site import HERE, MENU
from reports.views import columns
from streaming_core.regression.project import TITLE

SHOWN_ROWS = 20  # that break a rule
MOST_VALUES = 20  # of an observed list
FIRST = ("app", "cell", "check", "kind", "seq", "sub")  # the first columns; JSON sorts its keys by name
HIDDEN = ("column", "batch_id", "unexpected_rows_query")  # arguments that the page shows elsewhere, or not at all


@dataclass(frozen=True)
class Rule:
    """An expectation, and its result if the page is that of a run.

    Attributes:
        text: the rule in words.
        column: the column that it is about; empty for whole rows.
        severity: critical, warning or info.
        query: the SQL that selects the rows that break it; empty without one.
        arguments: its other arguments as text.
        state: holds, fails or `cannot be evaluated`; empty without a result.
        observed: the observed value.
        error: why it could not be evaluated.
        rows: the first rows that break it.
    """

    text: str
    column: str
    severity: str
    query: str
    arguments: str
    state: str = ""
    observed: str = ""
    error: str = ""
    rows: tuple[dict[str, Any], ...] = ()

    @property
    def names(self) -> list[str]:
        """The columns of the rows, those first that say where a row is from."""
        known = dict.fromkeys([*FIRST, *(name for row in self.rows for name in row)])
        return [name for name in known if any(row.get(name) is not None for row in self.rows)]


@dataclass(frozen=True)
class Page:
    """The page of a suite, or of its result in a run.

    Attributes:
        suite: the name of the data set.
        run: the run; empty on the page of a suite.
        rules: the rules in the order of the suite.
    """

    suite: str
    run: str
    rules: list[Rule]

    @property
    def site(self) -> str:
        """The relative link to the folder of the site: validations/<suite>/<run>/<time>/<batch>.html."""
        return "../../../../" if self.run else "../"

    @property
    def held(self) -> int:
        """The number of rules that hold."""
        return sum(rule.state == "holds" for rule in self.rules)


class Suites:
    """Renders suites."""

    def __init__(self, **settings: Any):
        """Accept the context, which Great Expectations passes to a renderer."""

    def render(self, suite: Any) -> Page:
        """The page of an `ExpectationSuite`."""
        return Page(suite.name, "", [_rule(expectation) for expectation in suite.to_json_dict()["expectations"]])


class Results:
    """Renders results."""

    def __init__(self, **settings: Any):
        """Accept the context, which Great Expectations passes to a renderer."""

    def render(self, result: Any) -> Page:
        """The page of an `ExpectationSuiteValidationResult`."""
        content = result.to_json_dict()
        return Page(content["suite_name"], content["meta"]["run_id"]["run_name"], list(_results(content["results"])))


def _results(results: list[dict[str, Any]]) -> Iterator[Rule]:
    for entry in results:
        result, error = entry["result"], error_of(entry)
        observed = result.get("observed_value", result.get("partial_unexpected_list"))
        if isinstance(observed, list) and len(observed) > MOST_VALUES:
            observed = [*observed[:MOST_VALUES], f"and {len(observed) - MOST_VALUES} more"]
        rows = (result.get("details") or {}).get("unexpected_rows") or []
        state = "cannot be evaluated" if error else "holds" if entry["success"] else "fails"
        shown = "" if observed is None else _text(observed)
        yield _rule(entry["expectation_config"], state, shown, error or "", tuple(rows[:SHOWN_ROWS]))


def _rule(config: dict[str, Any], *result: Any) -> Rule:
    kwargs = config["kwargs"]
    query = kwargs.get("unexpected_rows_query", "")
    arguments = ", ".join(
        f"{name} = {_text(value)}" for name, value in kwargs.items() if name not in HIDDEN and value is not None
    )
    about = config.get("description") or config["type"], kwargs.get("column", ""), config["severity"]
    return Rule(*about, query, arguments, *result)


def _text(value: Any) -> str:
    """A value as text: numbers with separators of thousands, others as JSON."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) or value.is_integer() else f"{value:,.6g}"
    return value if isinstance(value, str) else json.dumps(value, default=str)


class View:
    """Turns a page into HTML."""

    def __init__(self, **settings: Any):
        """Accept what Great Expectations passes to a view."""
        folders = [Path(__file__).parent / "templates", HERE / "templates", HERE]
        self.environment = Environment(
            loader=FileSystemLoader(folders),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        style = Markup((HERE / "style.css").read_text())
        self.environment.globals |= {"pages": MENU, "here": "Expectations", "project": TITLE, "style": style}
        self.environment.globals |= {"script": "", "glossary": "", "meanings": columns.MEANINGS}

    def render(self, page: Page, **options: Any) -> str:
        """The HTML of a page; the options are those of the pages of Great Expectations."""
        return self.environment.get_template("rules.html").render(page=page, root=f"{page.site}../")


class NoIndex:
    """Builds no first page: `Pages.data_docs` makes it. Great Expectations would read all results for its own."""

    def __init__(self, **settings: Any):
        """Accept what Great Expectations passes to the builder of an index."""

    def build(self, **options: Any) -> tuple[None, dict]:
        """Build nothing."""
        return None, {}
