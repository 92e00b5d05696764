"""Fixtures of tests of pages."""

import shutil
from pathlib import Path

import pytest

from streaming_core.regression.home import Home
from tests.reports import past_runs


@pytest.fixture(scope="session")
def green_nights(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("green_nights")
    past_runs.make(Home(root), red=False)
    return root


@pytest.fixture
def home(green_nights, tmp_path) -> Home:
    """Five green nights."""
    return Home(shutil.copytree(green_nights, tmp_path, dirs_exist_ok=True))
