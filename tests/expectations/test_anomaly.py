"""The usual range sees spikes, and does not see noise or a slow drift."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.anomaly import LEAST, LIMIT, NIGHTS, TO_DEVIATION, usual_range

nights = st.integers(LEAST, NIGHTS)
centers = st.floats(1, 1e9)


def is_usual(history: list[float], value: float, least_spread: float = 0) -> bool:
    low, high = usual_range(history, least_spread)
    slack = 1e-9 * max(map(abs, (*history, value)))
    return low - slack <= value <= high + slack


@st.composite
def noisy(draw, least: int = LEAST):
    """A level, and nights within 5 % of it."""
    level = draw(centers)
    factors = draw(st.lists(st.floats(0.95, 1.05), min_size=least, max_size=NIGHTS))
    return level, [level * factor for factor in factors]


@given(noisy(), st.data())
def test_spike_is_seen_even_beside_earlier_spikes(case, data):
    level, history = case
    few = (len(history) - 1) // 2
    for at in data.draw(st.sets(st.integers(0, len(history) - 1), max_size=few)):
        history[at] = level * data.draw(st.sampled_from([0, 10, 1000]))
    # Values within 5 % have a MAD of at most 10 % of the level.
    reach = 0.05 + LIMIT * TO_DEVIATION * 0.1
    assert not is_usual(history, level * (1.01 + reach))
    assert not is_usual(history, level * (0.99 - reach))


@given(centers, st.floats(-1e3, 1e3), nights, st.data())
def test_steady_drift_with_noise_is_not_seen(start, slope, count, data):
    noise = data.draw(st.lists(st.floats(-0.4, 0.4), min_size=count + 1, max_size=count + 1))
    figures = [start + slope * (night + value) for night, value in enumerate(noise)]
    assert is_usual(figures[:-1], figures[-1])


@given(centers, st.floats(0.95, 1.05), nights)
def test_growth_of_a_few_percent_a_night_is_not_seen(start, factor, count):
    figures = [start * factor**night for night in range(count + 1)]
    assert is_usual(figures[:-1], figures[-1])


@given(centers, nights, st.floats(-1, 1))
def test_equal_nights_allow_the_least_spread(level, count, share):
    assert is_usual([level] * count, level + share * LIMIT * 0.01 * level, 0.01 * level)
    assert not is_usual([level] * count, level * (1.01 + LIMIT * 0.01), 0.01 * level)


@given(noisy(), st.floats(-1e6, 1e6), st.floats(0.1, 10))
def test_range_moves_with_the_figures(case, shift, scale):
    _, history = case
    low, high = usual_range(history, 0)
    moved = usual_range([scale * value + shift for value in history], 0)
    tolerance = 1e-6 * (abs(shift) + scale * max(history))
    assert moved == pytest.approx((scale * low + shift, scale * high + shift), abs=tolerance)


@given(noisy(least=NIGHTS), st.lists(centers, max_size=30))
def test_only_the_newest_nights_count(case, older):
    _, history = case
    assert usual_range(older + history, 0) == usual_range(history, 0)


@pytest.mark.parametrize("count", range(LEAST))
def test_too_few_nights_have_no_range(count):
    assert usual_range([1.0] * count, 0.1) is None
    assert all(map(math.isfinite, usual_range([1.0] * LEAST, 0.1)))
