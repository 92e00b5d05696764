"""search/draws.py: random inputs of any application."""

import random
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.search import draws
from streaming_core.search.draws import CHANGES, Input, draw, parameters
from tests.support.draws import some as first


def drawn(name, count, params=None):
    """Some inputs of an application; every fifth one joins the corpus."""
    app, r, corpus = registry.load(name), random.Random(name), []
    for number in range(count):
        example = draw(app, params or {}, r, corpus)
        corpus += [example] if number % 5 == 0 else []
        yield app, example


@pytest.mark.parametrize("name", first(["wc", "scalejoin", "sl", "wordcount", "nexmark_q20"], 2))
def test_inputs_fit_the_application(name):
    for app, example in drawn(name, 25):
        events = example.events
        assert events.schema.equals(workload.schema(app, example.params))
        assert events["seq"].to_pylist() == list(range(events.num_rows))
        assert events.num_rows <= draws.MOST
        if "ts" in events.column_names and app.delay is None and app.streams is None:
            ts = events["ts"].to_pylist()
            assert ts == sorted(ts)


def test_most_inputs_are_small_and_some_are_usual():
    inputs = [example for _, example in drawn("scalejoin", 200)]
    sizes = sorted(example.events.num_rows for example in inputs)
    assert sizes[0] <= 1
    assert 20 < sizes[100] < 200
    assert sizes[-1] > 900
    assert 15 < sum(example.is_usual for example in inputs) < 70
    assert sum("corpus" in example.origin for example in inputs) > 20


def steps(events):
    """The steps of time."""
    ts = events["ts"].to_pylist()
    return [value - other for value, other in zip(ts[1:], ts, strict=False)]


def pairs(events):
    """Each event with the one before, without numbers."""
    rows = events.drop_columns(["seq"]).to_pylist()
    return zip(rows[1:], rows, strict=False)


def some(name, holds):
    """A difficulty that is a value of a field."""
    return lambda events: any(holds(value) for value in events[name].to_pylist())


DIFFICULTIES = {
    "no event": lambda events: events.num_rows == 0,
    "one event": lambda events: events.num_rows == 1,
    "a power of two": lambda events: events.num_rows in (64, 128, 256),
    "beside a power of two": lambda events: events.num_rows in (63, 65, 127, 129, 255, 257),
    "ties": lambda events: 0 in steps(events),
    "one time": lambda events: events.num_rows > 10 and {*steps(events)} == {0},
    "a burst": lambda events: max(Counter(events["ts"].to_pylist()).values(), default=0) > 50,
    "late within the delay": lambda events: any(-15 <= step < 0 for step in steps(events)),
    "late beyond the delay": lambda events: any(step < -15 for step in steps(events)),
    "a long gap": lambda events: any(step > 1_000 for step in steps(events)),
    "time below zero": some("ts", lambda ts: ts < 0),
    "starts of windows": lambda events: (
        events.num_rows > 10 and {ts % 20 for ts in events["ts"].to_pylist()} <= {19, 0, 1}
    ),
    "one key": lambda events: events.num_rows > 20 and len(set(events["page"].to_pylist())) == 1,
    "skew": lambda events: (
        0.8 < max(Counter(events["page"].to_pylist()).values(), default=0) / (events.num_rows or 1) < 1
    ),
    "duplicates": lambda events: any(left == right for left, right in pairs(events)),
    "empty text": some("page", lambda page: page == b""),
    "huge text": some("page", lambda page: len(page) > 10_000),
    "no UTF-8": some("page", lambda page: b"\xff" in page),
    "bound of integers": some("user", lambda user: user in (-(2**31), 2**31 - 1)),
    "NaN": some("seconds", lambda value: value != value),
    "infinity": some("seconds", lambda value: value in (float("inf"), float("-inf"))),
    "bound of decimals": some("price", lambda price: price in (Decimal(2**63 - 1) / 100, Decimal(-(2**63)) / 100)),
    "null": some("rank", lambda rank: rank is None),
    "item of an array": some("places", lambda places: places[0] != places[1]),
    "failing event": some("user", lambda user: user == 255),
}


def test_every_difficulty_and_every_change_occurs(monkeypatch):
    monkeypatch.setitem(registry._ELSEWHERE, "hits", "tests.streaming_core.search.hits")
    counts, changes = Counter(), Counter()
    for _, example in drawn("hits", 300):
        counts.update(name for name, holds in DIFFICULTIES.items() if holds(example.events))
        changes.update(example.origin.split(", "))
    assert [name for name in DIFFICULTIES if not counts[name]] == []
    assert set(CHANGES) - set(changes) == {"silent"}
    assert counts["failing event"] < 60


def test_draws_follow_from_the_seed():
    app = registry.load("sl")
    corpus: list[Input] = []
    for seed in range(20):
        once, again = (draw(app, parameters(app, r), r, corpus) for r in (random.Random(seed), random.Random(seed)))
        assert once == again
        corpus.append(once)


def test_parameters_are_from_few_sets_half_of_which_are_the_defaults():
    app, r = registry.load("wc"), random.Random(1)
    sets = Counter(repr(parameters(app, r)) for _ in range(200))
    assert len(sets) <= draws.SETS + 1
    assert 70 < sets["{}"] < 130


def test_events_of_a_user_replace_those_of_the_generator(tmp_path):
    app = registry.load("wc")
    events = [{"seq": seq, "ts": 5 * seq, "line": b"mine %d" % seq} for seq in range(40)]
    part = workload.write_part(tmp_path, 0, pa.Table.from_pylist(events, workload.schema(app, {})))
    workload.seal_imported(tmp_path, app, {}, [part], {"files": []})
    r = random.Random(3)
    usual = [example for example in (draw(app, {"words": 3}, r, [], tmp_path) for _ in range(40)) if example.is_usual]
    assert usual
    for example in usual:
        assert example.origin == "data"
        assert example.events.to_pylist() == events[: example.events.num_rows]
