"""OB against the same computation written again, and its answers by hand."""

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_items": 20, "gen_parts": 1, "init_qty": 30, "unauth_ratio": 0.1, "invalid_ratio": 0.1},
        {"bid_length": 4, "n_items": 40, "length": 6},
        {"n_items": 40, "init_qty": 30, "payload": 4},
        {"n_items": 3, "length": 5, "duplicates": True, "bid_ratio": 0.5},
        {"len_mode": "code", "length": 24, "pattern": "independent", "partitioned": False},
    ],
)
def test_ob_trades(params):
    events, result = by_hand.run_generated("ob", params)
    bound, goods = result.params, [[row["ask"], row["qty"]] for row in ob_opening(params)]
    expected, dropped = [], 0
    for e in events:
        n, items = e["n"], e["items"][: e["n"]]
        if max(items) >= bound["n_items"]:
            dropped += 1
            continue
        trades = list(zip(items, e["prices"], e["qtys"], strict=False))
        ok, ask, qty = e["auth"], 0, 0
        dropped += not ok
        if ok and e["kind"] == 0:
            assert len(set(items)) == n == bound["bid_length"]
            ok = all(price >= goods[k][0] and wanted <= goods[k][1] for k, price, wanted in trades)
            for k, _, wanted in trades:
                goods[k][1] -= wanted * ok
            ask, qty = (sum(goods[k][part] for k in items) for part in (0, 1))
        elif ok:
            for k, price, more in trades:
                if e["kind"] == 1:
                    goods[k][0] = price
                else:
                    goods[k][1] += more
        answer = {"kind": e["kind"], "auth": e["auth"], "ok": ok, "ask": ask, "qty": qty}
        expected.append({"seq": e["seq"], "sub": 0, **answer})
    assert result.outputs == expected
    assert result.dropped == dropped
    assert [[row.ask, row.qty] for row in result.state["state_goods"][1].values()] == goods
    payloads = [row.payload for row in result.state["state_goods"][1].values()]
    assert payloads == [[ask + qty] * bound["payload"] for ask, qty in goods]
    bids = [o["ok"] for o in expected if o["kind"] == 0 and o["auth"]]
    assert 0 < sum(bids) < len(bids)


def ob_opening(params):
    app = registry.load("ob")
    empty = workload.schema(app, params).empty_table()
    return by_hand.run(app, params, empty).state_tables()["state_goods"].to_pylist()


def test_ob_opens_with_fixed_prices():
    prices = [row["ask"] for row in ob_opening({"n_items": 5_000})]
    assert {row["qty"] for row in ob_opening({})} == {100}
    assert prices == [row["ask"] for row in ob_opening({})][:5_000]
    assert set(prices) == set(range(100))


def ob_event(**fields):
    zeros = {"ts": 0, "user": 0, "kind": 0, "auth": True, "n": 1, "items": [0], "prices": [50], "qtys": [0]}
    event = zeros | fields
    return event | {name: (event[name] + [0] * 3)[:3] for name in ("items", "prices", "qtys")}


def ob_run(*events):
    app, params = registry.load("ob"), {"n_items": 4, "length": 3, "max_price": 1, "init_qty": 10}
    rows = [{"seq": i, **event} for i, event in enumerate(events)]
    return by_hand.run(app, params, pa.Table.from_pylist(rows, workload.schema(app, params)))


@pytest.mark.parametrize(
    ("fields", "ok"),
    [
        ({"qtys": [10]}, True),  # all there is
        ({"qtys": [11]}, False),
        ({"prices": [0]}, True),  # just the asking price
        ({"items": [1], "prices": [6], "qtys": [1]}, False),  # one below
        ({"items": [1], "prices": [7], "qtys": [1]}, True),
        ({"items": [2], "qtys": [0]}, True),  # nothing left, and nothing wanted
        ({"items": [2], "qtys": [1]}, False),
        ({"n": 3, "items": [0, 1, 3], "prices": [9, 9, 9], "qtys": [1, 1, 1]}, True),
        ({"n": 3, "items": [0, 1, 3], "prices": [9, 9, 9], "qtys": [1, 11, 1]}, False),  # one that fails, fails all
    ],
)
def test_ob_fills_a_bid_completely_or_not_at_all(fields, ok):
    altered = ob_event(kind=1, items=[1], prices=[7])
    result = ob_run(altered, ob_event(items=[2], qtys=[10]), ob_event(**fields))
    assert [o["ok"] for o in result.outputs] == [True, True, ok]
    left = sum(row.qty for row in result.state["state_goods"][1].values())
    assert left == 30 - (sum(ob_event(**fields)["qtys"]) if ok else 0)


def test_ob_rejects_an_unauthorised_request_with_an_answer():
    for kind in (0, 1, 2):
        result = ob_run(ob_event(kind=kind, auth=False, qtys=[3], prices=[9]))
        answer = {"kind": kind, "auth": False, "ok": False, "ask": 0, "qty": 0}
        assert (result.outputs, result.dropped) == ([{"seq": 0, "sub": 0, **answer}], 1)
        assert {(row.ask, row.qty) for row in result.state["state_goods"][1].values()} == {(0, 10)}


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": 3}, {"n": 0}, {"n": 4}, {"items": [4]}, {"prices": [-1]}, {"qtys": [-1]}, {"n": 2, "items": [1, 1]},
        {"kind": 2, "n": 3, "items": [0, 1, 4]}, {"kind": 1, "n": 2, "prices": [0, -1]}, {"auth": False, "items": [9]},
    ],
)  # fmt: skip
def test_ob_drops_invalid_events(fields):
    result = ob_run(ob_event(**fields))
    assert (result.outputs, result.dropped) == ([], 1)
