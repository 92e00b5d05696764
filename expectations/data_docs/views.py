"""Views of Great Expectations that prefer our templates to its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from great_expectations.render.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, Environment, FileSystemLoader

OURS = Path(__file__).parent / "templates"


class _Ours:
    """Looks for a template here first."""

    env: Environment

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        assert self.env.loader is not None
        self.env.loader = ChoiceLoader([FileSystemLoader(OURS), self.env.loader])


class PageView(_Ours, DefaultJinjaPageView):
    """A suite's page, or that of one validation."""


def environment() -> Environment:
    """That of pages which are ours alone."""
    return Environment(loader=FileSystemLoader(OURS))
