"""How an application composes the streams of a pipeline."""

import pytest

from streaming_core.api import App, Param, i64, record
from streaming_core.errors import BadInput


@record
class Number:
    n: i64


@record
class Other:
    n: i64


def same(row, out):
    out.emit(n=row.n)


def again(row, out):
    out.emit(n=row.n)


def count(row, state, out):
    state.n += 1
    out.emit(n=state.n)


def complete(app):
    app.generates(lambda params, seed, start, stop: {})
    return app.check()


@record
class Named:
    key: i64


def twice(source):
    source.flat_map(same, Number)
    source.flat_map(same, Number)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda source: source.union(source.flat_map(same, Other)),
         "union: all streams must have one record, got Number and Other"),
        (lambda source: source.union(App("b").source(Number)), "union: app a cannot use a stream of app b"),
        (twice, "app a: two operators have the function name same; rename one"),
        (lambda source: source.key_by("n").process(count, state=Named, output=Number),
         r"app a: record Named\(key\): the field name 'key' is reserved for the key"),
    ],
)  # fmt: skip
def test_streams_that_do_not_fit_are_refused(declare, message):
    with pytest.raises(BadInput, match=message):
        declare(App("a").source(Number))
    App("b").source(Number).process(count, state=Named, output=Number)  # without a key


def test_sinks_have_names_and_can_precede_operators():
    app = App("a")
    source = app.source(Number)
    source.flat_map(same, Number).sink()
    with pytest.raises(BadInput, match="app a: two sinks are called outputs; name one of them"):
        source.sink()
    source.flat_map(again, Number).sink("more")
    names = ["source", "same", "to_outputs", "again", "to_more", "outputs"]
    assert sorted(operator.name for operator in complete(app).operators) == sorted(names)
    assert app.operators[-1].kind == "sink"


def test_an_operator_without_outputs_or_state_is_refused():
    app = App("a")
    source = app.source(Number)
    source.process(count, state=Number, output=Number)
    source.flat_map(same, Number).sink()
    complete(app)
    app = App("b")
    source = app.source(Number)
    source.flat_map(again, Number)
    source.flat_map(same, Number).sink()
    with pytest.raises(BadInput, match="app b: the pipeline drops the output of operator again"):
        complete(app)


def test_only_output_columns_and_operator_states_can_agree_without_order():
    app = App("a")
    app.source(Number).process(count, state=Number, output=Other).sink()
    for columns, states, message in (
        ((), (), "agrees_unordered: name at least one output column"),
        (("m",), (), "agrees_unordered: unknown name 'm'; known: n"),
        (("n",), ("same",), "agrees_unordered: unknown name 'same'; known: count"),
    ):
        with pytest.raises(BadInput, match=message):
            app.agrees_unordered(*columns, states=states)
    assert app.unordered is None
    app.agrees_unordered("n", states=("count",))
    assert app.unordered.columns == ("n",)


def small(params):
    """Completes an application."""
    app = App("small", params=params)
    app.source(Number).flat_map(same, Number).sink()
    app.generates(lambda params, seed, start, stop: {})
    return app


def test_an_order_dependent_invariant_is_checked_in_total_order_only():
    app = App("a")
    app.invariant("any", "SELECT 1")
    app.invariant("first", "SELECT 2", by_order=True)
    assert app.required_invariants("total") == app.invariants == {"any": "SELECT 1", "first": "SELECT 2"}
    assert app.required_invariants("none") == {"any": "SELECT 1"}


def test_an_invariant_can_refer_to_parameters():
    app = App("a", params={"n": Param(3), "of": Param("it's \\"), "off": Param(False)})
    app.invariant("any", "SELECT :n, ':m', :of, x::INT, 1:n FROM t WHERE NOT :off -- :n isn't")
    query = r"SELECT {}, ':m', 'it\'s \\', x::INT, 1{} FROM t WHERE NOT False -- :n isn't"
    assert app.required_invariants("total") == {"any": query.format(3, 3)}
    assert app.required_invariants("none", {"n": 4}) == {"any": query.format(4, 4)}
    assert app.required_invariants("none", {"n": -4}) == {"any": query.format("(-4)", "(-4)")}, "and no comment begins"


@pytest.mark.parametrize("quoted", ["':of'", "'it''s :of'", r"'\':of'", '"x :of"', "`:of`"])
def test_a_parameter_within_quotes_is_refused(quoted):
    app = small({"of": Param("fast")})
    app.invariant("right", "SELECT 'off', :of")
    assert app.check() is app
    app.invariant("any", f"SELECT {quoted}")
    with pytest.raises(BadInput, match=r"^app small: invariant 'any': remove the quotes around :of"):
        app.check()


@pytest.mark.parametrize(
    ("declared", "subject"),
    [
        (lambda app, name: app.table(name, Number, 4), "a table"),
        (lambda app, name: app.declared.update({name: Param(1)}), "a parameter"),
        (lambda app, name: setattr(app.operators[1], "name", name), "an operator"),
    ],
)
@pytest.mark.parametrize("name", ["../x", "x` y", "x'", "", "9", "a-b", "é", "a\n"])
def test_names_of_files_views_and_options_must_be_plain(declared, subject, name):
    app = small({})
    declared(app, name)
    with pytest.raises(BadInput) as refused:
        app.check()
    assert str(refused.value).startswith(f"app small: invalid name {name!r} of {subject}; ")
