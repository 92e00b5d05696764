"""How many cases of a test `make test` runs. `make test-full` runs all."""

from collections.abc import Iterable

import pytest


def some(cases: Iterable, quick: int = 1) -> list:
    """The cases of a parameter: the first ones are always run, the others with the slow tests.

    A tuple has the values of several parameters.
    """
    return [case if n < quick else pytest.param(*_values(case), marks=pytest.mark.slow) for n, case in enumerate(cases)]


def seeds(quick: int, of: int) -> list:
    """Seeds of `of` cases, as `some` chooses them."""
    return some(range(of), quick)


def _values(case: object) -> tuple:
    return case if isinstance(case, tuple) else (case,)
