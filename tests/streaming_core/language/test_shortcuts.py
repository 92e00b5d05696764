"""Ready-made operators without windows, rows emitted with changes, and loops over queues, against plain Python."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Param, Queue, boolean, f64, i64, record, text
from streaming_core.errors import BadInput
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import RunSpec
from tests.differential.case import Case
from tests.support.draws import some

RATE = 3


@record
class Bid:
    ts: i64
    auction: i64
    price: f64
    url: text
    few: Array[i64, 2]
    is_paid: boolean


@record
class Numbered:
    ts: i64
    auction: i64
    price: f64
    url: text
    few: Array[i64, 2]
    is_paid: boolean
    number: i64


@record
class Price:
    price: f64
    at: i64


@record
class Latest:
    rows: Queue[Price]
    n: i64


def is_even(row):
    return row.few[0] % 2 == 0


def doubled(row, out):
    out.emit(row, price=row.price * 2, is_paid=not row.is_paid)
    if row.ts % 3 == 0:
        out.emit(row)


def ranked(row, state, out):
    """Numbers a row by how many of the last rows of its auction were cheaper, and older by less than 20."""
    number = 0
    for bid in state.rows:
        if bid.price < row.price and row.ts - bid.at < 20:
            number += 1
    for bid in state.rows:
        for other in state.rows:
            if bid.price > other.price:
                number += 100
    state.rows.append(price=row.price, at=row.ts)
    if len(state.rows) > 3:
        state.rows.popleft()
    out.emit(row, number=number)


def bids(rng, n=60):
    columns = {
        "seq": range(n),
        "ts": np.cumsum(rng.integers(-3, 9, n)),
        "auction": rng.integers(-2, 3, n),
        "price": rng.integers(0, 9, n) / 2,
        "url": [b"u%d" % i for i in rng.integers(0, 4, n)],
        "few": rng.integers(-3, 4, (n, 2)).tolist(),
        "is_paid": rng.integers(0, 2, n).astype(bool),
    }
    return pa.table(columns).cast(Bid.resolve({}).arrow(("seq",)))


def selected(source):
    inside, app = 5, source._app
    wanted = source.filter(lambda row: row.price > app.params.least and not row.is_paid).filter(is_even)
    return wanted.select("url", at="ts", cost=(f64, lambda row: row.price * RATE + inside), first=(text, initial))


def initial(row):
    return row.url[0:1]


def expected_selected(rows):
    for row in rows:
        if row["price"] > 1 and not row["is_paid"] and row["few"][0] % 2 == 0:
            yield row["seq"], row["url"], row["ts"], row["price"] * RATE + 5, row["url"][:1]


def expected_doubled(rows):
    for row in rows:
        yield tuple((row | {"price": row["price"] * 2, "is_paid": not row["is_paid"]}).values())
        if row["ts"] % 3 == 0:
            yield tuple(row.values())


def expected_ranked(rows):
    latest = defaultdict(list)
    for row in rows:
        last = latest[row["auction"]]
        number = sum(other_row["price"] < row["price"] and row["ts"] - other_row["ts"] < 20 for other_row in last)
        number += 100 * sum(first["price"] > second["price"] for first in last for second in last)
        last.append(row)
        del last[:-3]
        yield (*row.values(), number)


def expected_distinct(rows):
    known = set()
    for row in rows:
        if row["url"] not in known:
            yield tuple(row.values())
        known.add(row["url"])


OPERATORS = {
    "selected": (selected, expected_selected),
    "doubled": (lambda source: source.flat_map(doubled, Bid), expected_doubled),
    "ranked": (lambda source: source.key_by("auction").process(ranked, Latest, Numbered), expected_ranked),
    "distinct": (lambda source: source.key_by("url").distinct(), expected_distinct),
}


def declared(operator):
    app = App(operator, params={"least": Param(1)})
    OPERATORS[operator][0](app.source(Bid)).sink()
    app.generates(lambda *arguments: {})
    return app


def flat(outputs):
    return [tuple(value for name, value in row.items() if name != "sub") for row in outputs.to_pylist()]


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators_match_plain_python(operator):
    app = declared(operator)
    for seed in range(12):
        table = bids(np.random.default_rng(seed))
        machine = Interpreter(app, app.bind())
        outputs = pa.concat_tables([machine.process(table), machine.finish(len(table))])
        assert flat(outputs) == [*OPERATORS[operator][1](table.to_pylist())], seed


@pytest.mark.parametrize("operator", some(["ranked", "selected", "doubled", "distinct"]))
@pytest.mark.parametrize(("seed", "in_loop"), some([(0, False), *((seed, True) for seed in range(6))]))
def test_compiled_operators_match_plain_python(operator, seed, in_loop):
    app, table = declared(operator), bids(np.random.default_rng(seed))
    case = Case(app, app.bind(), table)
    assert flat(case.outputs) == [*OPERATORS[operator][1](table.to_pylist())]
    if in_loop:
        loop = Loop(app, app.bind())
        assert flat(pa.concat_tables([loop.process(table), loop.finish(len(table))])) == flat(case.outputs)
    for executor in ("pooled", "pinned"):
        case.check(RunSpec.parse({"app": app.name, "executor": executor, "threads": 2}), 7)


def changes_queue(row, state, out):
    for bid in state.rows:
        state.n += bid.at
        state.rows.popleft()


def assigns_row(row, state, out):
    for bid in state.rows:
        bid = 3
        state.n += bid


def over_number(row, state, out):
    for number in state.n:
        state.n += number


def lacks_field(row, state, out):
    out.emit(row)


def two_rows(row, state, out):
    out.emit(row, row)


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda bids: bids.filter(initial), r"operator initial \(test_shortcuts.py:\d+\): a text is not a number"),
        (lambda bids: bids.filter(3), "filter: fn must be a plain def, got 3"),
        (lambda bids: bids.filter(lambda row: row.pric > 1), "test_shortcuts.py:.*: Bid has no field 'pric'"),
        (lambda bids: bids.select(), r"select needs a field; write for example select\(\"ts\", \"price\"\)"),
        (lambda bids: bids.select("ts", "pric"), r"select: unknown field 'pric' \(did you mean 'price'\?\)"),
        (lambda bids: bids.select("ts", "ts"), "select: two fields of the result are called ts; rename one"),
        (lambda bids: bids.select("ts", ts="price"), "select: two fields of the result are called ts; rename one"),
        (lambda bids: bids.select(seq="ts"), "select: the field name 'seq' is reserved"),
        (lambda bids: bids.select(cost=(lambda row: row.price, f64)), "select: cost must be a field, or a type and a"),
        (lambda bids: bids.select(cost=(i64, lambda row: row.price)), "cannot store a float in select.cost"),
        (lambda bids: bids.key_by(every=2).distinct(), "process takes one stream whose key"),
        (lambda bids: bids.process(changes_queue, Latest, Bid), r"a loop over state.rows cannot call its popleft\(\)"),
        (lambda bids: bids.process(assigns_row, Latest, Bid), "cannot assign to bid in a loop over state.rows"),
        (lambda bids: bids.process(over_number, Latest, Bid), r"a loop goes over range\(...\), a queue or text"),
        (
            lambda bids: bids.process(lacks_field, Latest, Numbered),
            "Bid has no field number; add number=",
        ),
        (lambda bids: bids.process(two_rows, Latest, Bid), r"emit\(\) takes every field by name; write"),
    ],
)
def test_invalid_operators_are_refused_in_one_line(declare, why):
    def read():
        app = App("bids")
        declare(app.source(Bid)).sink()
        app.generates(lambda *arguments: {})
        Interpreter(app, app.bind())

    with pytest.raises(BadInput, match=why) as refused:
        read()
    assert "\n" not in str(refused.value)
