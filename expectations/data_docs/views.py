"""Views of Great Expectations that use our templates first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, FileSystemLoader

from reports.menu import HERE, MENU

OURS = Path(__file__).parent / "templates"


class _Ours:
    """Looks for a template in our folder first."""

    env: Environment

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        assert self.env.loader is not None
        self.env.loader = ChoiceLoader([FileSystemLoader([OURS, HERE]), self.env.loader])
        self.env.globals["menu"] = MENU


class ResultRenderer(ValidationResultsPageRenderer):
    """Renders a result without the name of the data asset, which is the name of the suite."""

    @classmethod
    def _render_validation_header(cls, validation_results: Any) -> Any:
        header = super()._render_validation_header(validation_results)
        subheader = header.subheader.string_template
        subheader["template"] = subheader["template"].replace(" ${data_asset} ${data_asset_name}\n", "")
        return header


class PageView(_Ours, DefaultJinjaPageView):
    """The page of a suite or of a validation."""
