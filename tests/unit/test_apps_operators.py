"""Every application's operators against the same computation written again, straight from its specification."""

from collections import Counter, defaultdict, deque
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from streaming_core import workload
from streaming_core.apps import fd, registry, sd
from tests.unit import by_hand

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
