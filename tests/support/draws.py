"""How many random cases a test draws."""

import pytest


def seeds(quick: int, of: int) -> list:
    """Seeds of `of` cases: the first ones are always run, the others with the slow tests."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, of))]
