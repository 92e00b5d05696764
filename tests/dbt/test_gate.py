"""The speed gate: the SQL follows the rule, the rule is Wilcoxon's, and it errs as often as its page says."""

from pathlib import Path

import jinja2
import numpy as np
import pytest
from scipy.stats import wilcoxon

from tests.dbt import gate

MACROS = Path(__file__).resolve().parents[2] / "dbt" / "macros"
CELLS = [
    gate.pairs(seed, noise, slower=slower)
    for seed, (noise, slower) in enumerate(
        (noise, slower) for noise in (0.002, 0.01, 0.03, 0.2) for slower in (0.0, 0.02, 0.06, -0.06, 0.3)
    )
]


@pytest.mark.slow
def test_sql_and_python_rule_give_the_same_verdicts(spark):
    source = "".join((MACROS / name).read_text() for name in ("trend.sql", "gate.sql"))
    sql = jinja2.Environment().from_string(source).module.gate("faster")
    rows = [(number, [float(y) for y in faster]) for number, faster in enumerate(CELLS)] + [(-1, [0.1] * 31)]
    spark.createDataFrame(rows, "number int, faster array<double>").createOrReplaceTempView("pairs")
    table = spark.sql(f"select number, verdict.* from (select number, {sql} as verdict from pairs)").toArrow()
    rows_by_number = {row.pop("number"): row for row in table.to_pylist()}
    assert set(rows_by_number.pop(-1).values()) == {None}, "one pair is missing, and nothing is said"
    assert len(rows_by_number) == len(CELLS)
    for number, faster in enumerate(CELLS):
        rule = gate.gate(faster)._asdict()
        assert rows_by_number[number].pop("verdict") == rule.pop("verdict"), number
        assert rows_by_number[number] == pytest.approx(rule, abs=1e-12), number
    assert {gate.gate(faster).verdict for faster in CELLS} == {"slower", "faster", "unchanged", "too_noisy"}


def test_rule_equals_the_wilcoxon_test_of_a_change_above_one_percent():
    slower = 0
    for seed in range(400):
        faster = gate.pairs(seed, slower=0.03)
        p = wilcoxon(faster + gate.LEAST_CHANGE, alternative="less", method="exact").pvalue
        assert (gate.gate(faster).verdict == "slower") == (p <= 1e-5), seed
        slower += p <= 1e-5
    assert 40 < slower < 360, "cases on both sides"


def test_rank_thresholds_match_32_pairs():
    ways = np.array([1.0])  # in how many of all ways to give signs, ranks of one sign add up to so many
    for rank in range(1, gate.PAIRS + 1):
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    below = np.cumsum(ways) / 2.0**gate.PAIRS
    assert below[gate.CERTAIN] <= 1e-5 < below[gate.CERTAIN + 1]
    assert below[gate.LIKELY] <= 0.025 < below[gate.LIKELY + 1]


@pytest.mark.parametrize("noise", [{}, {"skew": True}, {"outliers": 0.2}, {"noise": 0.1}, {"second": 0.3}])
def test_unchanged_build_has_no_alarm(noise):
    # A part of the trials in docs/explanation/speed-verdicts.md, which were counted by hand.
    assert {gate.gate(gate.pairs(seed, **noise)).verdict for seed in range(1000)} <= {"unchanged", "too_noisy"}


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.02])
def test_rule_detects_the_smallest_slowdown_that_it_states(noise):
    smallest = [gate.gate(gate.pairs(10**6 + seed, noise)).smallest for seed in range(400)]
    detections = [
        gate.gate(gate.pairs(seed, noise, slower=small)).verdict == "slower" for seed, small in enumerate(smallest)
    ]
    assert 0.85 <= np.mean(detections) <= 0.99
