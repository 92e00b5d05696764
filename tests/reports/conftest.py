"""Fixtures of tests of pages."""

import pytest

from streaming_core.regression.home import Home
from tests.reports import past_runs


@pytest.fixture
def home(tmp_path) -> Home:
    """Five green nights."""
    home = Home(tmp_path)
    past_runs.make(home, red=False)
    return home
