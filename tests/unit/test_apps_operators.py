"""Every application's operators against the same computation written again, straight from its specification."""

from collections import Counter, defaultdict, deque
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from streaming_core import workload
from streaming_core.apps import fd, lr, registry, sd
from tests.unit import by_hand, traffic

N = 1500


def run(name, params=None, events=N, seed=3):
    app = registry.load(name)
    table = workload.generate_chunk(app, params or {}, events, seed, 0, events)
    return table.to_pylist(), by_hand.run(app, params or {}, table)


def run_lines(name, lines, params=None):
    app = registry.load(name)
    schema = workload.schema(app, params or {})
    rows = [{"seq": i, "ts": i, "line": line} for i, line in enumerate(lines)]
    return by_hand.run(app, params or {}, pa.Table.from_pylist(rows, schema))


# --- GS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"n_items": 50},
        {"n_items": 10, "partitioned": False, "theta": 1.0, "read_ratio": 0.25},
        {"length": 3, "n_items": 4, "gen_parts": 2, "duplicates": True},
        {"length": 16, "n_items": 40, "post_compute": 3},
        {"n_items": 60, "invalid_ratio": 0.1, "read_ratio": 0.3},
        {"length": 1, "n_items": 1, "read_ratio": 1.0},
    ],
)
def test_gs_reads_what_was_written_before(params):
    events, result = run("gs", params)
    bound = result.params
    table = list(range(bound["n_items"]))
    expected, dropped = [], 0
    for e in events:
        if max(e["keys"]) >= bound["n_items"]:
            dropped += 1
            continue
        total = mixed = 0
        if e["is_read"]:
            total = mixed = sum(table[k] for k in e["keys"])
            mixed %= 2**31 - 1
            for _ in range(bound["post_compute"]):
                mixed = (mixed * 48271 + 11) % (2**31 - 1)
        else:
            for k, v in zip(e["keys"], e["vals"], strict=True):
                table[k] = v
        expected.append({"seq": e["seq"], "sub": 0, "is_read": e["is_read"], "total": total, "mixed": mixed})
    assert result.outputs == expected
    assert result.dropped == dropped
    assert [row.value for row in result.state["state_items"][1].values()] == table
    assert (dropped > 0) == ("invalid_ratio" in params)


# --- SL ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"n_items": 20},
        {"n_items": 2, "partitioned": False, "init_balance": 5_000},
        {"n_items": 30, "theta": 1.5, "init_balance": 100_000, "min_balance": 90_000},
        {"n_items": 3, "duplicates": True, "deposit_ratio": 0.3, "max_amount": 10, "max_asset_amount": 10},
        {"n_items": 20, "invalid_ratio": 0.1},
    ],
)
def test_sl_moves_money(params):
    events, result = run("sl", params)
    bound = result.params
    a, b = ([bound["init_balance"]] * bound["n_items"] for _ in range(2))
    expected = []
    for e in events:
        if e["amt_acct"] < 0 or e["amt_asset"] < 0:
            continue
        da, db, sa, sb = e["dst_acct"], e["dst_asset"], e["src_acct"], e["src_asset"]
        ok = True
        if e["kind"] == 0:
            a[da] += e["amt_acct"]
            b[db] += e["amt_asset"]
        else:
            ok = a[sa] > e["min_bal"] and a[sa] > e["amt_acct"] and b[sb] > e["amt_asset"]
            if ok:
                a[sa] -= e["amt_acct"]
                a[da] += e["amt_acct"]
                b[sb] -= e["amt_asset"]
                b[db] += e["amt_asset"]
        sources = (a[sa], b[sb]) if e["kind"] else (0, 0)
        balances = {"src_acct": sources[0], "dst_acct": a[da], "src_asset": sources[1], "dst_asset": b[db]}
        expected.append({"seq": e["seq"], "sub": 0, "kind": e["kind"], "ok": ok, **balances})
    assert result.outputs == expected
    assert result.dropped == N - len(expected)
    assert [row.balance for row in result.state["state_accounts"][1].values()] == a
    assert [row.balance for row in result.state["state_assets"][1].values()] == b
    rejected = sum(not o["ok"] for o in expected)
    assert 0 < rejected < len(expected)


def sl_event(**fields):
    event = dict.fromkeys(
        ("src_acct", "dst_acct", "src_asset", "dst_asset", "amt_acct", "amt_asset", "min_bal", "kind", "ts"), 0
    )
    return event | fields


@pytest.mark.parametrize(
    ("fields", "ok"),
    [
        ({"amt_acct": 99}, True),
        ({"amt_acct": 100}, False),  # strictly more than the amount
        ({"min_bal": 99}, True),
        ({"min_bal": 100}, False),
        ({"amt_asset": 100}, False),
        ({"amt_acct": 0, "amt_asset": 0}, True),
        ({"amt_acct": 60, "dst_acct": 0}, True),  # to itself: nothing is lost
    ],
)
def test_sl_conditions_are_strict(fields, ok):
    app = registry.load("sl")
    params = {"n_items": 2, "init_balance": 100, "duplicates": True}
    event = {"seq": 0, **sl_event(kind=1, dst_acct=1, dst_asset=1), **fields}
    result = by_hand.run(app, params, pa.Table.from_pylist([event], workload.schema(app, params)))
    assert [o["ok"] for o in result.outputs] == [ok]
    assert sum(row.balance for row in result.state["state_accounts"][1].values()) == 200
    if event["src_acct"] == event["dst_acct"]:
        assert result.outputs[0]["src_acct"] == 100


@pytest.mark.parametrize(
    "fields", [{"kind": 2}, {"amt_acct": -1}, {"amt_asset": -1}, {"src_acct": 2, "kind": 1}, {"dst_asset": 2}]
)
def test_sl_drops_what_it_cannot_mean(fields):
    app = registry.load("sl")
    event = {"seq": 0, **sl_event(), **fields}
    result = by_hand.run(app, {"n_items": 2}, pa.Table.from_pylist([event], workload.schema(app, {})))
    assert (result.outputs, result.dropped) == ([], 1)


# --- OB ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"n_items": 20, "gen_parts": 1, "init_qty": 30, "unauth_ratio": 0.1, "invalid_ratio": 0.1},
        {"bid_length": 4, "n_items": 40, "length": 6},
        {"n_items": 3, "length": 5, "duplicates": True, "bid_ratio": 0.5},
        {"len_mode": "code", "length": 24, "pattern": "independent", "partitioned": False},
    ],
)
def test_ob_trades(params):
    events, result = run("ob", params)
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
    bids = [o["ok"] for o in expected if o["kind"] == 0 and o["auth"]]
    assert 0 < sum(bids) < len(bids)


def ob_opening(params):
    app = registry.load("ob")
    empty = workload.schema(app, params).empty_table()
    return by_hand.run(app, params, empty).state_tables()["state_goods"].to_pylist()


def test_ob_opens_with_prices_of_its_own():
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
def test_ob_bids_are_for_all_or_nothing(fields, ok):
    altered = ob_event(kind=1, items=[1], prices=[7])
    result = ob_run(altered, ob_event(items=[2], qtys=[10]), ob_event(**fields))
    assert [o["ok"] for o in result.outputs] == [True, True, ok]
    left = sum(row.qty for row in result.state["state_goods"][1].values())
    assert left == 30 - (sum(ob_event(**fields)["qtys"]) if ok else 0)


def test_ob_answers_who_is_not_authorised_and_does_nothing():
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
def test_ob_drops_what_it_cannot_mean(fields):
    result = ob_run(ob_event(**fields))
    assert (result.outputs, result.dropped) == ([], 1)


# --- TP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"segments": 2, "vehicles": 90, "invalid_ratio": 0.1, "max_speed": 60},
        {"segments": 1, "max_speed": 1, "flagged": True},
        {"segments": 1, "max_speed": 1},
        {"segments": 3, "vehicles": 50, "window": 3, "reports_per_s": 60, "theta": 1.0},
        {"input": "linear_road", "seconds": 300, "veh_per_s": 9.0, "window": 60},
    ],
)
def test_tp_charges_tolls(params):
    events, result = run("tp", params)
    bound = result.params
    speed, seen, began, expected = {}, defaultdict(dict), defaultdict(int), []
    for e in events:
        seg, answer = e["seg"], {"ok": False, "speed": 0.0, "count": 0, "toll": 0}
        if e["speed"] >= 0:
            fresh = seg not in speed if bound["flagged"] else not speed.get(seg)
            speed[seg] = float(e["speed"]) if fresh else (speed[seg] + e["speed"]) / 2
            if bound["window"] and e["ts"] // bound["window"] * bound["window"] > began[seg]:
                began[seg] = e["ts"] // bound["window"] * bound["window"]
                seen[seg] = {}
            seen[seg][e["vid"]] = None
            count = len(seen[seg])
            toll = 2 * (count - 50) ** 2 if speed[seg] < 40 and count > 50 else 0
            answer = {"ok": True, "speed": speed[seg], "count": count, "toll": toll}
        expected.append({"seq": e["seq"], "sub": 0, "vid": e["vid"], "seg": seg, **answer})
    assert result.outputs == expected
    assert result.dropped == 0
    assert any(o["toll"] for o in expected) == (bound["segments"] < 3)
    assert (not all(o["ok"] for o in expected)) == ("invalid_ratio" in params)
    presence = result.state["state_presence"][1]
    assert {k: list(row.vehicles) for k, row in presence.items() if row.count} == {k: list(v) for k, v in seen.items()}
    assert all(row.count == len(row.vehicles) and row.begin == began[k] for k, row in presence.items())
    assert [row.average for row in result.state["state_speeds"][1].values()] == [
        speed.get(k, 0.0) for k in range(bound["segments"])
    ]


def tp_run(*events, **params):
    app = registry.load("tp")
    zeros = dict.fromkeys(("ts", "vid", "pos", "speed", "xway", "lane", "dir", "seg"), 0)
    rows = [{"seq": i, **zeros, **event} for i, event in enumerate(events)]
    return by_hand.run(app, {"segments": 2, **params}, pa.Table.from_pylist(rows, workload.schema(app, {})))


def test_tp_profiles_differ_in_what_a_speed_of_zero_means():
    reports = [{"speed": s} for s in (0, 50, 0, 25)]
    assert [o["speed"] for o in tp_run(*reports).outputs] == [0.0, 50.0, 25.0, 25.0]
    assert [o["speed"] for o in tp_run(*reports, flagged=True).outputs] == [0.0, 25.0, 12.5, 18.75]


def test_tp_rejects_a_negative_speed_and_all_three_operators_with_it():
    result = tp_run({"speed": 30, "vid": 1}, {"speed": -1, "vid": 2}, {"speed": -1, "seg": 1}, {"speed": 30, "vid": 1})
    assert [(o["ok"], o["speed"], o["count"]) for o in result.outputs] == [
        (True, 30.0, 1), (False, 0.0, 0), (False, 0.0, 0), (True, 30.0, 1),
    ]  # fmt: skip
    assert [list(row.vehicles) for row in result.state["state_presence"][1].values()] == [[1], []]
    assert result.dropped == 0


def test_tp_charges_from_the_51st_vehicle_below_40():
    slow = [{"speed": 39, "vid": v, "seg": 0} for v in range(52)]
    fast = [{"speed": 40, "vid": v, "seg": 1} for v in range(60)]
    tolls = [o["toll"] for o in tp_run(*slow, *fast).outputs]
    assert tolls == [0] * 50 + [2, 8] + [0] * 60


def test_tp_drops_a_segment_that_is_not_there():
    result = tp_run({"seg": 2}, {"seg": 2, "speed": -1})
    assert (result.outputs, result.dropped) == ([], 2)


@pytest.mark.parametrize(
    "params", [{}, {"segments": 3, "vehicles": 90, "invalid_ratio": 0.1}, {"input": "linear_road", "segments": 80}]
)
def test_tpk_puts_out_what_tp_does_and_ends_with_the_same_state(params):
    (events, shared), (same_events, keyed) = run("tp", params), run("tpk", params)
    assert same_events == events
    assert keyed.outputs == shared.outputs
    assert keyed.dropped == shared.dropped == sum(e["seg"] >= keyed.params["segments"] for e in events)
    assert any(o["toll"] for o in keyed.outputs) == ("vehicles" in params)
    speeds, presence = (shared.state[f"state_{name}"][1] for name in ("speeds", "presence"))
    averages, vehicles = (keyed.state[f"state_{name}"][1] for name in ("road_speed", "vehicle_count"))
    assert len(averages) == len({o["seg"] for o in keyed.outputs})
    for seg, state in averages.items():
        assert state.average == speeds[seg].average
        assert list(vehicles[seg].vehicles) == list(presence[seg].vehicles)
        assert vehicles[seg].count == presence[seg].count


# --- TB ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"n_flights": 20, "n_hotels": 10, "rise": 3}, {"n_flights": 2, "n_hotels": 1, "invalid_ratio": 0.1}]
)
def test_tb_books_all_or_nothing(params):
    events, result = run("tb", params)
    bound, app = result.params, registry.load("tb")
    opening = by_hand.run(app, params, workload.schema(app, params).empty_table()).state_tables()
    flights, hotels = (
        [[row["taken"], row["price"]] for row in opening[f"state_{n}"].to_pylist()] for n in ("flights", "hotels")
    )
    expected = []
    for e in events:
        if e["budget"] < 0:
            continue
        rooms = -(-e["party"] // 2)
        parts = [
            (flights[e["out"]], e["party"], bound["seats"]), (flights[e["back"]], e["party"], bound["seats"]),
            (hotels[e["hotel"]], rooms, bound["rooms"]),
        ]  # fmt: skip
        cost, before = 0, [row[0] for row, _, _ in parts]
        if e["kind"] == 0:
            cost = sum(row[1] * size for row, size, _ in parts[:2]) + parts[2][0][1] * rooms * e["nights"]
            ok, sign = cost <= e["budget"] and all(row[0] + size <= most for row, size, most in parts), 1
        else:
            ok, sign = all(row[0] >= size for row, size, _ in parts), -1
        for row, size, _ in parts:
            row[0] += sign * ok * size
            row[1] += sign * ok * size * bound["rise"]
        taken = dict(zip(("out", "back", "rooms"), before, strict=True))
        expected.append({"seq": e["seq"], "sub": 0, "kind": e["kind"], "ok": ok, "cost": cost, **taken})
    assert result.outputs == expected
    assert result.dropped == N - len(expected)
    for name, rows in (("flights", flights), ("hotels", hotels)):
        assert [[row.taken, row.price] for row in result.state[f"state_{name}"][1].values()] == rows
    for kind in (0, 1):
        accepted = [o["ok"] for o in expected if o["kind"] == kind]
        assert 0 < sum(accepted) < len(accepted)
    assert sum(not o["ok"] for o in expected) > 0.4 * len(expected)


@pytest.mark.parametrize(
    "fields", [{"kind": 2}, {"party": 0}, {"budget": -1}, {"back": 1}, {"out": 2}, {"back": 2}, {"hotel": 1}]
)
def test_tb_drops_what_it_cannot_mean(fields):
    app = registry.load("tb")
    event = {"seq": 0, "ts": 0, "kind": 0, "party": 1, "nights": 1, "out": 1, "back": 0, "hotel": 0, "budget": 0}
    params = {"n_flights": 2, "n_hotels": 1}
    for given, dropped in ((event, 0), (event | fields, 1)):
        result = by_hand.run(app, params, pa.Table.from_pylist([given], workload.schema(app, params)))
        assert (len(result.outputs), result.dropped) == (1 - dropped, dropped)


# --- WC ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"vocabulary": 5}, {"skew": 1.0, "words": 3, "invalid_ratio": 0.2}, {"distinct": True}]
)
def test_wc_counts_words(params):
    events, result = run("wc", params)
    seen, expected, dropped = Counter(), [], 0
    for e in events:
        dropped += not e["line"]
        words = [w for w in e["line"].split(b" ") if w]
        assert len(words) == (result.params["words"] if e["line"] else 0)
        for sub, word in enumerate(words):
            seen[word] += 1
            expected.append({"seq": e["seq"], "sub": sub, "word": word, "n": seen[word]})
    assert result.outputs == expected
    assert {key: state.n for key, state in result.state["state_count"][1].items()} == seen
    assert result.dropped == dropped
    assert (dropped > 0) == ("invalid_ratio" in params)


def test_wc_skips_empty_words_and_drops_empty_lines():
    result = run_lines("wc", [b" a  b ", b"", b"   ", b"b", b"a\tB"])
    assert [(o["seq"], o["sub"], o["word"], o["n"]) for o in result.outputs] == [
        (0, 0, b"a", 1), (0, 1, b"b", 1), (3, 0, b"b", 2), (4, 0, b"a\tB", 1),
    ]  # fmt: skip
    assert result.dropped == 1


# --- FD ---------------------------------------------------------------------------------------------------------------


def fd_state(name):
    return "LMH".index(name[0]) * 6 + "NH".index(name[1]) * 3 + "LNS".index(name[2])


@pytest.mark.parametrize(
    "params",
    [
        {"entities": 20},
        {"entities": 7, "window": 2, "threshold_e4": 9500},
        {"entities": 30, "window": 10, "threshold_e4": 8000, "theta": 0.8},
        {"entities": 25, "markov": True, "fraud_ratio": 0.3, "invalid_ratio": 0.1},
    ],
)
def test_fd_scores_the_window(params):
    events, result = run("fd", params)
    window, miss = result.params["window"], fd.miss.build(result.params)
    last, expected = defaultdict(lambda: deque(maxlen=window)), []
    for e in events:
        fields = e["line"].decode().split(",")
        if len(fields) != 3 or fields[2] not in {n.decode() for n in fd.NAMES}:
            continue
        states = last[fields[0]]
        states.append(fd_state(fields[2]))
        score, outlier = Fraction(0), False
        if len(states) == window:
            missed = sum(int(miss[a * 18 + b]) for a, b in zip(list(states), list(states)[1:], strict=False))
            score = Fraction(missed, window - 1)
            outlier = score > Fraction(result.params["threshold_e4"], 10_000) * 2**32
        expected.append(
            {"seq": e["seq"], "sub": 0, "entity": fields[0].encode(), "score": int(score), "outlier": outlier}
        )
    assert result.outputs == expected
    assert result.dropped == N - len(expected)
    assert (result.dropped > 0) == ("invalid_ratio" in params)
    assert any(o["score"] for o in expected)
    states = {key: list(state.recent) for key, state in result.state["state_predict"][1].items()}
    assert states == {key.encode(): list(states) for key, states in last.items()}


def test_fd_drops_what_it_cannot_read():
    good = b"e,t,LNL"
    bad = [
        b"",
        b"e",
        b"e,t",
        b",t,LNL",
        b"e,t,",
        b"e,t,LN",
        b"e,t,LNLL",
        b"e,t,XNL",
        b"e,t,LXL",
        b"e,t,LNX",
        b"e,t,lnl",
    ]
    result = run_lines("fd", [good, *bad, b"e,,HHS"])
    assert [(o["seq"], o["entity"]) for o in result.outputs] == [(0, b"e"), (len(bad) + 1, b"e")]
    assert result.dropped == len(bad)


def test_fd_model_is_a_law_close_to_the_product():
    counts, misses = fd._model()
    assert counts.shape == (18, 18)
    assert counts.min() >= 1
    assert counts.sum() == 1_000_000 + 18 * 18
    product = np.array(fd.WEIGHTS) / 1e6
    assert abs(counts / counts.sum(axis=1, keepdims=True) - product).max() < 0.036
    exact = [(1 - Fraction(int(c), int(row.sum()))) * 2**32 for row in counts for c in row]
    assert all(abs(int(m) - x) <= Fraction(1, 2) for m, x in zip(misses, exact, strict=True))


def test_fd_scores_stand_on_the_threshold_exactly():
    """A score equal to the threshold is no outlier; one unit less of threshold makes it one."""
    lines = [b"e,t,LNL"] * 2
    result = run_lines("fd", lines, {"window": 2, "threshold_e4": 10_000})
    assert [o["outlier"] for o in result.outputs] == [False, False]
    result = run_lines("fd", lines, {"window": 2, "threshold_e4": 0})
    assert [o["outlier"] for o in result.outputs] == [False, True]


# --- SD ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params", [{}, {"devices": 3, "window": 7, "spike_ratio": 0.05}, {"devices": 5, "window": 1, "invalid_ratio": 0.2}]
)
def test_sd_finds_spikes(params):
    events, result = run("sd", params)
    last, expected = defaultdict(lambda: deque(maxlen=result.params["window"])), []
    for e in events:
        fields = e["line"].decode().split(" ")
        try:
            device, value = int(fields[3]), round(Fraction(fields[4]) * 10_000)
        except (ValueError, IndexError):
            continue
        if len(fields) < 8 or not fields[7]:
            continue
        values = last[device]
        values.append(value)
        average = Fraction(sum(values), len(values))
        spike = abs(value - average) > Fraction(result.params["threshold_e4"], 10_000) * average
        expected.append(
            {"seq": e["seq"], "sub": 0, "device": device, "average": int(average), "value": value, "spike": spike}
        )
    assert result.outputs == expected
    assert result.dropped == N - len(expected)
    assert (result.dropped > 0) == ("invalid_ratio" in params)
    if not result.dropped:
        assert any(o["spike"] for o in expected)
    states = {key: (list(s.recent), s.total) for key, s in result.state["state_moving_average"][1].items()}
    assert states == {key: (list(values), sum(values)) for key, values in last.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 70_000), ("19.9884", 199_884), ("122.153", 1_221_530), ("-3.91901", -39_190), ("-0.5", -5_000),
        ("99999.9999", 999_999_999), ("1.00009", 10_000), ("007.1", 71_000),
        ("", None), ("-", None), (".5", None), ("5.", None), ("-.5", None), ("1e3", None), ("1.2.3", None),
        ("100000", None), ("?.5", None), ("1.2x", None), ("--1", None), ("nan", None),
    ],
)  # fmt: skip
def test_sd_reads_decimals_to_a_ten_thousandth(text, value):
    assert sd.decimal(text.encode(), 0, len(text)) == (sd.INVALID if value is None else value)
    result = run_lines("sd", [f"2004-03-31 03:38:15.757551 2 1 {text} 34.1 11.04 2.03397".encode()])
    assert [o["value"] for o in result.outputs] == ([] if value is None else [value])
    assert result.dropped == (value is None)


def test_sd_drops_short_lines():
    line = b"2004-03-31 03:38:15.757551 2 1 19.9 34.1 11.04 2.03"
    fields = line.split(b" ")
    short = [b" ".join(fields[:k]) for k in range(8)] + [b" ".join(fields[:7]) + b" "]
    holes = [b" ".join([*fields[:k], b"", *fields[k + 1 :]]) for k in range(8)]
    words = [b" ".join([*fields[:3], mote, *fields[4:]]) for mote in (b"x", b"-1", b"1234567890", b"1.5")]
    result = run_lines("sd", [line, *short, *holes, *words, line + b" more"])
    assert [o["seq"] for o in result.outputs] == [0, 1 + len(short) + len(holes) + len(words)]


def test_sd_negative_averages_count_any_difference_as_a_spike():
    lines = [b"d t 1 1 %s 1 1 1" % value for value in (b"-1.0", b"-1.0", b"-1.0001")]
    assert [o["spike"] for o in run_lines("sd", lines).outputs] == [True, True, True]


# --- pos_rep, new_seg -------------------------------------------------------------------------------------------------

ROAD = {"seconds": 120, "veh_per_s": 2.0, "request_ratio": 0.2, "invalid_ratio": 0.1}
REPORTED = ("seq", "ts", "vid", "pos", "speed", "xway", "seg", "lane", "dir")


def reports_of(events):
    """The valid position reports, with the fields that are forwarded."""
    return [{f: e[f] for f in REPORTED} for e in events if e["type"] == 0 and e["dir"] in (0, 1)]


def test_pos_rep_forwards_position_reports():
    events, result = run("pos_rep", ROAD)
    assert result.outputs == [{**report, "sub": 0} for report in reports_of(events)]
    assert result.dropped == sum(e["type"] == 0 and e["dir"] > 1 for e in events) > 0
    assert sum(e["type"] != 0 for e in events) > 100


@pytest.mark.parametrize("purge", [0, 29, 30, 31])
def test_new_seg_forwards_who_has_come_to_another_segment(purge):
    # Four repetitions: vehicles report every 30 s, come back after up to two minutes, and are remembered or not.
    events, result = run("new_seg", {**ROAD, "purge": purge})
    assert events[-1]["ts"] > 3 * 120
    last, expected, stayed = {}, [], 0
    for report in reports_of(events):
        here = (report["xway"], report["seg"])
        then, there = last.get(report["vid"], (-(10**6), None))
        if there != here or (purge and report["ts"] - then > purge):
            expected.append({**report, "sub": 0, "new_seg": True})
            stayed += there == here
        last[report["vid"]] = (report["ts"], here)
    assert result.outputs == expected
    assert result.dropped == sum(e["type"] == 0 and e["dir"] > 1 for e in events) > 0
    assert (stayed > 0) == (purge > 0)
    state = result.state["state_new_seg"][1]
    reported = {vid: (row.ts, (row.xway, row.seg)) for vid, row in state.items() if row.known}
    assert reported == last


def test_new_seg_does_not_see_the_direction():
    app = registry.load("new_seg")
    row = {"seq": 0, "ts": 0, "vid": 7, "pos": 0, "speed": 50, "xway": 0, "seg": 3, "type": 0, "lane": 1, "dir": 0}
    rows = [row, {**row, "dir": 1}, {**row, "xway": 1}, {**row, "seg": 4}, {**row, "seg": 4, "type": 2}]
    rows = [{**row, "seq": seq} for seq, row in enumerate(rows)]
    result = by_hand.run(app, {}, pa.Table.from_pylist(rows, workload.schema(app, {})))
    assert [output["seq"] for output in result.outputs] == [0, 2, 3]


# --- LR ---------------------------------------------------------------------------------------------------------------


def two_passes(events, limit=40):
    """Linear Road as workloads C.4 has it: first the traffic of whole minutes, then tolls, warnings and accounts.

    Returns answers as (seq, kind, value, velocity, count, accident): kinds 0 toll, 3 warning, 4 balance, 5 expenditure.
    """
    means, stood, runs = defaultdict(lambda: defaultdict(list)), defaultdict(set), {}
    for e in events:
        if e["type"] == 0 and e["dir"] in (0, 1):
            minute, segment = e["ts"] // 60 + 1, (e["xway"], e["dir"], e["seg"])
            means[segment, minute][e["vid"]].append(e["speed"])
            place = (e["xway"], e["dir"], e["pos"])
            former, n = runs.get(e["vid"], (None, 0))
            here = (place, e["lane"])
            runs[e["vid"]] = here, 0 if e["lane"] == 4 else n + 1 if former == here else 1
            if runs[e["vid"]][1] >= 4:
                stood[place].add(e["vid"])
            elif former != here and n >= 4:
                stood[former[0]].discard(e["vid"])
            if len(stood[place]) >= 2 and runs[e["vid"]][1] >= 4:
                stood["accident", segment].add(minute)

    def velocity(segment, minute):
        if (segment, minute - 1) not in means:
            return 0
        found = [sum(s) // len(s) for m in range(minute - 5, minute) for s in means.get((segment, m), {}).values()]
        return sum(found) // len(found)

    answers, last, balance, due = [], {}, Counter(), Counter()
    for e in events:
        seq, vid, minute = e["seq"], e["vid"], e["ts"] // 60 + 1
        if e["type"] == 2:
            answers.append((seq, 4, balance[vid], 0, 0, False))
        if e["type"] == 3:
            answers.append((seq, 5, lr.past_toll(vid, e["day"], e["xway"]), 0, 0, False))
        if e["type"] != 0 or e["dir"] not in (0, 1):
            continue
        xway, direction, seg = segment = (e["xway"], e["dir"], e["seg"])
        if e["lane"] == 4 or last.get(vid) == segment:
            answers.append((seq, 0, -1, 0, 0, False))
        else:
            ahead = [
                d for d in range(5) if minute - 1 in stood["accident", (xway, direction, seg + d * (1 - 2 * direction))]
            ]
            count = len(means[segment, minute - 1]) if (segment, minute - 1) in means else 0
            free = velocity(segment, minute) >= limit or count <= 50 or ahead
            toll = 0 if free else 2 * (count - 50) ** 2
            answers.append((seq, 0, toll, velocity(segment, minute), count, bool(ahead)))
            answers += [(seq, 3, ahead[0], 0, 0, True)] if ahead else []
            balance[vid] += due[vid]
            due[vid] = toll
        if e["lane"] == 4:
            balance[vid] += due.pop(vid, 0)
        last[vid] = None if e["lane"] == 4 else segment
    return answers, balance, due


@pytest.mark.parametrize("limit", [40, 28, 27])
def test_lr_charges_warns_and_answers(limit):
    app, table = registry.load("lr"), traffic.events()
    result = by_hand.run(app, {"limit": limit}, table)
    check_lr(table.to_pylist(), result, limit)
    tolls = [o["value"] for o in result.outputs if o["kind"] == 0]
    assert (max(tolls) > 0) == (limit > 27)
    assert {o["kind"] for o in result.outputs} == set(range(6))
    assert max(o["value"] for o in result.outputs if o["kind"] == 4) == max(0, *tolls)


def test_lr_does_so_on_a_generated_road():
    params = {"seconds": 3_600, "veh_per_s": 2.0, "request_ratio": 0.2, "invalid_ratio": 0.02}
    app = registry.load("lr")
    events = workload.generate_chunk(app, params, 25_000, 3, 0, 25_000)
    result = by_hand.run(app, params, events)
    check_lr(events.to_pylist(), result, 40)
    assert result.dropped > 0
    assert any(o["kind"] == 3 for o in result.outputs)


def check_lr(events, result, limit):
    answers, balance, due = two_passes(events, limit)
    said = [o for o in result.outputs if o["kind"] not in (1, 2)]
    assert [(o["seq"], o["kind"], o["value"], o["velocity"], o["count"], o["accident"]) for o in said] == answers
    reports = sum(e["type"] == 0 and e["dir"] in (0, 1) for e in events)
    assert Counter(o["kind"] for o in result.outputs)[1] == Counter(o["kind"] for o in result.outputs)[2] == reports
    accounts = result.state["state_account_balance"][1]
    assert {vid: row.balance for vid, row in accounts.items() if row.balance} == {v: b for v, b in balance.items() if b}
    assert {vid: row.due for vid, row in accounts.items() if row.due} == {v: d for v, d in due.items() if d}


def test_lr_history_is_of_69_days():
    tolls = [[lr.past_toll(vid, day, 0) for day in range(71)] for vid in range(200)]
    assert all(row[0] == row[70] == 0 for row in tolls)
    assert {toll for row in tolls for toll in row[1:70]} == set(range(10, 100))
    assert abs(sum(map(sum, tolls)) / (200 * 69) - 54.5) < 1
    assert [lr.past_toll(7, 3, xway) for xway in range(4)] != [tolls[7][3]] * 4
