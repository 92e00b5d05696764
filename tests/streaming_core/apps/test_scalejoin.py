"""scalejoin against all pairs of rows, and by hand."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.oracle.interpreter import Interpreter
from tests.streaming_core.apps.windows import run

COLUMNS = ("seq", "ts", "earlier", "x", "y", "a", "b", "c", "d")

# One set of parameters for examples by hand and some random ones: the loop compiles once.
BY_HAND = {"keys": 5, "size": 300_001}


def pairs_of(events, params):
    """Pairs of every row with every earlier row of the other stream, by ascending key, then by age."""
    keys, pairs = params["keys"], []
    for e in events:
        before = [f for f in events[: e["seq"]] if f["stream"] != e["stream"] and e["ts"] - f["ts"] < params["size"]]
        for f in sorted(before, key=lambda f: ((f["seq"] + 1) % keys, f["seq"])):
            left, right = (f, e) if e["stream"] else (e, f)
            if abs(left["x"] - right["a"]) <= params["band"] and abs(left["y"] - right["b"]) <= params["band"]:
                of_right = right["a"], right["b"], right["c"], right["d"]
                pairs.append((e["seq"], e["ts"] + 1, f["seq"], left["x"], left["y"], *of_right))
    return pairs


@pytest.mark.parametrize(
    ("events", "params"),
    [
        (400, {**BY_HAND, "domain": 100, "rate": 1}),  # a window is three quarters of them
        pytest.param(400, {"keys": 1, "size": 500, "domain": 60, "rate": 333}, marks=pytest.mark.slow),
        # Many at one moment.
        pytest.param(
            250, {"keys": 40, "size": 100_000, "domain": 100, "band": 3, "rate": 100_000}, marks=pytest.mark.slow
        ),
        pytest.param(400, {"keys": 3, "size": 300, "domain": 5, "band": 0, "phases": True}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_scalejoin_finds_every_pair(events, params):
    events, result = run("scalejoin", params, events=events)
    wanted = pairs_of(events, result.params)
    assert result.columns(*COLUMNS) == wanted
    assert len(wanted) > 50


def row(ts, is_right, left, right):
    if is_right:
        return {"stream": 1, "ts": ts, "a": left, "b": float(right), "c": left / 4, "d": True}
    return {"stream": 0, "ts": ts, "x": left, "y": float(right), "d": False}


def test_scalejoin_matches_an_example_by_hand():
    rows = [
        row(1_000, False, 50, 50),
        row(1_000, True, 60, 40),  # both bands end here
        row(1_000, True, 61, 40),
        row(1_000, True, 60, 39),
        row(301_000, True, 40, 60),  # exactly five minutes later
        row(301_001, True, 50, 50),  # too late for the left row
        row(301_001, False, 50, 50),
        row(2_000_000, False, 50, 50),  # no row is left
    ]
    _, result = run("scalejoin", BY_HAND, rows)
    assert sorted(result.columns("seq", "ts", "earlier", "a", "c")) == [
        (1, 1_001, 0, 60, 15.0), (4, 301_001, 0, 40, 10.0), (6, 301_002, 4, 40, 10.0), (6, 301_002, 5, 50, 12.5),
    ]  # fmt: skip


@pytest.mark.parametrize("is_right", [False, True])
def test_rows_expire_by_the_time_of_their_own_stream(is_right):
    """Rows of a stream expire although the other stream is silent."""
    app = registry.load("scalejoin")
    params = app.bind({"keys": 4, "size": 101})
    rows = [row(1_000 + 10 * i, is_right, i, i) | {"seq": i} for i in range(1_000)]
    schema = workload.schema(app, params)
    table = pa.Table.from_pylist([{**dict.fromkeys(schema.names, 7), **values} for values in rows], schema)
    interpreter = Interpreter(app, params)
    interpreter.process(table)
    kept = [entry.states[is_right].rows.length() for entry in interpreter._steps[-1].sets.values()]
    assert len(kept) == 4
    assert (
        10 <= sum(kept) <= 16
    )  # ten fall in a window; of a key's, those that were old when its last one came are gone


def test_rows_arrive_at_the_requested_rate():
    lefts, rights = registry.load("scalejoin").generators
    params = registry.load("scalejoin").bind({"rate": 3})
    assert (lefts(params, 1, 0, 4)["ts"] - params["size"]).tolist() == [0, 666, 1333, 2000]
    assert (rights(params, 1, 0, 3)["ts"] - params["size"]).tolist() == [333, 1000, 1666]
    params = registry.load("scalejoin").bind({"phases": True})
    ts = np.sort(np.concatenate([stream(params, 1, 0, 1_500_000)["ts"] - params["size"] for stream in (lefts, rights)]))
    per_second = np.bincount(ts // 1000)[:-1]
    starts = np.flatnonzero(np.diff(per_second, prepend=0))
    assert len(starts) > 3
    assert ((np.diff(starts) >= 100) & (np.diff(starts) <= 300)).all()
    assert per_second.min() >= 500
    assert per_second.max() <= 8_000
    some = lefts(params, 1, 1_000_000, 1_000_050)["ts"] - params["size"]
    assert some.tolist() == ts[2_000_000:2_000_100:2].tolist()
