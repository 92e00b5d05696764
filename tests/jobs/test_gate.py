"""The rule of the speed gate is Wilcoxon's, and it errs as often as docs/explanation/speed-verdicts.md says."""

import numpy as np
import pytest
from scipy.stats import wilcoxon

from infra.gate import pairs as measured
from jobs import gate as rule
from jobs.gate import gate
from tests.jobs.histories import pairs


def test_rule_equals_the_wilcoxon_test_of_a_change_above_one_percent():
    slower = 0
    for seed in range(400):
        faster = pairs(seed, slower=0.03)
        p = wilcoxon(faster + rule.LEAST_CHANGE, alternative="less", method="exact").pvalue
        assert (gate(faster).verdict == "slower") == (p <= 1e-5), seed
        slower += p <= 1e-5
    assert 40 < slower < 360, "cases on both sides"


def test_rank_thresholds_match_32_pairs():
    ways = np.array([1.0])  # in how many of all ways to give signs, ranks of one sign add up to so many
    for rank in range(1, rule.PAIRS + 1):
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    below = np.cumsum(ways) / 2.0**rule.PAIRS
    assert below[rule.CERTAIN] <= 1e-5 < below[rule.CERTAIN + 1]
    assert below[rule.LIKELY] <= 0.025 < below[rule.LIKELY + 1]


@pytest.mark.parametrize("noise", [{}, {"skew": True}, {"outliers": 0.2}, {"noise": 0.1}, {"second": 0.3}])
def test_unchanged_build_has_no_alarm(noise):
    # A part of the trials in docs/explanation/speed-verdicts.md, which were counted by hand.
    assert {gate(pairs(seed, **noise)).verdict for seed in range(1000)} <= {"unchanged", "too_noisy"}


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.02])
def test_rule_detects_the_smallest_slowdown_that_it_states(noise):
    smallest = [gate(pairs(10**6 + seed, noise)).smallest for seed in range(400)]
    detections = [gate(pairs(seed, noise, slower=small)).verdict == "slower" for seed, small in enumerate(smallest)]
    assert 0.85 <= np.mean(detections) <= 0.99


@pytest.mark.parametrize(
    ("against", "verdict"),
    # The last rank that still allows a verdict, and the first that does not: 1 + ... + 9 = 45, and 55 with the tenth.
    [(9, "slower"), (10, "unchanged")],
)
def test_verdict_needs_all_but_a_few_ranks(against, verdict):
    ranks = np.arange(1, rule.PAIRS + 1)
    assert gate(-0.01 - np.where(ranks <= against, -0.001, 0.001) * ranks).verdict == verdict


def test_swapped_builds_swap_the_verdict():
    for seed in range(50):
        slower, faster = gate(pairs(seed, slower=0.05)), gate(-pairs(seed, slower=0.05))
        mirror = {"slower": "faster", "faster": "slower"}
        assert faster.verdict == mirror.get(slower.verdict, slower.verdict) or "too_noisy" in (
            slower.verdict,
            faster.verdict,
        )
        assert (1 + slower.change) * (1 + faster.change) == pytest.approx(1)


def test_missing_pair_leaves_no_verdict():
    assert measured.PAIRS == rule.PAIRS
    assert gate(pairs(1)[1:]) is None
