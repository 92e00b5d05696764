"""The rule of the trend, and that it errs as rarely as docs/explanation/speed-verdicts.md says."""

import math
from datetime import UTC, datetime

import pytest

from jobs.trend import Bridge, Night, Size, Verdict, trend
from tests.jobs.histories import history

START = datetime(2026, 1, 1, tzinfo=UTC)


def judged(points, epochs=None, bridges=None) -> list[Verdict]:
    """The verdicts on a series of `points`; run i is `ri` of build `bi`. `bridges`: night -> (earlier night, size)."""
    nights = []
    for i, y in enumerate(points):
        earlier, change = (bridges or {}).get(i, (None, None))
        verdict = "unchanged" if change is None else "slower" if change < 0 else "faster"
        size = None if change is None else Size(change, change - 0.01, change + 0.01)
        bridge = None if earlier is None else Bridge(f"r{i}", f"b{earlier}-cdef", verdict, size, 0.03)
        nights.append(Night(f"r{i}", START, f"b{i}-", y, epochs[i] if epochs else "", bridge))
    return trend(nights)


def test_slowdown_is_found_within_three_nights_and_named_by_its_first_build():
    points = [math.log(2 if i < 16 else 1.88) + 0.005 * math.sin(2 * i) for i in range(19)]
    verdicts = judged(points)
    assert [verdict.verdict for verdict in verdicts] == ["too_new"] * 14 + ["unchanged"] * 4 + ["slower"]
    last = verdicts[-1]
    assert (last.since_run, last.since_build, last.found_run, last.nights) == ("r16", "b16-", "r18", 3)
    assert last.change_low < last.change < last.change_high < 0
    assert last.change == pytest.approx(1.88 / 2 - 1, abs=0.005)
    assert last.level == pytest.approx(1.88, rel=0.01)


def test_faster_and_mended_series_say_so():
    assert judged(history(5, 60, slower=-0.3, at=30))[-1].verdict == "faster"
    mended = [y - (0.1 if 40 <= i < 46 else 0) for i, y in enumerate(history(6, 70))]
    assert {verdict.verdict for verdict in judged(mended)[43:46]} == {"slower"}
    assert judged(mended)[-1].verdict == "faster", "the last change counts"


def test_noisy_series_has_no_verdict():
    assert judged(history(2, 40, noise=0.08))[-1].verdict == "too_noisy"


def test_series_of_no_night_and_of_one_night():
    assert judged([]) == []
    (verdict,) = judged([math.log(2)])
    assert (verdict.verdict, verdict.nights, verdict.level, verdict.noise, verdict.smallest) == (
        "too_new",
        1,
        2,
        None,
        None,
    )


@pytest.mark.parametrize("scale", [0.5, 7.0])
def test_ratio_of_all_nights_changes_levels_only(scale):
    points = history(3, 90, slower=0.05, at=60)
    for left, right in zip(judged(points), judged([y + math.log(scale) for y in points]), strict=True):
        assert (left.verdict, left.since_run, left.nights) == (right.verdict, right.since_run, right.nights)
        assert right.level == pytest.approx(scale * left.level)


def test_earlier_verdicts_do_not_depend_on_later_nights():
    points = history(7, 100, outliers=0.2)
    assert judged(points)[:60] == judged(points[:60])


def test_measured_source_change_continues_the_series():
    loop = [y + (0.7 if i >= 30 else 0) for i, y in enumerate(history(11, 60))]
    epochs = ["one"] * 30 + ["two"] * 30
    bridged = judged(loop, epochs, {30: (29, None)})
    assert {verdict.verdict for verdict in bridged[14:]} == {"unchanged"}, (
        "no change of the loop reads as a change of speed"
    )
    assert (bridged[31].smallest, bridged[31].bridge_run) == (0.03, "r30"), "the verdict is the gate's at first"
    assert bridged[40].bridge_run is None
    slower = judged(loop, epochs, {30: (29, -0.051)})
    assert {(verdict.verdict, verdict.since_run, verdict.found_run, verdict.change) for verdict in slower[30:]} == {
        ("slower", "r30", "r30", -0.051)
    }, "a slowdown never becomes the new normal in silence"
    later = judged(loop, epochs, {33: (20, 0.1)})
    assert [verdict.verdict for verdict in later[30:34]] == ["not_judged"] * 3 + ["faster"]
    assert (later[33].since_run, later[33].found_run) == ("r30", "r33")


@pytest.mark.parametrize("bridges", [{}, {30: (99, None)}], ids=["none", "of a build of another epoch"])
def test_source_change_without_a_bridge_is_not_judged_until_the_epoch_has_noise(bridges):
    loop = [y + (0.7 if i >= 30 else 0) for i, y in enumerate(history(11, 60))]
    verdicts = judged(loop, ["one"] * 30 + ["two"] * 30, bridges)
    assert {(verdict.verdict, verdict.edited_build, verdict.reference_build) for verdict in verdicts[30:44]} == {
        ("not_judged", "b30-", "b29-")
    }
    assert (verdicts[44].verdict, verdicts[44].edited_build, verdicts[44].reference_build) == (
        "unchanged",
        "b30-",
        None,
    )


def test_bridge_keeps_the_change_of_the_epoch_before():
    points = history(9, 70, slower=0.1, at=40)
    verdicts = judged(points, ["one"] * 50 + ["two"] * 20, {50: (49, None)})
    change = [(verdict.verdict, verdict.since_run, verdict.found_run, verdict.change) for verdict in verdicts]
    assert change[49][:2] == ("slower", "r40")
    assert set(change[50:]) == {change[49]}


def test_daily_edits_have_a_verdict_every_day():
    points, epochs = history(12, 40), ["one"] * 20 + [str(i) for i in range(20, 40)]
    verdicts = judged(points, epochs, {i: (i - 1, None) for i in range(20, 40)})
    assert {verdict.verdict for verdict in verdicts[14:]} == {"unchanged"}


def test_false_alarms_are_rarer_than_one_in_a_thousand_nights_of_a_hundred_cells():
    # A hundredth of the nights in docs/explanation/speed-verdicts.md, which were counted by hand.
    assert {verdict.found_run for seed in range(40) for verdict in judged(history(seed, 250))} == {None}


@pytest.mark.parametrize(("noise", "nights", "least"), [(0.005, 30, 0.94), (0.008, 30, 0.90), (0.01, 60, 0.80)])
def test_five_percent_slowdown_is_detected_within_three_nights_at_low_noise(noise, nights, least):
    cells, detected, exact = 150, 0, 0
    for seed in range(cells):
        last = judged(history(10**6 + seed, nights + 3, noise, slower=0.05, at=nights))[-1]
        detected += last.verdict == "slower"
        exact += last.since_run == f"r{nights}"
    assert detected / cells >= least
    assert exact / detected >= 0.95, "it is said to have begun where it did"


def test_rule_detects_the_smallest_slowdown_that_it_states():
    cells, detected = 150, 0
    for seed in range(cells):
        quiet = history(seed, 43, outliers=0, wander=0)
        smallest = judged(quiet[:40])[-1].smallest
        slower = [y - (-math.log(1 - smallest) if i >= 40 else 0) for i, y in enumerate(quiet)]
        detected += judged(slower)[-1].verdict == "slower"
    assert 0.85 <= detected / cells <= 0.99
