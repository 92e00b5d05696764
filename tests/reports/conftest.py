"""Tests of pages see no committed results: their pages would change with every measurement."""

from pathlib import Path

import pytest

from reports import results


@pytest.fixture(scope="session", autouse=True)
def without_committed_results():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "COMMITTED", Path("/nonexistent"))
        yield
