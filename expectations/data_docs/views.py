"""The content of our pages of Great Expectations, and the views that use our templates first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from great_expectations.expectations.registry import get_renderer_impl
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.content_block import (
    ExpectationSuiteBulletListContentBlockRenderer,
    ValidationResultsTableContentBlockRenderer,
)
from great_expectations.render.renderer.page_renderer import ExpectationSuitePageRenderer, ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, FileSystemLoader

from reports.site import HERE, MENU
from streaming_core.regression.project import TITLE

OURS = Path(__file__).parent / "templates"


def _sql(configuration: Any) -> list[RenderedStringTemplateContent]:
    """The query of an expectation, which Great Expectations leaves out if there is a description."""
    query = configuration.kwargs.get("unexpected_rows_query")
    if not isinstance(query, str):
        return []
    shown = {"template": "$sql", "params": {"sql": query}}
    styling = {"params": {"sql": {"tag": "code"}}}
    return [
        RenderedStringTemplateContent(
            content_block_type="string_template", string_template=shown | {"tag": "div", "styling": styling}
        )
    ]


def _text_of(configuration: Any) -> list[RenderedStringTemplateContent]:
    """The text of an expectation without a query, such as its bounds. Great Expectations leaves it out."""
    if not configuration.description or "unexpected_rows_query" in configuration.kwargs:
        return []
    words = get_renderer_impl(configuration.type, LegacyRendererType.PRESCRIPTIVE)
    return words.renderer(
        configuration=configuration, runtime_configuration={"styling": {}, "include_column_name": False}
    )


def _severity(configuration: Any) -> str:
    return configuration.severity.value


class ResultTable(ValidationResultsTableContentBlockRenderer):
    """The table of results, with the severity of each expectation and what it evaluated: its query or its arguments."""

    @classmethod
    def _get_content_block_fn(cls, expectation_type: str, expectation_config: Any = None) -> Callable:
        rows_of = super()._get_content_block_fn(expectation_type, expectation_config)

        def rows(configuration: Any = None, result: Any = None, **options: Any) -> list:
            [(status, rule, *observed)] = rows_of(configuration=configuration, result=result, **options)
            parts = [*(rule if isinstance(rule, list) else [rule])]
            expectation = result.expectation_config
            evaluated = [*_sql(expectation), *_text_of(expectation)]
            return [[status, _severity(expectation), [*parts[:1], *evaluated, *parts[1:]], *observed]]

        return rows

    @classmethod
    def _process_content_block(cls, content_block: Any, has_failed_evr: Any, render_object: Any = None) -> None:
        super()._process_content_block(content_block, has_failed_evr, render_object)
        content_block.header_row.insert(1, "Severity")


class SuiteList(ExpectationSuiteBulletListContentBlockRenderer):
    """The list of expectations, with the severity and the query of each."""

    @classmethod
    def _get_content_block_fn(cls, expectation_type: str, expectation_config: Any = None) -> Callable | None:
        rule_of = super()._get_content_block_fn(expectation_type, expectation_config)
        if rule_of is None or expectation_config is None:
            return rule_of

        def rule(**options: Any) -> list:
            first, *others = rule_of(**options)
            severity = RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={
                    "template": "$severity",
                    "params": {"severity": _severity(expectation_config)},
                    "styling": {"params": {"severity": {"classes": ["badge"]}}},
                },
            )
            return [[severity, first, *_sql(expectation_config)], *others]

        return rule


class ResultRenderer(ValidationResultsPageRenderer):
    """Renders a result without the name of the data asset, which is the name of the suite."""

    def __init__(self, **settings: Any):
        table = {"module_name": __name__, "class_name": "ResultTable"}
        super().__init__(
            column_section_renderer={"class_name": "ValidationResultsColumnSectionRenderer", "table_renderer": table},
            **settings,
        )

    @classmethod
    def _render_validation_header(cls, validation_results: Any) -> Any:
        header = super()._render_validation_header(validation_results)
        subheader = header.subheader.string_template
        subheader["template"] = subheader["template"].replace(" ${data_asset} ${data_asset_name}\n", "")
        return header


class SuiteRenderer(ExpectationSuitePageRenderer):
    """Renders a suite with our list of expectations."""

    def __init__(self) -> None:
        listed = {"module_name": __name__, "class_name": "SuiteList"}
        super().__init__({"class_name": "ExpectationSuiteColumnSectionRenderer", "bullet_list_renderer": listed})


def linked(content: str, run: str) -> str:
    """HTML in which a value that is the name of a cell leads to the page of the cell, in the folder of the run."""
    cell = r"[\w-]+\.[\w-]+\.[\w.-]*\bt\d+\.[0-9a-f]{8}[\w.-]*"
    return re.sub(rf'(<div class="show-scrollbars">)({cell})(</div>)', rf'\1<a href="{run}/\2.html">\2</a>\3', content)


class _Ours:
    """Looks for a template in our folder first."""

    env: Environment

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        assert self.env.loader is not None
        self.env.loader = ChoiceLoader([FileSystemLoader([OURS, HERE]), self.env.loader])
        self.env.globals |= {"menu": MENU, "project": TITLE}
        self.env.filters["linked"] = linked


class PageView(_Ours, DefaultJinjaPageView):
    """The page of a suite or of a validation."""


class NoIndex:
    """Builds no first page: `Pages.data_docs` makes it. Great Expectations would read all results for its own."""

    def __init__(self, **settings: Any):
        """Accept what Great Expectations passes to the builder of an index."""

    def build(self, **options: Any) -> tuple[None, dict]:
        """Build nothing."""
        return None, {}
