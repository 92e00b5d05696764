"""hedge against all pairs of trades in exact fractions, and by hand."""

from fractions import Fraction

import numpy as np
import pytest

from streaming_core.apps import hedge, registry
from tests.streaming_core.apps.windows import run

COLUMNS = ("seq", "ts", "earlier", "l_company", "l_price", "r_company", "r_price")

# One set of parameters for examples by hand and some random ones: the loop compiles once.
BY_HAND = {"keys": 5, "size": 30_001}


def is_pair(left, right, params):
    exchanges = {trade["company"]: hedge.COMPANIES[trade["company"]] in hedge.NASDAQ for trade in (left, right)}
    if len(exchanges) < 2 or (params["same_exchange"] and len(set(exchanges.values())) > 1):
        return False
    of_left, of_right = (Fraction(t["price"] - t["average"], t["average"]) for t in (left, right))
    return of_left != 0 and Fraction(-105, 100) <= of_right / of_left <= Fraction(-95, 100)


def pairs_of(events, params):
    """Pairs of each trade, first as left row, then as right row, with every earlier one, by ascending key."""
    keys, pairs = params["keys"], []
    trades = [e for e in events if e["average"] > 0]
    for n, e in enumerate(trades):
        before = [(m, f) for m, f in enumerate(trades[:n]) if e["ts"] - f["ts"] < params["size"]]
        for is_right in (False, True):
            # Trade n, counted from 0, is row 2n + 1 on the left side and row 2n + 2 on the right side.
            place = {m: 2 * m + 1 if is_right else 2 * m + 2 for m, _ in before}
            for _, f in sorted(before, key=lambda entry, place=place: (place[entry[0]] % keys, entry[0])):
                left, right = (f, e) if is_right else (e, f)
                if is_pair(left, right, params):
                    sides = left["company"], left["price"], right["company"], right["price"]
                    pairs.append((e["seq"], e["ts"] + 1, f["seq"], *sides))
    return pairs


@pytest.mark.parametrize(
    ("events", "params"),
    [
        (300, {**BY_HAND, "rate": 2.7, "invalid_ratio": 0.1}),
        # All in one window.
        pytest.param(150, {"keys": 2, "size": 100_000, "rate": 10.0, "same_exchange": True}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_hedge_finds_every_pair(events, params):
    events, result = run("hedge", params, events=events)
    wanted = pairs_of(events, result.params)
    assert result.columns(*COLUMNS) == wanted
    assert len(wanted) > 50
    assert result.dropped == sum(e["average"] == 0 for e in events)
    assert (result.dropped > 0) == ("invalid_ratio" in params)


@pytest.mark.slow
def test_hedge_matches_an_example_by_hand():
    def trade(ts, company, price, average=1_000):
        return {"ts": ts, "company": company, "price": price, "average": average}

    rows = [
        trade(50_000, 0, 1_100),
        trade(50_000, 1, 895),  # -105 : 100, the bound; and the other way round, -100 : 105
        trade(50_000, 1, 905),  # -95 : 100, the bound; not the other way round
        trade(50_000, 1, 894),  # both ways too much
        trade(50_000, 0, 900),  # of the same company as the first, hedges none of those that have fallen
        trade(50_000, 2, 1_000),  # as the average is
        trade(50_000, 10, 900),
        trade(50_000, 3, 900, -1_000),
        trade(50_000, 3, 100_000_001),
        trade(80_000, 4, 1_800, 2_000),  # half a minute later
        trade(80_001, 5, 1_800, 2_000),
    ]
    _, result = run("hedge", BY_HAND, rows)
    assert sorted(result.columns("seq", "ts", "earlier", "l_company", "r_company")) == [
        (1, 50_001, 0, 0, 1), (1, 50_001, 0, 1, 0), (2, 50_001, 0, 0, 1), (9, 80_001, 0, 0, 4), (9, 80_001, 0, 4, 0),
    ]  # fmt: skip
    assert result.dropped == 3


def test_trades_follow_the_declared_distribution():
    app = registry.load("hedge")
    columns = app.generator(app.bind(), 1, 0, 200_000)
    seconds = (columns["ts"] - hedge.BEGIN) // 1000
    count = np.bincount(seconds)[:-1]
    assert count.max() <= 8_000
    assert count.max() > 2_000  # bursts
    assert 0.01 < (count == 0).mean() < 0.03
    assert abs(np.median(count) / 300 - 1) < 0.15
    share = np.bincount(columns["company"]) / 200_000
    law = np.arange(1, 11) ** -0.5
    assert np.allclose(share, law / law.sum(), atol=0.01)
    average = columns["average"]
    assert average.min() >= 5_000
    assert average.max() <= 200_000
    distance = (columns["price"] - average) / average
    assert abs(distance.mean()) < 0.001
    assert abs(distance.std() - 0.01) < 0.001
    even = columns["company"] % 2 == 0
    minute = seconds // 60
    of = [[distance[(minute == m) & side].mean() for m in range(minute[-1])] for side in (even, ~even)]
    assert np.corrcoef(of)[0, 1] < -0.2  # one half goes up where the other goes down
