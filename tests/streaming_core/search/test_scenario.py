"""Properties of authors, the transformations that they use, and the branches that events reach."""

import math
import subprocess
import sys

import pyarrow as pa
import pytest

from streaming_core.api import App
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.language.code import code_digest
from streaming_core.search import scenario
from streaming_core.search.scenario import Scenario, Unfit, difference
from tests.streaming_core.search import sales
from tests.streaming_core.search.sales import add, app

PARAMS = app.bind()


def sale(ts, user=1, price=1.0, shop=b"a", cents=150):
    return {"ts": ts, "user": user, "shop": shop, "price": price, "cents": cents}


EVENTS = [sale(n // 4, n % 3, float(n), b"ab"[n % 2 : n % 2 + 1], n) for n in range(40)]


def stream(events=EVENTS, **params):
    return Scenario(app, params, events)


def table(events):
    return scenario._table(app, PARAMS, events)


def outcome(property, events=EVENTS):
    """The name and the reason of a property that does not hold; None if it holds."""
    declared = dict(app.properties)
    try:
        app.property(property)
        return next(scenario.broken(app, PARAMS, table(events)), None)
    finally:
        app.properties = declared


def test_a_scenario_shows_events_outputs_states_and_counts_as_operators_see_them():
    few = stream([sale(0), sale(1), sale(2, price=4.0), sale(4, price=-1.0)])
    assert few.outputs == [{"seq": 2, "sub": 0, "ts": 2, "user": 1, "price": 6.0, "n": 3}]
    assert few.rows == [{"ts": 2, "user": 1, "price": 6.0, "n": 3}]
    assert few.state("add") == {1: {"n": 3, "price": 6.0}}
    assert (few.rejected, few.dropped, few.late) == (0, 1, 0)
    assert few.params == {"weight": 2}
    with pytest.raises(BadInput, match="unknown state 'sum'; known: add"):
        few.state("sum")


def test_a_scenario_is_independent_of_those_that_ran_before_it():
    assert stream().run(EVENTS).outputs == stream().outputs == stream().outputs
    assert stream().run([sale(0, 9)], weight=7).state("add") == {9: {"n": 7, "price": 1.0}}
    assert stream([sale(0, 9)]).state("add") == {9: {"n": 2, "price": 1.0}}


def test_transformations_keep_what_they_promise_and_depend_on_the_events_alone():
    whole = stream()
    ties = whole.permute_ties().events
    assert [row["ts"] for row in ties] == [row["ts"] for row in EVENTS]
    assert ties != EVENTS
    assert sorted(ties, key=str) == sorted(whole.permute().events, key=str) == sorted(EVENTS, key=str)
    left, right = whole.split("user")
    assert not {row["user"] for row in left.events} & {row["user"] for row in right.events}
    for parts in ((left, right), whole.split(), whole.cut()):
        assert sorted([*parts[0].events, *parts[1].events], key=str) == sorted(EVENTS, key=str)
    more = whole.add_key("user")
    assert more.new_key not in {0, 1, 2}
    assert [row for row in more.events if row["user"] != more.new_key] == EVENTS
    assert len(more.events) > len(EVENTS)
    assert whole.scale("price", 2).events[3]["price"] == 6.0
    assert whole.shift(5).events[0]["ts"] == 5
    assert [row["ts"] for row in whole.repeat(100).events[-2:]] == [109, 109]
    assert whole.repeat().events == EVENTS * 2
    assert {*map(str, whole.duplicate().events)} == {*map(str, EVENTS)}
    assert whole.where(lambda row: row["user"] == 1).state("add").keys() == {1}
    assert whole.permute().events == stream().permute().events


def test_values_that_fit_no_field_make_a_scenario_unfit():
    with pytest.raises(Unfit, match="user"):
        _ = stream().scale("user", 200).outputs
    with pytest.raises(Unfit, match="no other key"):
        stream([sale(0, user) for user in range(256)]).add_key("user")
    with pytest.raises(BadInput, match="a key is an integer or a text, not f64"):
        stream().add_key("price")


def test_rows_with_nan_can_be_equal():
    def nan_is_nan(stream):
        assert stream.rows == stream.run(stream.events).rows

    events = [sale(0, price=math.nan)] * 4
    assert math.isnan(stream(events).rows[0]["price"])
    assert outcome(nan_is_nan, events) is None


def test_the_reason_of_a_broken_property_shows_the_first_difference():
    name, reason = outcome(sales.ties_may_change_places)
    assert name == "ties_may_change_places"
    assert reason.startswith("stream.permute_ties().rows is not stream.rows: [")
    assert "]['price']: " in reason
    assert "(sales.py:" in reason


def test_a_property_says_why_it_fails():
    assert outcome(sales.by_message)[1].startswith("40 events are many (sales.py:")
    assert outcome(sales.by_value) == ("by_value", "by_value returns False")
    assert outcome(sales.by_test)[1].startswith("not not stream.outputs (")
    name, reason = outcome(sales.by_fault)
    assert (name, reason.partition(" (")[0]) == ("by_fault: KeyError", "KeyError: 'prize'")
    assert outcome(sales.by_helper)[1].startswith("stream.dropped is not 7: 0 is not 7 (")
    assert ": [0] is only on the left: 5 (" in outcome(sales.by_comprehension)[1]
    assert outcome(sales.by_iterator)[1].startswith("next(events) is not 1 (")


def test_a_property_says_nothing_about_events_that_the_oracle_does_not_take():
    def too_much(stream):
        assert stream.scale("user", 200).rows == stream.rows

    assert outcome(too_much) is None


def test_only_properties_of_these_names_are_tried():
    def first(stream):
        return False

    def other(stream):
        raise KeyError

    declared = app.properties
    app.properties = {"first": first, "other": other}
    try:
        assert [name for name, _ in scenario.broken(app, PARAMS, table([]), ["other: KeyError"])] == ["other: KeyError"]
        assert len(list(scenario.broken(app, PARAMS, table([])))) == 2
    finally:
        app.properties = declared


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (1, 2, "1 is not 2"),
        ([1, 2], [1], "[1] is only on the left: 2"),
        ({"a": [1, {"b": 1}]}, {"a": [1, {"b": 2}]}, "['a'][1]['b']: 1 is not 2"),
        ({1: 2}, {3: 2}, "[1] is only on the left: 2"),
        ({}, {b"x": 1}, "[b'x'] is only on the right: 1"),
    ],
)
def test_a_difference_names_its_place(left, right, reason):
    assert difference(left, right) == reason


def test_declarations_of_properties_are_checked_in_one_line():
    def twice(stream):
        pass

    def none():
        pass

    other = App("other")
    assert other.property(twice) is twice
    with pytest.raises(BadInput, match="app other: two properties are called twice; rename one"):
        other.property(twice)
    with pytest.raises(BadInput, match="app other: property none must take one parameter"):
        other.property(none)
    with pytest.raises(BadInput, match="property: fn must be a plain def, got 3"):
        other.property(3)


def test_a_property_does_not_change_the_digest_of_the_code():
    code_digest.cache_clear()
    before = code_digest(app)
    declared = dict(app.properties)
    try:
        app.property(lambda stream: stream.outputs)
        code_digest.cache_clear()
        assert code_digest(app) == before
    finally:
        app.properties = declared


# --- branches --------------------------------------------------------------------------------------------------------


def reached(events):
    from streaming_core.oracle.interpreter import Interpreter

    with scenario.counted_branches() as branches:
        machine = Interpreter(app, PARAMS)
        machine.process(table(events))
    return branches


def outcomes(numbers):
    """Line in the function, and outcome, of each branch."""
    known = [scenario.branches(app, PARAMS)[number].partition(":")[2].split(" (add): ") for number in numbers]
    return sorted((int(line) - add.__code__.co_firstlineno, outcome) for line, outcome in known)


def test_branches_are_outcomes_of_conditions_loops_and_boundaries():
    known = scenario.branches(app, PARAMS)
    assert outcomes(known) == [
        *[(1, "equal")] * 2, *[(1, "false")] * 2, *[(1, "true")] * 2, (3, "false"), (3, "true"),
        (5, "does not run"), (5, "runs"),
    ]  # fmt: skip
    assert next(iter(known.values())).startswith("sales.py:")
    assert reached([]) == set()
    assert outcomes(reached([sale(0)])) == [(1, "false"), (3, "true"), (5, "does not run")]
    boundary = outcomes(reached([sale(3, 9, price=-1.0)]) - reached([sale(0)]))
    assert boundary == [(1, "equal"), (1, "false"), (1, "true"), (3, "false")]
    assert reached(EVENTS * 2) < set(known)


def test_numbers_of_branches_are_the_same_in_another_process():
    program = (
        "from streaming_core.apps import registry; from streaming_core.search import scenario;"
        "a = registry.load('gs'); print(sorted(scenario.branches(a, a.bind())))"
    )
    from streaming_core.apps import registry

    gs = registry.load("gs")
    numbers = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert numbers.strip() == str(sorted(scenario.branches(gs, gs.bind())))


def test_counting_changes_no_result():
    from streaming_core.apps import registry
    from streaming_core.oracle.interpreter import Interpreter

    for name in ("lr", "tp", "q1", "wordcount"):
        app = registry.load(name)
        params = app.bind()
        events = workload.generate_chunk(app, params, 200, 1, 0, 200)
        plain = Interpreter(app, params)
        expected = pa.concat_tables([plain.process(events), plain.finish(200)])
        with scenario.counted_branches() as branches:
            machine = Interpreter(app, params)
        assert pa.concat_tables([machine.process(events), machine.finish(200)]).equals(expected)
        assert branches
