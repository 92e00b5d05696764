"""Bootstrap intervals, ratios of rows, and the sentences that they support."""

from __future__ import annotations

import itertools
import statistics as stdlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.bench.race import ratios, statistics

rounds = st.lists(st.floats(0.1, 1e9, allow_nan=False), min_size=1, max_size=15)


def exact(values):
    """The 95 % interval from all resamples, each with its probability."""
    medians = sorted(stdlib.median(resample) for resample in itertools.product(values, repeat=len(values)))
    return [medians[int(np.ceil(part * len(medians))) - 1] for part in (0.025, 0.975)]


@pytest.mark.parametrize("values", [[1.0], [3.0, 1.0], [1.0, 2.0, 4.0], [5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6, 7]])
def test_interval_covers_all_resamples(values):
    assert statistics.interval(values) == exact(values)


def test_the_interval_of_five_rounds_spans_all_and_of_seven_omits_the_extremes():
    # The median of five draws is the lowest of five values with probability 0.058 > 0.025, of seven with 0.010.
    assert statistics.interval([10, 20, 30, 40, 50]) == [10, 50]
    assert statistics.interval([10, 20, 30, 40, 50, 60, 70]) == [20, 60]


@given(rounds)
def test_interval_contains_the_median_and_is_deterministic(values):
    low, high = statistics.interval(values)
    assert min(values) <= low <= statistics.median(values) <= high <= max(values)
    assert statistics.interval(values) == [low, high]


@given(rounds, st.sampled_from([0.5, 2.0, 1024.0]))
def test_interval_scales_with_its_values(values, factor):
    assert statistics.interval([factor * value for value in values]) == [
        factor * end for end in statistics.interval(values)
    ]


def test_a_missing_value_gives_no_median():
    assert statistics.summary("cpu_ns", [1.0, None]) == {"cpu_ns": None, "cpu_ns_range": None}
    assert statistics.summary("cpu_ns", []) == {"cpu_ns": None, "cpu_ns_range": None}
    assert statistics.summary("cpu_ns", [3.0, 1.0, 2.0]) == {"cpu_ns": 2.0, "cpu_ns_range": [1.0, 3.0]}


def row(way, rates, threads=2, **more):
    plain = {"app": "gs", "params": {"theta": 0.5}, "way": way, "threads": threads, "heat": 0, "result": "equal"}
    of_rates = {"rates": rates, "events_per_s": stdlib.median(rates), "events_per_s_range": [min(rates), max(rates)]}
    return plain | of_rates | {"rounds": {}} | more


def test_rows_of_a_heat_pair_by_round():
    # The machine was half as fast in every second round.
    fast, slow = row("owners", [4e6, 2e6, 4e6, 2e6, 4e6]), row("pat", [2e6, 1e6, 2e6, 1e6, 2e6])
    ratio = ratios.compare(fast, slow)
    assert (ratio.median, ratio.low, ratio.high, ratio.differs) == (2, 2, 2, True)
    assert ratios.versus(fast, slow) == "owners has 2 (2 to 2) times the throughput of pat"
    # Rows of different heats do not pair, so no difference is significant.
    apart = ratios.compare(fast, slow | {"heat": 1})
    assert (apart.median, apart.low, apart.high, apart.differs) == (2, 1, 4, False)


def test_a_difference_requires_an_interval_without_one():
    first, second = row("a", [10, 12, 9]), row("b", [10, 10, 10])
    assert ratios.compare(first, second).text == "no difference seen (0.9 to 1.2)"
    expected = "no difference seen between the throughput of a and of b (0.9 to 1.2)"
    assert ratios.versus(first, second) == expected
    assert ratios.compare(row("a", [11, 12, 13]), second).text == "1.2 (1.1 to 1.3) times"
    assert ratios.compare(row("a", [9, 8, 7]), second).text == "0.8 (0.7 to 0.9) times"


def test_one_round_has_no_interval():
    first, second = row("a", [20]), row("b", [10])
    assert (ratios.compare(first, second).text, ratios.compare(first, second).differs) == (
        "2 times in one round",
        False,
    )
    assert ratios.versus(first, second) == "a has 2 times the throughput of b in one round"


def test_rows_of_different_thread_counts_compare_only_on_request():
    single, double = row("a", [10, 10], threads=1), row("a", [20, 20])
    with pytest.raises(ValueError, match="different numbers of threads are not compared: a on 2 threads and a on 1"):
        ratios.compare(double, single)
    assert (
        ratios.versus(double, single, over_threads=True)
        == "a on 2 threads has 2 (2 to 2) times the throughput of a on 1 thread"
    )


def test_columns_other_than_throughput_are_compared_by_round():
    first = row("a", [1, 1], rounds={"end_to_end_p99_us": [100.0, 300.0]})
    second = row("b", [1, 1], rounds={"end_to_end_p99_us": [50.0, 150.0]})
    assert ratios.versus(first, second, "end_to_end_p99_us") == "a has 2 (2 to 2) times the p99 latency of b"


def test_rows_are_selected_by_columns_and_parameters():
    rows = [row("a", [1], result="different"), row("a", [2]), row("b", [3], threads=4)]
    assert ratios.pick(rows, way="a", theta=0.5) is rows[1]
    assert ratios.pick(rows, way="a", result="different") is rows[0]
    assert ratios.pick(rows, way="a", theta=0.6) is None
    assert ratios.best(rows) is rows[2]
    assert ratios.best([]) is None
    assert ratios.most(rows) == 4
    assert ratios.versus(None, rows[0]) == ratios.versus(rows[0], None) == ratios.quantity(None) == ""


def test_quantities_have_units_and_intervals():
    several = row("a", [3.2e6, 3.4e6, 3.5e6], p99_us=1234.5, cpu_ns=1500.0, rounds={"cpu_ns": [1.0] * 3})
    several["cpu_ns_range"] = [1400.0, 1600.0]
    assert ratios.quantity(several) == "3.4 M/s (3.2 to 3.5)"
    assert ratios.quantity(several, "p99_us") == "1.23 ms"
    assert ratios.quantity(several, "cpu_ns") == "1,500 ns (1,400 to 1,600)"
    assert ratios.quantity(row("a", [3.4e6])) == "3.4 M/s"
    ratios.add_multiple(several, "comparisons_per_s", "events_per_s", 10)
    assert (several["comparisons_per_s"], several["comparisons_per_s_range"]) == (3.4e7, [3.2e7, 3.5e7])
    assert several["rounds"]["comparisons_per_s"] == [3.2e7, 3.4e7, 3.5e7]
