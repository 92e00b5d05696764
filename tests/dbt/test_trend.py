"""The trend: the SQL follows the rule, and the rule errs as rarely as docs/explanation/speed-verdicts.md says."""

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
# Night 30 begins an epoch with a slower loop. The gate compared the night of the key with an earlier one.
EDITED = {
    "bridged": {30: trend.Gate(29, "unchanged")},
    "accused": {30: trend.Gate(29, "slower", -0.05)},
    "accused later": {33: trend.Gate(20, "faster", 0.1)},
    "beside a build that is not of the epoch before": {30: trend.Gate(99, "unchanged")},
    "not measured": {},
}


@pytest.mark.slow
def test_sql_and_python_rule_give_the_same_verdicts(spark):
    sql = jinja2.Environment().from_string(MACRO.read_text()).module.trend("points")
    histories = {name: (points, ["one"] * len(points), {}) for name, points in HISTORIES.items()}
    for name, gates in EDITED.items():
        points = [y + (0.4 if i >= 30 else 0) for i, y in enumerate(trend.history(9, 70, slower=0.06, at=52))]
        histories[name] = (points, ["one"] * 30 + ["two"] * 40, gates)
    daily = trend.history(10, 40)
    measured = {i: trend.Gate(i - 1, "slower" if i == 35 else "unchanged", -0.02) for i in range(21, 40)}
    histories["edited every day"] = (daily, ["one"] * 20 + [str(i) for i in range(20, 40)], measured)
    rows = []
    for name, (points, epochs, gates) in histories.items():
        for i, (y, epoch) in enumerate(zip(points, epochs, strict=True)):
            gate = gates.get(i)
            gate_row = gate and (f"{i:03}", f"b{gate.baseline:03}cdef", gate.verdict, gate.change, gate.change - 0.01)
            rows.append((name, f"{i:03}", float(y), epoch, gate_row and (*gate_row, gate.change + 0.01, gate.smallest)))
    of_gate = "run_id string, baseline string, verdict string, change double, change_low double, change_high double"
    schema = f"series string, run_id string, y double, epoch string, gate struct<{of_gate}, smallest double>"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("points")
    table = spark.sql(
        f"""select series, inline({sql}) from (
              select series, array_sort(collect_list(named_struct(
                'run_id', run_id, 'run_at', timestamp'2026-01-01', 'build', concat('b', run_id), 'y', y,
                'epoch', epoch, 'gate', gate))) as points
              from points group by series)"""
    )
    rows_by_night = {(row["series"], row["run_id"]): row for row in table.toArrow().to_pylist()}
    assert len(rows_by_night) == len(rows)
    verdicts = set()
    for name, history in histories.items():
        for i, night in enumerate(trend.trend(*history)):
            row = rows_by_night[name, f"{i:03}"]
            verdicts.add(night.verdict)
            assert row["verdict"] == night.verdict, (name, i)
            runs = {"since_run": night.since, "found_run": night.changed, "bridge_run": night.bridge}
            for column, value in runs.items():
                assert row[column] == (None if value is None else f"{value:03}"), (name, i, column)
            assert row["since_build"] == (None if night.since is None else f"b{night.since:03}")
            for column in ("noise", "smallest", "change"):
                value = getattr(night, column)
                assert row[column] == (None if value is None else pytest.approx(value, abs=1e-12)), (name, i, column)
            if night.change is not None:
                assert row["change_low"] < row["change"] < row["change_high"]
    assert verdicts == {"slower", "faster", "unchanged", "too_noisy", "too_new", "not_judged"}
    assert rows_by_night["bridged", "031"]["smallest"] == 0.03, "until the epoch has a level, the verdict is the gate's"
    assert rows_by_night["not measured", "035"]["reference_build"] == "b029"
    assert rows_by_night["not measured", "035"]["edited_build"] == "b030"


def test_measured_source_change_continues_the_series():
    quiet = trend.history(11, 60)
    loop = [y + (0.7 if i >= 30 else 0) for i, y in enumerate(quiet)]
    epochs = ["one"] * 30 + ["two"] * 30
    verdicts = [night.verdict for night in trend.trend(loop, epochs, {30: trend.Gate(29, "unchanged")})]
    assert set(verdicts[14:]) == {"unchanged"}, "no change of the loop reads as a change of speed"
    slower = trend.trend(loop, epochs, {30: trend.Gate(29, "slower", -0.051)})
    assert {(night.verdict, night.since, night.changed, night.change) for night in slower[30:]} == {
        ("slower", 30, 30, -0.051)
    }, "a slowdown never becomes the new normal in silence"
    unknown = [night.verdict for night in trend.trend(loop, epochs)]
    assert set(unknown[30:44]) == {"not_judged"}
    assert unknown[44] == "unchanged", "then the epoch has a noise of its own"


def test_daily_edits_have_a_verdict_every_day():
    points, epochs = trend.history(12, 40), ["one"] * 20 + [str(i) for i in range(20, 40)]
    judged = trend.trend(points, epochs, {i: trend.Gate(i - 1, "unchanged") for i in range(20, 40)})
    assert {night.verdict for night in judged[14:]} == {"unchanged"}


def test_false_alarms_are_rarer_than_one_in_a_thousand_nights_of_a_hundred_cells():
    # A hundredth of the nights in docs/explanation/speed-verdicts.md, which were counted by hand.
    wrong = sum(len(trend.alarms(trend.trend(trend.history(seed, 250)))) for seed in range(40))
    assert wrong == 0


@pytest.mark.parametrize(("noise", "nights", "least"), [(0.005, 30, 0.94), (0.008, 30, 0.90), (0.01, 60, 0.80)])
def test_five_percent_slowdown_is_detected_within_three_nights_at_low_noise(noise, nights, least):
    cells, detected, exact = 150, 0, 0
    for seed in range(cells):
        judged = trend.trend(trend.history(10**6 + seed, nights + 3, noise, slower=0.05, at=nights))
        detected += judged[-1].verdict == "slower"
        exact += judged[-1].since == nights
    assert detected / cells >= least
    assert exact / detected >= 0.95, "it is said to have begun where it did"


def test_rule_detects_the_smallest_slowdown_that_it_states():
    cells, detected = 150, 0
    for seed in range(cells):
        quiet = trend.history(seed, 43, outliers=0, wander=0)
        smallest = trend.trend(quiet[:40])[-1].smallest
        slower = [y - (-math.log(1 - smallest) if i >= 40 else 0) for i, y in enumerate(quiet)]
        detected += trend.trend(slower)[-1].verdict == "slower"
    assert 0.85 <= detected / cells <= 0.99
