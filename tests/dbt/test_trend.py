"""The trend: the SQL follows the rule, and the rule errs as rarely as docs/explanation/speed-verdicts.md says."""

from __future__ import annotations

import math
from pathlib import Path

import jinja2
import pytest

from tests.dbt import trend

MACRO = Path(__file__).resolve().parents[2] / "dbt" / "macros" / "trend.sql"
HISTORIES = {
    "quiet": trend.history(1, 80, noise=0.0005),
    "noisy": trend.history(2, 40, noise=0.08),
    "slower": trend.history(3, 90, slower=0.05, at=60),
    "much slower, early": trend.history(4, 40, slower=0.4, at=16),
    "faster": trend.history(5, 60, slower=-0.3, at=30),
    "slower and mended": [y + (0.1 if 40 <= i < 46 else 0) for i, y in enumerate(trend.history(6, 70))],
    "outliers": trend.history(7, 100, outliers=0.2),
    "new": trend.history(8, 7),
}


def test_the_sql_says_what_the_rule_says(spark):
    sql = jinja2.Environment().from_string(MACRO.read_text()).module.trend("points")
    rows = [(name, f"{i:03}", float(y)) for name, points in HISTORIES.items() for i, y in enumerate(points)]
    spark.createDataFrame(rows, "series string, run_id string, y double").createOrReplaceTempView("points")
    found = spark.sql(
        f"""select series, inline({sql}) from (
              select series, array_sort(collect_list(named_struct(
                'run_id', run_id, 'run_at', timestamp'2026-01-01', 'build', concat('b', run_id), 'y', y))) as points
              from points group by series)"""
    )
    said = {(row["series"], row["run_id"]): row for row in found.toArrow().to_pylist()}
    assert len(said) == len(rows)
    verdicts = set()
    for name, points in HISTORIES.items():
        for i, night in enumerate(trend.trend(points)):
            row = said[name, f"{i:03}"]
            verdicts.add(night.verdict)
            assert row["verdict"] == night.verdict, (name, i)
            for column, value in (("since_run", night.since), ("found_run", night.found)):
                assert row[column] == (None if value is None else f"{value:03}"), (name, i, column)
            assert row["since_build"] == (None if night.since is None else f"b{night.since:03}")
            for column in ("noise", "smallest", "change"):
                value = getattr(night, column)
                assert row[column] == (None if value is None else pytest.approx(value, abs=1e-12)), (name, i, column)
            if night.change is not None:
                assert row["change_low"] < row["change"] < row["change_high"]
    assert verdicts == {"slower", "faster", "unchanged", "too_noisy", "too_new"}


def test_an_unchanged_build_is_accused_less_often_than_once_in_a_thousand_nights_of_a_hundred_cells():
    # A hundredth of the nights in docs/explanation/speed-verdicts.md, which were counted by hand.
    wrong = sum(len(trend.alarms(trend.trend(trend.history(seed, 250)))) for seed in range(40))
    assert wrong == 0


@pytest.mark.parametrize(("noise", "nights", "least"), [(0.005, 30, 0.94), (0.008, 30, 0.90), (0.01, 60, 0.80)])
def test_five_percent_slower_is_found_within_three_nights_where_the_noise_allows_it(noise, nights, least):
    cells, found, exact = 150, 0, 0
    for seed in range(cells):
        judged = trend.trend(trend.history(10**6 + seed, nights + 3, noise, slower=0.05, at=nights))
        found += judged[-1].verdict == "slower"
        exact += judged[-1].since == nights
    assert found / cells >= least
    assert exact / found >= 0.95, "it is said to have begun where it did"


def test_the_smallest_slowdown_that_is_named_is_one_that_is_found():
    cells, found = 150, 0
    for seed in range(cells):
        quiet = trend.history(seed, 43, outliers=0, wander=0)
        smallest = trend.trend(quiet[:40])[-1].smallest
        slower = [y - (-math.log(1 - smallest) if i >= 40 else 0) for i, y in enumerate(quiet)]
        found += trend.trend(slower)[-1].verdict == "slower"
    assert 0.85 <= found / cells <= 0.99
