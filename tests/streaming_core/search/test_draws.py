"""search/draws.py: random inputs of any application."""

import random
from collections import Counter

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.search import draws
from streaming_core.search.draws import CHANGES, Input, draw, parameters


def drawn(name, count, params=None):
    """Some inputs of an application; every fifth one joins the corpus."""
    app, r, corpus = registry.load(name), random.Random(name), []
    for number in range(count):
        one = draw(app, params or {}, r, corpus)
        corpus += [one] if number % 5 == 0 else []
        yield app, one


@pytest.mark.parametrize("name", ["wc", "sl", "wordcount", "scalejoin", "nexmark_q20"])
def test_inputs_fit_the_application(name):
    for app, one in drawn(name, 25):
        events = one.events
        assert events.schema.equals(workload.schema(app, one.params))
        assert events["seq"].to_pylist() == list(range(events.num_rows))
        assert events.num_rows <= draws.MOST
        if "ts" in events.column_names and app.delay is None and app.streams is None:
            ts = events["ts"].to_pylist()
            assert ts == sorted(ts)


def test_most_inputs_are_small_and_some_are_usual():
    inputs = [one for _, one in drawn("wc", 300)]
    sizes = sorted(one.events.num_rows for one in inputs)
    assert sizes[0] <= 1
    assert 20 < sizes[150] < 200
    assert sizes[-1] > 900
    assert 20 < sum(one.is_usual for one in inputs) < 100
    assert sum("corpus" in one.origin for one in inputs) > 30


def test_every_change_occurs():
    origins = Counter()
    for name in ("wc", "scalejoin", "wordcount"):
        for _, one in drawn(name, 150):
            origins.update(one.origin.split(", "))
    assert set(origins) >= set(CHANGES) - {"late", "backwards", "null", "nulls"}


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
